"""The store on one SQLite file: each method one read, or one turn of its own."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.core.fold.apply import Record
from refold.core.outcomes import SECOND, Instant
from refold.core.read.summary import Summary
from refold.ports import HAND_BACKS, Abilities, Expired, Heard, Hint, Lease, Limit, Place
from refold.stores.clock import Steady, StoreClock
from refold.stores.limits import Bucket, check_limit, check_weight
from refold.stores.lost import log_lost
from refold.stores.rounds import Rounds
from refold.stores.sqlite import queries
from refold.stores.sqlite.bell import Bell
from refold.stores.sqlite.file import File, OnWrong
from refold.stores.sqlite.remembered import Remembered
from refold.stores.sqlite.rows import DUE_TIMERS, CommandRow, Values, check, malformed, read_queued, seal
from refold.stores.sqlite.tables import Tables, limit_row, read_limit, read_mark
from refold.stores.sqlite.turn import SqliteTurn, Tools
from refold.stores.sqlite.views import SqliteViews, read_worker

PATIENCE = 10.0  # seconds to wait for whoever writes


class SqliteStore:
    """Called by one thread at a time; others wait. `close` ends it.

    `on_wrong` hears of rows that cannot be read where others are of use without them; without it they are raised.
    """

    takes_hints = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        now: Callable[[], Instant],
        steady: Steady | None = None,
        *,
        namespace: str = "default",
        patience: float = PATIENCE,
        vfs: str | None = None,
        on_wrong: OnWrong | None = None,
    ) -> None:
        self.file = File(path, patience, vfs, on_wrong=on_wrong)
        self.namespace = namespace
        self.clock, self._number = StoreClock(now, steady), 0
        self.now = self.clock.now
        self.views = SqliteViews(path, self.clock, namespace=namespace, patience=patience, vfs=vfs, on_wrong=on_wrong)
        self._bell: Bell | None = None
        self._tables = Tables(self._rows)
        read_mark(self.file, namespace, self.clock)
        self._tools = Tools(
            self.file,
            namespace,
            self.clock,
            self._next_number,
            set(),
            Remembered(),
            Tables(self._rows_of_turn),
            Rounds(),
        )

    def turn(self, runs: Sequence[str]) -> SqliteTurn:
        return SqliteTurn(self._tools, bool(runs), runs)

    def turn_from(self, hints: Mapping[str, Hint]) -> SqliteTurn:
        return self.turn(sorted(hints))

    def plan(self, hash: str) -> bytes | None:
        return self._tables.plan(hash)

    def put_plan(self, hash: str, data: bytes) -> None:
        self._write(queries.PUT_PLAN, [(self.namespace, hash, data)])

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        return self._tables.facts(run, after, limit)

    def turn_of(self, run: str, number: int) -> str | None:
        return self._tables.turn_of(run, number)

    def was_applied(self, run: str, number: int, turn: str) -> bool:
        return self.turn_of(run, number) == turn

    def summary(self, run: str) -> Summary | None:
        return self._tables.summary(run)

    def snapshot(self, run: str) -> bytes | None:
        return self._tables.snapshot(run)

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

    def begin_sweep(self, every: float, lease_for: float) -> bool:
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
        next_due = self._tables.row(queries.NEXT_DUE, now)
        moment = None if next_due is None or type(next_due[0]) is not int else next_due[0]
        return list(runs)[:limit], moment

    def foreign_writes(self) -> int:
        """A number that changes when another process has written."""
        with self.file.guard:
            row = self.file.row(queries.FOREIGN, ())
        assert row is not None
        return int(row[0])

    def listen(self, heard: Heard) -> bool:
        if self._bell is None:
            try:
                self._bell = Bell(f"{self.file.path}-door")
            except OSError:
                return False  # the kernel cannot watch the file
        self._bell.listen(lambda: heard(()))
        return True

    def set_weight(self, share: str, weight: int | None) -> None:
        check_weight(share, weight)
        if weight is None:
            self._write(queries.REMOVE_WEIGHT, [(self.namespace, share)])
        else:
            self._write(queries.PUT_WEIGHT, [(self.namespace, share, weight, seal((share, weight)))])

    def set_limit(self, limit: Limit) -> None:
        check_limit(limit)
        with SqliteTurn(self._tools, True) as turn:
            row = self.file.row(queries.LIMIT, (self.namespace, limit.name))
            old = read_limit(row) if row is not None else None
            fresh = old is None or old[0].rate is None
            bucket = Bucket(limit.burst, turn.now) if old is None or fresh else old[1].filled(old[0], turn.now)
            self.file.write(queries.PUT_LIMIT, [limit_row(self.namespace, limit, bucket)])

    def remove_limit(self, name: str) -> bool:
        with SqliteTurn(self._tools, True):
            found = self.file.row(queries.LIMIT, (self.namespace, name)) is not None
            self.file.write(queries.REMOVE_LIMIT, [(self.namespace, name)])
        return found

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        with SqliteTurn(self._tools, True) as turn:
            return turn.publish(lease, lines)

    def enrol(self, can: Abilities) -> None:
        with SqliteTurn(self._tools, False) as turn:
            turn.enrol(can)

    def forget_workers(self) -> int:
        life = self.file.life
        with SqliteTurn(self._tools, True):
            busy = {row[11] for row in self._rows(queries.LEASES)}
            rows = self.file.readable(read_worker, self._rows(queries.WORKERS, ""))
            now = self.now()
            ended = [row for row in rows if not life.is_there(row[1]) and not life.is_held(row[1], now)]
            gone = [(self.namespace, *row) for row in ended if row[0] not in busy]
            self.file.write(queries.REMOVE_WORKER, gone)
        return len(gone)

    def compact(self) -> None:
        with self.file.guard:
            self.file.compact()

    def close(self) -> None:
        if self._bell is not None:
            self._bell.close()
            self._bell = None
        self.views.close()
        self.file.close()

    def _rows(self, query: str, *bindings: Any) -> list[Values]:
        with self.file.guard:
            self.file.check_place()
            return self.file.rows(query, (self.namespace, *bindings))

    def _rows_of_turn(self, query: str, *bindings: Any) -> list[Values]:
        """Inside a turn, which has checked where the file is."""
        return self.file.rows(query, (self.namespace, *bindings))

    def _write(self, query: str, rows: Sequence[Values]) -> None:
        with SqliteTurn(self._tools, True):
            self.file.write(query, rows)

    def _leases(self) -> list[CommandRow]:
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
    DUE_TIMERS.check(row[:2], row)
    run, key, due, mark = row
    check(f"timer {key} of run {run}", (run, key, due), mark, "timers")


def _held_by(turn: SqliteTurn, lease: Lease) -> CommandRow | None:
    command = turn.commands.get(lease.run, lease.command.id)
    if command is None or not command.is_held() or command.generation != lease.generation:
        return None
    return command


def _is_over(command: CommandRow, now: Instant) -> bool:
    """It ran out, or its holder lives and has let the deadline pass."""
    return command.until <= now or (command.deadline is not None and command.beat_at > command.deadline)
