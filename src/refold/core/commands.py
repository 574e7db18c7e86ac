"""Every order a turn can give to the store: commands, timers, letters."""

import hashlib
from typing import Any

from msgspec import Struct

from refold.core.facts import Parent
from refold.core.outcomes import Instant, Outcome, Report

SOURCE_TOOL = "source"
"""The tool that fetches the next page of a source."""


def command_id(step: str, visit: int, item: int | None = None) -> str:
    return f"{step}/{visit}" if item is None else f"{step}/{visit}/{item}"


def page_id(step: str, visit: int, page: int) -> str:
    """The command that fetches a page for the loop of this visit."""
    return f"{step}/{visit}/page{page}"


def child_id(run: str, owner: str, attempt: int = 1) -> str:
    """The id of the child run that a command (or a durable call in it) starts: the same in every retry of a commit."""
    return hashlib.sha256(f"{run}/{owner}/{attempt}".encode()).hexdigest()[:32]


class Command(Struct, frozen=True, omit_defaults=True, gc=False):
    """Run this step (this visit, this item): what a worker gets, and what the store queues it by."""

    id: str
    step: str
    visit: int
    attempt: int
    tool: str = "noop"
    item: int | None = None
    input: Any = None
    queue: str = "default"
    priority: int = 0
    not_before: Instant = 0
    timeout: float | None = None
    progress: Any = None
    recorded: dict[str, Outcome] = {}  # durable calls of earlier tries, by key
    sealed: tuple[str, ...] = ()  # digests of what is sealed in the input; whatever else looks so is plain data


class Held(Struct, frozen=True):
    """The command goes on later but nobody may claim it now; its generation lives on."""


HELD = Held()


class LetterStart(Struct, frozen=True, tag="start", omit_defaults=True):
    plan: str
    parent: Parent
    input: dict[str, Any] = {}
    depth: int = 1


class LetterEnded(Struct, frozen=True, tag="ended", omit_defaults=True):
    """A child tells its parent how it ended."""

    parent: Parent
    outcome: Outcome
    usage: dict[str, int | float] = {}


class LetterCancel(Struct, frozen=True, tag="cancel", omit_defaults=True):
    reason: str = ""
    again: bool = False  # the finalizers are given up too


class LetterPause(Struct, frozen=True, tag="pause"):
    pass


class LetterResume(Struct, frozen=True, tag="resume"):
    pass


class LetterReport(Struct, frozen=True, tag="report", omit_defaults=True):
    """What came of a command, kept by a run for itself while an internal error keeps it from being folded."""

    command: str
    report: Report


LetterBody = LetterStart | LetterEnded | LetterCancel | LetterPause | LetterResume | LetterReport


class Letter(Struct, frozen=True):
    """A message from one run to another; the key makes it one message, however often it is written."""

    key: str
    sender: str
    to: str
    body: LetterBody
