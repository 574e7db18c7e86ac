"""The life tables: every move they do not allow is refused by name, and a log has no gaps."""

from collections.abc import Iterator
from typing import Any

import pytest

from refold.core.facts import (
    Bypassed,
    Dropped,
    Entered,
    Fact,
    FanOutEntered,
    ItemsIssued,
    LoopLeft,
    Move,
    PassBegan,
    Routed,
    RunEnded,
    RunEnding,
    RunPaused,
    RunReopened,
    RunResumed,
    RunStarted,
    SignalReceived,
    Skipped,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.fold import apply
from refold.core.fold.apply import RUN_LIFE, STEP_LIFE
from refold.core.graph import analyse
from refold.core.plan import Arc, Loop, Plan
from refold.core.state import TERMINAL, RunState
from refold.errors import Corrupt
from refold.testing.core import NOON, failed, issued, started, succeeded
from tests.core.acts import plan, step

LONE: Plan = plan(step("s", "a"), step("a", Arc(to="b", on="failure"), Arc(to="b", when=True)), step("b"))
LOOPED: Plan = plan(*LONE.steps[:2], step("b", "a"))

# How a step gets into each life, by facts alone.
INTO_STEP: dict[str, tuple[Fact, ...]] = {
    "pending": (),
    "entered": (Routed((Entered("a", 1),)),),
    "issued": (issued("a"),),
    "completed": (issued("a"), succeeded("a"), Routed((Took("a", 1, (1,)),))),
    "failed": (issued("a"), failed("a"), Routed((Took("a", 1, (0,)),))),
    "skipped": (Routed((Skipped(("a",)),)),),
    "bypassed": (Routed((Bypassed("a", 1),)),),
    "cancelled": (Routed((Dropped(("a",)),)),),
}
MAKES: dict[type, Fact | Move] = {
    Entered: Entered("a", 1),
    StepIssued: StepIssued("a", 1),
    FanOutEntered: FanOutEntered("a", 1, 0, []),
    StepSettled: succeeded("a"),
    Took: Took("a", 1),
    Bypassed: Bypassed("a", 1),
    Skipped: Skipped(("a",)),
    Dropped: Dropped(("a",)),
    PassBegan: PassBegan("a"),
}
INTO_RUN: dict[str, tuple[Fact, ...]] = {
    "initial": (),
    "running": (RunStarted("p"),),
    "paused": (RunStarted("p"), RunPaused()),
    "ending": (RunStarted("p"), RunEnding("failed")),
    "completed": (RunStarted("p"), RunEnded("completed")),
    "failed": (RunStarted("p"), RunEnded("failed")),
    "cancelled": (RunStarted("p"), RunEnded("cancelled")),
    "continued": (RunStarted("p"), RunEnded("continued", successor="next")),
}
RUN_FACTS: dict[type, Fact] = {
    RunStarted: RunStarted("p"),
    RunPaused: RunPaused(),
    RunResumed: RunResumed(),
    RunEnding: RunEnding("failed"),
    RunEnded: RunEnded("completed"),
    RunReopened: RunReopened(),
}


def folded(*facts: Fact, workflow: Plan = LONE) -> RunState:
    records = ((number, NOON, fact) for number, fact in enumerate(facts, 1))
    return apply.fold(analyse(workflow), records, RunState(run="run"))


def as_fact(kind: type) -> Fact:
    made: Any = MAKES[kind]
    return made if kind in (StepIssued, FanOutEntered, StepSettled) else Routed((made,))


def illegal_step_moves() -> Iterator[tuple[type, str]]:
    for kind, (follows, _) in STEP_LIFE.items():
        yield from ((kind, life) for life in INTO_STEP if life not in follows)


def illegal_run_moves() -> Iterator[tuple[type, str]]:
    for kind, (follows, _) in RUN_LIFE.items():
        yield from ((kind, life) for life in INTO_RUN if life not in follows)


def test_the_tables_know_every_life_and_every_kind_that_changes_one() -> None:
    assert set(MAKES) == set(STEP_LIFE) and set(RUN_FACTS) == set(RUN_LIFE)
    assert {life for follows, leaves in STEP_LIFE.values() for life in (*follows, *leaves)} == set(INTO_STEP)
    assert {life for follows, leaves in RUN_LIFE.values() for life in (*follows, *leaves)} == set(INTO_RUN)


@pytest.mark.parametrize("life", INTO_STEP)
def test_a_step_gets_into_every_life_by_facts(life: str) -> None:
    state = folded(RunStarted("p"), issued("s"), succeeded("s"), *INTO_STEP[life])
    assert state.steps[1].life == life


@pytest.mark.parametrize(("kind", "life"), list(illegal_step_moves()))
def test_an_illegal_move_of_a_step_is_refused_by_name(kind: type, life: str) -> None:
    facts = (RunStarted("p"), issued("s"), succeeded("s"), *INTO_STEP[life])
    named: dict[type, str] = {
        StepSettled: "a/1 was settled but is not open",
        PassBegan: "PassBegan of a, whose pass is not over",
    }
    with pytest.raises(Corrupt, match=named.get(kind, f"{kind.__name__} of a, which is {life}")):
        folded(*facts, as_fact(kind), workflow=LOOPED if kind is PassBegan else LONE)


@pytest.mark.parametrize("life", INTO_RUN)
def test_a_run_gets_into_every_life_by_facts(life: str) -> None:
    assert apply.life_of(folded(*INTO_RUN[life])) == life


@pytest.mark.parametrize(("kind", "life"), list(illegal_run_moves()))
def test_an_illegal_move_of_a_run_is_refused_by_name(kind: type, life: str) -> None:
    if life == "initial":
        message = f"{kind.__name__} before the start of the run"
    elif life in TERMINAL:
        message = f"{kind.__name__} after the end of the run"
    else:
        message = f"{kind.__name__} of the run, which is {life}"
    with pytest.raises(Corrupt, match=message):
        folded(*INTO_RUN[life], RUN_FACTS[kind])


@pytest.mark.parametrize("fact", [issued("a"), SignalReceived("go"), Routed(())])
def test_nothing_is_believed_before_the_start_or_after_the_end(fact: Fact) -> None:
    with pytest.raises(Corrupt, match=f"{type(fact).__name__} before the start of the run"):
        folded(fact)
    with pytest.raises(Corrupt, match=f"{type(fact).__name__} after the end of the run"):
        folded(*INTO_RUN["failed"], fact)


@pytest.mark.parametrize("number", [1, 2, 4, 0])
def test_a_log_with_a_gap_or_a_repetition_is_refused(number: int) -> None:
    state = folded(RunStarted("p"), issued("s"))
    with pytest.raises(Corrupt, match=f"fact {number} follows fact 2"):
        apply.fold(analyse(LONE), [(number, NOON, succeeded("s"))], state)


def test_a_command_is_settled_once() -> None:
    with pytest.raises(Corrupt, match="s/1 was settled but is not open"):
        folded(RunStarted("p"), issued("s"), succeeded("s"), succeeded("s"))


def test_items_are_issued_in_order_and_settled_once() -> None:
    looped = plan(step("a", loop=Loop(items=[1, 2, 3])))
    begun = (started(looped), FanOutEntered("a", 1, 3, [1, 2, 3]), ItemsIssued("a", 1, 0, 1))
    with pytest.raises(Corrupt, match="item 2 of a was issued after item 0"):
        folded(*begun, ItemsIssued("a", 1, 2, 1), workflow=looped)
    with pytest.raises(Corrupt, match="a/1/0 was settled but is not open"):
        folded(*begun, succeeded("a", item=0), succeeded("a", item=0), workflow=looped)
    with pytest.raises(Corrupt, match="a/1/1 was settled but is not open"):
        folded(*begun, succeeded("a", item=1), workflow=looped)


def test_a_loop_is_left_only_when_its_pass_is_over() -> None:
    looped = plan(step("a", "b"), step("b", Arc(to="a", when=True)))
    with pytest.raises(Corrupt, match="LoopLeft of a, whose pass is not over"):
        folded(RunStarted("p"), issued("a"), Routed((LoopLeft("a"),)), workflow=looped)
