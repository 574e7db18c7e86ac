"""Why a step waits, in words. The command line, the server and its page all say it with this function."""

from collections.abc import Callable, Sequence

from refold.core import times
from refold.core.outcomes import ANSWER, SECOND, Instant
from refold.core.read.why import Reason, no_code

SPANS = (("d", 86_400), ("h", 3_600), ("min", 60))

Clock = Callable[[Instant, Instant], str]
"""Formats a moment for people, who read it at another moment."""


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


def took(began: Instant, ended: Instant) -> str:
    return span((ended - began) / SECOND)


def in_utc(at: Instant, now: Instant) -> str:
    """Format a moment to the second, in UTC, for readers whose zone is not known."""
    shown = times.stamp(at)
    return f"{shown[:10]} {shown[11:19]} UTC" if shown.endswith("Z") else shown


def why_text(reason: Reason, now: Instant, clock: Clock = in_utc) -> str:
    """Return a reason in words."""
    text = KINDS[reason.kind](reason, MomentTexts(now, clock))
    is_said = reason.kind in SAID or reason.signal.startswith(ANSWER)
    return f"{text}: {reason.note}" if reason.note and not is_said else text


class MomentTexts:
    """When, and for whom, something is said."""

    def __init__(self, now: Instant, clock: Clock) -> None:
        self.now, self._clock = now, clock

    def clock(self, at: Instant) -> str:
        return self._clock(at, self.now)

    def until(self, at: Instant) -> str:
        """Format a future time and how long it is from now."""
        if at <= self.now:
            return f"{self.clock(at)} (due)"
        return f"{self.clock(at)} (in {took(self.now, at)})"


SAID = ("gate", "batch", "window", "no_code", "paused")  # kinds whose texts already contain the note


def _signal(reason: Reason, when: MomentTexts) -> str:
    also = f", until {when.until(reason.until)}" if reason.until else ""
    if reason.signal.startswith(ANSWER):
        return f"waits for the answer of a person to {reason.signal.removeprefix(ANSWER)!r}{also}"
    return f"waits for signal {reason.signal!r}{also}"


def _slot(reason: Reason, when: MomentTexts) -> str:
    if not reason.worker:
        return "waits for a worker to take it"
    return f"waits until worker {reason.worker} begins it"


def _parked(reason: Reason, when: MomentTexts) -> str:
    if reason.signal:
        return "parked; " + _signal(reason, when)
    return f"parked until {when.until(reason.until or 0)}"


def _gate(reason: Reason, when: MomentTexts) -> str:
    of = f" of {reason.assignee}" if reason.assignee else ""
    count = f", {reason.count} more" if reason.count else ""
    limit = f", until {when.until(reason.until)}" if reason.until else ""
    return f"waits for a decision{of}{count}{limit}" + (f": {reason.note}" if reason.note else "")


def _paused(reason: Reason, when: MomentTexts) -> str:
    return (
        "paused"
        + (f" by {reason.by}" if reason.by else "")
        + (f" at {when.clock(reason.since)}" if reason.since else "")
        + (f": {reason.note}" if reason.note else "")
    )


def _window(reason: Reason, when: MomentTexts) -> str:
    if reason.note:
        return f"{reason.count} more {reason.note} wait for it"
    return f"{_items(reason.count)} for a place in the window"


def _items(count: int) -> str:
    return "1 item waits" if count == 1 else f"{count} items wait"


def _batch(reason: Reason, when: MomentTexts) -> str:
    of = f" of {reason.signal}" if reason.signal else ""
    limit = f", until {when.until(reason.until)}" if reason.until else ""
    return f"has {reason.count} of {reason.note} events{of}{limit}"


def _limit(reason: Reason, when: MomentTexts) -> str:
    return (
        f"is kept back until {when.until(reason.until)} by the limit" if reason.until else "is kept back by the limit"
    )


KINDS: dict[str, Callable[[Reason, MomentTexts], str]] = {
    "running": lambda reason, when: f"runs in worker {reason.worker}",
    "slot": _slot,
    "no_worker": lambda reason, when: "no worker is running that could take it",
    "no_code": lambda reason, when: no_code(reason),
    "no_tool": lambda reason, when: "no live worker has the tool",
    "stuck": lambda reason, when: "stuck",
    "limit": _limit,
    "rate": lambda reason, when: f"is kept back by the rate of its loop until {when.until(reason.until or 0)}",
    "no_queue": lambda reason, when: "no live worker serves the queue",
    "batch": _batch,
    "paused": _paused,
    "backoff": lambda reason, when: f"try {reason.attempt} at {when.until(reason.until or 0)}",
    "parked": _parked,
    "timer": lambda reason, when: f"waits until {when.until(reason.until or 0)}",
    "signal": _signal,
    "gate": _gate,
    "poll": lambda reason, when: f"looks again at {when.until(reason.until or 0)}, until",
    "child": lambda reason, when: f"waits for run {reason.name or reason.run}",
    "window": _window,
    "order": lambda reason, when: f"{_items(reason.count)} for others of the loop",
    "join": lambda reason, when: "waits for " + ", ".join(reason.sources),
    "loop": lambda reason, when: "waits until the loop of " + ", ".join(reason.sources) + " is over",
    "final": lambda reason, when: "comes at the end of the run",
}


FIRST = (
    *("stuck", "paused", "no_worker", "no_code", "no_tool", "no_queue", "limit", "gate", "signal", "parked", "child"),
    "timer",
)
"""Kinds that say most about a run as a whole, in this order; then all others, in the order of the steps."""


def run_why(reasons: Sequence[Reason], now: Instant, clock: Clock = in_utc) -> str:
    """Return on one line why a run has not ended: its most telling reason, and how many others there are."""
    if not reasons:
        return ""
    ranks = {kind: rank for rank, kind in enumerate(FIRST)}
    first = min(reasons, key=lambda reason: ranks.get(reason.kind, len(ranks)))
    text = why_text(first, now, clock)
    said = f"{first.step}: {text}" if first.step else text
    return f"{said} (and {len(reasons) - 1} more)" if len(reasons) > 1 else said
