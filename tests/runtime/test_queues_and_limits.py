"""Where commands wait: what steps, runs and parents say of queues, priorities, shares and limits."""

from typing import Any

import pytest

from refold import Context, StartEvent, StopEvent, Workflow, step
from refold.core.commands import Command, rate_limit
from refold.core.facts import RunStarted
from refold.core.graph import prepare
from refold.core.plan import plan_hash
from refold.core.read.why_text import why_text
from refold.errors import InvalidValue, RunFailed
from refold.plan import Call, Child, Loop, Plan, Step
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.ports import Limit
from refold.queries.why import run_reasons
from refold.settings import Settings
from refold.templates.language import Templates
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine

QUICK = Settings(poll=0.05, sweep_every=0.05)


class Seen:
    """A tool that notes the commands it gets."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    async def note(self, call: Any) -> None:
        self.commands.append(call.command)

    def lanes(self) -> list[tuple[str, int, str, str]]:
        return [(each.queue, each.priority, each.share, each.limit) for each in self.commands]


def plan(*steps: Step, **more: Any) -> Plan:
    return Plan(name="lanes", steps=steps, **more)


async def lanes(plan: Plan, children: tuple[Plan, ...] = (), input: Any = None, **options: Any) -> Seen:
    seen = Seen()
    async with open_engine({"note": seen.note}, evaluate=Templates(), settings=QUICK) as engine:
        for child in children:
            await engine.register(child)
        await engine.options(**options).run(plan, **(input or {}))
    return seen


NOTE = Call("note")
LIMITED = Step("a", NOTE, limit="api")


async def test_a_step_that_says_nothing_waits_as_its_run() -> None:
    assert (await lanes(plan(Step("a", NOTE)))).lanes() == [("default", 0, "", "")]
    run: dict[str, Any] = {"queue": "heavy", "priority": 3, "share": "acme", "limit": "api"}
    assert (await lanes(plan(Step("a", NOTE)), **run)).lanes() == [("heavy", 3, "acme", "api")]


async def test_what_a_step_says_counts_more_than_what_its_run_says() -> None:
    own = Step("a", NOTE, queue="q", priority=0, share="s{{ n }}", limit="{{ n * 2 }}")
    seen = await lanes(plan(own), input={"n": 4}, queue="heavy", priority=3, share="acme", limit="api")
    assert seen.lanes() == [("q", 0, "s4", "8")]


async def test_each_item_of_a_loop_has_its_own_share_and_limit() -> None:
    loop = Loop(items="{{ names }}", iterator="name")
    each = Step("a", NOTE, loop=loop, share="{{ name }}", limit="{{ prefix }}-{{ name }}")
    seen = await lanes(plan(each), input={"names": ["x", "y"], "prefix": "p"}, share="acme")
    assert sorted(seen.lanes()) == [("default", 0, "x", "p-x"), ("default", 0, "y", "p-y")]


async def test_a_share_that_is_no_name_fails_its_step() -> None:
    with pytest.raises(RunFailed, match="the share is \\[1\\]: it must be text or a number"):
        await lanes(plan(Step("a", NOTE, share="{{ bad }}")), input={"bad": [1]})


async def test_a_child_inherits_queue_priority_and_share_and_no_limit() -> None:
    child = plan(Step("inner", NOTE))
    above = plan(Step("c", Child(plan=plan_hash(child)), priority=7), Step("d", NOTE))
    seen = await lanes(above, (child,), queue="heavy", priority=3, share="acme", limit="api")
    assert seen.lanes()[0] == ("heavy", 7, "acme", "")


class Inner(Workflow[None]):
    @step
    async def note(self, ctx: Context, ev: StartEvent) -> StopEvent[None]:
        return StopEvent(result=None)


class Outer(Workflow[None]):
    @step(queue="mine", priority=2)
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent[None]:
        await ctx.run_child(Inner)
        await ctx.options(queue="other", share="zed", priority=-1).run_child(Inner)
        return StopEvent(result=None)


async def test_a_python_workflow_says_it_for_its_steps_and_its_children() -> None:
    async with open_engine(settings=QUICK) as engine:
        handle = await engine.options(share="acme").start(Outer)
        await handle.result()
        started = [
            (fact.queueing.queue, fact.queueing.priority, fact.queueing.share)
            for row in engine.store.views.runs().rows
            for _, _, fact in engine.store.views.facts(row.run, limit=1)
            if isinstance(fact, RunStarted)
        ]
    assert sorted(started, key=str) == sorted([("", None, "acme"), ("mine", 2, "acme"), ("other", -1, "zed")], key=str)


@pytest.mark.parametrize(
    "options",
    [
        {"priority": "high"},
        {"queue": "x" * 1025},
        {"share": "a\0b"},
        {"limit": 7},
        {"key": "k" * 1025},
        {"run": "ü" * 600},
    ],
)
async def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    async with open_engine(settings=QUICK) as engine:
        with pytest.raises(InvalidValue):
            engine.options(**options)


async def test_the_rate_of_a_loop_holds_and_wakes_the_worker_in_time() -> None:
    seen = Seen()
    steps = Step("a", NOTE, loop=Loop(items="{{ numbers }}", iterator="n", rate=50.0))
    async with open_engine(
        {"note": seen.note}, evaluate=Templates(), settings=Settings(poll=60, sweep_every=60)
    ) as engine:
        handle = await engine.start(plan(steps), numbers=list(range(6)))
        await handle.result()
        run, facts = handle.id, [fact for _, _, fact in engine.store.views.facts(handle.id)]
        claimed = sorted(report.claimed_at for fact in facts for report in getattr(fact, "reports", ()))
    assert {each.limit for each in seen.commands} == {rate_limit(run, "a", 1)}
    assert len(claimed) == 6
    assert claimed[-1] - claimed[0] >= 5 * 20_000 - 1000


async def test_why_names_the_limit_that_keeps_a_step_back() -> None:
    seen = Seen()
    async with open_engine({"note": seen.note}, evaluate=Templates(), settings=QUICK) as engine:
        store = engine.store
        store.set_limit(Limit(name="api", slots=0))
        handle = await engine.start(plan(LIMITED))
        seen_run = await engine.show(handle.id)
        row = store.views.summary(handle.id)
        assert row is not None and not seen.commands
        (reason,) = run_reasons(store.views, row, prepare(Plan("lanes", (LIMITED,))).graph, seen_run.state, 0)
        assert (reason.kind, reason.note) == ("limit", "api")
        assert why_text(reason, 0) == "is kept back by the limit: api"
        store.set_limit(Limit(name="api", slots=1))
        await handle.result()
    assert len(seen.commands) == 1


async def test_why_names_the_limit_of_each_item() -> None:
    loop = Loop(items="{{ names }}", iterator="name", max_in_flight=9)
    each = Step("a", NOTE, loop=loop, limit="{{ prefix }}-{{ name }}")
    seen, names = Seen(), ["a", "b"]
    async with open_engine({"note": seen.note}, evaluate=Templates(), settings=QUICK) as engine:
        store = engine.store
        for name in ("p-a", "p-b"):
            store.set_limit(Limit(name=name, slots=0))
        handle = await engine.start(plan(each), names=names, prefix="p")
        seen_run = await engine.show(handle.id)
        row = store.views.summary(handle.id)
        assert row is not None
        graph = prepare(Plan("lanes", (each,))).graph
        found = run_reasons(store.views, row, graph, seen_run.state, 0, lambda name: Templates())
        kept_back = [(reason.item, reason.note) for reason in found if reason.kind == "limit"]
        assert kept_back == [(0, "p-a"), (1, "p-b")]
        found = run_reasons(store.views, row, graph, seen_run.state, 0)
        assert "limit" not in [reason.kind for reason in found], "no language is known"


def test_the_reader_knows_the_keys_and_refuses_what_contradicts() -> None:
    head = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: a}\nworkflow:\n- step: a\n"
    text = head + "  loop: {in: [1], rate: 90/m, max_in_flight: 2}\n  share: '{{ item }}'\n  tool: {kind: noop}\n"
    found = read(text, "a.yaml", CATALOG).plan.steps[0]
    assert found.loop is not None and (found.loop.rate, found.share, found.priority) == (1.5, "{{ item }}", None)
    for wrong in ("  limit: x\n  loop: {in: [1], rate: 2/s}\n", "  loop: {in: [1], rate: 2}\n", "  share: ''\n"):
        with pytest.raises(InvalidPlaybook):
            read(head + wrong + "  tool: {kind: noop}\n", "a.yaml", CATALOG)
