"""When a command that no worker looks after ends by itself, and how."""

from refold.core.outcomes import Failed, Fault, Instant, Outcome, Succeeded, TimedOut
from refold.core.plan import Child, Gate, Step
from refold.core.state import OpenCommand
from refold.core.times import stamp


def due(opened: OpenCommand) -> Instant | None:
    """When it ends by itself at the latest, or wants to be looked at."""
    return min((each for each in (opened.until, opened.deadline) if each is not None), default=None)


def rung(step: Step, opened: OpenCommand, now: Instant) -> Outcome | None:
    """What comes of a timer of this command; None if it was not its time, or if only somebody has to look."""
    moment = due(opened)
    if moment is None or moment > now:
        return None
    if moment == opened.deadline:
        return _timed_out(step)
    if step.poll is not None:
        return None
    if isinstance(step.work, Gate):
        return _undecided(step.work, opened, now)
    return Succeeded({"by": "timer", "value": None})


def _timed_out(step: Step) -> Outcome:
    """A child may be tried again; of a wait, a gate or a poll nothing is left to try."""
    limits = [step.timeout] if step.poll is None else [step.poll.timeout, step.timeout]
    seconds = next(each for each in limits if each is not None)
    if isinstance(step.work, Child):
        return TimedOut(seconds)
    return Failed(Fault("timeout", f"no end after {seconds:g} s", retryable=False))


def _undecided(gate: Gate, opened: OpenCommand, now: Instant) -> Outcome:
    if gate.on_timeout == "fail":
        return Failed(Fault("timeout", f"nobody decided within {gate.timeout:g} s", retryable=False))
    votes = opened.progress or []
    return Succeeded({"by": "timeout", "option": None, "at": stamp(now), "feedback": None, "approvals": votes})
