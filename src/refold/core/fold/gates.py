"""What is asked at a gate, who has answered what, and when that is a decision."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from refold.core.facts import Fact, GateDecided, StepSettled
from refold.core.fold.due import due
from refold.core.graph import Graph
from refold.core.outcomes import Awaited, Failed, Fault, Instant, Outcome, Succeeded
from refold.core.plan import Gate
from refold.core.state import OpenCommand, RunState
from refold.core.times import stamp

Vote = dict[str, Any]
"""`by`, `option`, `at` and `feedback` of one person, as templates read them."""


class Asked(Struct, frozen=True):
    """A gate that waits, as people see it."""

    step: str
    visit: int
    type: str  # a review fails with no option, an approval with some
    prompt: Any
    options: dict[str, str]  # with their labels
    refuse: tuple[str, ...]
    form: dict[str, Any] | None
    assignee: str
    min_approvals: int
    approvals: Sequence[Vote]
    deadline: Instant | None
    on_timeout: str


def asked(graph: Graph, state: RunState) -> list[Asked]:
    """The gates at which a run waits now, the longest waiting first."""
    return [_asked(graph, opened) for opened in state.open.values() if opened.step in graph.gates]


def _asked(graph: Graph, opened: OpenCommand) -> Asked:
    step = graph.step(opened.step)
    gate = step.work
    assert isinstance(gate, Gate)
    return Asked(
        step=step.name,
        visit=opened.visit,
        type="approval" if gate.refuse else "review",
        prompt=opened.input,
        options={option: gate.labels.get(option, option) for option in gate.options},
        refuse=gate.refuse,
        form=gate.form,
        assignee=opened.assignee,
        min_approvals=gate.min_approvals,
        approvals=opened.progress or [],
        deadline=due(opened),
        on_timeout=gate.on_timeout,
    )


def vote(fact: GateDecided, at: Instant) -> Vote:
    return {"by": fact.by, "option": fact.option, "at": stamp(at), "feedback": fact.feedback}


def agreed(votes: Sequence[Vote]) -> int:
    """How many have chosen the same, of the option that most have chosen."""
    return max(Counter(each["option"] for each in votes).values(), default=0)


def is_decided(gate: Gate, votes: Sequence[Vote]) -> bool:
    """By the last of them: alone if it refuses, else together with those who chose the same."""
    last = votes[-1]["option"]
    return last in gate.refuse or sum(each["option"] == last for each in votes) >= gate.min_approvals


def ruling(gate: Gate, votes: Sequence[Vote]) -> Outcome:
    """What a decision means for the visit."""
    last = votes[-1]
    value = {**last, "approvals": [each for each in votes if each["option"] not in gate.refuse]}
    if last["option"] not in gate.refuse:
        return Succeeded(value)
    said = f": {last['feedback']}" if isinstance(last["feedback"], str) and last["feedback"] else ""
    why = f"{last['option']} by {last['by'] or 'somebody'}{said}"
    return Failed(Fault("rejected", why, retryable=False, data=value))


def told_end(gate: Gate, step: str, visit: int, log: Iterable[tuple[Instant, Fact]]) -> str:
    """Who decided a visit of a gate and when, or how else it came to its end; nothing if the log does not say."""
    votes: list[Vote] = []
    for at, fact in log:
        if isinstance(fact, GateDecided) and (fact.step, fact.visit) == (step, visit):
            votes.append(vote(fact, at))
            if is_decided(gate, votes):
                return f"was decided by {fact.by or 'somebody'} at {stamp(at)}: {fact.option}"
        if isinstance(fact, StepSettled) and (fact.step, fact.visit) == (step, visit):
            return f"ended at {stamp(at)} without a decision"
    return ""


ANSWER = "answer:"  # begins the signals that answer


class Question(Struct, frozen=True):
    """One that is open."""

    step: str
    visit: int
    id: str
    prompt: Any
    metadata: Any = None  # as it is stored
    until: Instant | None = None


def questions(graph: Graph, state: RunState) -> list[Question]:
    """Those of the run itself, the longest waiting first."""
    return [
        _question(graph, opened, call)
        for opened in state.open.values()
        for call in opened.calls.values()
        if call.signal.startswith(ANSWER) and isinstance(call.input, dict)
    ]


def _question(graph: Graph, opened: OpenCommand, call: Awaited) -> Question:
    asked = call.input
    return Question(
        graph.name(opened.step), opened.visit, asked["id"], asked["prompt"], asked.get("metadata"), call.until
    )
