"""The engine's own log: events in plain words, with the run, step and command that each of them concerns as fields.

Loggers are those of the standard library, below `refold`. A program that sets up its logging gets every record, with
its fields in `record.fields`. Where nobody has set it up, errors go to stderr, and nothing else does.
"""

import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from logging import DEBUG, ERROR, INFO, WARNING, Logger, LogRecord
from types import TracebackType
from typing import Any, TextIO

from msgspec import json

__all__ = [
    "DEBUG",
    "ERROR",
    "INFO",
    "LEVELS",
    "WARNING",
    "Logger",
    "configure",
    "event",
    "is_own",
    "keep_level",
    "logger",
]

ROOT = "refold"
LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
LONGEST = 2000  # characters of a field; the whole text is in the run
BARE = frozenset("\"'=\\")  # characters that put a field into quotes

Plain = str | int | float | bool | None
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def logger(name: str) -> Logger:
    return logging.getLogger(f"{ROOT}.{name}")


def is_own(record: LogRecord) -> bool:
    return record.name == ROOT or record.name.startswith(f"{ROOT}.")


def keep_level(level: int) -> None:
    """The engine logs from this level on, unless a program has said otherwise, whatever becomes of the root's level."""
    own = logging.getLogger(ROOT)
    if own.level == logging.NOTSET:
        own.setLevel(level)


def event(
    to: Logger,
    level: int,
    words: str,
    about: Mapping[str, Plain] = {},
    /,
    *,
    error: BaseException | str | None = None,
    **fields: Plain,
) -> None:
    """Log an event, with what `about` and the keywords say as its fields; one without a value is left out.

    `error` is shown with its traceback; as a text, it is a traceback whose secrets were taken out.

    Where many events are logged, ask `to.isEnabledFor(level)` once before the fields are computed.
    """
    if not to.isEnabledFor(level):
        return
    known = {name: value for name, value in {**about, **fields}.items() if value is not None and value != ""}
    raised = error if isinstance(error, BaseException) else None
    told = (type(raised), raised, raised.__traceback__) if raised is not None else None
    record = to.makeRecord(to.name, level, "", 0, words, (), told, extra={"fields": known})
    record.exc_text = error if isinstance(error, str) else None
    to.handle(record)


def configure(mode: str, level: str, stream: TextIO | None = None) -> None:
    """Print the log, a line for each event: for programs of Refold. A library leaves that to whoever uses it."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if mode == "json" else TextLines())
    own = logging.getLogger(ROOT)
    own.handlers[:] = [handler]
    own.propagate = False  # or what a step has set up in this process would print it once more
    own.setLevel(LEVELS[level])


class TextLines(logging.Formatter):
    """`2026-11-18T07:20:01.123Z INFO refold.runtime run started run=ab12 workflow=etl`; a traceback stands in lines of
    its own, each of them indented, so that no message can look like an event."""

    def format(self, record: LogRecord) -> str:
        fields = [f"{name}={_quoted(_shortened(value))}" for name, value in _fields(record).items()]
        head = (_moment(record), record.levelname, record.name, _on_one_line(record.getMessage()), *fields)
        return "\n".join([" ".join(head), *(f"    {_on_one_line(line)}" for line in _traceback(record).splitlines())])


class JsonLines(logging.Formatter):
    """The same as an object: `time`, `level`, `logger`, `event`, the fields, and `traceback` if there is one."""

    def format(self, record: LogRecord) -> str:
        told: dict[str, Plain] = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "event": _storable(record.getMessage()),
        }
        told.update((name, _shortened(value)) for name, value in _fields(record).items() if name not in told)
        if shown := _traceback(record):
            told["traceback"] = _storable(shown)
        return _spelt_out(json.encode(told).decode())


class _Unheard(logging.Handler):
    """Prints errors where nobody has set up logging, as Python does; a defect must not be silent."""

    def emit(self, record: LogRecord) -> None:
        heard = logging.root.handlers or logging.getLogger(ROOT).handlers != [self]
        if not heard and logging.lastResort is not None:
            logging.lastResort.handle(record)


logging.getLogger(ROOT).addHandler(_Unheard(ERROR))


def _moment(record: LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def _fields(record: LogRecord) -> Mapping[str, Any]:
    found = getattr(record, "fields", None)
    return found if isinstance(found, dict) else {}


def _traceback(record: LogRecord) -> str:
    raised: _Raised | None = record.exc_info
    if record.exc_text:
        return record.exc_text.rstrip()
    return "".join(traceback.format_exception(raised[1])).rstrip() if raised is not None and raised[1] else ""


def _shortened(value: Any) -> Plain:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = _storable(str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text) - LONGEST} characters more)"


def _quoted(value: Plain) -> str:
    text = value if isinstance(value, str) else json.encode(value).decode()
    if text.isprintable() and text and " " not in text and BARE.isdisjoint(text):
        return text
    return _spelt_out(json.encode(text).decode())


def _on_one_line(text: str) -> str:
    text = _storable(text)
    return text if text.isprintable() else _spelt_out(text)


def _spelt_out(text: str) -> str:
    """Without what a terminal would obey: control codes, line ends, and marks that turn text around."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _code(each) for each in text)


def _code(character: str) -> str:
    """As JSON spells it."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def _storable(text: str) -> str:
    """A lone surrogate is not text; it is spelt out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
