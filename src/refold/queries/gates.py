"""Gates that wait for a decision, and questions of Python workflows that wait for an answer."""

from collections.abc import Iterator
from typing import Any

from refold.core.graph import Graph
from refold.core.read.gates import OpenGate, OpenQuestion, open_gates, open_questions
from refold.core.read.summary import Summary
from refold.core.state import ENDING, PAUSED, RUNNING, TERMINAL, WAITING, RunState
from refold.errors import Conflict, NotFound
from refold.ports import RunFilter, Views
from refold.queries.reading import RunReader, graph_of
from refold.queries.runs import list_runs, run_label, stamp

UNFINISHED = (WAITING, RUNNING, PAUSED, ENDING)

RunQuestion = tuple[Summary, OpenQuestion]
"""A question, with the run that asks it."""


def waiting_for_people(views: Views) -> Iterator[tuple[Summary, OpenGate | OpenQuestion]]:
    """Every open gate and question, those of the newest runs first.

    The row of a run says whether it has gates; only runs with gates and runs of Python workflows are read.
    """
    rows = [row for status in UNFINISHED for row in list_runs(views, RunFilter(status))]
    by_events: dict[str, bool] = {}
    for row in sorted(rows, key=lambda row: (-row.created_at, row.run)):
        if row.gates:
            yield from ((row, gate) for gate in open_gates(*RunReader(views, row.run).read()))
            continue
        if row.plan not in by_events:
            by_events[row.plan] = graph_of(views, row.plan).by_events
        if by_events[row.plan]:
            yield from ((row, question) for question in open_questions(*RunReader(views, row.run).read()))


def questions_of(views: Views, row: Summary) -> Iterator[RunQuestion]:
    """The questions of a run and of the runs that it has started."""
    unread = [row]
    while unread:
        asking = unread.pop()
        graph, state = RunReader(views, asking.run).read()
        if graph.by_events:
            yield from ((asking, question) for question in open_questions(graph, state))
        children = (views.summary(child) for child in state.children.values())
        unread += [child for child in children if child is not None and child.status not in TERMINAL]


def find_question(views: Views, row: Summary, id: str | None) -> RunQuestion | None:
    """Find the question of this id, or of this step if it asks only one; without either the only one."""
    questions = list(questions_of(views, row))
    by_id = [pair for pair in questions if id is None or pair[1].id == id]
    fitting = by_id or [pair for pair in questions if pair[1].step == id]
    if len({(asking.run, question.id) for asking, question in fitting}) > 1:
        ids = ", ".join(question.id for _, question in fitting)
        raise Conflict(f"run {run_label(row)} asks several questions; name one: {ids}")
    return fitting[0] if fitting else None


def find_gate(row: Summary, graph: Graph, state: RunState, gate: str | None) -> OpenGate:
    """Find the open gate of this name, or the only one."""
    gates = [open_gate for open_gate in open_gates(graph, state) if gate is None or open_gate.step == gate]
    name = run_label(row)
    if gate is not None and not gates:
        exists = gate in graph.index and graph.index[gate] in graph.gates
        raise (Conflict if exists else NotFound)(f"run {name} does not wait at a gate {gate!r}")
    if not gates:
        raise Conflict(f"run {name} is {row.status} and waits at no gate")
    if len(gates) > 1:
        raise Conflict(f"run {name} waits at several gates; name one: {', '.join(each.step for each in gates)}")
    return gates[0]


def choose_option(
    row: Summary, graph: Graph, state: RunState, gate: str | None, refuses: bool, option: str | None
) -> tuple[str, int | None, str]:
    """Choose a gate, its visit and an option. A gate that does not wait is returned without a visit, so that whoever
    receives the decision refuses it."""
    usual = "reject" if refuses else "approve"
    if gate is None and len(graph.gates) == 1:
        gate = graph.name(next(iter(graph.gates)))
    if gate is not None and not any(open_gate.step == gate for open_gate in open_gates(graph, state)):
        return gate, None, option or usual
    open_gate = find_gate(row, graph, state, gate)
    fitting = [name for name in open_gate.options if (name in open_gate.refuse) == refuses]
    chosen = option or (usual if usual in open_gate.options else next(iter(fitting), ""))
    if not chosen:
        verb = "refuses" if refuses else "approves"
        raise Conflict(f"no option of gate {open_gate.step!r} {verb}; name one: --option")
    return open_gate.step, open_gate.visit, chosen


def waiting_object(row: Summary, waiting: OpenGate | OpenQuestion) -> dict[str, Any]:
    """Return a gate or a question as JSON."""
    if isinstance(waiting, OpenQuestion):
        return _question_object(row, waiting)
    return {
        "run": row.run,
        "name": row.name or None,
        "workflow": row.workflow,
        "gate": waiting.step,
        "visit": waiting.visit,
        "type": waiting.type,
        "prompt": waiting.prompt,
        "options": waiting.options,
        "refuse": waiting.refuse,
        "choices": waiting.choices,
        "form": waiting.form,
        "assignee": waiting.assignee or None,
        "min_approvals": waiting.min_approvals,
        "approvals": waiting.approvals,
        "deadline": stamp(waiting.deadline or 0),
        "on_timeout": waiting.on_timeout if waiting.deadline is not None else None,
    }


def _question_object(row: Summary, question: OpenQuestion) -> dict[str, Any]:
    sent = question.request
    return {
        "run": row.run,
        "name": row.name or None,
        "workflow": row.workflow,
        "gate": question.id,
        "step": question.step,
        "visit": question.visit,
        "type": "question",
        "prompt": question.prompt,
        "metadata": question.metadata,
        "event": None if sent is None else sent.type,
        "data": None if sent is None else sent.data,
        "fields": None if sent is None else sent.asks.fields or None,
        "deadline": stamp(question.until or 0),
    }
