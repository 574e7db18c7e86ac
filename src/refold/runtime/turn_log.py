"""The lines that the engine logs about a turn: starts and ends of runs, commands, and dead letters."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.core.commands import Command, Held, LetterStart
from refold.core.decide.decision import Decision
from refold.core.facts import (
    CancelAsked,
    Fact,
    RunEnded,
    RunMigrated,
    RunPaused,
    RunReopened,
    RunResumed,
    RunStarted,
    RunTimedOut,
)
from refold.core.read.dead_letters import DeadLetter
from refold.logs import DEBUG, INFO, WARNING, Plain, event, logger
from refold.ports import Lease
from refold.runtime.mail import Expire, Mail, Settle

log = logger("runtime")

WORDS = {
    RunStarted: "run started",
    RunPaused: "run paused",
    RunResumed: "run resumed",
    CancelAsked: "run is to be cancelled",
    RunTimedOut: "run timed out",
    RunReopened: "run reopened",
    RunMigrated: "run follows another plan",
    RunEnded: "run ended",
}


class LogLine(Struct, frozen=True):
    """A line that is logged when the turn is committed."""

    level: int
    words: str
    fields: Mapping[str, Plain]


def turn_lines(
    d: Decision, mails: Sequence[Mail], commands: Mapping[str, Command | Held | None], dead: Sequence[DeadLetter]
) -> Iterator[LogLine]:
    """The events of a turn of one run, in the order in which they came about."""
    if log.isEnabledFor(INFO):
        yield from (_fact_line(d, fact) for fact in d.facts if type(fact) in WORDS and type(fact) is not RunEnded)
    if log.isEnabledFor(DEBUG):
        yield from _command_lines(d, mails, commands)
    for mail in mails:
        if isinstance(mail, Expire) and mail.command in commands:
            yield LogLine(WARNING, "command timed out or has lost too many workers", {"command": mail.command})
    for letter in dead:
        at: dict[str, Plain] = {"step": letter.step, "visit": letter.visit, "tool": letter.tool}
        yield LogLine(WARNING, "dead letter", {**at, "kind": letter.kind, "count": letter.count})
    if log.isEnabledFor(INFO):
        yield from (_fact_line(d, fact) for fact in d.facts if type(fact) is RunEnded)


def write_lines(turn: str, lines: Sequence[tuple[str, LogLine]]) -> None:
    for run, line in lines:
        event(log, line.level, line.words, {"run": run, "turn": turn, **line.fields})


def _command_lines(
    d: Decision, mails: Sequence[Mail], commands: Mapping[str, Command | Held | None]
) -> Iterator[LogLine]:
    for mail in mails:
        if isinstance(mail, Settle):
            outcome = type(mail.done.outcome).__name__.lower()
            yield LogLine(DEBUG, "command settled", {**_of_lease(mail.lease), "outcome": outcome})
    for key, order in commands.items():
        if isinstance(order, Command):
            words = "command issued" if order.attempt == 1 else "command issued again"
            fields: dict[str, Plain] = {"step": order.step, "command": key, "tool": order.tool, "queue": order.queue}
            yield LogLine(DEBUG, words, {**fields, "attempt": order.attempt})
    for letter in d.letters:
        if isinstance(letter.body, LetterStart):
            parent = letter.body.parent
            command = parent.command if parent is not None and not letter.body.predecessor else ""
            yield LogLine(
                DEBUG, "child started" if command else "successor started", {"child": letter.to, "command": command}
            )


def _of_lease(lease: Lease) -> dict[str, Plain]:
    command = lease.command
    return {"step": command.step, "command": command.id, "worker": lease.worker, "attempt": command.attempt}


def _fact_line(d: Decision, fact: Fact) -> LogLine:
    fields: dict[str, Plain] = {}
    by: Any = getattr(fact, "by", "")
    if isinstance(fact, RunStarted):
        parent = fact.parent.run if fact.parent is not None else ""
        fields = {"workflow": d.graph.plan.name, "name": fact.name, "key": fact.key, "parent": parent}
    elif isinstance(fact, RunEnded):
        error = fact.error
        failed = {"step": error.step, "kind": error.fault.kind if error.fault is not None else ""} if error else {}
        fields = {"workflow": d.graph.plan.name, "status": fact.status, **failed}
    return LogLine(INFO, WORDS[type(fact)], {**fields, "by": by})
