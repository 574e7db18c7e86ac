"""What is kept of a schedule: documents with what it says and where it stands, one for each of its last times, and its
backfills. Calendars are documents too."""

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, Literal, TypeVar

from msgspec import Struct, json

from refold.core.outcomes import Instant
from refold.errors import Corrupt
from refold.ports import Document
from refold.schedules.times import When

T = TypeVar("T")

SCHEDULE, TIME, BACKFILL, CALENDAR = "schedule", "schedule_time", "backfill", "calendar"
"""The kinds of documents."""

SCHEDULE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
KEPT_TIMES = 1000  # of a schedule
MOST_WAITING = 1000  # times that wait for the end of a run
MOST_OPEN = 1000  # runs of one schedule that are not over
MOST_BACKFILLED = 10_000  # times of one backfill

Overlap = Literal["skip", "buffer_one", "buffer_all", "allow", "cancel_other", "terminate_other"]
CatchUp = Literal["none", "last", "all"]
TimeState = Literal["started", "skipped", "missed", "waiting"]


class Target(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule starts: a stored plan, and what people need to know about it."""

    workflow: str  # as it was written: a file or `module:Class`
    plan: str = ""  # the hash of the stored plan
    name: str = ""  # of the workflow
    code: str = ""  # the Python workflows that a worker needs
    language: str = "refold"  # of the templates in the input
    is_python: bool = False
    input: dict[str, Any] = {}  # may have templates
    labels: dict[str, str] = {}
    folder: str = ""  # the working directory of the steps


class Rules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens when a time comes."""

    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    within: float = 86_400  # seconds: older times are not caught up
    most: int = 100  # times that `all` catches up
    jitter: float = 0  # seconds
    start_within: float | None = None  # seconds
    pause_after: int | None = None  # failed runs in a row


class OpenRun(Struct, frozen=True, omit_defaults=True):
    """A run of a schedule that is not known to be over."""

    run: str
    planned: Instant
    stops: bool = False  # it is cancelled to make room
    asked: bool = False  # the cancellation was sent


class WaitingTime(Struct, frozen=True):
    """A time that starts when a run has ended; `number` is that of its record."""

    planned: Instant
    number: int


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule: what it says, and where it stands."""

    id: str
    target: Target
    when: When
    rules: Rules = Rules()
    paused: bool = False
    note: str = ""  # why it is paused
    by: str = ""  # who paused or made it
    file: str = ""  # the file it was read from; empty: it was made by a command
    cursor: Instant = 0  # times up to this one are decided
    planned: Instant | None = None  # the next time, without jitter
    begins: Instant | None = None  # when it starts, with jitter
    previous: Instant | None = None  # the planned time of the last start
    runs: tuple[OpenRun, ...] = ()
    waiting: tuple[WaitingTime, ...] = ()
    failures: int = 0  # failed runs in a row
    records: int = 0  # how many times were recorded
    paused_at: Instant | None = None


class TimeRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to one time of a schedule, or to several in a row that were missed together."""

    planned: Instant
    state: TimeState
    at: Instant  # when that was decided
    why: str = ""
    run: str = ""
    until: Instant | None = None  # the last of several times
    count: int = 1
    how: str = ""  # triggered by a person; empty: planned


class Backfill(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Runs for times of the past: which, and how far it is."""

    id: str
    schedule: str
    since: Instant
    until: Instant
    only: Literal["missing", "all"] = "missing"
    overlap: Literal["allow", "buffer_all"] = "allow"
    at_once: int = 1
    order: Literal["oldest", "newest"] = "oldest"
    by: str = ""
    times: tuple[Instant, ...] = ()  # that are left, in their order
    total: int = 0
    started: int = 0
    failed: int = 0
    skipped: int = 0  # times that had a run already, or could not be started
    runs: tuple[OpenRun, ...] = ()
    paused: bool = False
    stopped: bool = False
    why: str = ""  # why the last time was left out

    def is_over(self) -> bool:
        return (self.stopped or not self.times) and not self.runs


def encoded(value: "Schedule | TimeRecord | Backfill") -> bytes:
    return json.encode(value)


def read_schedule(document: Document) -> Schedule:
    return _read(document, Schedule)


def read_time(document: Document) -> TimeRecord:
    return _read(document, TimeRecord)


def read_backfill(document: Document) -> Backfill:
    return _read(document, Backfill)


def read_calendar(document: Document) -> frozenset[date]:
    return frozenset(_read(document, tuple[date, ...]))


def _read(document: Document, kind: type[T]) -> T:
    try:
        return json.decode(document.data, type=kind)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{document.kind} {document.id} is not readable: {error}") from error


def time_id(schedule: str, number: int) -> str:
    """Return the id of a record; ids are in the order of the times."""
    return f"{schedule}/{number:012d}"


def backfill_id(schedule: str, id: str) -> str:
    return f"{schedule}/{id}"


def key_of_time(schedule: str, planned: str, backfill: str = "") -> str:
    """Return the key of the run of one planned time, so that it is one run however many workers start it."""
    return f"schedule/{schedule}/{planned}" + (f"/{backfill}" if backfill else "")


def schedule_of_key(key: str) -> str:
    """Return the schedule that a key names, or an empty text."""
    head, _, rest = key.partition("/")
    return rest.partition("/")[0] if head == "schedule" else ""


def labels_of_run(schedule: Schedule, backfill: str = "") -> Mapping[str, str]:
    return {**schedule.target.labels, "schedule": schedule.id, **({"backfill": backfill} if backfill else {})}
