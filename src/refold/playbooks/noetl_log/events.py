"""The rows of a NoETL event log, as events in one form for all releases and writers of NoETL."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from refold.core.outcomes import Instant
from refold.core.state import CANCELLED, COMPLETED, ENDING, FAILED, INITIAL, PAUSED, RUNNING, WAITING
from refold.errors import InvalidValue

LIVES = {
    "initial": INITIAL,
    "pending": INITIAL,
    "in_progress": RUNNING,
    "running": RUNNING,
    "completed": COMPLETED,
    "success": COMPLETED,
    "failed": FAILED,
    "error": FAILED,
    "cancelled": CANCELLED,
    "canceled": CANCELLED,
}
UNFINISHED = frozenset({RUNNING, WAITING, PAUSED, ENDING})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOO_DEEP = "has values within values that are too deep to be read"
ITEM_IN_COMMAND = re.compile(r":i(\d+)$")


def life_of(status: str) -> str:
    """The state of a run for a word of NoETL; an unknown word means that nothing has happened."""
    return LIVES.get(status.lower(), INITIAL)


def status_of(life: str) -> str:
    """NoETL's word for the state of a run."""
    return "in_progress" if life in UNFINISHED else life


class LogEvent(Struct, frozen=True):
    """The content of a row; "" and None stand for what is missing."""

    type: str
    at: Instant
    id: str = ""
    step: str = ""
    command: str = ""  # NoETL's id of the command, which workers repeat in their reports
    item: int | None = None
    attempt: int = 1
    worker: str = ""
    failed: bool = False
    error: str = ""
    result: Any = None
    payload: dict[str, Any] = {}  # what the writer of the row has added, in `context` or in the result's `context`
    run: str = ""
    catalog: str = ""
    parent: str = ""

    @property
    def expected(self) -> int | None:
        """How many iterations the step has."""
        return _number(self.payload.get("iterations_expected"))


def parse_rows(text: str) -> list[Mapping[str, Any]]:
    """The rows of an exported log: a JSON list, a JSON object with a list `events`, or one JSON object per line.

    Raise InvalidValue, with the number of the line or row, for anything else.
    """
    return checked_rows(_parse_json(text))


def checked_rows(rows: list[Any]) -> list[Mapping[str, Any]]:
    """Return rows that have what an event has. Raise InvalidValue, with the number of the row, for others."""
    if not rows:
        raise InvalidValue("log", "it has no events")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise InvalidValue(f"event {number}", f"must be a JSON object, not {type(row).__name__}")
        if not isinstance(row.get("event_type"), str):
            raise InvalidValue(f"event {number}", "has no text `event_type`; is this an event log of NoETL?")
    return rows


def _parse_json(text: str) -> list[Any]:
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise InvalidValue("log", TOO_DEEP) from None
    except msgspec.DecodeError:
        return [_parse_line(line, number) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and isinstance(value.get("events"), list):
        events: list[Any] = value["events"]
        return events
    return [value]


def _parse_line(line: str, number: int) -> Any:
    try:
        return msgspec.json.decode(line)
    except RecursionError:
        raise InvalidValue(f"line {number}", TOO_DEEP) from None
    except msgspec.DecodeError as error:
        raise InvalidValue(f"line {number}", f"is not JSON: {error}") from None


def read_events(rows: Iterable[Mapping[str, Any]]) -> Iterator[LogEvent]:
    at: Instant = 0
    for row in rows:
        at = max(at, _instant(row.get("created_at"), at))
        yield _read(row, at)


def _read(row: Mapping[str, Any], at: Instant) -> LogEvent:
    meta, result = _mapping(row.get("meta")), _mapping(row.get("result"))
    envelope = _mapping(result.get("context"))
    command = _first_text(
        meta.get("command_id"), envelope.get("command_id"), _mapping(result.get("data")).get("command_id")
    )
    return LogEvent(
        type=str(row.get("event_type", "")),
        at=at,
        id=_name(row.get("event_id")),
        step=_name(row.get("node_name")),
        command=command,
        item=_item(meta.get("iteration_index"), command),
        attempt=max(1, _number(row.get("attempt")) or _number(meta.get("attempt")) or 1),
        worker=_first_text(row.get("worker_id"), envelope.get("worker_id")),
        failed=life_of(_name(row.get("status"))) == FAILED,
        error=_first_text(result.get("error"), envelope.get("error"), row.get("error")),
        result=row.get("result"),
        payload={**_mapping(row.get("context")), **envelope},
        run=_name(row.get("execution_id")),
        catalog=_name(row.get("catalog_id")),
        parent=_name(row.get("parent_execution_id")),
    )


def _item(index: Any, command: str) -> int | None:
    match = ITEM_IN_COMMAND.search(command)
    return _number(index) if _number(index) is not None else int(match[1]) if match else None


def _instant(value: Any, before: Instant) -> Instant:
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        return before
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> int | None:
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else None


def _name(value: Any) -> str:
    return "" if value is None else str(value)


def _first_text(*values: Any) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")
