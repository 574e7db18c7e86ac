"""JamJet's scheduler tests, and what its contract says of dispatch: who runs, in which order, at what cost."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import refold
from refold import Retry, RunFailed
from refold.core.facts import RunEnded, RunStarted, Skipped, StepIssued, StepSettled
from refold.core.outcomes import Awaited, Parked, SetKey, Succeeded, Suspended
from refold.errors import Corrupt, NotFound
from refold.plan import Arc, Call, Child, Gate, Loop, Plan, Wait
from refold.ports import Done, ToolCall
from refold.stores.memory import StoredFact
from tests.compat.stage import NOON, Stage, chain, names, plan, step, work


async def test_steps_are_issued_in_dependency_order_and_the_run_completes_with_merged_writes() -> None:
    go_on = asyncio.Event()

    async def write(call: ToolCall) -> Done:
        if call.command.step == "a":
            await go_on.wait()
        return Done(Succeeded(), writes=tuple(SetKey(key, value) for key, value in call.settings.items()))

    linear = plan(
        step("a", "b", work=Call(tool="write", settings={"x": 1})),
        step("b", work=Call(tool="write", settings={"y": 2})),
    )
    async with refold.open_engine({"write": write}) as engine:
        run = (await engine.start(linear, {"z": 0})).id
        await asyncio.sleep(0.01)
        issued = [fact.step for _, _, fact in await engine.history(run) if isinstance(fact, StepIssued)]
        assert issued == ["a"], "b waits for a"
        assert (await engine.show(run)).status == "running"
        assert run in engine.mailroom.turns.known
        go_on.set()
        shown = await engine.wait(run)
        assert (await engine.show(run)).status == "completed"
        facts = [fact for _, _, fact in await engine.history(run)]
        cached = run in engine.mailroom.turns.known
    assert [type(fact) for fact in facts] == [RunStarted, StepIssued, StepSettled, StepIssued, StepSettled, RunEnded]
    assert shown.status == "completed"
    assert {**shown.state.input, **shown.state.ctx} == {"z": 0, "x": 1, "y": 2}
    assert not cached, "what has ended is not kept in memory"


async def test_a_terminal_failure_fails_the_run_and_names_the_step() -> None:
    async def boom(call: ToolCall) -> None:
        raise ValueError("boom")

    async with refold.open_engine({"boom": boom}) as engine:
        run = (await engine.start(plan(step("a", "b", work=Call(tool="boom")), step("b")))).id
        with pytest.raises(RunFailed) as failed:
            await engine.result(run)
        facts = [fact for _, _, fact in await engine.history(run)]
        [row] = await engine.runs("failed")
    assert failed.value.error.step == "a"
    assert (failed.value.error.fault.type, failed.value.error.fault.message) == ("ValueError", "boom")
    assert [fact.step for fact in facts if isinstance(fact, StepIssued)] == ["a"], "b never ran"
    assert [fact.status for fact in facts if isinstance(fact, RunEnded)] == ["failed"]
    assert (row.run, row.error) == (run, failed.value.error)


def test_all_steps_that_failed_terminally_are_named(stage: Stage) -> None:
    fault = {"kind": "boom"}
    both = plan(
        step("fork", "b", "a", mode="inclusive"),
        step("b", work=work(takes=1, faults=[fault])),
        step("a", work=work(takes=2, faults=[fault])),
    )
    shown = stage.run(both)
    [ended] = stage.facts(shown.id, RunEnded)
    assert ended.error is not None
    assert [ended.error.step, *(each.step for each in ended.also_failed)] == ["b", "a"]


def test_150_running_runs_are_all_served(stage: Stage) -> None:
    stage.house(slots=16)
    runs = [stage.start(chain(3, work=work(takes=1))) for _ in range(150)]
    assert {stage.end(run).status for run in runs} == {"completed"}
    assert len(stage.began) == 450
    first_steps = [each.run for each in stage.began[:150]]
    assert sorted(first_steps) == sorted(runs), "every run has its turn before any has a second one"


def test_100_waiting_runs_do_not_delay_a_new_one(stage: Stage) -> None:
    waiting = [stage.start(plan(step("ask", "after", work=Gate()), step("after"))) for _ in range(100)]
    stage.settle_down()
    assert {stage.status(run) for run in waiting} == {"waiting"}
    before = stage.loop.time()
    assert stage.run(chain(5)).status == "completed"
    assert stage.loop.time() == before


def test_a_run_whose_log_is_broken_is_named_and_does_not_disturb_other_runs(stage: Stage) -> None:
    broken = stage.start(chain(3, work=work(takes=1)))
    others = [stage.start(chain(3, work=work(takes=1))) for _ in range(20)]
    stage.settle_down()
    stage.first.kill()
    stage.store.logs[broken][1] = StoredFact(0, b'{"type":"step_settled"}', None)
    assert {stage.end(run).status for run in others} == {"completed"}
    with pytest.raises(Corrupt, match="step_settled"):
        stage.show(broken)
    stage.pass_time(300)
    assert stage.run(chain(2)).status == "completed", "leases of the broken run run out, and the sweep goes on"


def test_a_run_whose_workflow_is_missing_is_named_and_does_not_disturb_other_runs(stage: Stage) -> None:
    lost = stage.start(chain(2, work=work(takes=1)))
    others = [stage.start(chain(3, work=work(takes=2))) for _ in range(20)]
    stage.settle_down()
    stage.first.kill()
    missing = stage.store.rows[lost].plan
    del stage.store.plans[missing]
    assert {stage.end(run).status for run in others} == {"completed"}
    with pytest.raises(NotFound, match=missing):
        stage.show(lost)
    stage.pass_time(300)
    assert stage.run(chain(2)).status == "completed"


def test_a_large_run_does_not_delay_a_small_one(stage: Stage) -> None:
    stage.house(slots=4)
    large = stage.start(plan(step("each", loop=Loop(items=list(range(400)), max_in_flight=400), work=work(takes=1))))
    stage.settle_down()
    small = stage.start(chain(3, work=work(takes=1)))
    stage.end(small)
    assert stage.loop.time() <= 5, "one slot in turn for each run, not the whole backlog first"
    assert stage.end(large).status == "completed"


def test_a_chain_of_200_steps_takes_no_poll_and_one_commit_per_step(stage: Stage) -> None:
    shown = stage.run(chain(200))
    assert shown.status == "completed"
    assert stage.loop.time() == 0.0, "nobody slept on the way"
    log = stage.store.logs[shown.id]
    facts = stage.history(shown.id)
    assert sum(entry.turn is not None for entry in log) == 201
    for number, fact in enumerate(facts):
        if isinstance(fact, StepIssued) and fact.step != "s0":
            assert isinstance(facts[number - 1], StepSettled)
            assert log[number].turn is None, "issued in the commit of the completion before it"


def opcodes_of_a_completion(stage: Stage, shape: Plan, done: int) -> int:
    """Python instructions that the settling of one command costs, after so many others."""
    stage.house(serves=False)
    stage.start(shape)
    for _ in range(done):
        lease = stage.claim()
        assert lease is not None
        stage.settle(lease, Done(Succeeded()))
    last = stage.claim()
    assert last is not None
    with counted_opcodes() as total:
        stage.settle(last, Done(Succeeded()))
    return total[0]


@contextmanager
def counted_opcodes() -> Iterator[list[int]]:
    total = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        total[0] += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield total
    finally:
        sys.settrace(before)


def fork(width: int, tail: int) -> Plan:
    """A step that leads to so many others, and a long chain behind the last of them."""
    forked = [f"b{i}" for i in range(width)]
    follows = [step(f"t{i}", *([f"t{i + 1}"] if i + 1 < tail else [])) for i in range(tail)]
    return plan(
        step("fork", *forked, mode="inclusive"), *(step(name, *(["t0"] if tail else [])) for name in forked), *follows
    )


def test_a_completion_costs_by_out_degree_not_by_graph_size() -> None:
    costs = []
    for shape, done in ((chain(100), 50), (chain(3000), 50), (fork(50, 0), 0), (fork(50, 2000), 0), (fork(200, 0), 0)):
        stage = Stage()
        costs.append(opcodes_of_a_completion(stage, shape, done))
        stage.close()
    small, large, narrow, narrow_of_large, wide = costs
    assert large < 1.02 * small
    assert narrow_of_large < 1.02 * narrow
    assert 3 * narrow < wide < 4.4 * narrow, "linear in the arcs taken"


@pytest.mark.parametrize("seed", range(3))
def test_ready_steps_start_in_declared_order_under_a_cap(seed: int) -> None:
    stage = Stage(seed)
    stage.house(slots=8)
    ready = [f"{(7 * i) % 20}-b" for i in range(20)]  # not sorted by any other rule
    arcs = sorted(ready)  # the order of steps decides, not that of the arcs that led to them
    shape = plan(step("fork", *arcs, mode="inclusive"), *(step(name, work=work(takes=1)) for name in ready))
    shown = stage.run(shape)
    assert [fact.step for fact in stage.facts(shown.id, StepIssued)] == ["fork", *ready]
    assert names(stage.calls()) == ["fork", *ready]
    assert [each.at for each in stage.began[1:]] == [0.0] * 8 + [1.0] * 8 + [2.0] * 4
    stage.close()


def test_only_the_entry_starts(stage: Stage) -> None:
    shape = plan(step("stray", "after"), step("a", "b"), step("b"), step("after"), entry="a")
    shown = stage.run(shape)
    assert shown.status == "completed"
    assert names(stage.calls()) == ["a", "b"]
    assert {name: shown.steps[name]["status"] for name in ("stray", "after")} == {
        "stray": "skipped",
        "after": "skipped",
    }


def test_the_start_step_gets_a_full_payload(stage: Stage) -> None:
    shape = plan(
        step(
            "a", work=work(gives=7, mark=1), input={"q": {"path": ["input", "question"]}}, timeout=9.0, queue="default"
        ),
        defaults={"lang": "en"},
    )
    shown = stage.run(shape, {"question": "why?"})
    [began] = stage.began
    assert began.call.input == {"q": "why?"}
    assert began.call.settings == {"gives": 7, "mark": 1}
    assert began.call.idempotency_key == f"{shown.id}/a/1"
    assert (began.call.command.tool, began.call.command.timeout, began.attempt) == ("work", 9.0, 1)
    assert shown.state.input == {"question": "why?", "lang": "en"}
    assert shown.result == 7


def test_every_kind_of_step_works_as_start_step(stage: Stage) -> None:
    child = stage.register(chain(1))
    kinds: list[dict[str, Any]] = [
        {"work": Wait(seconds=3)},
        {"work": Child(plan=child)},
        {"loop": Loop(items=[1, 2])},
        {"when": False},
    ]
    for kind in kinds:
        assert stage.run(plan(step("a", "b", **kind), step("b"))).status == "completed"
    asked = stage.start(plan(step("a", "b", work=Gate()), step("b")))
    stage.do(stage.engine.decide(asked, "a", "approve"))
    assert stage.end(asked).status == "completed"


@pytest.mark.parametrize("seed", range(5))
def test_two_processes_on_one_store_dispatch_each_step_once(seed: int) -> None:
    stage = Stage(seed)
    one, two = stage.house(slots=2), stage.house(slots=2)
    diamond = plan(
        step("a", "b", "c", mode="inclusive"),
        step("b", "d", work=work(takes=1)),
        step("c", "d", work=work(takes=1)),
        step("d"),
    )
    runs = [stage.do(house.engine.start(diamond), house).id for house in (one, two) for _ in range(8)]
    for run in runs:
        assert stage.end(run).status == "completed"
        assert sorted(fact.step for fact in stage.facts(run, StepIssued)) == ["a", "b", "c", "d"]
    assert sorted(f"{each.run}/{each.command}" for each in stage.began) == sorted(
        f"{run}/{name}/1" for run in runs for name in "abcd"
    )
    assert {each.process for each in stage.began} == {"house0", "house1"}
    stage.close()


def test_a_completion_committed_elsewhere_is_folded_before_a_skip_is_written(stage: Stage) -> None:
    one, two = stage.house(serves=False), stage.house(serves=False)
    shape = plan(
        step("fork", "left", "right", mode="inclusive"),
        step("left", Arc(to="dead", when=False), Arc(to="join")),
        step("right", "join"),
        step("dead", "join"),
        step("join"),
    )
    run = stage.start(shape)

    def settle(name: str, by: Any) -> None:
        lease = stage.do(by.desk.claim(refold.ports.Abilities("me"), 30.0), by)
        assert lease is not None and lease.command.step == name
        stage.do(by.desk.settle(lease, Done(Succeeded(name))), by)

    settle("fork", one)
    left = stage.claim()
    right = stage.claim()
    assert left is not None and right is not None
    stage.do(two.engine.show(run), two)  # the second process has folded the run up to here
    stage.do(one.desk.settle(right, Done(Succeeded())), one)  # committed where the second cannot see it
    stage.do(two.desk.settle(left, Done(Succeeded())), two)  # and now it skips `dead` and enters `join`
    settle("join", one)
    assert stage.end(run).status == "completed"
    assert [move.steps for move in stage.moves(run, Skipped)] == [("dead",)]
    assert [fact.step for fact in stage.facts(run, StepSettled)] == ["fork", "right", "left", "join"]


def test_waiting_work_holds_no_slot(stage: Stage) -> None:
    async def park(call: ToolCall) -> Any:
        return "back" if call.command.progress else Parked(until=NOON + 900_000_000, progress=1)

    async def suspend(call: ToolCall) -> Any:
        return "back" if call.command.recorded else Suspended((Awaited("nap", until=NOON + 900_000_000),))

    stage.tools |= {"park": park, "suspend": suspend}
    stage.house(slots=1)
    child = stage.register(plan(step("ask", work=Gate(timeout=900.0, on_timeout="continue")), name="child"))
    held: dict[str, dict[str, Any]] = {
        "parked": {"work": Call(tool="park")},
        "suspended": {"work": Call(tool="suspend")},
        "backing_off": {"work": work(faults=[{"kind": "io"}]), "retry": Retry(attempts=2, delay=900.0)},
        "gate": {"work": Gate(timeout=900.0, on_timeout="continue")},
        "wait": {"work": Wait(seconds=900)},
        "child": {"work": Child(plan=child)},
    }
    all_names = [f"{name}{i}" for name in held for i in range(3)]
    steps = [step(f"{name}{i}", **how) for name, how in held.items() for i in range(3)]
    run = stage.start(plan(step("fork", *all_names, "last", mode="inclusive"), *steps, step("last")))
    assert stage.until(lambda: "last/1" in stage.calls(), within=1)
    stage.settle_down()
    assert stage.loop.time() < 0.1
    assert len(stage.do(stage.engine.show(run)).waits) == 18
    assert stage.status(run) == "waiting"
    assert stage.end(run).status == "completed"
    assert 900 <= stage.loop.time() < 903
