"""What Python workflows ask people: listed and shown beside gates, and `gates answer`."""

from collections.abc import Iterator
from typing import Any

import click

from refold.cli import out, stored, words
from refold.cli.options import db_option, inputs, output_option, run_argument, value_of, who
from refold.core.codec import check_value
from refold.core.questions import ANSWER, Question, questions
from refold.core.state import TERMINAL
from refold.core.summary import Summary
from refold.errors import Conflict, NotFound
from refold.runtime.mail import Signal
from refold.runtime.reading import Reading, graph_of
from refold.stores.sqlite.store import SqliteStore

Asked = tuple[Summary, Question]
"""A question, with the run that asks it."""


class Asking:
    """Looks only into runs of Python workflows: those of playbooks ask at gates."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self._by_events: dict[str, bool] = {}

    def of_run(self, row: Summary) -> Iterator[Asked]:
        if self._may_ask(row):
            for question in questions(*Reading(self.store, row.run).read()):
                yield row, question

    def of_family(self, row: Summary) -> Iterator[Asked]:
        """Of the run and of those that it has started."""
        todo = [row]
        while todo:
            each = todo.pop()
            graph, state = Reading(self.store, each.run).read()
            if graph.by_events:
                yield from ((each, question) for question in questions(graph, state))
            children = (self.store.summary(child) for child in state.children.values())
            todo += [child for child in children if child is not None and child.status not in TERMINAL]

    def _may_ask(self, row: Summary) -> bool:
        if row.plan not in self._by_events:
            self._by_events[row.plan] = graph_of(self.store, row.plan).by_events
        return self._by_events[row.plan]


def question_object(row: Summary, question: Question) -> dict[str, Any]:
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


def question_lines(row: Summary, question: Question, now: int) -> Iterator[str]:
    yield f"run        {out.printable(stored.called(row))}"
    yield f"question   {out.printable(question.id)} (of step {out.printable(question.step)}, visit {question.visit})"
    yield f"prompt     {out.printable(str(question.prompt))}"
    if question.metadata is not None:
        yield f"metadata   {out.printable(str(question.metadata))}"
    if question.until is not None:
        yield f"until      {words.until(question.until, now)}"
    yield f"answer     {out.printable(f'refold gates answer {stored.called(row)} {question.id} VALUE')}"


def one_question(store: SqliteStore, row: Summary, id: str | None) -> Asked | None:
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
