"""JamJet's contract about atomicity: a process that dies between any two writes leaves a whole run or none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from typing import Any

import pytest

from refold import Retry
from refold.core.facts import ChildEnded, GateDecided, ItemsSettled, RunEnded, RunStarted, StepIssued, StepSettled
from refold.core.fold.apply import fold
from refold.core.graph import Graph, analyse
from refold.core.outcomes import Succeeded
from refold.core.plan import Call as CallWork
from refold.core.plan import read_plan
from refold.core.state import TERMINAL, RunState
from refold.errors import Conflict, Unavailable
from refold.plan import Arc, Child, Gate, Loop, Plan, Wait
from refold.stores.memory import MemoryStore, MemoryTurn
from refold.testing.simulator.event_loop import Killed
from tests.compat.stage import NOON, Stage, names, plan, step, work

Fate = Callable[[], None]


class Steps(list[Callable[[], object]]):
    """The single writes of a turn, as the list of what would take each back; something may happen before each."""

    def __init__(self, store: "FragileStore") -> None:
        super().__init__()
        self.store = store

    def append(self, undo: Callable[[], object]) -> None:
        self.store.meet("write")
        super().append(undo)


class FragileStore(MemoryStore):
    """Looks over its tables after every commit, and lets one fate strike at one moment."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(now)
        self.moments: dict[str, Iterator[int]] = {"write": count(), "commit": count()}
        self.strikes: dict[tuple[str, int], Fate] = {}
        self.struck = False

    def meet(self, kind: str) -> None:
        fate = self.strikes.get((kind, next(self.moments[kind])))
        if fate is not None:
            self.struck = True
            fate()

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator[MemoryTurn]:
        try:
            with super().turn(runs) as turn:
                turn.undo = Steps(self)
                yield turn
        except BaseException:
            look_over(self)
            raise
        if turn.wrote:
            look_over(self)
            self.meet("commit")


@cache
def graph_of(data: bytes) -> Graph:
    return analyse(read_plan(data))


def look_over(store: MemoryStore) -> None:
    """No fact without its command and no command without its fact; the status is that of the log."""
    for run, log in store.logs.items():
        if not log:
            continue
        row, facts = store.rows[run], store.facts(run)
        graph = graph_of(store.plans[row.plan])
        state = fold(graph, facts, RunState(run))
        ends = [fact for _, _, fact in facts if isinstance(fact, RunEnded)]
        assert (row.status in TERMINAL) == bool(ends), "terminal fact and status are one"
        assert len(ends) <= 1 and row.seq == len(log)
        ours = {each for each, opened in state.open.items() if isinstance(graph.step(opened.step).work, CallWork)}
        assert {command for owner, command in store.commands if owner == run} == ours
        timed = {each for each, opened in state.open.items() if opened.until is not None}
        assert {key for key, due in store.timers.get(run, {}).items() if key != "run" and due} == timed
        for child in state.children.values():
            assert store.letters.get(child) or child in store.logs, "a child that is waited for was written to"


CHILD = plan(step("inside", work=work(takes=1, gives="from the child")), name="child")


def everything(child: str) -> Plan:
    """One of each: a chain, fork, failure and retry, list loop, wait, gate, child, choice, finalizer."""
    return plan(
        step("fork", "fetch", "each", mode="inclusive"),
        step("fetch", "join", work=work(faults=[{"kind": "io"}], takes=1), retry=Retry(attempts=2, delay=3.0)),
        step("each", "join", loop=Loop(items=[1, 2, 3], max_in_flight=2), work=work(append={"seen": 1})),
        step("join", "one"),
        step("one", "two"),
        step("two", "three"),
        step("three", "four"),
        step("four", "five"),
        step("five", "wait"),
        step("wait", "gate", work=Wait(seconds=5)),
        step("gate", "child", work=Gate()),
        step("child", Arc(to="never", when=False), Arc(to="last"), work=Child(plan=child)),
        step("never", "last"),
        step("last", work=work(gives="done", add={"total": 2})),
        step("clean"),
        always=("clean",),
        timeout=10_000.0,
    )


@pytest.fixture
def fragile(stage: Stage) -> FragileStore:
    stage.store = FragileStore(stage.clock.now)
    return stage.store


def drive(stage: Stage) -> str:
    """A client that asks again until it is answered, and starts a process whenever none is alive."""
    shape = everything(stage.register(CHILD))
    handle = insist(stage, "start", shape, {"n": 1}, options={"key": "only"})
    run = str(handle.id)
    while stage.status(run) not in TERMINAL:
        assert stage.first.sim.alive
        stage.pass_time(1)
        if "gate/1" in insist(stage, "show", run).waits:
            try:
                insist(stage, "decide", run, "gate", "approve", by="ann")
            except Conflict:
                assert len(stage.houses) > 1, "only one who asked a process that died may have asked twice"
    return run


def insist(stage: Stage, what: str, *args: Any, options: Any = None, **more: Any) -> Any:
    while True:
        house = stage.first
        asker = house.engine if options is None else house.engine.options(**options)
        asked = stage.ask(getattr(asker, what)(*args, **more), house)
        stage.until(partial(lambda asked, sim: asked.done() or not sim.alive, asked, house.sim))
        if asked.done() and not isinstance(asked.result()[1], Unavailable):
            value, error = asked.result()
            if error is not None:
                raise error
            return value


def check_told_once(stage: Stage, run: str) -> None:
    shown = stage.show(run)
    assert (shown.status, shown.result) == ("completed", "done")
    assert shown.state.ctx == {"seen": [1, 1, 1], "total": 2}
    facts = stage.history(run)
    settled = [f"{fact.step}/{fact.visit}" for fact in facts if isinstance(fact, StepSettled)]
    plain = ["one/1", "two/1", "three/1", "four/1", "five/1"]
    tries = ["fork/1", "fetch/1", "fetch/1", "join/1", *plain, "wait/1", "last/1", "clean/1"]
    assert sorted(settled) == sorted(tries)
    items = [report.item for fact in facts if isinstance(fact, ItemsSettled) for report in fact.reports]
    assert sorted(items, key=str) == [0, 1, 2]
    for kind in (RunStarted, GateDecided, ChildEnded, RunEnded):
        assert sum(isinstance(fact, kind) for fact in facts) == 1
    assert list(stage.store.logs) == [run, *(child for child in stage.store.logs if child != run)]
    assert len(stage.store.logs) == 2, "one run, one child"
    assert stage.store.commands == {} and not any(stage.store.letters.values())


def test_the_whole_workflow_runs_undisturbed_and_every_commit_is_whole(stage: Stage, fragile: FragileStore) -> None:
    check_told_once(stage, drive(stage))
    assert next(fragile.moments["write"]) > 70, "there is much to disturb"


def die() -> None:
    raise Killed


def fail() -> None:
    raise Unavailable("the disk is away")


def strike_each(kind: str, fate: Fate) -> int:
    """Run everything again and again, each time with the fate striking one moment later."""
    for moment in range(10_000):
        stage = Stage()
        stage.store = fragile = FragileStore(stage.clock.now)
        fragile.strikes[kind, moment] = fate
        run = drive(stage)
        if not fragile.struck:
            stage.close()
            return moment
        check_told_once(stage, run)
        stage.close()
    raise AssertionError("it never came to an end")


def test_a_crash_between_any_two_writes_loses_and_doubles_nothing() -> None:
    assert strike_each("write", die) > 70


def test_a_crash_after_any_commit_loses_and_doubles_nothing() -> None:
    assert strike_each("commit", die) >= 20


def test_a_store_that_fails_between_any_two_writes_costs_nothing() -> None:
    assert strike_each("write", fail) > 70


def test_a_commit_that_was_applied_and_reported_as_failed_counts_once() -> None:
    assert strike_each("commit", fail) >= 20


def test_a_crash_at_any_await_leaves_no_step_hung_and_none_committed_twice() -> None:
    for moment in range(0, 100_000, 7):
        stage = Stage()
        stage.store = FragileStore(stage.clock.now)
        struck: list[int] = []

        def strike(process: Any, moment: int = moment, stage: Stage = stage, struck: list[int] = struck) -> None:
            if process is not None and not struck and stage.loop.steps >= moment:
                struck.append(moment)
                process.kill()

        stage.loop.before_step = strike
        run = drive(stage)
        stage.loop.before_step = None
        if struck:
            check_told_once(stage, run)
        stage.close()
        if not struck:
            assert moment > 100
            return


@pytest.mark.parametrize("seed", range(5))
def test_engines_active_at_the_same_moment_never_run_a_start_twice(seed: int) -> None:
    stage = Stage(seed)
    houses = [stage.house() for _ in range(3)]
    shape = plan(step("first", "second"), step("second"))
    asked = [stage.ask(house.engine.options(key=f"k{n}").start(shape), house) for n in range(10) for house in houses]
    assert stage.until(lambda: all(each.done() for each in asked))
    assert all(each.result()[0] is not None for each in asked)
    runs = {handle.id for handle in (each.result()[0] for each in asked) if handle is not None}
    assert len(runs) == 10
    for run in runs:
        assert stage.end(run).status == "completed"
        assert len(stage.facts(run, RunStarted)) == 1
        assert [fact.step for fact in stage.facts(run, StepIssued)] == ["first", "second"]
    assert sorted(names(stage.calls())) == ["first"] * 10 + ["second"] * 10
    stage.close()


def test_a_start_that_was_refused_leaves_nothing(stage: Stage, fragile: FragileStore) -> None:
    fragile.strikes = {("write", moment): fail for moment in (0, 1, 4)}  # each of the three tries, at another place
    with pytest.raises(Unavailable):
        stage.start(plan(step("a")))
    assert not fragile.rows and not fragile.commands and not any(fragile.logs.values()) and not fragile.plans
    assert stage.began == []


def test_what_a_worker_did_before_its_process_died_is_done_again_not_lost(stage: Stage) -> None:
    run = stage.start(plan(step("a", "b", work=work(takes=20)), step("b")))
    stage.pass_time(15)
    stage.first.kill()
    assert stage.end(run).status == "completed"
    assert [(each.process, each.command, each.attempt) for each in stage.began] == [
        ("house0", "a/1", 1),
        ("house1", "a/1", 1),
        ("house1", "b/1", 1),
    ]
    [first, _] = stage.facts(run, StepSettled)
    assert (first.report.losses, first.report.outcome, first.report.worker) == (1, Succeeded(), "house1")
    assert NOON + 40_000_000 <= first.report.claimed_at <= NOON + 42_000_000, "once the lease had run out"
