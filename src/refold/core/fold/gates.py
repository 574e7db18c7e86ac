"""Votes at a gate, and when they are a decision."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from refold.core.facts import GateDecided
from refold.core.outcomes import Failed, Fault, Instant, Outcome, Succeeded
from refold.core.plan import Gate
from refold.core.times import stamp

Vote = dict[str, Any]
"""The vote of one person as templates read it: `by`, `option`, `at`, `feedback`, and the `choices` that were taken."""


def vote(fact: GateDecided, at: Instant) -> Vote:
    found = {"by": fact.by, "option": fact.option, "at": stamp(at), "feedback": fact.feedback}
    return {**found, "choices": list(fact.choices)} if fact.choices else found


def most_votes(votes: Sequence[Vote]) -> int:
    """Return the number of votes of the option that has the most."""
    return max(Counter(vote["option"] for vote in votes).values(), default=0)


def is_decided(gate: Gate, votes: Sequence[Vote]) -> bool:
    """Whether the last vote decides: a refusal decides alone, another option with enough equal votes."""
    last = votes[-1]["option"]
    return last in gate.refuse or sum(each["option"] == last for each in votes) >= gate.min_approvals


def gate_outcome(gate: Gate, votes: Sequence[Vote]) -> Outcome:
    """Return the outcome of a visit of a gate that was decided."""
    last = votes[-1]
    value = {**last, "approvals": [each for each in votes if each["option"] not in gate.refuse]}
    if gate.choices is not None:
        value["choices"] = list(dict.fromkeys(name for each in votes for name in each.get("choices", ())))
    if last["option"] not in gate.refuse:
        return Succeeded(value)
    feedback = f": {last['feedback']}" if isinstance(last["feedback"], str) and last["feedback"] else ""
    why = f"{last['option']} by {last['by'] or 'somebody'}{feedback}"
    return Failed(Fault("rejected", why, retryable=False, data=value))
