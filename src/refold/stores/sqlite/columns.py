"""The columns of each table as they are read: what does not fit its type is named by table, key and column.

A file can come from anybody. SQLite does not check on reading that a value has the type of its column, and a seal is
easily forged, so whatever is read here is data until it has been checked.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, TypeVar

import msgspec

from refold.errors import Corrupt

T = TypeVar("T")
Values = tuple[Any, ...]

INT, TEXT, BLOB = (int,), (str,), (bytes,)
REAL, MAYBE_REAL = (float,), (float, type(None))
MAYBE_INT, MAYBE_TEXT = (int, type(None)), (str, type(None))

WORDS = {int: "an integer", str: "text in UTF-8", bytes: "a blob", float: "a number", type(None): "null"}


def malformed(table: str, key: Values, column: str, why: object) -> Corrupt:
    """Keys and reasons may hold anything, so they are spelt out."""
    named = ", ".join(_short(each) for each in key)
    return Corrupt(f"table {table}, key ({named}), column {column}: {why}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


class Columns:
    """What a query returns of a table; `key` are the first columns, or those that it was asked by."""

    def __init__(self, table: str, **columns: tuple[type, ...]) -> None:
        self.table, self.columns = table, columns
        self._fits = frozenset(product(*columns.values()))

    def check(self, key: Values, row: Values) -> None:
        if tuple(map(type, row)) not in self._fits:
            self._name(key, row)

    def _name(self, key: Values, row: Values) -> None:
        for (column, kinds), value in zip(self.columns.items(), row, strict=True):
            if type(value) not in kinds:
                wanted = " or ".join(WORDS[kind] for kind in kinds)
                raise malformed(self.table, key, column, f"{_short(value)} is not {wanted}")

    def decoded(self, key: Values, column: str, decode: Callable[[Any], T], data: Any) -> T:
        """What the data means. Raises Corrupt, which names the row."""
        try:
            return decode(data)
        except (msgspec.MsgspecError, Corrupt, ValueError, TypeError, RecursionError, OverflowError) as error:
            kind = type(error) if isinstance(error, Corrupt) else Corrupt  # one of a newer release says so
            raise kind(str(malformed(self.table, key, column, f"it is not readable: {error}"))) from error


FACTS = Columns("facts", number=INT, at=INT, data=BLOB, turn=MAYBE_TEXT, seal=INT)
LOGS = Columns("facts", run=TEXT, number=INT)
RUNS = Columns("runs", head=INT, status=TEXT, created_at=INT, summary=BLOB, seal=INT)
FEED = Columns("feed", change=INT, run=TEXT, after=INT, until=INT)
CHANGES = Columns("runs", run=TEXT, head=INT, change=INT)
COMMANDS = Columns(
    "commands",
    run=TEXT,
    id=TEXT,
    queue=TEXT,
    priority=INT,
    tool=TEXT,
    place=INT,
    not_before=INT,
    plan=TEXT,
    state=TEXT,
    generation=INT,
    losses=INT,
    worker=MAYBE_TEXT,
    until=INT,
    deadline=MAYBE_INT,
    beat_at=INT,
    claimed_at=INT,
    data=BLOB,
    seal=INT,
    turn=MAYBE_INT,
    hand_backs=INT,
    executor=TEXT,
    share=TEXT,
    lim=TEXT,
    lane=TEXT,
)
PLANS = Columns("plans", data=BLOB)
WEIGHTS = Columns("weights", share=TEXT, weight=INT, seal=INT)
LIMITS = Columns("limits", name=TEXT, slots=MAYBE_INT, rate=MAYBE_REAL, burst=REAL, tokens=REAL, at=INT, seal=INT)
PLAN_HASHES = Columns("plans", hash=TEXT)
TIMERS = Columns("timers", key=TEXT, due=INT, seal=INT)
DUE_TIMERS = Columns("timers", run=TEXT, key=TEXT, due=INT, seal=INT)
LETTERS = Columns("letters", key=TEXT, data=BLOB, seal=INT)
RECEIVERS = Columns("letters", run=TEXT)
BLOBS = Columns("blobs", data=BLOB, seal=INT)
SNAPSHOTS = Columns("snapshots", data=BLOB, seal=INT)
LINES = Columns("streams", n=INT, data=BLOB, seal=INT)
WORKERS = Columns("workers", worker=TEXT, lock=TEXT)
ABILITIES = Columns("workers", worker=TEXT, tools=MAYBE_TEXT, queues=MAYBE_TEXT)
DEAD = Columns("dead", run=TEXT, n=INT, fingerprint=TEXT, at=INT, data=BLOB, seal=INT)
FLOORS = Columns("generations", floor=INT)
DOCUMENTS = Columns("documents", id=TEXT, version=INT, due=MAYBE_INT, data=BLOB, seal=INT)
