"""Formats times, durations and reasons for people."""

import time
from collections.abc import Callable
from datetime import datetime

from refold.core import times
from refold.core.outcomes import ANSWER, SECOND, Instant
from refold.core.read.why import Reason, no_code

SPANS = (("d", 86_400), ("h", 3_600), ("min", 60))


def now() -> Instant:
    return time.time_ns() // 1000


def stamp(at: Instant) -> str | None:
    """Format a time for programs; None if it has not happened."""
    return times.stamp(at) if at else None


def moment(at: Instant) -> str:
    """Format a time for people, in their time zone."""
    if not at:
        return ""
    try:
        return datetime.fromtimestamp(at / SECOND).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return times.stamp(at)  # the year is beyond the machine's calendar


def span(seconds: float) -> str:
    """Format a duration in at most two units: 0.3 s, 12 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    left, parts = round(seconds), list[str]()
    for unit, size in SPANS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join([*parts, f"{left} s"][:2])


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def took(began: Instant, ended: Instant) -> str:
    return span((ended - began) / SECOND)


def until(at: Instant, now: Instant) -> str:
    """Format a future time and how long it is from now."""
    if at <= now:
        return f"{clock(at, now)} (due)"
    return f"{clock(at, now)} (in {took(now, at)})"


def clock(at: Instant, now: Instant) -> str:
    """Format the time of day, with the date if it is not today."""
    shown, today = moment(at), moment(now)
    return shown[11:] if shown[:10] == today[:10] else shown


def why(reason: Reason, now: Instant) -> str:
    """Return a reason in words."""
    text = KINDS[reason.kind](reason, now)
    is_said = reason.kind in SAID or reason.signal.startswith(ANSWER)
    return f"{text}: {reason.note}" if reason.note and not is_said else text


SAID = ("gate", "batch", "window", "no_code", "paused")  # kinds whose texts already contain the note


def _signal(reason: Reason, now: Instant) -> str:
    also = f" or {until(reason.until, now)}" if reason.until else ""
    if reason.signal.startswith(ANSWER):
        return f"waits for the answer of a person to {reason.signal.removeprefix(ANSWER)!r}{also}"
    return f"waits for signal {reason.signal!r}{also}"


def _slot(reason: Reason, now: Instant) -> str:
    if not reason.worker:
        return "waits for a worker to take it"
    return f"waits for a slot, held by {reason.worker} until {until(reason.until or 0, now)}"


def _parked(reason: Reason, now: Instant) -> str:
    if reason.signal:
        return "parked; " + _signal(reason, now)
    return f"parked until {until(reason.until or 0, now)}"


def _gate(reason: Reason, now: Instant) -> str:
    of = f" of {reason.assignee}" if reason.assignee else ""
    count = f", {reason.count} more" if reason.count else ""
    limit = f", until {until(reason.until, now)}" if reason.until else ""
    return f"waits for a decision{of}{count}{limit}" + (f": {reason.note}" if reason.note else "")


def _paused(reason: Reason, now: Instant) -> str:
    return (
        "paused"
        + (f" by {reason.by}" if reason.by else "")
        + (f" at {clock(reason.since, now)}" if reason.since else "")
        + (f": {reason.note}" if reason.note else "")
    )


def _window(reason: Reason, now: Instant) -> str:
    if reason.note:
        return f"{reason.count} more {reason.note} wait for it"
    return f"{_items(reason.count)} for a place in the window"


def _items(count: int) -> str:
    return "1 item waits" if count == 1 else f"{count} items wait"


def _batch(reason: Reason, now: Instant) -> str:
    of = f" of {reason.signal}" if reason.signal else ""
    limit = f", until {until(reason.until, now)}" if reason.until else ""
    return f"has {reason.count} of {reason.note} events{of}{limit}"


KINDS: dict[str, Callable[[Reason, Instant], str]] = {
    "running": lambda reason, now: f"with {reason.worker}, leased until {until(reason.until or 0, now)}",
    "slot": _slot,
    "no_worker": lambda reason, now: "no worker is running that could take it",
    "no_code": lambda reason, now: no_code(reason),
    "no_tool": lambda reason, now: "no live worker has the tool",
    "stuck": lambda reason, now: "stuck",
    "no_queue": lambda reason, now: "no live worker serves the queue",
    "batch": _batch,
    "paused": _paused,
    "backoff": lambda reason, now: f"try {reason.attempt} at {until(reason.until or 0, now)}",
    "parked": _parked,
    "timer": lambda reason, now: f"waits until {until(reason.until or 0, now)}",
    "signal": _signal,
    "gate": _gate,
    "poll": lambda reason, now: f"looks again at {until(reason.until or 0, now)}, until",
    "child": lambda reason, now: f"waits for run {reason.run}",
    "window": _window,
    "order": lambda reason, now: f"{_items(reason.count)} for others of the loop",
    "join": lambda reason, now: "waits for " + ", ".join(reason.sources),
    "loop": lambda reason, now: "waits until the loop of " + ", ".join(reason.sources) + " is over",
    "final": lambda reason, now: "comes at the end of the run",
}


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as `1 run` and `2 runs`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
