"""One row of a NoETL event log, whatever writer and release it is of."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from refold.core.outcomes import Instant
from refold.core.state import CANCELLED, COMPLETED, ENDING, FAILED, INITIAL, PAUSED, RUNNING, WAITING

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
GOES_ON = frozenset({RUNNING, WAITING, PAUSED, ENDING})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ITEM_IN_COMMAND = re.compile(r":i(\d+)$")


def life_of(status: str) -> str:
    """The life of a run that a NoETL status stands for; a word it does not know means that nothing has happened."""
    return LIVES.get(status.lower(), INITIAL)


def status_of(life: str) -> str:
    """The word NoETL has for the life of a run."""
    return "in_progress" if life in GOES_ON else life


class Event(Struct, frozen=True):
    """What a row says; "" and None stand for what it does not say."""

    type: str
    at: Instant
    id: str = ""
    step: str = ""
    command: str = ""  # NoETL's id of it, which workers echo in what they report
    item: int | None = None
    attempt: int = 1
    worker: str = ""
    failed: bool = False
    error: str = ""
    result: Any = None
    told: dict[str, Any] = {}  # the payload of the row's own writer, from either of its two places
    run: str = ""
    catalog: str = ""
    parent: str = ""

    @property
    def expected(self) -> int | None:
        """Into how many iterations the step fans out."""
        return _number(self.told.get("iterations_expected"))


def read_events(rows: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
    at: Instant = 0
    for row in rows:
        at = max(at, _instant(row.get("created_at"), at))
        yield _read(row, at)


def _read(row: Mapping[str, Any], at: Instant) -> Event:
    meta, result = _mapping(row.get("meta")), _mapping(row.get("result"))
    envelope = _mapping(result.get("context"))
    command = _first_text(
        meta.get("command_id"), envelope.get("command_id"), _mapping(result.get("data")).get("command_id")
    )
    return Event(
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
        told={**_mapping(row.get("context")), **envelope},
        run=_name(row.get("execution_id")),
        catalog=_name(row.get("catalog_id")),
        parent=_name(row.get("parent_execution_id")),
    )


def _item(index: Any, command: str) -> int | None:
    found = ITEM_IN_COMMAND.search(command)
    return _number(index) if _number(index) is not None else int(found[1]) if found else None


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
