"""The store on PostgreSQL: each method one read, or one turn of its own."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from msgspec import json

from refold.core import codec
from refold.core.fold.apply import Record
from refold.core.outcomes import SECOND, Instant
from refold.core.read.summary import Summary
from refold.errors import Ambiguous, Corrupt, RefoldError, Unreachable
from refold.logs import WARNING, event, logger
from refold.ports import (
    HAND_BACKS,
    Abilities,
    Expired,
    FleetBell,
    Heard,
    Hint,
    Lease,
    Limit,
    Place,
    Ring,
)
from refold.stores.clock import Steady
from refold.stores.limits import check_limit, check_weight
from refold.stores.lost import log_lost
from refold.stores.postgres import queries
from refold.stores.postgres.address import read_address
from refold.stores.postgres.arrays import Blobs, Ints, Texts
from refold.stores.postgres.bell import Bell
from refold.stores.postgres.connection import Row, Session
from refold.stores.postgres.migrate import check_version
from refold.stores.postgres.server_time import GivenTime, ServerTime
from refold.stores.postgres.turn import ALL, Lane, PostgresTurn, StoreMemory, Tools, read_fact, read_lease, read_summary
from refold.stores.postgres.views import PostgresViews

log = logger("store")

PLACE = """
    select (select system_identifier from pg_control_system()),
        case when pg_is_in_recovery() then '0' else left(pg_walfile_name(pg_current_wal_lsn()), 8) end"""
"""Which server this is. The timeline comes from the log: the control file is one checkpoint late."""

OnWrong = Callable[[Corrupt], object]

ANY_WORK = Ring("work")
SAME = SECOND // 4  # a deadline that would move by less stays
NAMESPACE = "insert into refold.namespaces (name) values (%s) on conflict do nothing"
NUMBER = """
    select ns, floor, (extract(epoch from clock_timestamp()) * 1000000)::bigint
    from refold.namespaces where name = %s"""


class PostgresStore:
    """Turns have a session of their own, which is not shared with heartbeats; readers have others.

    `now` replaces the server's clock in tests.
    """

    takes_hints = True

    def __init__(
        self,
        url: str,
        now: Callable[[], Instant] | None = None,
        steady: Steady | None = None,
        *,
        on_wrong: OnWrong | None = None,
        make: bool = True,
        fleet_bell: Callable[[str], FleetBell] | None = None,
    ) -> None:
        """`make`: the tables are created if there are none. `fleet_bell` gives the bell of a namespace that processes
        use in place of NOTIFY; they hear the NOTIFY of short commands besides."""
        self.address = read_address(url)
        self.ring_alone = now is None
        self.session = Session(self.address)
        self.beats = Session(self.address)
        self.time: ServerTime | GivenTime = ServerTime() if now is None else GivenTime(now, steady)
        self.now = self.time.now
        self._place: tuple[int, int] | None = None  # the server's system identifier and timeline
        self.session.on_connect = self._connected
        self.memory = StoreMemory(0)
        try:
            with self.session.guard:
                check_version(self.session, make)
                self.session.run([(NAMESPACE, (self.address.namespace,))])
                ns, floor, at = self.session.rows(NUMBER, self.address.namespace)[0]
        except BaseException:
            self.session.close()
            raise
        self.time.seen(at)
        self.memory.ns, self.memory.floor = ns, floor
        self.views = PostgresViews(self.address, ns, self.time, on_wrong)
        self.bell = Bell(self.address)
        self._fleet_bell = None if fleet_bell is None else fleet_bell(self.address.namespace)
        self._is_listening, self._heard = False, 0
        self._tools = Tools(self.session, self.memory, self.time, self._lane, self._reserve, self._ring, self._life)

    def _connected(self, connection: psycopg.Connection[Any]) -> None:
        """What was remembered may not be true on this server. Raises Unreachable for one that was left behind."""
        row = connection.execute(PLACE, prepare=False).fetchone()
        assert row is not None
        place, before = (int(row[0]), int(row[1], 16)), self._place
        if before is not None and (place[0] != before[0] or place[1] < before[1]):
            raise Unreachable(
                f"{self.address.shown} is timeline {place[1]} of the server {place[0]}, and this process has written "
                f"to timeline {before[1]} of the server {before[0]}: a server that was left behind gets no writes"
            )
        if before is not None and place[1] > before[1]:
            event(log, WARNING, "another server has taken over", timeline=place[1], before=before[1])
        self._place = place
        self.memory.reset()

    @property
    def trips(self) -> int:
        """Round trips so far, except those of readers."""
        return self.session.trips + self.beats.trips

    def turn(self, runs: Sequence[str]) -> PostgresTurn:
        return PostgresTurn(self._tools, runs, {})

    def turn_from(self, hints: Mapping[str, Hint]) -> PostgresTurn:
        return PostgresTurn(self._tools, sorted(hints), hints)

    def _lane(self, lane: Lane) -> int:
        """Made outside of the turn, because a lane stays when the turn is undone."""
        known = self.memory.lanes.get(lane)
        if known is None:
            known = self.memory.lanes[lane] = int(self.beats.rows(queries.LANE, self.memory.ns, *lane)[0][0])
        return known

    def _reserve(self) -> list[int]:
        last = int(self.beats.rows(queries.RESERVE)[0][0]) + 99
        return list(range(last, last - 100, -1))  # taken from the end

    def plan(self, hash: str) -> bytes | None:
        rows = self._rows(queries.PLAN, self.memory.ns, hash)
        return bytes(rows[0][0]) if rows else None

    def put_plan(self, hash: str, data: bytes) -> None:
        self._rows(queries.PUT_PLANS, self.memory.ns, Texts([hash]), Blobs([data]))

    def facts(self, run: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        rows = self._rows(queries.FACTS, self.memory.ns, run, after, ALL if limit is None else limit)
        return [read_fact(run, row) for row in rows]

    def turn_of(self, run: str, number: int) -> str | None:
        rows = self._rows(queries.TURN_OF, self.memory.ns, run, number)
        return rows[0][0] if rows else None

    def was_applied(self, run: str, number: int, turn: str) -> bool:
        """Read under the lock of the run, after every session that broke was ended: else it might commit later. Behind
        a pooler it cannot be ended, so that only what was applied is certain. Raises Ambiguous."""
        with self.session.guard:
            self.session.end_lost()
            ns, names = self.memory.ns, Texts([run])
            statements = [(queries.BEGIN, ()), (queries.LOCK_RUNS, (ns, names)), (queries.TURN_OF, (ns, run, number))]
            try:
                rows = self.session.run([*statements, (queries.COMMIT, ())])[2]
            except BaseException:
                self.session.roll_back()
                raise
            is_applied = bool(rows) and rows[0][0] == turn
            broken, self.session.lost = self.session.lost, []
        if broken and not is_applied:
            raise Ambiguous("a session behind a pooler broke, and may still commit")
        return is_applied

    def summary(self, run: str) -> Summary | None:
        rows = self._rows(queries.RUN, self.memory.ns, run)
        return read_summary(rows[0][0], rows[0][1]) if rows else None

    def snapshot(self, run: str) -> bytes | None:
        rows = self._rows(queries.SNAPSHOT, self.memory.ns, run)
        return bytes(rows[0][0]) if rows else None

    def put_snapshot(self, run: str, data: bytes) -> None:
        self._rows(queries.PUT_SNAPSHOT, data, self.memory.ns, run)

    def extend(self, worker: str, lease_for: float, left: Mapping[Place, float] = {}) -> Sequence[Lease]:
        now, ns = self.now(), self.memory.ns
        until = now + round(lease_for * SECOND)
        statements: list[tuple[str, Sequence[Any]]] = [(queries.BEAT, (now, until, until, ns, worker))]
        if left:
            places = list(left)
            moved = Ints(now + round(left[place] * SECOND) for place in places)
            columns = Texts(p[0] for p in places), Texts(p[1] for p in places), Ints(p[2] for p in places), moved
            statements.append((queries.MOVE_DEADLINES, (*columns, ns, worker)))
        statements.append((queries.LEASES_OF_WORKER, (ns, worker)))
        rows = self.beats.run(statements)[-1]
        return [each for each in map(read_lease, rows)]

    def leases_of(self, worker: str) -> Sequence[Lease]:
        return [read_lease(row) for row in self.beats.rows(queries.LEASES_OF_WORKER, self.memory.ns, worker)]

    def hand_back(self, lease: Lease, lost: bool = False) -> bool:
        self.memory.is_idle = False
        values = (lease.run, lease.command.id, lease.generation, self.now(), lost, HAND_BACKS)
        is_back = bool(self._rows(queries.HAND_BACK, self.memory.ns, *values)[0][0])
        self._ring([ANY_WORK])
        return is_back

    def begin_sweep(self, every: float, lease_for: float) -> bool:
        interval, lease = round(every * SECOND), round(lease_for * SECOND)
        return bool(self._rows(queries.BEGIN_SWEEP, self.memory.ns, self.now(), interval, lease)[0][0])

    def expire(self, losses: int) -> Sequence[Expired]:
        found: list[Expired] = []
        lost: list[Lease] = []
        for run, id, generation, before, worker, data, is_back in self._rows(
            queries.EXPIRE, self.memory.ns, self.now(), losses
        ):
            if is_back:
                command = codec.decode_command(bytes(data))
                lost.append(Lease(run, command, worker or "", generation, 0, 0, "", before))
                self.memory.is_idle = False
            else:
                found.append(Expired(run, id, generation))
        log_lost(lost)
        if lost:
            self._ring([ANY_WORK])
        return found

    def due(self, limit: int) -> tuple[Sequence[str], Instant | None]:
        now, ns = self.now(), self.memory.ns
        with self.session.guard:
            letters, timers, first = self.session.run(
                [(queries.RUNS_WITH_LETTERS, (ns, limit)), (queries.DUE_RUNS, (ns, now)), (queries.NEXT_DUE, (ns, now))]
            )
        runs = dict.fromkeys([run for (run,) in letters] + [run for (run,) in timers])
        return list(runs)[:limit], first[0][0]

    def set_weight(self, share: str, weight: int | None) -> None:
        check_weight(share, weight)
        self._rows(queries.SET_WEIGHT, self.memory.ns, share, weight)

    def set_limit(self, limit: Limit) -> None:
        check_limit(limit)
        rate = None if limit.rate is None else float(limit.rate)
        values = (limit.name, limit.slots, rate, float(limit.burst), self.now())
        self._rows(queries.SET_LIMIT, self.memory.ns, *values)
        self._ring([ANY_WORK])

    def remove_limit(self, name: str) -> bool:
        removed = bool(self._rows(queries.REMOVE_LIMIT, self.memory.ns, name))
        self._ring([ANY_WORK])
        return removed

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        data = Blobs(json.encode(line) for line in lines)
        values = (lease.run, lease.command.id, lease.generation, data)
        return bool(self._rows(queries.PUBLISH, self.memory.ns, *values)[0][0])

    def enrol(self, can: Abilities) -> None:
        with self.turn([]) as turn:
            turn.enrol(can)

    def forget_workers(self) -> int:
        return len(self._rows(queries.FORGET_WORKERS, self.memory.ns, self.now()))

    def listen(self, heard: Heard) -> bool:
        def count(rings: Collection[Ring]) -> None:
            self._heard += 1
            heard(rings)

        self._is_listening = True
        if self._fleet_bell is not None:
            self._fleet_bell.listen(count)
        self.bell.listen(count)
        return True

    def _life(self) -> int | None:
        return self.bell.lock if self.bell.is_held else None

    def _ring(self, rings: Collection[Ring]) -> None:
        """Without a listener, this process only leaves mail: one trip on the session of the turns is enough."""
        if self._is_listening:
            (self._fleet_bell or self.bell).ring(rings)
        elif self.ring_alone:
            ring = (queries.RING, (self.bell.channel, Texts(self.bell.payloads(rings))))
            with suppress(RefoldError):  # a lost ring costs a poll
                self.session.run([(queries.BEGIN, ()), (queries.NOT_FLUSHED, ()), ring, (queries.COMMIT, ())])

    def foreign_writes(self) -> int:
        return self._heard

    def compact(self) -> None:
        """The server's autovacuum does that."""

    def close(self) -> None:
        workers = Texts(self.memory.enrolled)
        if workers:
            with suppress(RefoldError):  # their rows are removed when they are old
                self.beats.rows(queries.LEAVE, self.memory.ns, workers)
        if self._fleet_bell is not None:
            self._fleet_bell.close()
        self.bell.close()
        self.views.close()
        self.beats.close()
        self.session.close()

    def _rows(self, sql: str, *values: Any) -> list[Row]:
        return self.session.rows(sql, *values)
