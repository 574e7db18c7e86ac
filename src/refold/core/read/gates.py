"""Gates and questions that wait for a person, as people see them."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from refold.core.facts import Fact, GateDecided, StepSettled
from refold.core.fold.events import open_requests
from refold.core.fold.gates import Vote, is_decided, vote
from refold.core.fold.waits import due_at
from refold.core.graph import Graph
from refold.core.outcomes import ANSWER, Awaited, Instant, Question
from refold.core.plan import Gate
from refold.core.state import RUNNING, OpenCommand, OpenRequest, RunState
from refold.core.times import stamp


class OpenGate(Struct, frozen=True):
    """A gate that waits for a decision."""

    step: str
    visit: int
    type: str  # "approval" if some option refuses, else "review"
    prompt: Any
    options: dict[str, str]  # option -> its text for people
    refuse: tuple[str, ...]
    choices: dict[str, str]  # any number of which may be taken -> its text for people
    form: dict[str, Any] | None
    assignee: str
    min_approvals: int
    approvals: Sequence[Vote]
    deadline: Instant | None
    on_timeout: str


def open_gates(graph: Graph, state: RunState) -> list[OpenGate]:
    """Return the gates at which a run waits, the longest waiting first."""
    return [_asked(graph, opened) for opened in state.open.values() if opened.step in graph.gates]


def _asked(graph: Graph, opened: OpenCommand) -> OpenGate:
    step = graph.step(opened.step)
    gate = step.work
    assert isinstance(gate, Gate)
    return OpenGate(
        step=step.name,
        visit=opened.visit,
        type="approval" if gate.refuse else "review",
        prompt=opened.input,
        options={option: gate.labels.get(option, option) for option in gate.options},
        refuse=gate.refuse,
        choices=opened.choices,
        form=gate.form,
        assignee=opened.assignee,
        min_approvals=gate.min_approvals,
        approvals=opened.progress or [],
        deadline=due_at(opened),
        on_timeout=gate.on_timeout,
    )


def how_gate_ended(gate: Gate, step: str, visit: int, log: Iterable[tuple[Instant, Fact]]) -> str:
    """Return by whom and when a visit of a gate was decided, or how else it ended; empty if the log does not say."""
    votes: list[Vote] = []
    for at, fact in log:
        if isinstance(fact, GateDecided) and (fact.step, fact.visit) == (step, visit):
            votes.append(vote(fact, at))
            if is_decided(gate, votes):
                return f"was decided by {fact.by or 'somebody'} at {stamp(at)}: {fact.option}"
        if isinstance(fact, StepSettled) and (fact.step, fact.visit) == (step, visit):
            return f"ended at {stamp(at)} without a decision"
    return ""


class OpenQuestion(Struct, frozen=True):
    """A question that waits for an answer: of a body that waits for it, or a request that a step has sent."""

    step: str
    visit: int
    id: str
    prompt: Any
    metadata: Any = None  # in its stored form
    until: Instant | None = None
    request: OpenRequest | None = None  # None: a body asks
    kind: str = ""  # of the answer, if it is one kind of plain value


def open_questions(graph: Graph, state: RunState) -> list[OpenQuestion]:
    """Return the open questions of a run, without those of its children: first those of bodies, then requests; of
    each the longest waiting first.
    """
    asked = [
        _question(graph, opened, call)
        for opened in state.open.values()
        for call in opened.calls.values()
        if call.signal.startswith(ANSWER) and isinstance(call.input, dict)
    ]
    return asked + [_requested(request) for request in open_requests(state) if state.life == RUNNING]


def _question(graph: Graph, opened: OpenCommand, call: Awaited) -> OpenQuestion:
    asked = call.input
    return OpenQuestion(
        graph.name(opened.step),
        opened.visit,
        asked["id"],
        asked["prompt"],
        asked.get("metadata"),
        call.until,
        kind=asked.get("kind", ""),
    )


def _requested(request: OpenRequest) -> OpenQuestion:
    data = request.data
    return OpenQuestion(
        request.step, request.visit, request.asks.id, data.get("prompt", ""), data.get("metadata"), request=request
    )


PLAIN_KINDS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
}


def why_no_plain_value(value: Any, kind: str) -> str:
    """Return why a value is not of this kind; empty if it is, or if the kind is not known."""
    if not kind or type(value) in PLAIN_KINDS.get(kind, (type(value),)):
        return ""
    shown = str(value) if isinstance(value, (bool, int, float)) else repr(value)
    return f"{shown[:60]} is not {'an' if kind == 'integer' else 'a'} {kind}"


def why_no_answer_to(question: OpenQuestion, value: Any) -> str:
    """Return why a value does not answer a question, as far as the log tells; empty if it does."""
    if question.request is not None:
        return why_no_answer(question.request.asks, value)
    why = why_no_plain_value(value, question.kind)
    return f"the answer to question {question.id!r}: {why}" if why else ""


def answer_fields(asks: Question, value: Any) -> dict[str, Any]:
    """Return the fields of the event that an answer becomes."""
    fields = value if asks.fields and isinstance(value, dict) else {"response": value}
    return {**fields, "request_id": asks.id}


def why_no_answer(asks: Question, value: Any) -> str:
    """Return why a value does not answer a request, by the names of its fields; empty if it does."""
    if not asks.fields:
        why = why_no_plain_value(value, asks.kinds.get("response", ""))
        return f"the answer to request {asks.id!r}: {why}" if why else ""
    wants = ", ".join(name if required else f"{name} (optional)" for name, required in asks.fields.items())
    if not isinstance(value, dict):
        return f"request {asks.id!r} is answered with a map of the fields of {asks.answer}: {wants}"
    wrong = [f"lacks {name!r}" for name, required in asks.fields.items() if required and name not in value]
    wrong += [f"has {name!r}" for name in value if name not in asks.fields and name != "request_id"]
    if wrong:
        return f"the answer to request {asks.id!r} {' and '.join(wrong)}; {asks.answer} has {wants}"
    misfits = {name: why_no_plain_value(value[name], kind) for name, kind in asks.kinds.items() if name in value}
    return next((f"the answer to request {asks.id!r}: {name}: {why}" for name, why in misfits.items() if why), "")
