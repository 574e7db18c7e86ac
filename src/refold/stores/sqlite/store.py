"""The store on one SQLite file: each method one read, or one turn of its own."""

import os
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import json

from refold.core.fold.apply import Record
from refold.core.outcomes import SECOND, Instant
from refold.core.read.summary import Summary
from refold.errors import Corrupt
from refold.ports import HAND_BACKS, Expired, Lease, Place
from refold.stores.clock import Steady, StoreClock
from refold.stores.lost import log_lost
from refold.stores.sqlite import columns, queries
from refold.stores.sqlite import lines as lines_of
from refold.stores.sqlite.columns import Values, malformed
from refold.stores.sqlite.dead import SqliteDead
from refold.stores.sqlite.file import File, OnWrong
from refold.stores.sqlite.marks import read_mark
from refold.stores.sqlite.remembered import Remembered
from refold.stores.sqlite.rows import Queued, check, read_fact, read_queued, read_run, seal
from refold.stores.sqlite.turn import ALL, SqliteTurn, Tools

PATIENCE = 10.0  # seconds to wait for whoever writes


class SqliteStore(SqliteDead):
    """Called by one thread at a time; others wait. `close` ends it.

    Opened for `reading`, it takes no lock and changes nothing: every method that writes raises Unusable. `on_wrong`
    hears of rows that cannot be read where others are of use without them; without it they are raised.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        now: Callable[[], Instant],
        steady: Steady | None = None,
        *,
        namespace: str = "default",
        patience: float = PATIENCE,
        vfs: str | None = None,
        reading: bool = False,
        on_wrong: OnWrong | None = None,
    ) -> None:
        self.file = File(path, patience, vfs, reading=reading, on_wrong=on_wrong)
        self.namespace = namespace
        self.close = self.file.close
        self.clock, self._number = StoreClock(now, steady), 0
        self.now = self.clock.now
        read_mark(self.file, namespace, self.clock)
        self._tools = Tools(self.file, namespace, self.clock, self._next_number, set(), Remembered())

    def turn(self, runs: Sequence[str]) -> SqliteTurn:
        return SqliteTurn(self._tools, bool(runs), runs)

    def plan(self, hash: str) -> bytes | None:
        row = self._row(queries.PLAN, hash)
        if row is None:
            return None
        columns.PLANS.check((hash,), row)
        if sha256(row[0]).hexdigest() != hash:
            raise Corrupt(f"workflow {hash} is not what its name says (table plans, column data)")
        return bytes(row[0])

    def put_plan(self, hash: str, data: bytes) -> None:
        self._write(queries.PUT_PLAN, [(self.namespace, hash, data)])

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        row = self._row(queries.RUN, run)  # first: meanwhile others may add facts, but never take one away
        rows = self._rows(queries.FACTS, run, after, ALL if limit is None else limit)
        if row is not None:
            columns.RUNS.check((run,), row)
        last = after + len(rows) if row is None else row[0]
        if limit is not None:
            last = min(last, after + limit)
        records = [read_fact(run, row) for row in rows]
        numbers = [record[0] for record in records]
        if len(numbers) < last - after or numbers != list(range(after + 1, after + len(numbers) + 1)):
            raise Corrupt(
                f"not all of the facts {after + 1} to {last} of run {run} are there (table runs, column head, says how "
                "many there must be in table facts)"
            )
        return records

    def turn_of(self, run: str, number: int) -> str | None:
        for row in self._rows(queries.FACTS, run, number - 1, 1):
            if row[0] == number:
                read_fact(run, row)
                return None if row[3] is None else str(row[3])
        return None

    def summary(self, run: str) -> Summary | None:
        row = self._row(queries.RUN, run)
        if row is None and self._rows(queries.FACTS, run, 0, 1):
            raise Corrupt(f"run {run} has a log and no row: `refold db rebuild` makes the row again")
        return None if row is None else read_run(run, row)

    def summaries(self, status: str | None = None, limit: int = 100, *, called: str | None = None) -> Sequence[Summary]:
        if called is not None:
            rows = self._rows(queries.RUNS_CALLED, status, called, limit)
        elif status is not None:
            rows = self._rows(queries.RUNS_OF_STATUS, status, limit)
        else:
            rows = self._rows(queries.RUNS, limit)
        return self.file.readable(lambda row: read_run(row[0], row[1:]), rows)

    def snapshot(self, run: str) -> bytes | None:
        """One that does not read as it was written is none."""
        row = self._row(queries.SNAPSHOT, run)
        if row is None or tuple(map(type, row)) != (bytes, int) or row[1] != seal((run, row[0])):
            return None
        return bytes(row[0])

    def put_snapshot(self, run: str, data: bytes) -> None:
        self._write(queries.PUT_SNAPSHOT, [(self.namespace, run, data, seal((run, data)))])

    def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]:
        if not self._rows(queries.LEASES_OF_WORKER, worker):
            return []
        with SqliteTurn(self._tools, True) as turn:
            held = [read_queued(row) for row in self._rows(queries.LEASES_OF_WORKER, worker)]
            for command in held:
                command.until, command.beat_at = turn.now + round(lease_for * SECOND), turn.now
                seconds = left.get((command.run, command.id, command.generation))
                if seconds is not None:
                    command.deadline = turn.now + round(seconds * SECOND)
                turn.commands.change(command)
            return [command.lease() for command in held]

    def leases_of(self, worker: str) -> Sequence[Lease]:
        return [read_queued(row).lease() for row in self._rows(queries.LEASES_OF_WORKER, worker)]

    def hand_back(self, lease: Lease, lost: bool = False) -> bool:
        with SqliteTurn(self._tools, True) as turn:
            command = _held_by(turn, lease)
            if command is None:
                return False
            command.hand_backs += 1
            if lost or command.hand_backs >= HAND_BACKS:
                turn.commands.give_up(command, turn.now)
            else:
                turn.commands.take_back(command, command.losses)
            return True

    def expire(self, losses: int) -> Sequence[Expired]:
        """Judged under the lock only if there is something to judge."""
        dead = self._dead_workers()
        if not dead and not any(_is_over(each, self.now()) for each in self._leases()):
            return []
        found: list[Expired] = []
        lost: list[Lease] = []
        with SqliteTurn(self._tools, True) as turn:
            names = {worker for worker, _ in dead}
            for command in self._leases():
                if command.worker in names:
                    command.until = min(command.until, turn.now)  # nobody will extend it
                    turn.commands.change(command)
                if not _is_over(command, turn.now):
                    continue
                if command.lease().hangs() or command.losses >= losses:
                    found.append(Expired(command.run, command.id, command.generation))
                else:
                    lost.append(command.lease())
                    turn.commands.take_back(command, command.losses + 1)
            self.file.write(queries.REMOVE_WORKER, [(self.namespace, *each) for each in dead])
        for _, lock in dead:
            self.file.life.remove(lock)
        log_lost(lost)
        return found

    def due(self, limit: int) -> tuple[Sequence[str], Instant | None]:
        now = self.now()
        runs: dict[str, None] = {}
        letters, timers = self._rows(queries.RUNS_WITH_LETTERS, limit), self._rows(queries.DUE_RUNS, now)
        runs.update(dict.fromkeys(self.file.readable(_receiver, letters)))
        self.file.readable(_check_timer, timers)
        runs.update((row[0], None) for row in timers if type(row[0]) is str)  # its turn says what is wrong with it
        next_due = self._row(queries.NEXT_DUE, now)
        moment = None if next_due is None or type(next_due[0]) is not int else next_due[0]
        return list(runs)[:limit], moment

    def foreign_writes(self) -> int:
        """A number that changes when another process has written."""
        with self.file.guard:
            row = self.file.row(queries.FOREIGN, ())
        assert row is not None
        return int(row[0])

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        encoded = lines_of.encoded(lines)
        with SqliteTurn(self._tools, True) as turn:
            if _held_by(turn, lease) is None:
                return False
            lines_of.append(self.file, self.namespace, lease.run, encoded)
            return True

    def stream(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[tuple[int, Any]]:
        rows = self._rows(queries.STREAM, run, after, -1 if limit is None else limit)
        for expected, row in enumerate(rows, after + 1):
            columns.LINES.check((run, row[0]), row)
            n, data, mark = row
            check(f"line {expected} of run {run}", (run, expected, data), mark if n == expected else -1, "streams")
        return [(n, columns.LINES.decoded((run, n), "data", json.decode, data)) for n, data, _ in rows]

    def _rows(self, query: str, *bindings: Any) -> list[Values]:
        with self.file.guard:
            self.file.check_place()
            return self.file.rows(query, (self.namespace, *bindings))

    def _row(self, query: str, *bindings: Any) -> Values | None:
        with self.file.guard:
            self.file.check_place()
            return self.file.row(query, (self.namespace, *bindings))

    def _write(self, query: str, rows: Sequence[Values]) -> None:
        with SqliteTurn(self._tools, True):
            self.file.write(query, rows)

    def _leases(self) -> list[Queued]:
        return self.file.readable(read_queued, self._rows(queries.LEASES))

    def _dead_workers(self) -> list[tuple[str, str]]:
        """Those whose process let go of its lock, by dying."""
        life = self.file.life
        rows = self._rows(queries.WORKERS, life.name)
        return [(worker, lock) for worker, lock in rows if type(worker) is type(lock) is str and life.is_free(lock)]

    def _next_number(self) -> int:
        """Grows with time, so that it grows over all processes of the machine too."""
        self._number = max(self._number + 1, self.clock.at)
        return self._number


def _receiver(row: Values) -> str:
    run, receiver = row
    if type(run) is not str or run != receiver:
        raise malformed("letters", (receiver,), "run", f"the index says {run!r}")
    return run


def _check_timer(row: Values) -> None:
    columns.DUE_TIMERS.check(row[:2], row)
    run, key, due, mark = row
    check(f"timer {key} of run {run}", (run, key, due), mark, "timers")


def _held_by(turn: SqliteTurn, lease: Lease) -> Queued | None:
    command = turn.commands.get(lease.run, lease.command.id)
    if command is None or not command.is_held() or command.generation != lease.generation:
        return None
    return command


def _is_over(command: Queued, now: Instant) -> bool:
    """It ran out, or its holder lives and has let the deadline pass."""
    return command.until <= now or (command.deadline is not None and command.beat_at > command.deadline)
