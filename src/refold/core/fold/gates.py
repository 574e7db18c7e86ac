"""What is asked at a gate, who has answered what, and when that is a decision."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from refold.core.facts import GateDecided
from refold.core.outcomes import Failed, Fault, Instant, Outcome, Succeeded
from refold.core.plan import Gate
from refold.core.times import stamp

Vote = dict[str, Any]
"""`by`, `option`, `at` and `feedback` of one person, as templates read them."""


def vote(fact: GateDecided, at: Instant) -> Vote:
    return {"by": fact.by, "option": fact.option, "at": stamp(at), "feedback": fact.feedback}


def most_votes(votes: Sequence[Vote]) -> int:
    """How many have chosen the same, of the option that most have chosen."""
    return max(Counter(each["option"] for each in votes).values(), default=0)


def is_decided(gate: Gate, votes: Sequence[Vote]) -> bool:
    """By the last of them: alone if it refuses, else together with those who chose the same."""
    last = votes[-1]["option"]
    return last in gate.refuse or sum(each["option"] == last for each in votes) >= gate.min_approvals


def gate_outcome(gate: Gate, votes: Sequence[Vote]) -> Outcome:
    """What a decision means for the visit."""
    last = votes[-1]
    value = {**last, "approvals": [each for each in votes if each["option"] not in gate.refuse]}
    if last["option"] not in gate.refuse:
        return Succeeded(value)
    said = f": {last['feedback']}" if isinstance(last["feedback"], str) and last["feedback"] else ""
    why = f"{last['option']} by {last['by'] or 'somebody'}{said}"
    return Failed(Fault("rejected", why, retryable=False, data=value))
