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
from refold.ports import Lease, Writes

WAITING, LATER, LEASED, HELD = "waiting", "later", "leased", "held"

FAR: Instant = 2**63 - 1  # the last moment a column can hold

KINDS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in Fact.__args__}

_encode = json.Encoder().encode
_summary = json.Decoder(Summary)

Values = tuple[Any, ...]


def seal(found_by: str, data: bytes) -> int:
    """Over the data and what it is found by: a row in another's place is as wrong as one that reads otherwise."""
    return crc32(data, crc32(found_by.encode()))


def fact_rows(namespace: str, writes: Writes) -> list[Values]:
    """The first one carries the id of the turn."""
    rows: list[Values] = []
    run, at, number = writes.run, writes.at, writes.expected
    turn: str | None = writes.turn
    for fact in writes.facts:
        number += 1
        data = codec.encode_fact(fact)
        mark = crc32(data, crc32(f"{run}\0{number}\0{at}\0{turn}".encode()))
        rows.append((namespace, run, number, at, KINDS[type(fact)], data, turn, mark))
        turn = None
    return rows


def read_fact(run: str, row: Values) -> Record:
    number, at, data, turn, mark = row
    checked(f"fact {number} of run {run}", f"{run}\0{number}\0{at}\0{turn}", data, mark)
    try:
        return number, at, codec.decode_fact(data)
    except Corrupt as error:
        raise type(error)(f"fact {number} of run {run}: {error}") from error


def run_row(run: str, head: int, summary: Summary) -> Values:
    """Head, status, time of start, summary and seal."""
    data, status, created_at = _encode(summary), summary.status, summary.created_at
    return head, status, created_at, data, crc32(data, crc32(f"{run}\0{head}\0{status}\0{created_at}".encode()))


def check_run(run: str, row: Values) -> None:
    head, status, created_at, data, mark = row
    checked(f"the row of run {run}", f"{run}\0{head}\0{status}\0{created_at}", data, mark)


def read_run(run: str, row: Values) -> Summary:
    check_run(run, row)
    return _summary.decode(row[3])


def checked(what: str, found_by: str, data: bytes, mark: int) -> bytes:
    """A damaged column may have another type, too."""
    if type(data) is not bytes or mark != crc32(data, crc32(found_by.encode())):
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

    def added(self, namespace: str, turn: int | None) -> Values:
        """The whole row, with its turn."""
        return (
            namespace,
            self.run,
            self.id,
            self.queue,
            self.priority,
            self.tool,
            self.place,
            self.not_before,
            self.plan,
            _seal_of(self),
            self.data,
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

    def moved(self, namespace: str) -> Values:
        """All that changes afterwards, and what it is found by."""
        return (
            self.state,
            self.turn,
            self.generation,
            self.losses,
            self.worker,
            self.until,
            self.deadline,
            self.beat_at,
            self.claimed_at,
            _seal_of(self),
            namespace,
            self.run,
            self.id,
        )


Lane = tuple[str, str, int]
"""What a run has in a lane: run, queue, priority."""


def fresh(run: str, order: Command, plan: str) -> Queued:
    """A command as it is issued; its place is not known yet."""
    data = codec.encode_command(order)
    moment = min(order.not_before, FAR)
    return Queued(run, order.id, order.queue, order.priority, order.tool, 0, moment, plan, 0, data)


def read_queued(row: Values) -> Queued:
    command = Queued(*row)
    if type(command.data) is not bytes or command.seal != _seal_of(command):
        raise Corrupt(f"command {command.id} of run {command.run} is not what was written")
    return command


def _seal_of(c: Queued) -> int:
    """Over everything but the turn, which is set by itself and only says who is first."""
    issued = f"{c.run}\0{c.id}\0{c.queue}\0{c.priority}\0{c.tool}\0{c.place}\0{c.not_before}\0{c.plan}\0{c.state}"
    lease = f"{c.generation}\0{c.losses}\0{c.worker}\0{c.until}\0{c.deadline}\0{c.beat_at}\0{c.claimed_at}"
    return crc32(c.data, crc32(lease.encode(), crc32(issued.encode())))
