"""Commands about gates: `gates list`, `show`, `approve`, `reject`; the first two show what Python workflows ask too."""

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click
from msgspec import json

from refold.cli import database, words
from refold.cli import output as out
from refold.cli.options import inputs, output_option, run_argument, store_option, value_of, who
from refold.cli.settings import server
from refold.cli.steering import steering
from refold.cli.unserved import tell_if_unserved
from refold.core.codec import check_value
from refold.core.fold.gates import most_votes
from refold.core.graph import Graph
from refold.core.outcomes import ANSWER
from refold.core.read.gates import OpenGate, OpenQuestion, open_gates, why_no_answer_to
from refold.core.read.summary import Summary
from refold.core.state import RunState
from refold.errors import Conflict, InvalidValue, NotFound
from refold.queries.gates import (
    choose_option,
    find_gate,
    find_question,
    questions_of,
    waiting_for_people,
    waiting_object,
)
from refold.queries.reading import RunReader
from refold.queries.runs import run_label
from refold.runtime.mail import DecideGate, Signal

NAMED = ("prompt", "request_id", "metadata")  # fields that every request has


def question_lines(row: Summary, question: OpenQuestion, now: int) -> Iterator[str]:
    yield f"run        {out.printable(run_label(row))}"
    yield f"question   {out.printable(question.id)} (of step {out.printable(question.step)}, visit {question.visit})"
    yield f"prompt     {out.printable(str(question.prompt))}"
    if question.metadata is not None:
        yield f"metadata   {out.printable(str(question.metadata))}"
    if question.request is not None:
        own = {name: each for name, each in question.request.data.items() if name not in NAMED}
        yield f"event      {out.printable(question.request.type)}"
        yield from (f"           {out.printable(f'{name} = {each!r}')}" for name, each in own.items())
        yield from (
            f"field      {out.printable(name)}" + "  (required)" * required
            for name, required in question.request.asks.fields.items()
        )
    if question.until is not None:
        yield f"until      {words.until(question.until, now)}"
    yield f"answer     {out.printable(f'refold gates answer {run_label(row)} {question.id} VALUE')}"


@click.command()
@run_argument()
@click.argument("parts", metavar="[ID] [VALUE]", nargs=-1)
@click.option("-i", "--input", "pairs", multiple=True, metavar="K=V", help="The answer as an object, key by key.")
@output_option
@store_option
def answer(run: str, parts: tuple[str, ...], pairs: tuple[str, ...], output: str, db: str) -> None:
    """Answer a question of a Python workflow.

    A workflow asks with `ctx.ask`, or with an `InputRequestEvent` that a step returns. ID is that of the question, or
    its step if it asks only one; `refold gates list` shows it. A run that asks a single question needs no ID. The VALUE
    is JSON, or else text.
    """
    if len(parts) > 2 - bool(pairs) or not (parts or pairs):
        raise click.UsageError("an answer is a VALUE, or -i key by key; the ID of the question stands before it")
    question = parts[0] if len(parts) == 2 or (parts and pairs) else None
    value_given = inputs(pairs, None) if pairs else value_of(parts[-1])
    check_value(value_given, "value")
    with database.reading(db) as views:
        row = database.find_run(views, run, changes=True)
        if question is None and parts and any(parts[0] in (each.id, each.step) for _, each in questions_of(views, row)):
            raise click.UsageError(f"{parts[0]!r} is a question; its answer is missing: a VALUE, or -i key by key")
        question_found = find_question(views, row, question)
        if question_found is None:
            ids = ", ".join(other.id for _, other in questions_of(views, row)) or "none"
            missing = "nothing" if question is None else f"no question {question!r}"
            raise NotFound(f"run {run_label(row)} asks {missing}; open: {ids}")
    asking, open_question = question_found
    why = why_no_answer_to(open_question, value_given)
    if why:
        raise InvalidValue("VALUE", why)
    with steering(db) as there:
        there.send(asking.run, Signal(f"{ANSWER}{open_question.id}", value_given, who()))
    if output != "table":
        out.print_json({"run": asking.run, "question": open_question.id, "value": value_given}, output)
        return
    out.print_message(f"{run_label(asking)} {open_question.id}: answered")
    tell_if_unserved(db, asking.run)


@click.command("list")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@output_option
@store_option
def list_gates(limit: int, output: str, db: str) -> None:
    """List the gates and questions that wait for a person.

    Those of the newest runs come first. A question of a Python workflow is listed by its id; `refold gates answer`
    takes this id.
    """
    with database.reading(db) as views:
        waiting = list(islice(waiting_for_people(views), limit))
    if output != "table":
        out.print_json([waiting_object(row, asked) for row, asked in waiting], output)
        return
    if not waiting:
        out.print_message("no gate and no question waits for a person")
        return
    now = words.now()
    lines = [(run_label(row), *_in_short(asked, now)) for row, asked in waiting]
    heads = ("RUN", "GATE", "VISIT", "ASSIGNEE", "APPROVALS", "UNTIL", "PROMPT")
    out.print_data(out.table(heads, lines, out.has_colour(sys.stdout), out.terminal_width()))


def _in_short(asked: OpenGate | OpenQuestion, now: int) -> tuple[str, ...]:
    if isinstance(asked, OpenQuestion):
        until = words.until(asked.until, now) if asked.until is not None else ""
        return asked.id, str(asked.visit), "", "", until, _text(asked.prompt)
    until = words.until(asked.deadline, now) if asked.deadline is not None else ""
    return asked.step, str(asked.visit), asked.assignee, _approvals(asked), until, _text(asked.prompt)


def _approvals(gate: OpenGate) -> str:
    return f"{most_votes(gate.approvals)} of {gate.min_approvals}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.encode(value).decode()


def gate_argument(command: Any) -> Any:
    """`[GATE]`: the step, if a run waits at several gates."""
    return click.argument("gate", metavar="[GATE]", required=False)(command)


@click.command()
@run_argument()
@gate_argument
@output_option
@store_option
def show(run: str, gate: str | None, output: str, db: str) -> None:
    """Show a gate with its options and votes, or a question."""
    with database.reading(db) as views:
        row = database.find_run(views, run)
        graph, state = RunReader(views, row.run).read()
        at_gate = any(gate in (None, open_gate.step) for open_gate in open_gates(graph, state))
        question = None if at_gate else find_question(views, row, gate)
        row, waiting = question if question is not None else (row, find_gate(row, graph, state, gate))
    if output != "table":
        out.print_json(waiting_object(row, waiting), output)
        return
    now = words.now()
    out.print_data(
        "\n".join(question_lines(row, waiting, now) if isinstance(waiting, OpenQuestion) else _lines(row, waiting, now))
    )


def _lines(row: Summary, gate: OpenGate, now: int) -> Iterator[str]:
    yield f"run        {out.printable(run_label(row))}"
    yield f"gate       {out.printable(gate.step)} ({gate.type}, visit {gate.visit})"
    yield f"prompt     {out.printable(_text(gate.prompt))}"
    if gate.assignee:
        yield f"assignee   {out.printable(gate.assignee)}"
    for option, label in gate.options.items():
        shown_label = f"  {out.printable(label)}" if label != option else ""
        yield f"option     {out.printable(option)}{shown_label}" + ("  (refuses)" if option in gate.refuse else "")
    for choice, label in gate.choices.items():
        shown_label = f"  {out.printable(label)}" if label != choice else ""
        yield f"choice     {out.printable(choice)}{shown_label}"
    if gate.form is not None:
        yield f"form       {out.printable(json.encode(gate.form).decode())}"
    if gate.min_approvals > 1:
        yield f"approvals  {_approvals(gate)}"
    for vote in gate.approvals:
        yield f"           {out.printable(vote['option'])} by {out.printable(vote['by'])} at {vote['at']}"
    if gate.deadline is not None:
        yield f"until      {words.until(gate.deadline, now)}, then {gate.on_timeout}"


def decision_options(command: Any) -> Any:
    """The options of every decision."""
    for option in (
        click.option("--by", metavar="NAME", default=None, help="Who decides (you)."),
        click.option("--option", metavar="OPTION", help="Which option, if not the one that is meant by the command."),
        click.option(
            "--choose",
            "choices",
            multiple=True,
            metavar="CHOICE",
            help="A choice that the gate offers; can be repeated.",
        ),
        click.option("--feedback", metavar="TEXT", help="A comment that is kept with the decision."),
        click.option("-i", "--input", "pairs", multiple=True, metavar="K=V", help="The same as an object, key by key."),
        output_option,
        store_option,
    ):
        command = option(command)
    return run_argument()(gate_argument(command))


@click.command()
@decision_options
def approve(run: str, gate: str | None, **choices: Any) -> None:
    """Decide for a gate, so that its run continues.

    The option is `approve`, or else the first that does not refuse.
    """
    _decide(run, gate, False, choices)


@click.command()
@decision_options
def reject(run: str, gate: str | None, **choices: Any) -> None:
    """Decide against a gate; its step fails.

    The option is `reject`, or else the first that refuses.
    """
    _decide(run, gate, True, choices)


def _decide(run: str, gate: str | None, refuses: bool, choices: dict[str, Any]) -> None:
    """The decision is for the visit that is seen here, and for no later one."""
    if choices["by"] is not None and server():
        raise click.UsageError("--by is for databases: a server knows by the token who decides")
    if choices["feedback"] is not None and choices["pairs"]:
        raise click.UsageError("--feedback and -i exclude each other")
    with database.reading(choices["db"]) as views:
        row = database.find_run(views, run, changes=True)
        graph, state = RunReader(views, row.run).read()
        if graph.by_events:
            raise Conflict(
                f"run {run_label(row)} has no gates; `refold gates answer {run_label(row)} ID VALUE` answers a question"
            )
        step, visit, option = choose_option(row, graph, state, gate, refuses, choices["option"])
    feedback = inputs(choices["pairs"], None) if choices["pairs"] else choices["feedback"]
    by = who() if choices["by"] is None else choices["by"]
    with steering(choices["db"]) as there:
        there.send(row.run, DecideGate(step, option, by, feedback, visit, choices["choices"]))
        after = RunReader(there.views, row.run).read()
    _print_decision(row, step, visit, option, after, choices["output"])
    if choices["output"] == "table":
        tell_if_unserved(choices["db"], row.run)


def _print_decision(
    row: Summary, step: str, visit: int | None, option: str, after: tuple[Graph, RunState], output: str
) -> None:
    graph, state = after
    left = next((gate for gate in open_gates(graph, state) if (gate.step, gate.visit) == (step, visit)), None)
    if output != "table":
        decision = {"run": row.run, "gate": step, "visit": visit, "option": option, "decided": left is None}
        out.print_json({**decision, "approvals": left.approvals if left is not None else None}, output)
        return
    count = "decided" if left is None else f"{_approvals(left)} approvals"
    out.print_message(f"{run_label(row)} {step}: {option}, {count}")


COMMANDS = {"list": list_gates, "show": show, "approve": approve, "reject": reject, "answer": answer}
