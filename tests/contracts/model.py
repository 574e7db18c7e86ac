"""A store as a few dicts: what it must hold after each thing done to it, in the plainest words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from refold.core.commands import Command, Held
from refold.core.facts import Fact
from refold.core.outcomes import SECOND, Instant
from refold.core.state import PAUSED
from refold.ports import Abilities, Expired, Lease, StoreTurn
from tests.contracts.stores import NOON, letter, put

LEASE_FOR = 30.0


@dataclass
class Row:
    """A command as the store must hold it."""

    run: str
    command: Command
    place: int
    generation: int = 0
    losses: int = 0
    held: bool = False
    worker: str | None = None
    until: Instant = 0
    claimed_at: Instant = 0
    beat_at: Instant = 0
    deadline: Instant | None = None

    @property
    def lane(self) -> tuple[str, int]:
        return self.command.queue, self.command.priority

    def lease(self) -> tuple[Any, ...] | None:
        if self.worker is None:
            return None
        times = (self.until, self.claimed_at, self.beat_at, self.deadline)
        return (self.run, self.command, self.worker, self.generation, self.losses, times)

    def free(self) -> None:
        self.worker, self.until, self.deadline = None, 0, None


def seen(lease: Lease | None) -> tuple[Any, ...] | None:
    """A lease in the words of a row."""
    if lease is None:
        return None
    times = (lease.until, lease.claimed_at, lease.beat_at, lease.deadline)
    return (lease.run, lease.command, lease.worker, lease.generation, lease.losses, times)


@dataclass
class Draft:
    """What a turn is going to write for one run."""

    run: str
    turn: str
    facts: list[Fact]
    status: str
    commands: dict[str, Command | Held | None] = field(default_factory=dict)
    timers: dict[str, Instant | None] = field(default_factory=dict)
    letters: list[tuple[str, str, str]] = field(default_factory=list)  # to, key, text
    read: list[str] = field(default_factory=list)

    def write(self, turn: StoreTurn, expected: int) -> None:
        put(
            turn,
            self.run,
            *self.facts,
            turn=self.turn,
            expected=expected,
            status=self.status,
            commands=self.commands,
            timers=self.timers,
            letters=[letter(key, to, text) for to, key, text in self.letters],
            read_letters=self.read,
        )


class Model:
    def __init__(self, runs: Sequence[str]) -> None:
        self.now = NOON
        self.place = 0
        self.logs: dict[str, list[tuple[Instant, Fact, str | None]]] = {run: [] for run in runs}
        self.status: dict[str, str] = {}
        self.rows: dict[tuple[str, str], Row] = {}
        self.timers: dict[tuple[str, str], Instant] = {}
        self.letters: dict[str, dict[str, str]] = {run: {} for run in runs}
        self.lines: dict[str, list[str]] = {run: [] for run in runs}
        self.given: list[Lease] = []

    def apply(self, draft: Draft) -> None:
        run = draft.run
        self.logs[run] += [(self.now, fact, None if n else draft.turn) for n, fact in enumerate(draft.facts)]
        self.status[run] = draft.status
        for id, what in draft.commands.items():
            self._change(run, id, what)
        for key, due in draft.timers.items():
            self.timers.pop((run, key), None)
            if due is not None:
                self.timers[run, key] = due
        for to, key, text in draft.letters:
            self.letters[to].setdefault(key, text)
        for key in draft.read:
            self.letters[run].pop(key, None)

    def is_current(self, lease: Lease) -> bool:
        row = self.rows.get((lease.run, lease.command.id))
        return row is not None and row.worker is not None and row.generation == lease.generation

    def held_by(self, worker: str) -> list[Row]:
        return [row for row in self.rows.values() if row.worker == worker]

    def extend(self, worker: str) -> None:
        for row in self.held_by(worker):
            row.until, row.beat_at = self.now + round(LEASE_FOR * SECOND), self.now

    def expire(self, allowed: int) -> list[Expired]:
        reported = []
        for row in [row for row in self.rows.values() if row.worker is not None]:
            ran_out = row.until <= self.now
            hangs = row.deadline is not None and row.beat_at > row.deadline
            if hangs or (ran_out and row.losses >= allowed):
                reported.append(Expired(row.run, row.command.id, row.generation))
            elif ran_out:
                row.losses += 1
                row.free()
        return reported

    def claim(self, leases: Sequence[Lease], can: Abilities, limit: int) -> None:
        """One by one, each the best there was; none of a run twice while another run of the lane waits."""
        assert len(leases) == min(limit, len(self._claimable(can)))
        served: list[tuple[tuple[str, int], str]] = []
        for lease in leases:
            row, waiting = self.rows[lease.run, lease.command.id], self._claimable(can)
            assert row in waiting
            queues = can.queues if can.queues is not None else sorted({each.command.queue for each in waiting})
            rank = min((-each.command.priority, queues.index(each.command.queue)) for each in waiting)
            assert rank == (-row.command.priority, queues.index(row.command.queue))
            assert row.place == min(each.place for each in waiting if (each.run, each.lane) == (row.run, row.lane))
            if (row.lane, row.run) in served:
                since = served[len(served) - served[::-1].index((row.lane, row.run)) :]
                others = {each.run for each in waiting if each.lane == row.lane} - {row.run}
                assert others <= {run for _, run in since}
            served.append((row.lane, row.run))
            self._take(row, lease, can)

    def _claimable(self, can: Abilities) -> list[Row]:
        return [
            row
            for row in self.rows.values()
            if row.worker is None
            and not row.held
            and row.command.not_before <= self.now
            and self.status[row.run] != PAUSED
            and (can.queues is None or row.command.queue in can.queues)
            and (can.tools is None or row.command.tool in can.tools)
            and (can.runs is None or row.run in can.runs)
            and (row.command.prefer in ("", can.worker) or row.command.prefer_until <= self.now)
        ]

    def _take(self, row: Row, lease: Lease, can: Abilities) -> None:
        timeout = row.command.timeout
        row.generation += 1
        row.worker, row.claimed_at, row.beat_at = can.worker, self.now, self.now
        row.until = self.now + round(LEASE_FOR * SECOND)
        row.deadline = None if timeout is None else self.now + round(timeout * SECOND)
        assert seen(lease) == row.lease()
        self.given.append(lease)

    def _change(self, run: str, id: str, what: Command | Held | None) -> None:
        old = self.rows.get((run, id))
        if what is None:
            self.rows.pop((run, id), None)
        elif isinstance(what, Command):
            self.place += 1
            generation, losses = (0, 0) if old is None else (old.generation, old.losses)
            self.rows[run, id] = Row(run, what, self.place, generation, losses)
        elif old is not None:
            old.free()
            old.held = True
