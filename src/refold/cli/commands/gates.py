"""Commands about gates: `gates list`, `show`, `approve`, `reject`; the first two show what Python workflows ask too."""

import sys
from collections.abc import Iterator
from typing import Any

import click
from msgspec import json

from refold.cli import output as out
from refold.cli import stored, words
from refold.cli.options import db_option, inputs, output_option, run_argument, value_of, who
from refold.core.codec import check_value
from refold.core.fold.gates import most_votes
from refold.core.graph import Graph
from refold.core.read.gates import ANSWER, OpenGate, OpenQuestion, open_gates, open_questions
from refold.core.read.summary import Summary
from refold.core.state import ENDING, PAUSED, RUNNING, TERMINAL, WAITING, RunState
from refold.errors import Conflict, NotFound
from refold.runtime.mail import DecideGate, Signal
from refold.runtime.plans import graph_of
from refold.runtime.reading import Reading
from refold.stores.sqlite.store import SqliteStore

RunQuestion = tuple[Summary, OpenQuestion]
"""A question, with the run that asks it."""


class Asking:
    """Looks only into runs of Python workflows: those of playbooks ask at gates."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self._by_events: dict[str, bool] = {}

    def of_run(self, row: Summary) -> Iterator[RunQuestion]:
        if self._may_ask(row):
            for question in open_questions(*Reading(self.store, row.run).read()):
                yield row, question

    def of_family(self, row: Summary) -> Iterator[RunQuestion]:
        """Of the run and of those that it has started."""
        todo = [row]
        while todo:
            each = todo.pop()
            graph, state = Reading(self.store, each.run).read()
            if graph.by_events:
                yield from ((each, question) for question in open_questions(graph, state))
            children = (self.store.summary(child) for child in state.children.values())
            todo += [child for child in children if child is not None and child.status not in TERMINAL]

    def _may_ask(self, row: Summary) -> bool:
        if row.plan not in self._by_events:
            self._by_events[row.plan] = graph_of(self.store, row.plan).by_events
        return self._by_events[row.plan]


def question_object(row: Summary, question: OpenQuestion) -> dict[str, Any]:
    """For machines."""
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
        "deadline": words.stamp(question.until or 0),
    }


def question_lines(row: Summary, question: OpenQuestion, now: int) -> Iterator[str]:
    yield f"run        {out.printable(stored.called(row))}"
    yield f"question   {out.printable(question.id)} (of step {out.printable(question.step)}, visit {question.visit})"
    yield f"prompt     {out.printable(str(question.prompt))}"
    if question.metadata is not None:
        yield f"metadata   {out.printable(str(question.metadata))}"
    if question.until is not None:
        yield f"until      {words.until(question.until, now)}"
    yield f"answer     {out.printable(f'refold gates answer {stored.called(row)} {question.id} VALUE')}"


def one_question(store: SqliteStore, row: Summary, id: str | None) -> RunQuestion | None:
    """The one of this id, or of this step if it asks only one; without either the only one. None if there is none."""
    found = list(Asking(store).of_family(row))
    named = [pair for pair in found if id is None or pair[1].id == id]
    fitting = named or [pair for pair in found if pair[1].step == id]
    if len(fitting) > 1:
        ids = ", ".join(question.id for _, question in fitting)
        raise Conflict(f"run {stored.called(row)} asks several questions; name one: {ids}")
    return fitting[0] if fitting else None


@click.command()
@run_argument()
@click.argument("question", metavar="ID")
@click.argument("value", required=False)
@click.option("-i", "--input", "pairs", multiple=True, metavar="K=V", help="The answer as an object, key by key.")
@output_option
@db_option
def answer(run: str, question: str, value: str | None, pairs: tuple[str, ...], output: str, db: str) -> None:
    """Answer what a Python workflow asks with `ctx.ask`.

    ID is that of the question, or its step if it asks only one; `refold gates list` shows it. The VALUE is JSON, or
    else text.
    """
    from refold.wiring import open_intake

    if (value is not None) == bool(pairs):
        raise click.UsageError("an answer is a VALUE, or -i key by key")
    told = inputs(pairs, None) if pairs else value_of(value or "")
    check_value(told, "value")
    with stored.opened(db) as store:
        row = stored.found(store, run)
        asked = one_question(store, row, question)
        if asked is None:
            ids = ", ".join(each.id for _, each in Asking(store).of_family(row)) or "none"
            raise NotFound(f"run {stored.called(row)} asks no question {question!r}; open: {ids}")
    asking, found = asked
    with open_intake(db) as (intake, _):
        intake.send(asking.run, Signal(f"{ANSWER}{found.id}", told, who()))
    if output != "table":
        out.put_json({"run": asking.run, "question": found.id, "value": told}, output)
        return
    out.tell(f"{stored.called(asking)} {found.id}: answered")


ALIVE = (WAITING, RUNNING, PAUSED, ENDING)
ALL = 1_000_000_000


@click.command("list")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@output_option
@db_option
def list_gates(limit: int, output: str, db: str) -> None:
    """The gates that wait for a decision and the questions that wait for an answer, of the newest runs first.

    A question of a Python workflow stands under its id, with which `refold gates answer` answers it.
    """
    with stored.opened(db) as store:
        found = [pair for pair, _ in zip(_waiting(store), range(limit), strict=False)]
    if output != "table":
        out.put_json([_object(row, asked) for row, asked in found], output)
        return
    now = words.now()
    lines = [(stored.called(row), *_in_short(asked, now)) for row, asked in found]
    heads = ("RUN", "GATE", "VISIT", "ASSIGNEE", "APPROVALS", "UNTIL", "PROMPT")
    out.put(out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width()))


def _waiting(store: SqliteStore) -> Iterator[tuple[Summary, OpenGate | OpenQuestion]]:
    """A row of the list knows whether its run has gates; only those are looked at, and Python workflows."""
    rows = [row for status in ALIVE for row in store.summaries(status, ALL)]
    asking = Asking(store)
    for row in sorted(rows, key=lambda row: (-row.created_at, row.run)):
        if row.gates:
            for gate in open_gates(*Reading(store, row.run).read()):
                yield row, gate
        else:
            yield from asking.of_run(row)


def _in_short(asked: OpenGate | OpenQuestion, now: int) -> tuple[str, ...]:
    if isinstance(asked, OpenQuestion):
        until = words.until(asked.until, now) if asked.until is not None else ""
        return asked.id, str(asked.visit), "", "", until, _text(asked.prompt)
    until = words.until(asked.deadline, now) if asked.deadline is not None else ""
    return asked.step, str(asked.visit), asked.assignee, _approvals(asked), until, _text(asked.prompt)


def _object(row: Summary, asked: OpenGate | OpenQuestion) -> dict[str, Any]:
    return question_object(row, asked) if isinstance(asked, OpenQuestion) else gate_object(row, asked)


def _approvals(gate: OpenGate) -> str:
    return f"{most_votes(gate.approvals)} of {gate.min_approvals}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.encode(value).decode()


def gate_object(row: Summary, gate: OpenGate) -> dict[str, Any]:
    """For machines."""
    return {
        "run": row.run,
        "name": row.name or None,
        "workflow": row.workflow,
        "gate": gate.step,
        "visit": gate.visit,
        "type": gate.type,
        "prompt": gate.prompt,
        "options": gate.options,
        "refuse": gate.refuse,
        "form": gate.form,
        "assignee": gate.assignee or None,
        "min_approvals": gate.min_approvals,
        "approvals": gate.approvals,
        "deadline": words.stamp(gate.deadline or 0),
        "on_timeout": gate.on_timeout if gate.deadline is not None else None,
    }


def gate_argument(command: Any) -> Any:
    """`[GATE]`: the step, if a run waits at several gates."""
    return click.argument("gate", metavar="[GATE]", required=False)(command)


@click.command()
@run_argument()
@gate_argument
@output_option
@db_option
def show(run: str, gate: str | None, output: str, db: str) -> None:
    """What a gate asks, what can be chosen, and who has decided so far; or what a question of a Python workflow is."""
    with stored.opened(db) as store:
        row = stored.found(store, run)
        graph, state = Reading(store, row.run).read()
        at_gate = any(gate in (None, each.step) for each in open_gates(graph, state))
        question = None if at_gate else one_question(store, row, gate)
        row, found = question if question is not None else (row, _one(row, graph, state, gate))
    if output != "table":
        out.put_json(_object(row, found), output)
        return
    now = words.now()
    out.put("\n".join(question_lines(row, found, now) if isinstance(found, OpenQuestion) else _lines(row, found, now)))


def _lines(row: Summary, gate: OpenGate, now: int) -> Iterator[str]:
    yield f"run        {out.printable(stored.called(row))}"
    yield f"gate       {out.printable(gate.step)} ({gate.type}, visit {gate.visit})"
    yield f"prompt     {out.printable(_text(gate.prompt))}"
    if gate.assignee:
        yield f"assignee   {out.printable(gate.assignee)}"
    for option, label in gate.options.items():
        said = f"  {out.printable(label)}" if label != option else ""
        yield f"option     {out.printable(option)}{said}" + ("  (refuses)" if option in gate.refuse else "")
    if gate.form is not None:
        yield f"form       {out.printable(json.encode(gate.form).decode())}"
    if gate.min_approvals > 1:
        yield f"approvals  {_approvals(gate)}"
    for each in gate.approvals:
        yield f"           {out.printable(each['option'])} by {out.printable(each['by'])} at {each['at']}"
    if gate.deadline is not None:
        yield f"until      {words.until(gate.deadline, now)}, then {gate.on_timeout}"


def deciding(command: Any) -> Any:
    """What every decision can say."""
    for option in (
        click.option("--by", metavar="NAME", default=None, help="Who decides (you)."),
        click.option("--option", metavar="OPTION", help="Which option, if not the one that is meant by the command."),
        click.option("--feedback", metavar="TEXT", help="What the decision says besides."),
        click.option("-i", "--input", "pairs", multiple=True, metavar="K=V", help="The same as an object, key by key."),
        output_option,
        db_option,
    ):
        command = option(command)
    return run_argument()(gate_argument(command))


@click.command()
@deciding
def approve(run: str, gate: str | None, **told: Any) -> None:
    """Decide for a gate, so that its run goes on.

    The option is `approve`, or else the first that does not refuse.
    """
    _decide(run, gate, False, told)


@click.command()
@deciding
def reject(run: str, gate: str | None, **told: Any) -> None:
    """Decide against a gate; its step fails.

    The option is `reject`, or else the first that refuses.
    """
    _decide(run, gate, True, told)


def _decide(run: str, gate: str | None, refuses: bool, told: dict[str, Any]) -> None:
    """The decision is for the visit that is seen here, and for no later one."""
    from refold.wiring import open_intake

    if told["feedback"] is not None and told["pairs"]:
        raise click.UsageError("--feedback and -i exclude each other")
    with stored.opened(told["db"]) as store:
        row = stored.found(store, run)
        graph, state = Reading(store, row.run).read()
        if graph.by_events:
            raise Conflict(f"{stored.called(row)} has no gates; `refold gates answer {stored.called(row)} ID VALUE`")
        step, visit, option = _choice(row, graph, state, gate, refuses, told["option"])
    feedback = inputs(told["pairs"], None) if told["pairs"] else told["feedback"]
    by = who() if told["by"] is None else told["by"]
    with open_intake(told["db"]) as (intake, store):
        intake.send(row.run, DecideGate(step, option, by, feedback, visit))
        after = Reading(store, row.run).read()
    _tell(row, step, visit, option, after, told["output"])


def _choice(
    row: Summary, graph: Graph, state: RunState, gate: str | None, refuses: bool, option: str | None
) -> tuple[str, int | None, str]:
    """Which gate, which visit of it, and which option; one that does not wait is named all the same, to be refused."""
    if gate is None and len(graph.gates) == 1:
        gate = graph.name(next(iter(graph.gates)))
    if gate is not None and not any(each.step == gate for each in open_gates(graph, state)):
        return gate, None, option or ("reject" if refuses else "approve")
    found = _one(row, graph, state, gate)
    fits = [name for name in found.options if (name in found.refuse) == refuses]
    usual = "reject" if refuses else "approve"
    chosen = option or (usual if usual in found.options else next(iter(fits), ""))
    if not chosen:
        raise Conflict(f"no option of gate {found.step!r} {'refuses' if refuses else 'approves'}; name one: --option")
    return found.step, found.visit, chosen


def _one(row: Summary, graph: Graph, state: RunState, gate: str | None) -> OpenGate:
    """The gate of this name, or the only one."""
    found = [each for each in open_gates(graph, state) if gate is None or each.step == gate]
    name = stored.called(row)
    if gate is not None and not found:
        known = gate in graph.index and graph.index[gate] in graph.gates
        raise (Conflict if known else NotFound)(f"run {name} does not wait at a gate {gate!r}")
    if not found:
        raise Conflict(f"run {name} is {row.status} and waits at no gate")
    if len(found) > 1:
        raise Conflict(f"run {name} waits at several gates; name one: {', '.join(each.step for each in found)}")
    return found[0]


def _tell(row: Summary, step: str, visit: int | None, option: str, after: tuple[Graph, RunState], output: str) -> None:
    graph, state = after
    left = next((each for each in open_gates(graph, state) if (each.step, each.visit) == (step, visit)), None)
    if output != "table":
        told = {"run": row.run, "gate": step, "visit": visit, "option": option, "decided": left is None}
        out.put_json({**told, "approvals": left.approvals if left is not None else None}, output)
        return
    count = "decided" if left is None else f"{_approvals(left)} approvals"
    out.tell(f"{stored.called(row)} {step}: {option}, {count}")
