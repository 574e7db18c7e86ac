"""Every fact has its words."""

import pytest

from refold.core.facts import (
    CancelAsked,
    Entered,
    Fact,
    GateDecided,
    ItemsIssued,
    Move,
    Routed,
    RunEnded,
    RunMigrated,
    RunStarted,
    SignalReceived,
    Skipped,
    StepFault,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.outcomes import Failed, Fault, Parked, Report, TimedOut
from refold.core.read import fact_text as words

TEXTS: list[tuple[Fact, str]] = [
    (RunStarted("hash", {"n": 1}), 'run started with {"n":1}'),
    (StepIssued("a", 2, attempt=3), "a/2 issued, try 3"),
    (StepIssued("ask", 1, input="ok?", until=5), "ask/1 waits for a decision"),
    (StepIssued("a", 1, until=5), "a/1 waits for a time"),
    (StepIssued("a", 1, until=5, signal="go"), "a/1 waits for signal 'go' or a time"),
    (StepIssued("a", 1, child="c"), "a/1 started run c"),
    (StepSettled("a", 1, Report(2, Failed(Fault("error", "no disk")))), "a/1 failed on try 2: no disk"),
    (StepSettled("a", 1, Report(1, TimedOut(3.0))), "a/1 timed out after 3 s on try 1"),
    (StepSettled("a", 1, Report(1, Parked(until=1, reason="not yet"))), "a/1 parked: not yet"),
    (ItemsIssued("a", 1, 4, 1), "a/1 item 4 issued"),
    (ItemsIssued("a", 1, 4, 3), "a/1 items 4-6 issued"),
    (
        Routed((Took("a", 1, (0,), {"x": 1}), Skipped(("b", "c")), Entered("d", 1))),
        "a/1 took arc 1 and set x = 1; skipped b, c; d/1 entered",
    ),
    (SignalReceived("go", [1]), "signal 'go' came with [1]"),
    (GateDecided("a", 1, "approve", "ann"), "a/1 decided: approve by ann"),
    (RunMigrated("0123456789abcdef", "ann"), "run migrated to plan 0123456789ab by ann"),
    (CancelAsked("too late", "ann"), "cancel asked for by ann: too late"),
    (RunEnded("failed", error=StepFault("a", 1, "unhandled failure", Fault("error", "no disk"))),
     "run failed: a unhandled failure: no disk"),
]  # fmt: skip


def test_the_delay_of_a_try_is_counted_from_the_moment_of_its_fact() -> None:
    assert words.fact_text(StepIssued("a", 1, attempt=2, not_before=9_500_000), 8_000_000) == (
        "a/1 issued, try 2, after 1.5 s"
    )
    assert words.fact_text(StepIssued("a", 1, attempt=2), 8_000_000) == "a/1 issued, try 2"


@pytest.mark.parametrize(("fact", "line"), TEXTS)
def test_a_fact_has_a_text_for_people(fact: Fact, line: str) -> None:
    assert words.fact_text(fact) == line


def test_no_fact_and_no_move_is_without_words() -> None:
    assert set(words._TEXTS) == set(Fact.__args__)
    assert set(words._MOVES) == set(Move.__args__)
