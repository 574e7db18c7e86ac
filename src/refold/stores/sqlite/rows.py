"""Rows and what they mean: the columns of each table, and facts, runs, commands and dead letters with their seals.

A file can come from anybody. SQLite does not check on reading that a value has the type of its column, and a seal is
easily forged, so whatever is read here is data until it has been checked. What does not fit is named by table, key and
column.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, TypeVar
from zlib import crc32

import msgspec
from msgspec import DecodeError, Struct, json, msgpack

from refold.core.codec import decode_command, decode_fact, encode_command, encode_fact
from refold.core.commands import Command
from refold.core.facts import Fact
from refold.core.fold.apply import Record
from refold.core.outcomes import Instant
from refold.core.read.dead_letters import DeadLetter
from refold.core.read.summary import Summary
from refold.errors import Corrupt
from refold.ports import Lease, Writes

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

WAITING, LATER, LEASED, HELD = "waiting", "later", "leased", "held"
FAR: Instant = 2**63 - 1  # the last moment a column can hold

KINDS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in Fact.__args__}

_pack = msgpack.Encoder().encode
_encode = json.Encoder().encode
_summary = json.Decoder(Summary)
_dead_letter = json.Decoder(DeadLetter)

STATES = (WAITING, LATER, LEASED, HELD)


def seal(values: Values) -> int:
    """Over a row and what it is found by: one in another's place is as wrong as one that reads otherwise."""
    return crc32(_pack(values))


def check(what: str, values: Values, mark: int, table: str = "") -> None:
    if mark != crc32(_pack(values)):
        raise Corrupt(f"{what} is not what was written" + (f" (table {table}, column seal)" if table else ""))


def fact_rows(namespace: str, writes: Writes) -> list[Values]:
    """The first one carries the id of the turn."""
    rows: list[Values] = []
    run, at = writes.run, writes.at
    turn: str | None = writes.turn
    for number, fact in enumerate(writes.facts, writes.expected + 1):
        data = encode_fact(fact)
        mark = crc32(_pack((run, number, at, data, turn)))
        rows.append((namespace, run, number, at, KINDS[type(fact)], data, turn, mark))
        turn = None
    return rows


def read_fact(run: str, row: Values) -> Record:
    FACTS.check((run, row[0]), row)
    number, at, data, turn, mark = row
    check(f"fact {number} of run {run}", (run, number, at, data, turn), mark, "facts")
    try:
        return number, at, decode_fact(data)
    except Corrupt as error:
        raise type(error)(f"fact {number} of run {run}: {error} (table facts, column data)") from error


def run_row(run: str, head: int, summary: Summary) -> Values:
    """Head, status, time of start, summary and seal."""
    data, status, created_at = _encode(summary), summary.status, summary.created_at
    return head, status, created_at, data, crc32(_pack((run, head, status, created_at, data)))


def label_text(name: str, value: str) -> str:
    """A label as the index of labels has it."""
    return f"{name}={value}"


def check_run(run: str, row: Values) -> None:
    if type(run) is not str:
        raise malformed("runs", (run,), "run", "it is not text in UTF-8")
    RUNS.check((run,), row)
    if row[4] != crc32(_pack((run, *row[:4]))):
        raise Corrupt(f"the row of run {run} is not what was written (table runs, column seal)")
    if row[0] < 0:
        raise malformed("runs", (run,), "head", f"{row[0]} is not the number of a fact")


def read_run(run: str, row: Values) -> Summary:
    check_run(run, row)
    summary = RUNS.decoded((run,), "summary", _summary.decode, row[3])
    same = (summary.run, summary.status, summary.created_at) == (run, row[1], row[2])
    if not same or not 0 <= summary.ended_at <= FAR or not 0 <= summary.seq <= FAR:
        raise malformed("runs", (run,), "summary", "it does not say the same as the other columns")
    return summary


class CommandRow(Struct, gc=False):
    """A command as it is stored; the fields stand in the order of the columns."""

    run: str
    id: str
    queue: str
    priority: int
    tool: str
    place: int
    not_before: Instant
    plan: str
    state: str
    generation: int
    losses: int
    worker: str | None
    until: Instant
    deadline: Instant | None
    beat_at: Instant
    claimed_at: Instant
    data: bytes
    seal: int = 0
    turn: int | None = None  # not sealed
    hand_backs: int = 0  # since the last one that was a loss; sealed unless it is 0, as in rows of before
    executor: str = ""  # sealed unless it is empty
    share: str = ""  # sealed with the limit, unless both are empty
    limit: str = ""
    lane: str = ""  # follows from tool, executor and limit
    order: Command | None = None  # what the data says, if somebody has it at hand

    def lease(self, order: Command | None = None) -> Lease:
        """What its holder has; whoever asks knows that there is one."""
        return Lease(
            self.run,
            self.ordered() if order is None else order,
            self.worker or "",
            self.generation,
            self.until,
            self.claimed_at,
            self.plan,
            self.losses,
            self.deadline,
            self.beat_at,
        )

    def is_held(self) -> bool:
        """Somebody has it, who may report: not so what was given up and is not counted as a loss yet."""
        return self.state == LEASED and self.worker is not None

    def ordered(self) -> Command:
        """What is to be done."""
        return COMMANDS.decoded((self.run, self.id), "data", decode_command, self.data)

    def line(self) -> "Line":
        return self.run, self.queue, self.priority, self.share

    def values(self) -> Values:
        """All that is sealed."""
        return (
            self.run,
            self.id,
            self.queue,
            self.priority,
            self.tool,
            self.place,
            self.not_before,
            self.plan,
            self.state,
            self.generation,
            self.losses,
            self.worker,
            self.until,
            self.deadline,
            self.beat_at,
            self.claimed_at,
            self.data,
            *((self.hand_backs,) if self.hand_backs else ()),
            *((self.executor,) if self.executor else ()),
            *((self.share, self.limit) if self.share or self.limit else ()),
        )


Line = tuple[str, str, int, str]
"""What a run has in a line: run, queue, priority, share."""


@lru_cache(maxsize=1000)
def lane_text(tool: str, executor: str, limit: str) -> str:
    """Return the name of a lane: the tool alone where that says everything."""
    if not executor and not limit and not tool.startswith("["):
        return tool
    return _encode([tool, executor, limit]).decode()


@lru_cache(maxsize=1000)
def parts_of_lane(lane: str) -> tuple[str, str, str]:
    """Return tool, kind of executor and limit. Raises Corrupt."""
    if not lane.startswith("["):
        return lane, "", ""
    try:
        return json.decode(lane, type=tuple[str, str, str])
    except DecodeError as error:
        raise Corrupt(f"the lane {lane!r} is not one (table commands, column lane)") from error


def fresh(run: str, order: Command, plan: str) -> CommandRow:
    """A command as it is issued; its place is not known yet."""
    moment = min(order.not_before, FAR) if order.not_before else 0
    data = encode_command(order)
    lane = (order.queue, order.priority, order.tool)
    row = CommandRow(run, order.id, *lane, 0, moment, plan, WAITING, 0, 0, None, 0, None, 0, 0, data, order=order)
    row.executor, row.share, row.limit = order.executor, order.share, order.limit
    row.lane = lane_text(order.tool, order.executor, order.limit)
    return row


def read_queued(row: Values) -> CommandRow:
    COMMANDS.check((row[0], row[1]), row)
    if row[17] != crc32(_pack(_sealed(row))):
        raise Corrupt(f"command {row[1]} of run {row[0]} is not what was written (table commands, column seal)")
    if row[8] not in STATES:
        raise malformed("commands", (row[0], row[1]), "state", f"there is no state {row[8]!r}")
    if row[23] != lane_text(row[4], row[20], row[22]):
        raise malformed("commands", (row[0], row[1]), "lane", "it does not say the same as the other columns")
    return CommandRow(*row)


def _sealed(row: Values) -> Values:
    """What older rows do not have is sealed unless it has their values."""
    more = tuple(each for each in row[19:21] if each)
    if row[21] or row[22]:
        more += row[21:23]
    return (*row[:17], *more) if more else row[:17]


def added(namespace: str, command: CommandRow, turn: int | None) -> Values:
    """The whole row."""
    values = command.values()
    kept_apart = command.hand_backs, command.executor, command.share, command.limit, command.lane
    return (namespace, *values[:17], crc32(_pack(values)), turn, *kept_apart)


def moved(namespace: str, command: CommandRow) -> Values:
    """All that changes once a command is issued, and what it is found by."""
    values = command.values()
    mark = crc32(_pack(values))
    return (*values[8:16], mark, command.turn, command.hand_backs, namespace, command.run, command.id)


def dead_rows(namespace: str, run: str, letters: Sequence[DeadLetter]) -> list[Values]:
    """The dead letters of a run, numbered from 0."""
    rows = [(run, n, letter.fingerprint, letter.at, json.encode(letter)) for n, letter in enumerate(letters)]
    return [(namespace, *row, seal(row)) for row in rows]


def read_dead(row: Values) -> DeadLetter:
    DEAD.check((row[0], row[1]), row)
    *values, mark = row
    check(f"dead letter {row[1]} of run {row[0]}", tuple(values), mark, "dead")
    letter = DEAD.decoded((row[0], row[1]), "data", _dead_letter.decode, row[4])
    if (letter.run, letter.fingerprint, letter.at) != (row[0], row[2], row[3]):
        raise malformed("dead", (row[0], row[1]), "data", "it does not say the same as the other columns")
    return letter
