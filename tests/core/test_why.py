"""Each step that does not go on has a reason, as data."""

import pytest

from refold.core.commands import child_id
from refold.core.facts import Fact, RunPaused
from refold.core.outcomes import SECOND, Awaited, Parked, Suspended
from refold.core.plan import Arc, Call, Child, EventType, Gate, Loop, Retry, Wait, Work, plan_hash
from refold.core.read.why import Holder, Reason, WorkerView, no_code, reasons
from refold.testing.core import NOON, failed, reported, succeeded
from tests.core.acts import Given, chain, plan, start, step


def one(work: Work, *facts: Fact, retry: Retry | None = None, loop: Loop | None = None) -> Given:
    run = start(plan(step("a", work=work, retry=retry or Retry(), loop=loop)))
    for fact in facts:
        run.when(fact)
    return run


def why(run: Given, world: WorkerView | None = None, after: int = 0) -> list[Reason]:
    return reasons(run.graph, run.state, run.state.at + after, world)


def reason(kind: str, **more: object) -> Reason:
    return Reason(**{"step": "a", "visit": 1, "attempt": 1, **more, "kind": kind})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (one(Wait(seconds=60)), reason("timer", until=NOON + 60 * SECOND)),
        (one(Wait(signal="go")), reason("signal", signal="go")),
        (one(Wait(signal="go", seconds=1)), reason("signal", signal="go", until=NOON + SECOND)),
        (one(Gate(prompt="ship it?", timeout=9)), reason("gate", note="ship it?", until=NOON + 9 * SECOND)),
        (one(Child(plan="kid")), reason("child", run=child_id("run", "a/1"), name="run.a")),
        (one(Call(), reported("a", Parked(signal="go", reason="busy"))), reason("parked", signal="go", note="busy")),
        (one(Call(), reported("a", Parked(until=NOON + 9))), reason("parked", until=NOON + 9)),
        (
            one(Call(), failed("a"), retry=Retry(attempts=2, delay=5.0)),
            reason("backoff", attempt=2, until=NOON + 5 * SECOND),
        ),
        (one(Call(), RunPaused("ann")), reason("paused", by="ann", since=NOON)),
    ],
)
def test_a_command_that_waits_says_for_what(run: Given, expected: Reason) -> None:
    assert why(run) == [expected]


def test_a_body_that_waits_inside_names_each_of_its_calls() -> None:
    calls = (Awaited("z", until=NOON), Awaited("b", signal="go"), Awaited("k", child="kid"))
    assert why(one(Call(), reported("a", Suspended(calls)))) == [
        reason("signal", signal="go", note="b"),
        reason("child", run=child_id("run", "a/1#k"), name="run.a.k", note="k"),
        reason("timer", until=NOON, note="z"),
    ]


def test_a_command_that_somebody_holds_is_running_until_the_lease_ends() -> None:
    world = WorkerView({"a/1": Holder("w1", NOON + 30)}, workers=("w1",))
    assert why(one(Call()), world) == [reason("running", worker="w1", until=NOON + 30)]


def test_a_command_that_nobody_holds_waits_for_the_slot_that_may_be_free_first() -> None:
    loop = Loop(items=[1, 2], max_in_flight=2)
    own = WorkerView({"a/1/0": Holder("w1", NOON + 30)}, workers=("w1",))
    assert why(one(Call(), loop=loop), own) == [
        reason("running", item=0, worker="w1", until=NOON + 30),
        reason("slot", item=1, worker="w1", until=NOON + 30),
    ]
    others = WorkerView(elsewhere=(Holder("w1", NOON + 30), Holder("w2", NOON + 20)), workers=("w1", "w2"))
    assert why(one(Call()), others) == [reason("slot", worker="w2", until=NOON + 20)]
    assert why(one(Call()), WorkerView(workers=("w1",))) == [reason("slot")]


def test_where_no_worker_lives_nobody_takes_a_command() -> None:
    assert why(one(Call()), WorkerView(workers=())) == [reason("no_worker")]
    assert why(one(Call())) == [reason("slot")], "unknown is not none"


def test_a_try_whose_time_has_come_waits_for_a_slot() -> None:
    run = one(Call(), failed("a"), retry=Retry(attempts=2, delay=5.0))
    assert [each.kind for each in why(run, after=5 * SECOND)] == ["slot"]


def test_what_is_at_work_goes_on_while_the_run_is_paused() -> None:
    run = one(Call(), RunPaused("ann"))
    assert [each.kind for each in why(run, WorkerView({"a/1": Holder("w1", NOON)}))] == ["running"]


def test_items_beyond_the_window_are_counted() -> None:
    run = one(Call(), loop=Loop(items=[1, 2, 3, 4, 5], max_in_flight=2))
    assert [(each.kind, each.item, each.count) for each in why(run)] == [
        ("slot", 0, 0),
        ("slot", 1, 0),
        ("window", None, 3),
    ]


def test_a_step_that_was_not_entered_names_the_sources_it_waits_for() -> None:
    run = start(plan(step("s", "a", "b", mode="inclusive"), step("a", "j"), step("b", "j"), step("j")))
    run.when(succeeded("s"))
    run.when(succeeded("a"))
    assert [each for each in why(run) if each.kind == "join"] == [Reason("j", "join", sources=("b",))]


def test_a_step_after_a_loop_waits_for_the_loop() -> None:
    again = Arc(to="head", when={"script": [True, False]})
    run = start(plan(step("head", "tail"), step("tail", again, Arc(to="out", when=True)), step("out")))
    run.when(succeeded("head"))
    assert why(run)[-1] == Reason("out", "loop", sources=("head",))


def test_a_finalizer_waits_for_the_end() -> None:
    run = start(plan(step("a"), step("tidy"), always=("tidy",)))
    assert why(run)[-1] == Reason("tidy", "final")


def test_steps_that_an_ending_run_will_not_enter_have_no_reason() -> None:
    run = start(plan(step("a", "b"), step("b"), step("tidy"), always=("tidy",)))
    run.when(failed("a"))
    assert [(each.step, each.kind) for each in why(run)] == [("tidy", "slot")]


def test_a_run_that_is_over_waits_for_nothing() -> None:
    run = start(chain("a"))
    run.when(succeeded("a"))
    assert why(run) == []


BODIES = plan(
    step("a", work=Call(tool="workflow"), accepts=("StartEvent",)),
    events=(EventType(name="StartEvent"), EventType(name="StopEvent")),
)
HASH = plan_hash(BODIES)


def test_code_that_no_live_worker_has_is_told_with_what_they_have() -> None:
    tools = {"old": frozenset({"http"}), "new": frozenset({"workflow:0123456789abcdef"})}
    world = WorkerView(workers=("old", "new"), tools=tools, plans={"0123456789abcdef": "plan", "77": "other"})
    [found] = why(start(BODIES), world)
    assert (found.kind, found.sources, found.note) == ("no_code", ("0123456789ab",), f"plan {HASH[:12]}")
    assert no_code(found) == (
        f"no live worker has the code of plan {HASH[:12]} (plan); workers have 0123456789ab: "
        "migrate with `refold runs migrate run --to 0123456789ab`"
    )
    alone = WorkerView(workers=("old",), tools=tools)
    assert no_code(why(start(BODIES), alone)[0]).endswith("(plan); start one that has it")


def test_a_busy_worker_that_has_the_code_is_waited_for_and_others_are_not() -> None:
    busy = (Holder("new", NOON + 10), Holder("able", NOON + 20))
    tools = {"new": frozenset({"workflow:other"}), "able": frozenset({f"workflow:{HASH}"})}
    [found] = why(start(BODIES), WorkerView(elsewhere=busy, workers=("new", "able"), tools=tools))
    assert (found.kind, found.worker, found.until) == ("slot", "able", NOON + 20)
    [unknown] = why(start(BODIES), WorkerView(elsewhere=busy, workers=("new",)))
    assert (unknown.kind, unknown.worker) == ("slot", "new"), "one that has not said what it has may have it"


def test_a_tool_that_no_live_worker_has_is_named() -> None:
    world = WorkerView(workers=("w",), tools={"w": frozenset({"http"})})
    assert why(one(Call(tool="lathe")), world) == [reason("no_tool", note="lathe")]
