"""JamJet's contract about state: one merge rule, no lost write, linear storage, honest status, exact sums."""

import asyncio
import copy
from typing import Any

import pytest

from refold import Retry
from refold.core import codec
from refold.core.facts import ItemsSettled, RunStarted, StepIssued, StepSettled
from refold.core.fold.apply import fold
from refold.core.outcomes import SECOND, AddTo, AppendTo, DeleteKey, Failed, Fault, Parked, PutIf, SetKey, Succeeded
from refold.core.state import RunState
from refold.errors import Conflict, StaleWrite
from refold.plan import Arc, Call, Child, Gate, Loop, Plan, Wait
from refold.ports import Done, Lease, ToolCall
from tests.compat.stage import NOON, Stage, chain, plan, step, work

NESTED = {"deep": {"list": [1, None, {"x": None}], "null": None}, "text": "ü", "float": 0.1}


def busy(child: str) -> Plan:
    """Everything that leaves traces in a state."""
    return plan(
        step("set", "each", "kept", mode="inclusive", work=work(set={"a": NESTED, "b": 1}, usage={"tokens": 3})),
        step("kept", "join", work=work(set={"b": None}, add={"n": 0.5}, append={"log": NESTED})),
        step(
            "each", "join", loop=Loop(items=[3, 1, 2], max_in_flight=2), work=work(append={"log": "item"}, add={"n": 1})
        ),
        step("join", Arc(to="never", when=False), Arc(to="flaky", set={"chosen": {"path": ["ctx", "a"]}})),
        step("never", "flaky"),
        step("flaky", "again", work=work(faults=[{"kind": "io"}], gives=NESTED), retry=Retry(attempts=2, delay=1.0)),
        step("again", Arc(to="again", when={"script": [True, False]}), "nap", work=work(add={"rounds": 1})),
        step("nap", "child", work=Wait(seconds=2, signal="wake")),
        step("child", "gate", work=Child(plan=child)),
        step("gate", "last", work=Gate()),
        step("last", input={"path": ["ctx"]}),
        step("clean"),
        always=("clean",),
    )


def played(stage: Stage) -> str:
    child = stage.register(plan(step("inside", work=work(gives=NESTED, usage={"tokens": 4}))))
    run = stage.start(busy(child), {"who": NESTED})
    while "gate/1" not in stage.show(run).waits:
        stage.pass_time(0.5)
    stage.do(stage.engine.pause(run))
    stage.do(stage.engine.resume(run))
    stage.do(stage.engine.decide(run, "gate", "approve", feedback=NESTED))
    assert stage.end(run).status == "completed"
    return run


def test_engine_log_and_snapshot_give_the_same_state_at_every_cut(stage: Stage) -> None:
    run = played(stage)
    house = stage.first
    records = list(stage.do(stage.engine.history(run)))
    graph = house.engine.mailroom.turns.graph(stage.store.rows[run].plan)
    whole = fold(graph, records, RunState(run))
    shown = stage.show(run)
    assert shown.state == whole
    assert whole.ctx["a"] == NESTED and whole.ctx["b"] is None and whole.ctx["chosen"] == NESTED
    assert whole.ctx["log"].count("item") == 3 and whole.ctx["n"] == 3.5 and whole.ctx["rounds"] == 2
    for cut in range(len(records) + 1):
        head = fold(graph, records[:cut], RunState(run))
        restored = codec.decode_snapshot(codec.encode_snapshot(head))
        assert restored == head
        assert restored is not None and fold(graph, records[cut:], restored) == whole


def test_what_a_turn_decided_is_what_its_log_says_after_every_commit(stage: Stage) -> None:
    seen = []

    def compare(_: Any) -> None:
        for house in stage.houses:
            for run, known in house.engine.mailroom.turns.known.items():
                if run in stage.store.logs and known.state.seq == len(stage.store.logs[run]) not in seen:
                    seen.append(known.state.seq)
                    assert fold(known.graph, stage.store.facts(run), RunState(run)) == known.state

    stage.loop.after_step = compare
    played(stage)
    assert len(seen) > 12


def test_a_restarted_engine_continues_from_a_snapshot_and_the_facts_after_it(stage: Stage) -> None:
    house = stage.house()
    house.engine.mailroom.turns.snapshot_every = 5
    run = stage.start(chain(30, work=work(takes=1, append={"log": 1})))
    stage.pass_time(20.5)
    house.kill()
    snapshot = codec.decode_snapshot(stage.store.snapshots[run])
    assert snapshot is not None and 5 <= snapshot.seq < len(stage.store.logs[run])
    shown = stage.end(run)
    assert shown.state.ctx == {"log": [1] * 30}
    del stage.store.snapshots[run]
    stage.first.kill()
    assert stage.show(run) == shown, "deleting the snapshot changes nothing"


def test_state_and_status_are_current_at_any_time(stage: Stage) -> None:
    run = stage.start(chain(3, work=work(takes=10, add={"n": 1}, set={"who": "me"})), {"given": 1})
    seen = []
    for _ in range(3):
        stage.pass_time(10.1)
        shown = stage.show(run)
        seen.append((shown.status, dict(shown.state.ctx), [each["status"] for each in shown.steps.values()]))
    assert seen == [
        ("running", {"n": 1, "who": "me"}, ["completed", "issued", "pending"]),
        ("running", {"n": 2, "who": "me"}, ["completed", "completed", "issued"]),
        ("completed", {"n": 3, "who": "me"}, ["completed"] * 3),
    ]
    assert stage.show(run).state.input == {"given": 1}, "what it began with is part of what it ends with"


def settle_all(stage: Stage, leases: list[Lease], dones: list[Done]) -> list[Any]:
    """All reports arrive at the same moment."""

    async def settle() -> list[Any]:
        reports = (stage.first.desk.settle(lease, done) for lease, done in zip(leases, dones, strict=True))
        return await asyncio.gather(*reports, return_exceptions=True)

    return stage.do(settle())


def forked(stage: Stage, width: int, **more: Any) -> tuple[str, list[Lease]]:
    """A run with so many commands open, each held by hand."""
    stage.house(serves=False)
    branches = [f"b{i}" for i in range(width)]
    run = stage.start(plan(step("fork", *branches, mode="inclusive"), *(step(name, **more) for name in branches)))
    first = stage.claim()
    assert first is not None
    stage.settle(first, Done(Succeeded()))
    leases = [stage.claim() for _ in branches]
    return run, [lease for lease in leases if lease is not None]


def test_concurrent_writes_by_add_and_append_lose_nothing(stage: Stage) -> None:
    run, leases = forked(stage, 50)
    writes = [(AddTo("n", i), AppendTo("seen", i)) for i in range(50)]
    settle_all(stage, leases, [Done(Succeeded(), writes=each) for each in writes])
    ctx = stage.show(run).state.ctx
    assert ctx["n"] == sum(range(50))
    assert sorted(ctx["seen"]) == list(range(50))


def test_a_stale_put_is_reported_and_changes_nothing(stage: Stage) -> None:
    run, leases = forked(stage, 3)
    first, second, third = leases
    results = settle_all(
        stage,
        [first, second],
        [Done(Succeeded(), writes=(PutIf("k", 0, "first"),)), Done(Succeeded(), writes=(PutIf("k", 0, "second"),))],
    )
    assert results[0] is None
    assert isinstance(results[1], StaleWrite)
    assert (results[1].key, results[1].current, results[1].version) == ("k", "first", 1)
    stage.settle(second, Done(Succeeded(), writes=(PutIf("k", 1, "second"),)))  # applied again to the newest value
    with pytest.raises(StaleWrite):
        stage.settle(third, Done(Succeeded(), writes=(AddTo("n", 1), PutIf("k", 1, "third"))))
    shown = stage.show(run)
    assert shown.state.ctx == {"k": "second"}, "no part of a refused report is applied"
    assert shown.steps["b2"]["status"] == "issued"


def test_a_worker_turns_a_stale_put_into_a_failure_that_can_be_tried_again(stage: Stage) -> None:
    async def update(call: ToolCall) -> Done:
        version = call.command.attempt - 1 if call.command.step == "b1" else 0
        await asyncio.sleep(1 if call.command.step == "b1" else 0)
        return Done(Succeeded(), writes=(PutIf("k", version, call.command.step),))

    stage.tools["update"] = update
    shape = plan(
        step("fork", "b0", "b1", mode="inclusive"),
        step("b0", work=Call(tool="update")),
        step("b1", work=Call(tool="update"), retry=Retry(attempts=2, on=("stale_write",))),
    )
    shown = stage.run(shape)
    assert (shown.status, shown.state.ctx) == ("completed", {"k": "b1"})
    kinds = [each.report.outcome for each in stage.facts(shown.id, StepSettled) if each.step == "b1"]
    assert isinstance(kinds[0], Failed) and kinds[0].fault.kind == "stale_write"


def test_a_failed_try_leaves_no_write(stage: Stage) -> None:
    async def writes_and_fails(call: ToolCall) -> Any:
        writes = (SetKey("k", call.command.attempt), AddTo("n", 1))
        outcome = Succeeded() if call.command.attempt == 3 else Failed(Fault("io"))
        return Done(outcome, writes=writes)

    stage.tools["w"] = writes_and_fails
    shown = stage.run(plan(step("a", work=Call(tool="w"), retry=Retry(attempts=3))))
    assert shown.state.ctx == {"k": 3, "n": 1}


def test_items_of_a_parallel_loop_write_in_item_order_when_it_ends(stage: Stage) -> None:
    async def slow_first(call: ToolCall) -> Done:
        await asyncio.sleep(10 - call.input)
        return Done(Succeeded(), writes=(AppendTo("seen", call.input), SetKey("last", call.input)))

    stage.tools["slow_first"] = slow_first
    run = stage.start(plan(step("each", loop=Loop(items=[0, 1, 2, 3]), work=Call(tool="slow_first"))))
    stage.pass_time(9.5)
    assert stage.show(run).state.ctx == {}, "nothing before the loop is over"
    assert stage.end(run).state.ctx == {"seen": [0, 1, 2, 3], "last": 3}
    assert [report.item for fact in stage.facts(run, ItemsSettled) for report in fact.reports] == [3, 2, 1, 0]


def test_a_version_cannot_be_promised_to_an_item_of_a_parallel_loop(stage: Stage) -> None:
    stage.house(serves=False)
    stage.start(plan(step("each", loop=Loop(items=[0, 1]))))
    lease = stage.claim()
    assert lease is not None
    with pytest.raises(Conflict, match="when its loop ends"):
        stage.settle(lease, Done(Succeeded(), writes=(PutIf("k", 0, 1),)))


def test_delete_removes_a_key_and_counts_as_a_version(stage: Stage) -> None:
    run, [first, second] = forked(stage, 2)
    stage.settle(first, Done(Succeeded(), writes=(SetKey("k", 1), DeleteKey("k"))))
    assert stage.show(run).state.ctx == {}
    with pytest.raises(StaleWrite) as stale:
        stage.settle(second, Done(Succeeded(), writes=(PutIf("k", 1, 2),)))
    assert (stale.value.current, stale.value.version) == (None, 2)


def test_storage_is_linear_in_steps() -> None:
    sizes = []
    for length in (250, 500, 1000):
        stage = Stage()
        stage.house().engine.mailroom.turns.snapshot_every = 50
        run = stage.run(chain(length, work=work(append={"log": "x" * 50}))).id
        log = sum(len(entry.data) for entry in stage.store.logs[run])
        sizes.append(log + sum(map(len, stage.store.snapshots.values())) + sum(map(len, stage.store.blobs.values())))
        assert not stage.store.commands and len(stage.store.snapshots) == 1
        stage.close()
    assert sizes[1] < 2.2 * sizes[0] and sizes[2] < 2.2 * sizes[1]


def test_a_run_is_waiting_when_only_waits_remain_and_running_again_on_wake_up(stage: Stage) -> None:
    shape = plan(
        step("fork", "quick", "nap", mode="inclusive"),
        step("quick", work=work(takes=5)),
        step("nap", "after", work=Wait(seconds=20)),
        step("after", "ask", work=work(takes=5)),
        step("ask", "last", work=Gate()),
        step("last", work=work(takes=5)),
    )
    run = stage.start(shape)
    seen = []
    for moment in range(0, 60, 3):
        stage.pass_time(3)
        assert stage.show(run).status == stage.status(run)
        seen.append(stage.status(run))
        if moment == 39:
            stage.do(stage.engine.decide(run, "ask", "approve"))
    order = [status for i, status in enumerate(seen) if i == 0 or seen[i - 1] != status]
    assert order == ["running", "waiting", "running", "waiting", "running", "completed"]
    assert [row.run for row in stage.do(stage.engine.runs("completed"))] == [run]
    assert stage.do(stage.engine.runs("waiting")) == []


@pytest.mark.parametrize("how", ["backoff", "parked"])
def test_a_command_that_comes_back_later_is_shown_as_waiting_until_its_time(stage: Stage, how: str) -> None:
    async def park(call: ToolCall) -> Any:
        if call.command.progress is None:
            return Parked(until=NOON + 50 * SECOND, progress=1)
        await asyncio.sleep(20)
        return None

    stage.tools["park"] = park
    kinds: dict[str, dict[str, Any]] = {
        "backoff": {"work": work(takes=20, faults=[{"kind": "io"}]), "retry": Retry(attempts=2, delay=30.0)},
        "parked": {"work": Call(tool="park")},
    }
    run = stage.start(plan(step("a", **kinds[how])))
    stage.pass_time(30)
    assert stage.show(run).status == "waiting"
    stage.pass_time(30)
    assert len(stage.began) == 2
    assert stage.show(run).status == "running"
    assert stage.end(run).status == "completed"


@pytest.mark.parametrize("seed", range(3))
def test_100_parallel_starts_with_one_key_are_one_run(seed: int) -> None:
    stage = Stage(seed)
    houses = [stage.house() for _ in range(4)]
    shape = plan(step("a"))
    asked = [
        stage.ask(house.engine.options(key="order-7").start(shape, {"n": n}), house)
        for n in range(25)
        for house in houses
    ]
    assert stage.until(lambda: all(each.done() for each in asked))
    [run] = {handle.id for handle in (each.result()[0] for each in asked) if handle is not None}
    assert [each.result()[1] for each in asked] == [None] * 100
    assert stage.end(run).status == "completed"
    assert list(stage.store.logs) == [run]
    assert len(stage.facts(run, RunStarted)) == 1 and stage.calls() == ["a/1"]
    assert stage.start(shape, key="order-7") == run, "also when it is over"
    assert stage.start(shape, key="order-8") != run
    stage.close()


def test_a_run_id_can_be_given_once(stage: Stage) -> None:
    stage.start(plan(step("a")), run="mine")
    with pytest.raises(Conflict):
        stage.start(plan(step("a")), run="mine")


def test_usage_of_concurrent_steps_is_summed_exactly(stage: Stage) -> None:
    run, leases = forked(stage, 10)
    dones = [Done(Succeeded(), usage={"tokens": 10**15 + i, "usd": 0.25}) for i in range(10)]
    settle_all(stage, leases, dones)
    shown = stage.show(run)
    assert shown.usage == {"tokens": 10**16 + 45, "usd": 2.5}
    stage.first.kill()
    stage.house()
    assert stage.show(run).usage == shown.usage


def test_failed_and_parked_tries_use_up_what_they_used(stage: Stage) -> None:
    async def costly(call: ToolCall) -> Done:
        progress = call.command.progress or 0
        if progress == 0:
            return Done(Parked(until=NOON + SECOND, progress=1), usage={"tokens": 1})
        outcome: Any = Failed(Fault("io")) if call.command.attempt == 1 else Succeeded()
        return Done(outcome, usage={"tokens": 10})

    stage.tools["costly"] = costly
    shown = stage.run(plan(step("a", work=Call(tool="costly"), retry=Retry(attempts=2))))
    assert shown.usage == {"tokens": 21}


def test_what_is_shown_does_not_change_under_the_reader(stage: Stage) -> None:
    run = stage.start(chain(2, work=work(takes=5, set={"k": 1})))
    stage.pass_time(1)
    shown = stage.show(run)
    before = copy.deepcopy(shown)
    stage.end(run)
    assert shown == before


def test_the_input_of_a_step_is_fixed_when_it_is_issued(stage: Stage) -> None:
    shape = plan(
        step("fork", "reader", "writer", mode="inclusive", work=work(set={"k": 1})),
        step(
            "reader",
            input={"all": {"path": ["ctx"]}},
            work=work(takes=5, faults=[{"kind": "io"}]),
            retry=Retry(attempts=2, delay=5.0),
        ),
        step("writer", work=work(takes=1, set={"k": 2})),
    )
    run = stage.start(shape)
    stage.end(run)
    assert [each.call.input for each in stage.began if each.command == "reader/1"] == [{"all": {"k": 1}}] * 2
    assert [fact.input for fact in stage.facts(run, StepIssued) if fact.step == "reader"] == [{"all": {"k": 1}}, None]
