"""The reference store: plain dicts and bytes. Read this one first; the others must behave like it."""

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, structs

from refold.core import codec
from refold.core.commands import Command, Held, Letter
from refold.core.facts import SECOND, Instant
from refold.core.fold import Record
from refold.core.plan import plan_hash, read_plan
from refold.core.state import PAUSED
from refold.core.summary import Summary
from refold.errors import Conflict, NotFound
from refold.ports import Abilities, Expired, Lease, Writes


class Entry(Struct, frozen=True):
    """A stored fact: bytes, so that what comes back is what a file would give back."""

    at: Instant
    data: bytes
    turn: str | None


class Queued(Struct, frozen=True):
    """A command and, while somebody holds it, its lease."""

    run: str
    command: Command
    plan: str
    generation: int = 0  # grows with every claim, so late reports are refused
    worker: str = ""
    until: Instant = 0
    deadline: Instant | None = None
    claimed_at: Instant = 0
    losses: int = 0
    held: bool = False

    def lease(self) -> Lease | None:
        if not self.worker:
            return None
        where = (self.run, self.command, self.worker, self.generation, self.until, self.claimed_at)
        return Lease(*where, self.plan, self.losses, self.deadline)

    def freed(self, losses: int) -> "Queued":
        return structs.replace(self, worker="", until=0, deadline=None, losses=losses)


Key = tuple[str, str]


class MemoryStore:
    """One dict per table of the other stores; whoever calls holds the lock."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._clock: Instant = 0
        self.logs: dict[str, list[Entry]] = {}
        self.plans: dict[str, bytes] = {}
        self.rows: dict[str, Summary] = {}
        self.commands: dict[Key, Queued] = {}
        self.leases: dict[Key, None] = {}  # the commands that somebody holds
        self.lanes: dict[tuple[str, int], dict[str, dict[str, None]]] = {}  # (queue, priority) -> run -> ids
        self.later: list[tuple[Instant, str, str]] = []  # heap of commands that may not start yet
        self.timers: dict[str, dict[str, Instant]] = {}
        self.agenda: list[tuple[Instant, str, str]] = []  # heap over the timers; stale entries are passed over
        self.letters: dict[str, dict[str, bytes]] = {}
        self.blobs: dict[Key, bytes] = {}
        self.snapshots: dict[str, bytes] = {}
        self.streams: dict[str, list[Any]] = {}

    def now(self) -> Instant:
        self._clock = max(self._clock, self._now())  # the store's clock never goes back
        return self._clock

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator["MemoryTurn"]:
        turn = MemoryTurn(self, self.now())
        try:
            yield turn
        except BaseException:
            turn.roll_back()
            raise

    def plan(self, hash: str) -> bytes | None:
        return self.plans.get(hash)

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        log = self.logs.get(run, [])[after : None if limit is None else after + limit]
        return [(number, entry.at, codec.decode_fact(entry.data)) for number, entry in enumerate(log, after + 1)]

    def turn_of(self, run: str, number: int) -> str | None:
        log = self.logs.get(run, [])
        return log[number - 1].turn if 0 < number <= len(log) else None

    def summary(self, run: str) -> Summary | None:
        return self.rows.get(run)

    def summaries(self, status: str | None = None, limit: int = 100) -> Sequence[Summary]:
        rows = (row for row in reversed(self.rows.values()) if status is None or row.status == status)
        return [row for row, _ in zip(rows, range(limit), strict=False)]

    def snapshot(self, run: str) -> bytes | None:
        return self.snapshots.get(run)

    def put_snapshot(self, run: str, data: bytes) -> None:
        self.snapshots[run] = data

    def extend(self, worker: str, lease_for: float) -> Sequence[Lease]:
        kept = []
        for key in self.leases:
            queued = self.commands[key]
            if queued.worker == worker:
                self.commands[key] = queued = structs.replace(queued, until=self.now() + round(lease_for * SECOND))
                kept.append(queued.lease())
        return [lease for lease in kept if lease is not None]

    def hand_back(self, lease: Lease) -> bool:
        queued = self._held_by(lease)
        if queued is None:
            return False
        self._replace((lease.run, lease.command.id), queued.freed(queued.losses))
        return True

    def expire(self, losses: int) -> Sequence[Expired]:
        now, found = self.now(), []
        for key in list(self.leases):
            queued = self.commands[key]
            timed_out = queued.deadline is not None and queued.deadline <= now
            if timed_out or (queued.until <= now and queued.losses >= losses):
                found.append(Expired(*key, queued.generation))
            elif queued.until <= now:
                self._replace(key, queued.freed(queued.losses + 1))
        return found

    def due(self, limit: int) -> tuple[Sequence[str], Instant | None]:
        now, found = self.now(), []
        while self.agenda and self.agenda[0][0] <= now:
            found.append(heapq.heappop(self.agenda))
        valid = [each for each in found if self.timers.get(each[1], {}).get(each[2]) == each[0]]
        next_due = self.agenda[0][0] if self.agenda else None
        for each in valid:
            heapq.heappush(self.agenda, each)  # until a turn has dealt with it
        runs = [run for run, letters in self.letters.items() if letters]
        runs += [run for _, run, _ in valid if self.rows[run].status != PAUSED]
        return list(dict.fromkeys(runs))[:limit], next_due

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        if self._held_by(lease) is None:
            return False
        self.streams.setdefault(lease.run, []).extend(lines)
        return True

    def stream(self, run: str, after: int = 0) -> Sequence[tuple[int, Any]]:
        return list(enumerate(self.streams.get(run, [])[after:], after + 1))

    def _held_by(self, lease: Lease) -> Queued | None:
        queued = self.commands.get((lease.run, lease.command.id))
        return queued if queued is not None and queued.worker and queued.generation == lease.generation else None

    def _replace(self, key: Key, queued: Queued | None) -> None:
        """Keep the command and all that is found by it: lanes, leases, what may start later."""
        old = self.commands.pop(key, None)
        self.leases.pop(key, None)
        if old is not None:
            lane = self.lanes.get((old.command.queue, old.command.priority), {})
            lane.get(key[0], {}).pop(key[1], None)
            if key[0] in lane and not lane[key[0]]:
                del lane[key[0]]
        if queued is None:
            return
        self.commands[key] = queued
        if queued.worker:
            self.leases[key] = None
        elif queued.command.not_before > self._clock:
            heapq.heappush(self.later, (queued.command.not_before, *key))
        elif not queued.held:
            lane = self.lanes.setdefault((queued.command.queue, queued.command.priority), {})
            lane.setdefault(key[0], {})[key[1]] = None


class MemoryTurn:
    """Changes are made at once and taken back if the turn ends with an error."""

    def __init__(self, store: MemoryStore, now: Instant) -> None:
        self.store, self.now = store, now
        self._undo: list[Callable[[], object]] = []

    def head(self, run: str) -> int:
        return len(self.store.logs.get(run, ()))

    def facts(self, run: str, after: int = 0) -> Sequence[Record]:
        return self.store.facts(run, after)

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        log = self.store.logs.get(run, [])
        known = sorted(n for n in set(numbers) if 0 < n <= len(log))
        return [(n, log[n - 1].at, codec.decode_fact(log[n - 1].data)) for n in known]

    def blob(self, run: str, hash: str) -> bytes:
        if (run, hash) not in self.store.blobs:
            raise NotFound(f"run {run} has no blob {hash}")
        return self.store.blobs[run, hash]

    def letters(self, run: str) -> Sequence[Letter]:
        return [codec.decode_letter(data) for data in self.store.letters.get(run, {}).values()]

    def due_timers(self, run: str) -> Sequence[str]:
        due = sorted((at, key) for key, at in self.store.timers.get(run, {}).items() if at <= self.now)
        return [key for _, key in due]

    def lease(self, run: str, command: str) -> Lease | None:
        queued = self.store.commands.get((run, command))
        return None if queued is None else queued.lease()

    def claimed(self, run: str) -> frozenset[str]:
        return frozenset(command for owner, command in self.store.leases if owner == run)

    def write(self, writes: Writes) -> None:
        run, store = writes.run, self.store
        if self.head(run) != writes.expected:
            raise Conflict(f"run {run} has moved on from fact {writes.expected} to {self.head(run)}")
        if writes.plan is not None:
            self._put(store.plans, plan_hash(read_plan(writes.plan)), writes.plan)
        self._append(writes)
        self._put(store.rows, run, writes.summary)
        for command, order in writes.commands.items():
            self._order(writes, command, order)
        for key, due in writes.timers.items():
            self._set_timer(run, key, due)
        self._deliver(writes)
        for hash, data in writes.blobs.items():
            self._put(store.blobs, (run, hash), data)

    def _deliver(self, writes: Writes) -> None:
        for letter in writes.letters:
            self._put(self.store.letters.setdefault(letter.to, {}), letter.key, codec.encode_letter(letter))
        for key in writes.read_letters:
            self._put(self.store.letters[writes.run], key, None)

    def _append(self, writes: Writes) -> None:
        log = self.store.logs.setdefault(writes.run, [])
        self._undo.append(lambda: log.__delitem__(slice(writes.expected, None)))
        for i, fact in enumerate(writes.facts):
            log.append(Entry(writes.at, codec.encode_fact(fact), None if i else writes.turn))

    def _set_timer(self, run: str, key: str, due: Instant | None) -> None:
        self._put(self.store.timers.setdefault(run, {}), key, due)
        if due is not None:
            heapq.heappush(self.store.agenda, (due, run, key))

    def claim(self, can: Abilities, lease_for: float, limit: int) -> Sequence[Lease]:
        self._release_later()
        leases: list[Lease] = []
        while len(leases) < limit:
            key = self._next(can)
            if key is None:
                break
            queued = self.store.commands[key]
            timeout = queued.command.timeout
            self._queue(
                key,
                structs.replace(
                    queued,
                    generation=queued.generation + 1,
                    worker=can.worker,
                    until=self.now + round(lease_for * SECOND),
                    deadline=None if timeout is None else self.now + round(timeout * SECOND),
                    claimed_at=self.now,
                ),
            )
            lease = self.store.commands[key].lease()
            assert lease is not None
            leases.append(lease)
        return leases

    def roll_back(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _order(self, writes: Writes, command: str, order: Command | Held | None) -> None:
        key = (writes.run, command)
        old = self.store.commands.get(key)
        if order is None:
            self._queue(key, None)
        elif isinstance(order, Held):
            if old is not None:
                self._queue(key, structs.replace(old.freed(old.losses), held=True))
        else:
            generation, losses = (0, 0) if old is None else (old.generation, old.losses)
            self._queue(key, Queued(writes.run, order, writes.summary.plan, generation, losses=losses))

    def _next(self, can: Abilities) -> Key | None:
        """The highest priority first; among runs of one lane, whoever was served longest ago."""
        lanes = sorted((lane for lane in self.store.lanes if lane[0] in can.queues), key=lambda lane: -lane[1])
        for lane in lanes:
            runs = self.store.lanes[lane]
            for run in list(runs):
                if can.runs is not None and run not in can.runs:
                    continue
                if self.store.rows[run].status == PAUSED:
                    continue
                for command in runs[run]:
                    if can.tools is None or self.store.commands[run, command].command.tool in can.tools:
                        runs[run] = runs.pop(run)
                        return run, command
        return None

    def _release_later(self) -> None:
        later = self.store.later
        while later and later[0][0] <= self.now:
            _, run, command = heapq.heappop(later)
            queued = self.store.commands.get((run, command))
            if queued is not None and not queued.worker and not queued.held:
                self.store._replace((run, command), queued)

    def _queue(self, key: Key, queued: Queued | None) -> None:
        old = self.store.commands.get(key)
        self._undo.append(lambda: self.store._replace(key, old))
        self.store._replace(key, queued)

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """None removes."""
        old = table.get(key)
        self._undo.append(lambda: table.pop(key, None) if old is None else table.__setitem__(key, old))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
