"""What a try may tell: its outcome without secrets, or a failure that says where one stands."""

from typing import Any

import msgspec

from refold.core.outcomes import Failed, Fault, Succeeded
from refold.core.writes import Write
from refold.errors import ToolFailed
from refold.ports import Discretion, Done


class Open:
    """Where there are no secrets."""

    def text(self, text: str) -> str:
        return text

    def fault(self, fault: Fault) -> Fault:
        return fault

    def check_result(self, value: Any) -> None:
        return None


OPEN = Open()


def discreet(done: Done, discretion: Discretion) -> Done:
    if discretion is OPEN:
        return done
    outcome = done.outcome
    if type(outcome) is Failed:
        return Done(Failed(discretion.fault(outcome.fault)), done.started_at, done.writes, done.usage)
    try:
        if type(outcome) is Succeeded:
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


def _told(write: Write) -> list[Any]:
    """One that is no write at all is refused where it would be stored."""
    return [getattr(write, "key", None), getattr(write, "value", None)]


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        return None  # it is refused where it would be stored
