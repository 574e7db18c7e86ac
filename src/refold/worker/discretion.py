"""What a try may tell: its outcome without secrets, or a failure that says where one stands."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from refold.core.outcomes import Failed, Fault, Parked, Succeeded
from refold.core.writes import Write
from refold.errors import ToolFailed
from refold.ports import Discretion, Done, Ending, Redaction


class Open:
    """Where there are no secrets."""

    def text(self, text: str) -> str:
        return text

    def fault(self, fault: Fault) -> Fault:
        return fault

    def value(self, value: Any) -> Any:
        return value

    def stream(self) -> Redaction:
        return _as_they_are

    def check_result(self, value: Any) -> None:
        return None


def _as_they_are(texts: Sequence[str], ending: Ending) -> Sequence[str]:
    return texts


OPEN = Open()


def discreet(done: Done, discretion: Discretion) -> Done:
    if discretion is OPEN:
        return done
    outcome = done.outcome
    try:
        if type(outcome) is Failed:
            outcome = Failed(discretion.fault(outcome.fault))
            done = Done(outcome, done.started_at, done.writes, done.usage)
        elif type(outcome) is Parked:
            reason = discretion.text(outcome.reason)  # often what an error says; it is no reason to fail
            done = done if reason == outcome.reason else structs.replace(done, outcome=_because(outcome, reason))
            discretion.check_result(_plain(done.outcome))
        elif type(outcome) is Succeeded:
            discretion.check_result(outcome.result)
        else:
            discretion.check_result(_plain(outcome))
        if done.writes or done.usage:
            discretion.check_result([_told(write) for write in done.writes])
            discretion.check_result(done.usage)
        for sent in done.events:
            discretion.check_result(getattr(sent, "data", None))
    except ToolFailed as error:
        return Done(Failed(error.fault), done.started_at)
    return done


def _because(parked: Parked, reason: str) -> Parked:
    return structs.replace(parked, reason=reason)


def _told(write: Write) -> list[Any]:
    """One that is no write at all is refused where it would be stored."""
    return [getattr(write, "key", None), getattr(write, "value", None)]


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        return None  # it is refused where it would be stored
