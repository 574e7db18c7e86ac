"""The reference store: plain dicts and bytes. Read this one first; the others must behave like it."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msgspec import Struct, json, structs

from refold.core import codec
from refold.core.commands import Command, Held, Letter, rate_limits_of
from refold.core.fold.apply import Record
from refold.core.outcomes import SECOND, Instant
from refold.core.plan import hash_of
from refold.core.read.dead_letters import DeadLetter
from refold.core.read.summary import Summary
from refold.core.state import PAUSED
from refold.errors import Conflict, Corrupt, NotFound, Unusable
from refold.ports import (
    ALL_RUNS,
    HAND_BACKS,
    MOST_SCANNED,
    Abilities,
    ChangePosition,
    ClaimRequest,
    Document,
    Expired,
    FeedFact,
    Health,
    Heard,
    Hint,
    Lease,
    Leased,
    Limit,
    LimitUse,
    LiveWorker,
    Place,
    Queue,
    RunChanges,
    RunCursor,
    RunFilter,
    RunPage,
    Share,
    Views,
    Writes,
)
from refold.stores.clock import Steady, StoreClock
from refold.stores.documents import check_put, check_version, next_version
from refold.stores.feed import ahead_of, read_cursor, write_cursor
from refold.stores.lanes import Lane, Lanes
from refold.stores.limits import Bucket, Rooms, check_limit, check_weight, limit_use
from refold.stores.lost import log_lost
from refold.stores.removal import FLOOR_STEP, refuse_removal
from refold.stores.rounds import Rounds


class StoredFact(Struct, frozen=True):
    """A stored fact: bytes, so that reading it returns what a file would return."""

    at: Instant
    data: bytes
    turn: str | None


class Queued(Struct, frozen=True):
    """A command and, while a worker holds it, its lease."""

    run: str
    command: Command  # for looking it up; its holder gets a copy, decoded from the data
    data: bytes
    plan: str
    place: int  # in the order of issue
    generation: int = 0  # grows with every claim, so late reports are refused
    worker: str | None = None
    until: Instant = 0
    deadline: Instant | None = None
    beat_at: Instant = 0
    claimed_at: Instant = 0
    losses: int = 0
    held: bool = False
    hand_backs: int = 0  # since the last loss
    given_up: bool = False  # its holder has given it up, and that is not counted as a loss yet
    issued_at: Instant = 0

    def lease(self) -> Lease | None:
        if self.worker is None:
            return None
        command = codec.decode_command(self.data)
        where = (self.run, command, self.worker, self.generation, self.until, self.claimed_at)
        return Lease(*where, self.plan, self.losses, self.deadline, self.beat_at)

    def is_held(self) -> bool:
        """Whether a worker has it, and may report and extend the lease."""
        return self.worker is not None and not self.given_up

    def freed(self, losses: int) -> "Queued":
        return structs.replace(self, worker=None, until=0, deadline=None, losses=losses, given_up=False)


Key = tuple[str, str]


class CommittedRun(Struct, frozen=True):
    """A run as of its last commit: the lists may have grown since, in a turn that has not ended."""

    row: Summary | None
    log: Sequence[StoredFact]
    head: int
    lines: Sequence[bytes]
    line_count: int
    dead: Sequence[DeadLetter]
    change: int = 0  # the number of its last change


class FeedEntry(Struct):
    """Facts of one run that were committed one after the other."""

    change: int
    run: str
    log: Sequence[StoredFact]
    after: int
    until: int


class MemoryStore:
    """One dict per table of the other stores; the caller holds the lock."""

    takes_hints = False

    def __init__(self, now: Callable[[], Instant], steady: Steady | None = None) -> None:
        self.clock = StoreClock(now, steady)
        self.now = self.clock.now
        self.logs: dict[str, list[StoredFact]] = {}
        self.plans: dict[str, bytes] = {}
        self.rows: dict[str, Summary] = {}
        self.commands: dict[Key, Queued] = {}
        self.leases: dict[Key, None] = {}  # the commands that a worker holds
        self.lanes = Lanes()  # the commands that may be claimed now
        self.later: list[tuple[Instant, str, str]] = []  # heap of commands that start later; stale ones are skipped
        self.timers: dict[str, dict[str, Instant]] = {}
        self.agenda: list[tuple[Instant, str, str]] = []  # heap of the timers; stale entries are skipped
        self.letters: dict[str, dict[str, bytes]] = {}
        self.blobs: dict[Key, bytes] = {}
        self.snapshots: dict[str, bytes] = {}
        self.streams: dict[str, list[bytes]] = {}
        self.dead: dict[str, tuple[DeadLetter, ...]] = {}
        self.floor = 0  # the first generation of a new command
        self.workers: dict[str, Abilities] = {}
        self.vouched: dict[str, Instant] = {}  # remote workers, and until when they are alive
        self.rounds = Rounds()
        self.weights: dict[str, int] = {}
        self.limits: dict[str, Limit] = {}
        self.buckets: dict[str, Bucket] = {}  # of limits with a rate
        self.committed: dict[str, CommittedRun] = {}  # for the views, which must not see half a turn
        self.committed_commands: dict[Key, Queued] = {}
        self.last_change = 0  # the number of the last change of a run
        self.feed: list[FeedEntry] = []  # by the number of the change
        self.feed_continues = False  # a cursor behind the last entry is behind everything
        self.documents: dict[Key, Document] = {}
        self.committed_documents: dict[Key, Document] = {}
        self.views: Views = MemoryViews(self)

    @contextmanager
    def turn(self, runs: Sequence[str]) -> Iterator["MemoryTurn"]:
        turn = MemoryTurn(self, self.now())
        try:
            yield turn
            turn.answer()
        except BaseException:
            turn.roll_back()
            raise
        turn.wrote, turn.undo = bool(turn.undo), []  # else a cycle: only the garbage collector would free it
        for run in turn.touched:
            self._publish_run(run)
        for key in turn.touched_commands:
            self._publish_command(key)
        for key in turn.touched_documents:
            self._publish_document(key)
        self.workers.update(turn.new_workers)

    def turn_from(self, hints: Mapping[str, Hint]) -> AbstractContextManager["MemoryTurn"]:
        return self.turn(sorted(hints))

    def _publish_run(self, run: str) -> None:
        log, lines = self.logs.get(run), self.streams.get(run, [])
        if not log:
            gone = self.committed.pop(run, None)
            if gone is not None:
                self.feed = [each for each in self.feed if each.log is not gone.log]
                self.feed_continues = False
            return
        row, before = self.rows.get(run), self.committed.get(run)
        if before is not None and before.head == len(log) and (before.row is not None or row is None):
            change = before.change
        else:
            change = self.last_change = self.last_change + 1
            head = before.head if before is not None and before.log is log else 0
            if self.feed_continues and self.feed[-1].log is log:
                self.feed[-1].until = len(log)
            elif head < len(log):
                self.feed.append(FeedEntry(change, run, log, head, len(log)))
                self.feed_continues = True
        dead = self.dead.get(run, ())
        self.committed[run] = CommittedRun(row, log, len(log), lines, len(lines), dead, change)

    def _publish_document(self, key: Key) -> None:
        document = self.documents.get(key)
        if document is None:
            self.committed_documents.pop(key, None)
        else:
            self.committed_documents[key] = document

    def _publish_command(self, key: Key) -> None:
        queued = self.commands.get(key)
        if queued is None:
            self.committed_commands.pop(key, None)
        else:
            self.committed_commands[key] = queued

    def plan(self, hash: str) -> bytes | None:
        return self.plans.get(hash)

    def put_plan(self, hash: str, data: bytes) -> None:
        self.plans[hash] = data

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        log = self.logs.get(run, [])[after : None if limit is None else after + limit]
        return [(number, entry.at, codec.decode_fact(entry.data)) for number, entry in enumerate(log, after + 1)]

    def turn_of(self, run: str, number: int) -> str | None:
        log = self.logs.get(run, [])
        return log[number - 1].turn if 0 < number <= len(log) else None

    def was_applied(self, run: str, number: int, turn: str) -> bool:
        return self.turn_of(run, number) == turn

    def summary(self, run: str) -> Summary | None:
        return self.rows.get(run)

    def snapshot(self, run: str) -> bytes | None:
        return self.snapshots.get(run)

    def put_snapshot(self, run: str, data: bytes) -> None:
        self.snapshots[run] = data

    def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]:
        now, kept = self.now(), []
        for key in self.leases:
            queued = self.commands[key]
            if queued.worker == worker and queued.is_held():
                seconds = left.get((*key, queued.generation))
                deadline = queued.deadline if seconds is None else now + round(seconds * SECOND)
                queued = structs.replace(queued, until=now + round(lease_for * SECOND), deadline=deadline, beat_at=now)
                self.commands[key] = queued
                self._publish_command(key)
                kept.append(queued.lease())
        return [lease for lease in kept if lease is not None]

    def leases_of(self, worker: str) -> Sequence[Lease]:
        leases = [self.commands[key].lease() for key in self.leases]
        return [lease for lease in leases if lease is not None and lease.worker == worker]

    def hand_back(self, lease: Lease, lost: bool = False) -> bool:
        queued = self._held_by(lease)
        if queued is None:
            return False
        count = queued.hand_backs + 1
        if lost or count >= HAND_BACKS:
            queued = structs.replace(queued, until=self.now(), deadline=None, hand_backs=0, given_up=True)
        else:
            queued = structs.replace(queued.freed(queued.losses), hand_backs=count)
        self._replace((lease.run, lease.command.id), queued)
        self._publish_command((lease.run, lease.command.id))
        return True

    def begin_sweep(self, every: float, lease_for: float) -> bool:
        return True

    def expire(self, losses: int) -> Sequence[Expired]:
        now, found, lost = self.now(), [], list[Lease]()
        for key in list(self.leases):
            queued = self.commands[key]
            lease = None if queued.deadline is None else queued.lease()
            timed_out = lease is not None and lease.hangs()
            if timed_out or (queued.until <= now and queued.losses >= losses):
                found.append(Expired(*key, queued.generation))
            elif queued.until <= now:
                lost += [held] if (held := queued.lease()) is not None else []
                self._replace(key, queued.freed(queued.losses + 1))
                self._publish_command(key)
        log_lost(lost)
        return found

    def due(self, limit: int) -> tuple[Sequence[str], Instant | None]:
        now, found = self.now(), dict[tuple[Instant, str, str], None]()
        while self.agenda and (self.agenda[0][0] <= now or self._is_stale(*self.agenda[0])):
            each = heapq.heappop(self.agenda)
            if not self._is_stale(*each):
                found[each] = None
        next_due = self.agenda[0][0] if self.agenda else None
        for each in found:
            heapq.heappush(self.agenda, each)  # it stays until a turn has handled it
        runs = [run for run, letters in self.letters.items() if letters]
        runs += [run for _, run, _ in found if self.rows[run].status != PAUSED]
        return list(dict.fromkeys(runs))[:limit], next_due

    def _is_stale(self, due: Instant, run: str, key: str) -> bool:
        return self.timers.get(run, {}).get(key) != due

    def listen(self, heard: Heard) -> bool:
        return False

    def set_weight(self, share: str, weight: int | None) -> None:
        check_weight(share, weight)
        if weight is None:
            self.weights.pop(share, None)
        else:
            self.weights[share] = weight

    def set_limit(self, limit: Limit) -> None:
        check_limit(limit)
        old = self.limits.get(limit.name)
        self.limits[limit.name] = limit
        if limit.rate is None:
            self.buckets.pop(limit.name, None)
        elif old is None or old.rate is None:
            self.buckets[limit.name] = Bucket(limit.burst, self.now())
        else:
            self.buckets[limit.name] = self.buckets[limit.name].filled(old, self.now())

    def remove_limit(self, name: str) -> bool:
        self.buckets.pop(name, None)
        return self.limits.pop(name, None) is not None

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        with self.turn([lease.run]) as turn:
            return turn.publish(lease, lines)

    def enrol(self, can: Abilities) -> None:
        self.workers[can.worker] = can
        if can.alive_for is not None:
            self.vouched[can.worker] = self.now() + round(can.alive_for * SECOND)

    def forget_workers(self) -> int:
        held = {queued.worker for queued in self.commands.values()}
        gone = [each for each, until in self.vouched.items() if until <= self.now() and each not in held]
        for worker in gone:
            del self.vouched[worker], self.workers[worker]
        return len(gone)  # the others are in this process, which is running

    def foreign_writes(self) -> int:
        return 0  # no other process can write here

    def compact(self) -> None:
        """Removed runs take no space."""

    def close(self) -> None:
        """There is nothing to release."""

    def _held_by(self, lease: Lease) -> Queued | None:
        queued = self.commands.get((lease.run, lease.command.id))
        if queued is None or not queued.is_held() or queued.generation != lease.generation:
            return None
        return queued

    def _replace(self, key: Key, queued: Queued | None, turn: int | None = None) -> None:
        """Replace a command, and its entries in the lanes, the leases and the heap of later starts."""
        old = self.commands.pop(key, None)
        self.leases.pop(key, None)
        if old is not None:
            self.lanes.leave(old.command, key[0], old.place)
        if queued is None:
            return
        self.commands[key] = queued
        if queued.worker is not None:
            self.leases[key] = None
        elif queued.held:
            return
        elif queued.command.not_before > self.clock.at:
            heapq.heappush(self.later, (queued.command.not_before, *key))
        else:
            self.lanes.join(queued.command, key[0], queued.place, turn)


class MemoryTurn:
    """Changes are made immediately, and undone if the turn ends with an error."""

    def __init__(self, store: MemoryStore, now: Instant) -> None:
        self.store, self.now, self.wrote = store, now, False
        self.undo: list[Callable[[], object]] = []
        self.touched: set[str] = set()  # runs and commands that the views do not show yet
        self.touched_commands: set[Key] = set()
        self.touched_documents: set[Key] = set()
        self.new_workers: dict[str, Abilities] = {}
        self.asked: list[ClaimRequest] = []
        self.again: Instant | None = None  # when a limit that kept commands back allows more

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

    def generations(self, run: str, commands: Collection[str]) -> Mapping[str, int]:
        found = {command: self.store.commands.get((run, command)) for command in commands}
        return {command: each.generation for command, each in found.items() if each is not None and each.is_held()}

    def lease(self, run: str, command: str) -> Lease | None:
        queued = self.store.commands.get((run, command))
        return None if queued is None else queued.lease()

    def claimed(self, run: str) -> frozenset[str]:
        return frozenset(command for owner, command in self.store.leases if owner == run)

    def write(self, writes: Writes) -> None:
        if self.head(writes.run) != writes.expected:
            raise Conflict(f"run {writes.run} has moved on from fact {writes.expected} to {self.head(writes.run)}")
        before = len(self.undo)
        try:
            self._write(writes)
        except BaseException:
            self.roll_back(before)  # the turn may continue without this run
            raise

    def _write(self, writes: Writes) -> None:
        run, store = writes.run, self.store
        self.touched.add(run)
        if writes.plan is not None:
            self._put(store.plans, hash_of(writes.plan), writes.plan)
        self._append(writes)
        before = store.rows.get(run)
        self._put(store.rows, run, writes.summary)
        if before is not None and before.status == PAUSED != writes.summary.status:
            self.undo.append(store.lanes.move_behind(run))
        for command, order in writes.commands.items():
            self._order(writes, command, order)
        for key, due in writes.timers.items():
            self._set_timer(run, key, due)
        self._deliver(writes)
        for hash, data in writes.blobs.items():
            self._put(store.blobs, (run, hash), data)
        if writes.lines:
            self._put(store.streams, run, [*store.streams.get(run, ()), *map(json.encode, writes.lines)])
        if writes.dead is not None:
            self._put(store.dead, run, tuple(writes.dead) or None)

    def _deliver(self, writes: Writes) -> None:
        letters = self.store.letters
        for letter in writes.letters:
            if letter.key not in letters.setdefault(letter.to, {}):
                self._put(letters[letter.to], letter.key, codec.encode_letter(letter))
        if writes.read_letters:
            read = set(writes.read_letters)
            unread = {key: data for key, data in letters.get(writes.run, {}).items() if key not in read}
            self._put(letters, writes.run, unread or None)  # as a whole, so that undoing it keeps their order

    def _append(self, writes: Writes) -> None:
        log = self.store.logs.setdefault(writes.run, [])
        self.undo.append(lambda: log.__delitem__(slice(writes.expected, None)))
        for i, fact in enumerate(writes.facts):
            log.append(StoredFact(writes.at, codec.encode_fact(fact), None if i else writes.turn))

    def _set_timer(self, run: str, key: str, due: Instant | None) -> None:
        timers = self.store.timers.setdefault(run, {})
        if due is not None and timers.get(key) != due:
            heapq.heappush(self.store.agenda, (due, run, key))
        self._put(timers, key, due)

    def ask(self, can: Abilities, lease_for: float, limit: int) -> ClaimRequest:
        asked = ClaimRequest(can, lease_for, limit)
        self.asked.append(asked)
        return asked

    def answer(self) -> None:
        """Claim what was asked for, when everything else is written."""
        for asked in self.asked:
            asked.leases = self.claim(asked.can, asked.lease_for, asked.limit)
            asked.heads = {lease.run: self.head(lease.run) for lease in asked.leases}
            asked.again = self.again

    def claim(self, can: Abilities, lease_for: float, limit: int) -> Sequence[Lease]:
        self._release_later()
        leases: list[Lease] = []
        places = dict(can.places)
        rooms = self._rooms()
        while len(leases) < limit:
            key = self._next(can, places, rooms)
            if key is None:
                break
            queued = self.store.commands[key]
            if queued.command.executor in places:
                places[queued.command.executor] -= 1
            self._take_room(queued.command, rooms)
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
                    beat_at=self.now,
                ),
            )
            self.store.lanes.served(queued.command, key[0])
            lease = self.store.commands[key].lease()
            assert lease is not None
            leases.append(lease)
        self.again = rooms.again
        for name, (of, taken) in rooms.taken.items():
            if taken and of.rate is not None:
                filled = self.store.buckets[name].filled(of, self.now)
                self._put(self.store.buckets, name, Bucket(filled.tokens - taken, filled.at))
        if leases and can.worker not in self.store.workers and can.alive_for is None:
            self.new_workers[can.worker] = structs.replace(can, places=())
        return leases

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        if self.store._held_by(lease) is None:
            return False
        self.touched.add(lease.run)
        known = self.store.streams.get(lease.run, ())
        self._put(self.store.streams, lease.run, [*known, *map(json.encode, lines)])
        return True

    def remove(self, run: str) -> None:
        store, row = self.store, self.store.rows.get(run)
        self.touched.add(run)
        refuse_removal(run, row, store.rows.get(row.parent) if row is not None else None)
        for key in [key for key in store.commands if key[0] == run]:
            self._queue(key, None)
        for table in ("logs", "rows", "timers", "letters", "snapshots", "streams", "dead"):
            self._swap(table, {key: value for key, value in getattr(store, table).items() if key != run})
        self._swap("blobs", {key: value for key, value in store.blobs.items() if key[0] != run})
        for limits in ("limits", "buckets"):
            table = getattr(store, limits)
            self._swap(limits, {key: value for key, value in table.items() if not key.startswith(rate_limits_of(run))})
        self._swap("floor", store.floor + FLOOR_STEP)

    def forget(self) -> Sequence[str]:
        store = self.store
        generations = [queued.generation for queued in store.commands.values()]
        self._swap("floor", max(store.floor, *generations, 0) + FLOOR_STEP)
        for key in list(store.commands):
            self._queue(key, None)
        for table in ("rows", "timers", "snapshots", "dead"):
            self._swap(table, {})
        runs = sorted(run for run, log in store.logs.items() if log)
        self.touched.update(runs)
        return runs

    def document(self, kind: str, id: str) -> Document | None:
        return self.store.documents.get((kind, id))

    def put_document(self, kind: str, id: str, data: bytes, version: int = 0, due: Instant | None = None) -> int:
        check_put(kind, id, data)
        check_version(kind, id, self.document(kind, id), version)
        made = next_version(version, self.now)
        self.touched_documents.add((kind, id))
        self._put(self.store.documents, (kind, id), Document(kind, id, made, bytes(data), due))
        return made

    def delete_document(self, kind: str, id: str, version: int) -> None:
        check_version(kind, id, self.document(kind, id), version)
        self.touched_documents.add((kind, id))
        self._put(self.store.documents, (kind, id), None)

    def _swap(self, name: str, value: Any) -> None:
        """Replace a whole table, so that undoing it keeps its order."""
        old = getattr(self.store, name)
        self.undo.append(lambda: setattr(self.store, name, old))
        setattr(self.store, name, value)

    def roll_back(self, to: int = 0) -> None:
        while len(self.undo) > to:
            self.undo.pop()()

    def _order(self, writes: Writes, command: str, order: Command | Held | None) -> None:
        key = (writes.run, command)
        old = self.store.commands.get(key)
        if order is None:
            self._queue(key, None)
        elif isinstance(order, Held):
            if old is not None:
                self._queue(key, structs.replace(old.freed(old.losses), held=True))
        else:
            if order.rate:
                self._limit_rate(order)
            generation, losses = (self.store.floor, 0) if old is None else (old.generation, old.losses)
            hand_backs = 0 if old is None else old.hand_backs
            queued = Queued(
                writes.run,
                order,
                codec.encode_command(order),
                writes.summary.plan,
                self.store.lanes.number(),
                generation,
                losses=losses,
                hand_backs=hand_backs,
                issued_at=self.now,
            )
            self._queue(key, queued)

    def _limit_rate(self, command: Command) -> None:
        """A loop with a rate brings its limit."""
        limits = self.store.limits
        if command.limit not in limits:
            self._put(limits, command.limit, Limit(name=command.limit, rate=command.rate))
            self._put(self.store.buckets, command.limit, Bucket(1.0, self.now))

    def _take_room(self, command: Command, rooms: Rooms) -> None:
        """Count a command that starts: for its share and for its limit."""
        store, positions = self.store, dict(self.store.rounds.positions)
        self.undo.append(lambda: setattr(store.rounds, "positions", positions))
        store.rounds.served((command.queue, command.priority), command.share, store.weights.get(command.share, 1))
        if command.limit:
            rooms.take(command.limit)

    def _rooms(self) -> Rooms:
        store = self.store

        def leased(name: str) -> int:
            return sum(store.commands[key].command.limit == name for key in store.leases)

        def bucket(name: str) -> Bucket:
            return store.buckets[name].filled(store.limits[name], self.now)

        return Rooms(store.limits.get, leased, bucket)

    def _next(self, can: Abilities, places: Mapping[str, int], rooms: Rooms) -> Key | None:
        def is_open(lane: Lane) -> bool:
            tool, executor, limit = lane
            return (
                (can.tools is None or tool in can.tools)
                and places.get(executor, 1) > 0
                and (not limit or rooms.is_open(limit))
            )

        for run, waiting in self.store.lanes.walk(can.queues, can.runs, is_open, self.store.rounds):
            if self.store.rows[run].status == PAUSED:
                continue
            for _, command in waiting:
                order = self.store.commands[run, command].command
                if order.is_for(can.worker, self.now):
                    return run, command
        return None

    def _release_later(self) -> None:
        later = self.store.later
        while later and later[0][0] <= self.now:
            _, run, command = heapq.heappop(later)
            queued = self.store.commands.get((run, command))
            if queued is not None and queued.worker is None:
                self.touched_commands.add((run, command))
                self.store._replace((run, command), queued, self.store.lanes.turn_of(queued.command, run))

    def _queue(self, key: Key, queued: Queued | None) -> None:
        old = self.store.commands.get(key)
        turn = None if old is None else self.store.lanes.turn_of(old.command, key[0])
        self.undo.append(lambda: self.store._replace(key, old, turn))
        self.touched_commands.add(key)
        self.store._replace(key, queued)

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Set a value of a table; None removes it."""
        old = table.get(key)
        self.undo.append(lambda: table.pop(key, None) if old is None else table.__setitem__(key, old))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


class MemoryViews:
    """Takes no lock: a commit replaces whole entries of `committed`, and copying a dict's values is one operation."""

    def __init__(self, store: "MemoryStore") -> None:
        self._store = store

    def now(self) -> Instant:
        return self._store.clock.now()

    def runs(self, wanted: RunFilter = ALL_RUNS, after: RunCursor | None = None, limit: int = 100) -> RunPage:
        page: list[Summary] = []
        last, more = after, False
        rows = [row for row in self._newest() if after is None or (row.created_at, row.run) < after]
        for scanned, row in enumerate(rows):
            if len(page) == limit or scanned == MOST_SCANNED:
                more = True
                break
            last = (row.created_at, row.run)
            if wanted.fits(row):
                page.append(row)
        return RunPage(page, last, more)

    def _newest(self) -> list[Summary]:
        rows = [run.row for run in list(self._store.committed.values()) if run.row is not None]
        return sorted(rows, key=lambda row: (row.created_at, row.run), reverse=True)

    def called(self, text: str, status: str | None = None, limit: int = 100) -> Sequence[Summary]:
        rows = (row for row in self._newest() if status in (None, row.status))
        return [row for row in rows if row.name == text or row.run.startswith(text)][:limit]

    def count(self, wanted: RunFilter = ALL_RUNS, most: int = 10_000) -> tuple[int, bool]:
        number = sum(wanted.fits(row) for row in self._newest())
        return min(number, most), number > most

    def feed(self, cursor: str = "", limit: int = 500) -> Sequence[FeedFact]:
        change, number = read_cursor("m", cursor, 2)
        if change > self._store.last_change:
            raise ahead_of(cursor)
        entries, found = self._store.feed, list[FeedFact]()
        for each in entries[bisect_left(entries, change, key=lambda each: each.change) :]:
            first = max(each.after, number) if each.change == change else each.after
            for at, entry in enumerate(each.log[first : min(each.until, first + limit - len(found))], first + 1):
                where = write_cursor("m", (each.change, at))
                found.append(FeedFact(each.run, at, entry.at, codec.decode_fact(entry.data), where))
            if len(found) >= limit:
                break
        return found

    def feed_end(self) -> str:
        feed = self._store.feed
        return write_cursor("m", (feed[-1].change, feed[-1].until)) if feed else ""

    def changed(self, since: ChangePosition | None = None, limit: int = 1000) -> RunChanges:
        if since is None:
            return RunChanges((self._store.last_change, 0))
        runs = [(each.change, each.head, run) for run, each in list(self._store.committed.items()) if each.row]
        later = sorted(each for each in runs if each[0] > since[0])[:limit]
        return RunChanges(later[-1][:2] if later else since, {run: head for _, head, run in later})

    def summary(self, run: str) -> Summary | None:
        committed = self._store.committed.get(run)
        return None if committed is None else committed.row

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        committed = self._store.committed.get(run)
        if committed is None:
            return []
        last = committed.head if limit is None else min(committed.head, after + limit)
        return self.some_facts(run, range(after + 1, last + 1))

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        committed = self._store.committed.get(run)
        if committed is None:
            return []
        present = sorted(n for n in set(numbers) if 0 < n <= committed.head)
        return [(n, committed.log[n - 1].at, codec.decode_fact(committed.log[n - 1].data)) for n in present]

    def blob(self, run: str, hash: str) -> bytes:
        data = self._store.blobs.get((run, hash))
        if data is None:
            raise NotFound(f"run {run} has no blob {hash}")
        return data

    def snapshot(self, run: str) -> bytes | None:
        return self._store.snapshots.get(run)

    def last_lines(self, run: str, before: int | None = None, limit: int = 100) -> Sequence[tuple[int, Any]]:
        committed = self._store.committed.get(run)
        if committed is None:
            return []
        last = committed.line_count if before is None else min(before - 1, committed.line_count)
        return [(n, json.decode(committed.lines[n - 1])) for n in range(last, max(last - limit, 0), -1)]

    def lines(self, run: str, after: int = 0, limit: int | None = None, search: str = "") -> Sequence[tuple[int, Any]]:
        committed = self._store.committed.get(run)
        if committed is None:
            return []
        wanted = json.encode(search)[1:-1]  # as it is written inside a JSON text
        lines = enumerate(committed.lines[after : committed.line_count], after + 1)
        return [(n, json.decode(line)) for n, line in lines if wanted in line][:limit]

    def plan(self, hash: str) -> bytes | None:
        return self._store.plans.get(hash)

    def plans(self, beginning: str, limit: int = 10) -> Sequence[str]:
        return sorted(hash for hash in list(self._store.plans) if hash.startswith(beginning))[:limit]

    def queues(self) -> Sequence[Queue]:
        queues: dict[str, Queue] = {}
        for queued in list(self._store.committed_commands.values()):
            if queued.held and queued.worker is None:
                continue
            name, waits = queued.command.queue, queued.worker is None
            seen = queues.get(name, Queue(name))
            oldest = queued.issued_at if seen.oldest is None else min(seen.oldest, queued.issued_at)
            queues[name] = Queue(
                name, seen.waiting + waits, seen.leased + (not waits), oldest if waits else seen.oldest
            )
        return [queues[name] for name in sorted(queues)]

    def shares(self) -> Sequence[Share]:
        counts = {name: [0, 0] for name in self._store.weights}
        for queued in list(self._store.committed_commands.values()):
            if queued.command.share and not (queued.held and queued.worker is None):
                counts.setdefault(queued.command.share, [0, 0])[queued.worker is not None] += 1
        weights = self._store.weights
        return [Share(name, weights.get(name, 1), *counts[name]) for name in sorted(counts)]

    def limits(self) -> Sequence[LimitUse]:
        commands = [each for each in list(self._store.committed_commands.values()) if each.command.limit]
        now, found = self.now(), list[LimitUse]()
        for name, limit in sorted(self._store.limits.items()):
            own = [each for each in commands if each.command.limit == name]
            leased = sum(each.worker is not None for each in own)
            waiting = sum(each.worker is None and not each.held for each in own)
            bucket = self._store.buckets.get(name)
            found.append(limit_use(limit, leased, waiting, bucket, now))
        return found

    def workers(self) -> Sequence[LiveWorker]:
        commands = list(self._store.committed_commands.values())
        workers: list[LiveWorker] = []
        now, vouched = self._store.now(), self._store.vouched
        for worker, can in sorted(self._store.workers.items()):
            if vouched.get(worker, now + 1) <= now:
                continue
            own = [queued for queued in commands if queued.worker == worker and not queued.given_up]
            workers.append(LiveWorker(can, len(own), max((queued.beat_at for queued in own), default=0)))
        return workers

    def leases(self, run: str | None = None) -> Sequence[Leased]:
        commands = sorted(self._store.committed_commands.items())
        return [
            Leased(*key, "" if queued.given_up else queued.worker, queued.until, not queued.given_up, queued.claimed_at)
            for key, queued in commands
            if queued.worker is not None and run in (None, key[0])
        ]

    def dead(self, fingerprint: str | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        runs = {run: committed.dead for run, committed in list(self._store.committed.items()) if committed.dead}
        last = sorted(runs.items(), key=lambda entry: (-entry[1][0].at, entry[0]))
        return [letter for _, letters in last for letter in letters if fingerprint in (None, letter.fingerprint)][
            :limit
        ]

    def document(self, kind: str, id: str) -> Document | None:
        return self._store.committed_documents.get((kind, id))

    def documents(self, kind: str, after: str = "", limit: int = 100) -> Sequence[Document]:
        found = [each for each in list(self._store.committed_documents.values()) if each.kind == kind]
        return sorted((each for each in found if each.id > after), key=lambda each: each.id)[:limit]

    def due_documents(self, kind: str, limit: int = 100) -> tuple[Sequence[Document], Instant | None]:
        now = self.now()
        documents = [each for each in list(self._store.committed_documents.values()) if each.kind == kind]
        dues = sorted((each.due, each.id, each) for each in documents if each.due is not None)
        next_due = next((due for due, _, _ in dues if due > now), None)
        return [each for due, _, each in dues if due <= now][:limit], next_due

    def health(self, thorough: bool = False) -> Health:
        return Health(is_durable=False)

    def backup(self, target: str) -> None:
        raise Unusable(f"{target} was not written: what is only in memory cannot be backed up; give the engine a `db`")

    def sizes(self) -> Mapping[str, int]:
        store = self._store
        return {
            "runs": len(store.rows),
            "facts": sum(map(len, list(store.logs.values()))),
            "commands": len(store.commands),
            "timers": sum(map(len, list(store.timers.values()))),
            "letters": sum(map(len, list(store.letters.values()))),
            "blobs": len(store.blobs),
            "snapshots": len(store.snapshots),
            "streams": sum(map(len, list(store.streams.values()))),
            "dead": sum(map(len, list(store.dead.values()))),
            "plans": len(store.plans),
            "workers": len(store.workers),
            "documents": len(store.documents),
        }

    def report(self, error: Corrupt) -> None:
        raise error

    def close(self) -> None:
        """There is nothing to release."""
