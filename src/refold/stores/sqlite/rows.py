"""Rows and what they mean: facts, runs and commands as the tables hold them, each with its seal."""

from typing import Any
from zlib import crc32

from msgspec import Struct, json

from refold.core import codec
from refold.core.commands import Command
from refold.core.facts import Fact, Instant
from refold.core.fold import Record
from refold.core.summary import Summary
from refold.errors import Corrupt
from refold.ports import Lease

WAITING, LATER, LEASED, HELD = "waiting", "later", "leased", "held"

FAR: Instant = 2**63 - 1  # the last moment a column can hold

KINDS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in Fact.__args__}

_encode = json.Encoder().encode
_summary = json.Decoder(Summary)

Values = tuple[Any, ...]


def seal(found_by: str, data: bytes) -> int:
    """Over the data and what it is found by: a row in another's place is as wrong as one that reads otherwise."""
    return crc32(data, crc32(found_by.encode()))


def fact_row(namespace: str, run: str, number: int, at: Instant, fact: Fact, turn: str | None) -> Values:
    data = codec.encode_fact(fact)
    mark = seal(f"{run}\0{number}\0{at}\0{turn}", data)
    return namespace, run, number, at, KINDS[type(fact)], data, turn, mark


def read_fact(run: str, row: Values) -> Record:
    number, at, data, turn, mark = row
    if mark != seal(f"{run}\0{number}\0{at}\0{turn}", data):
        raise Corrupt(f"fact {number} of run {run} is not what was written")
    try:
        return number, at, codec.decode_fact(data)
    except Corrupt as error:
        raise type(error)(f"fact {number} of run {run}: {error}") from error


def run_row(run: str, head: int, summary: Summary) -> Values:
    """Head, status, time of start, summary and seal."""
    data = _encode(summary)
    mark = seal(f"{run}\0{head}\0{summary.status}\0{summary.created_at}", data)
    return head, summary.status, summary.created_at, data, mark


def check_run(run: str, row: Values) -> None:
    head, status, created_at, data, mark = row
    if mark != seal(f"{run}\0{head}\0{status}\0{created_at}", data):
        raise Corrupt(f"the row of run {run} is not what was written")


def read_run(run: str, row: Values) -> Summary:
    check_run(run, row)
    return _summary.decode(row[3])


def checked(what: str, found_by: str, data: bytes, mark: int) -> bytes:
    if mark != seal(found_by, data):
        raise Corrupt(f"{what} is not what was written")
    return data


class Queued(Struct, gc=False):
    """A command as it is stored; the fields stand in the order of the columns."""

    run: str
    id: str
    queue: str
    priority: int
    tool: str
    place: int
    not_before: Instant
    plan: str
    seal: int
    data: bytes
    state: str = WAITING
    turn: int | None = None
    generation: int = 0
    losses: int = 0
    worker: str | None = None
    until: Instant = 0
    deadline: Instant | None = None
    beat_at: Instant = 0
    claimed_at: Instant = 0

    def lease(self, order: Command | None = None) -> Lease:
        """What its holder has; whoever asks knows that there is one."""
        return Lease(
            self.run,
            codec.decode_command(self.data) if order is None else order,
            self.worker or "",
            self.generation,
            self.until,
            self.claimed_at,
            self.plan,
            self.losses,
            self.deadline,
            self.beat_at,
        )

    def lane(self) -> "Lane":
        return self.run, self.queue, self.priority

    def issued(self) -> Values:
        """All that stays as it was issued."""
        return (
            self.run,
            self.id,
            self.queue,
            self.priority,
            self.tool,
            self.place,
            self.not_before,
            self.plan,
            self.seal,
            self.data,
        )

    def moving(self, turn: int | None) -> Values:
        """All that changes afterwards."""
        return (
            self.state,
            turn,
            self.generation,
            self.losses,
            self.worker,
            self.until,
            self.deadline,
            self.beat_at,
            self.claimed_at,
        )


Lane = tuple[str, str, int]
"""What a run has in a lane: run, queue, priority."""


def queued(run: str, order: Command, data: bytes, plan: str, place: int) -> Queued:
    fields = (run, order.id, order.queue, order.priority, order.tool, place, min(order.not_before, FAR), plan)
    return Queued(*fields, _seal_of(fields, data), data)


def read_queued(row: Values) -> Queued:
    if row[8] != _seal_of(row[:8], row[9]):
        raise Corrupt(f"command {row[1]} of run {row[0]} is not what was written")
    return Queued(*row)


def _seal_of(fields: Values, data: bytes) -> int:
    return seal("\0".join(map(str, fields)), data)
