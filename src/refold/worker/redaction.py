"""Removes secrets from what a body has reported; where a process has no secrets, nothing is changed."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from refold.core.outcomes import Failed, Fault, Parked, Succeeded, Write
from refold.errors import ToolFailed
from refold.ports import Done, Ending, Redaction, StreamRedaction


class NoRedaction:
    """For a process without secrets."""

    def text(self, text: str) -> str:
        return text

    def fault(self, fault: Fault) -> Fault:
        return fault

    def value(self, value: Any) -> Any:
        return value

    def stream(self) -> StreamRedaction:
        return _as_they_are

    def check_result(self, value: Any) -> None:
        return None


def _as_they_are(texts: Sequence[str], ending: Ending) -> Sequence[str]:
    return texts


NO_REDACTION = NoRedaction()


def redacted(done: Done, redaction: Redaction) -> Done:
    """Remove secrets from the texts of a report. A result, a write or an event that holds a secret fails the step."""
    if redaction is NO_REDACTION:
        return done
    outcome = done.outcome
    try:
        if type(outcome) is Failed:
            outcome = Failed(redaction.fault(outcome.fault))
            done = Done(outcome, done.started_at, done.writes, done.usage)
        elif type(outcome) is Parked:
            reason = redaction.text(outcome.reason)  # often the text of an error; it does not fail the step
            done = done if reason == outcome.reason else structs.replace(done, outcome=_because(outcome, reason))
            redaction.check_result(_plain(done.outcome))
        elif type(outcome) is Succeeded:
            redaction.check_result(outcome.result)
        else:
            redaction.check_result(_plain(outcome))
        if done.writes or done.usage:
            redaction.check_result([_write_values(write) for write in done.writes])
            redaction.check_result(done.usage)
        for sent in done.events:
            redaction.check_result(getattr(sent, "data", None))
    except ToolFailed as error:
        return Done(Failed(error.fault), done.started_at)
    return done


def _because(parked: Parked, reason: str) -> Parked:
    return structs.replace(parked, reason=reason)


def _write_values(write: Write) -> list[Any]:
    """An object that is not a write is refused where it would be stored."""
    return [getattr(write, "key", None), getattr(write, "value", None)]


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        return None  # such a value is refused where it would be stored
