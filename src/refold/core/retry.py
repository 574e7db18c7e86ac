"""When to try again: the user's policy, with chance given from outside and recorded in the fact."""

from refold.core.outcomes import SECOND, Cancelled, Failed, Fault, Outcome, TimedOut
from refold.core.plan import LONGEST, Retry


def fault_of(outcome: Outcome) -> Fault | None:
    """The fault of an outcome that is a failure."""
    match outcome:
        case Failed(fault=fault):
            return fault
        case TimedOut(after=after):
            return Fault("timeout", f"no result after {after:g} s")
        case Cancelled(reason=reason):
            return Fault("cancelled", reason or "cancelled", retryable=False)
        case _:
            return None


def may_retry(policy: Retry, attempt: int, fault: Fault) -> bool:
    if attempt >= policy.attempts or fault.retryable is False:
        return False
    return not policy.on or fault.kind in policy.on


def delay(policy: Retry, attempt: int, fault: Fault, chance: float) -> int:
    """Microseconds to wait after this failed attempt; never shorter than the fault itself asks for."""
    factor = {"fixed": 1, "linear": attempt, "exponential": 1 << min(attempt - 1, 60)}[policy.backoff]
    seconds = policy.delay * factor
    if policy.max_delay is not None:
        seconds = min(seconds, policy.max_delay)
    seconds *= 1 - policy.jitter * chance
    return round(min(max(seconds, fault.retry_after or 0.0), LONGEST) * SECOND)
