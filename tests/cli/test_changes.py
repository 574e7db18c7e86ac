"""Without a terminal: one line for each change, and not too many of them."""

from typing import Any

from msgspec import structs

from refold.cli.progress import Changes
from refold.cli.tree import NO_PLAYBOOK, PlaybookLines
from refold.core.outcomes import SECOND, Fault
from refold.core.read.summary import Progress, StepProgress
from refold.core.read.why import Reason

NOON = 1_800_000_000 * SECOND


def of(*rows: StepProgress, status: str = "running", after: float = 0.0, ended: int = 0) -> Progress:
    now = NOON + round(after * SECOND)
    return Progress("0123456789", "orders", "w", status, 1, rows, NOON, now, ended_at=now if ended else 0)


def said(changes: Changes, progress: Progress) -> list[str]:
    return list(changes.lines(progress))


def test_each_change_is_said_once() -> None:
    changes = Changes(NO_PLAYBOOK)
    assert said(changes, of(StepProgress("a", "issued", 1), StepProgress("b", "pending"))) == [
        "run orders (01234567)",
        "a: started",
    ]
    assert said(changes, of(StepProgress("a", "issued", 1), StepProgress("b", "pending"))) == []
    assert said(changes, of(StepProgress("a", "completed", 1, 1), StepProgress("b", "issued", 1))) == [
        "a: completed",
        "b: started",
    ]
    over = of(StepProgress("a", "completed", 1, 1), StepProgress("b", "skipped"), status="completed", after=2, ended=1)
    assert said(changes, over) == ["b: skipped", "run orders: completed after 2.0 s"]


def test_what_waits_says_why_and_a_new_try_is_told() -> None:
    changes = Changes(NO_PLAYBOOK)
    waits = Reason("a", "backoff", attempt=2, until=NOON + 5 * SECOND)
    assert said(changes, of(StepProgress("a", "issued", 1, 1, reason=waits)))[1].startswith("a: try 2 at ")
    assert said(changes, of(StepProgress("a", "issued", 1, 1))) == ["a: try 2"]
    assert said(changes, of(StepProgress("a", "issued", 2, 2))) == ["a: started (visit 2)"]


def test_a_failure_is_told_with_its_place() -> None:
    changes = Changes(PlaybookLines("p.yaml", ["- step: a"], {"steps.a": (1, 9)}))
    row = StepProgress("a", "failed", 1, 1, fault=Fault("exit", "boom\nsecond"))
    assert said(changes, of(row))[1:] == ["a: failed: boom second", "    p.yaml:1:9", "    1 | - step: a"]


def test_a_loop_is_told_every_two_seconds_and_at_its_end() -> None:
    changes, row = Changes(NO_PLAYBOOK), StepProgress("each", "issued", 1, count=100)
    assert said(changes, of(row))[1:] == ["each: 0/100 items"]
    for n in range(1, 20):
        assert said(changes, of(structs.replace(row, done=n), after=n / 10)) == []
    later = structs.replace(row, done=40, failed=2)
    assert said(changes, of(later, after=2.1)) == ["each: 42/100 items, 2 failed"]
    fast = structs.replace(later, done=60, rate=14.25, left=2.7)
    assert said(changes, of(fast, after=4.2)) == ["each: 62/100 items, 2 failed, 14.2 per second, 2.7 s left"]
    over = structs.replace(row, status="completed", done=100)
    assert said(changes, of(over, after=4.3)) == ["each: completed 100/100 items"]


def test_more_changes_than_anybody_reads_are_counted() -> None:
    changes = Changes(NO_PLAYBOOK)
    shown = said(changes, of(*(StepProgress(f"s{n}", "completed", 1) for n in range(500))))
    assert len(shown) == 22
    assert shown[-1] == "… and 480 more steps changed"


def test_machines_get_objects() -> None:
    changes = Changes(NO_PLAYBOOK)
    waits = Reason("a", "timer", until=NOON)

    def objects(progress: Progress) -> list[dict[str, Any]]:
        return list(changes.objects(progress))

    at = "2027-01-15T08:00:00.000000Z"
    assert objects(of(StepProgress("a", "issued", 1, reason=waits))) == [
        {"at": at, "run": "0123456789", "step": "a", "status": "started", "visits": 1, "reason": "timer"},
        {"at": at, "run": "0123456789", "status": "running"},
    ]
    assert objects(of(StepProgress("a", "failed", 1, 1, fault=Fault("x", "y")), status="failed")) == [
        {
            "at": at,
            "run": "0123456789",
            "step": "a",
            "status": "failed",
            "visits": 1,
            "attempts": 1,
            "error": {"kind": "x", "message": "y"},
        },
        {"at": at, "run": "0123456789", "status": "failed"},
    ]
