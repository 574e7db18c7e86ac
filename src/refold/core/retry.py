"""Retry policies: whether and when a failed command is tried again. Chance is an argument, recorded in the fact."""

from refold.core.outcomes import SECOND, Fault, Instant
from refold.core.plan import LONGEST, Retry

ASKED = ("HTTP_429", "HTTP_503")  # a service is busy, and has done nothing
LONGEST_ASKED = 3600  # seconds for which a command waits in all because a service asks for it


def asked_to_wait(fault: Fault, since: Instant, now: Instant, longest: float | None = None) -> Instant | None:
    """Return when the same try begins again because a busy service has said so; None: the try has failed.

    `since` is when the service first asked for it, 0 for the first time. `longest` is the longest single wait.
    """
    if fault.code not in ASKED or fault.retry_after is None:
        return None
    if longest is not None and fault.retry_after > longest:
        return None
    until = now + round(fault.retry_after * SECOND)
    return until if until <= (since or now) + LONGEST_ASKED * SECOND else None


def may_retry(policy: Retry, attempt: int, fault: Fault) -> bool:
    if attempt >= policy.attempts or fault.retryable is False:
        return False
    return not policy.on or fault.kind in policy.on


def delay(policy: Retry, attempt: int, fault: Fault, chance: float) -> int:
    """Return the microseconds to wait after this attempt: at least what the fault asks for, at most `max_delay`."""
    factor = {"fixed": 1, "linear": attempt, "exponential": 1 << min(attempt - 1, 60)}[policy.backoff]
    seconds = policy.delay * factor
    longest = LONGEST if policy.max_delay is None else min(policy.max_delay, LONGEST)
    seconds = min(seconds, longest) * (1 - policy.jitter * chance)
    return round(min(max(seconds, fault.retry_after or 0.0), longest) * SECOND)
