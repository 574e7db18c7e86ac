"""What bodies log that share this process, on its way to their runs."""

import logging
from contextvars import ContextVar

from refold.logs import is_own
from refold.ports import Say

said_to: ContextVar[Say | None] = ContextVar("said_to", default=None)
"""Whoever hears what is logged here; threads that a body starts itself have no such listener."""


class _Listener(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if is_own(record):
            if record.levelno >= logging.ERROR and logging.root.handlers == [self]:
                _as_if_nobody_listened(record)
            return  # what the engine logs is no part of a run
        say = said_to.get()
        if say is not None:
            try:
                text = self.format(record)
            except Exception:
                self.handleError(record)
                return
            for line in text.split("\n"):
                say("stderr", line)
        elif logging.root.handlers == [self]:
            _as_if_nobody_listened(record)


def _as_if_nobody_listened(record: logging.LogRecord) -> None:
    last = logging.lastResort
    if last is not None and record.levelno >= last.level:
        last.handle(record)


_listener = _Listener()
_listener.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))


def listen() -> None:
    """A program that has set up its logging keeps its level; else what is worth telling begins with INFO."""
    root = logging.root
    if _listener not in root.handlers:
        if not root.handlers and root.level == logging.WARNING:
            root.setLevel(logging.INFO)
        root.addHandler(_listener)
