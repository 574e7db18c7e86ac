"""One transaction on the file: what a turn reads, what it will write, and the claims it makes.

What a turn will write is collected, so that each table is written once, however many runs the turn advances.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct, json

from refold.core import codec
from refold.core.codec import encode_letter
from refold.core.commands import Command, Held, Letter, rate_limits_of
from refold.core.facts import RunMigrated
from refold.core.fold.apply import Record
from refold.core.outcomes import SECOND, Instant
from refold.core.read.summary import Summary
from refold.core.state import PAUSED
from refold.errors import Conflict, Corrupt
from refold.ports import Abilities, ClaimRequest, Document, Lease, Writes
from refold.stores.clock import MARK_EVERY, StoreClock
from refold.stores.documents import check_put, check_version, next_version
from refold.stores.removal import FLOOR_STEP, refuse_removal
from refold.stores.rounds import Rounds
from refold.stores.sqlite import queries
from refold.stores.sqlite.commands import Commands
from refold.stores.sqlite.file import File
from refold.stores.sqlite.locks import alive_until
from refold.stores.sqlite.remembered import MANY, Opening, Openings, Remembered
from refold.stores.sqlite.rows import (
    FAR,
    LEASED,
    LETTERS,
    LOGS,
    TIMERS,
    CommandRow,
    Values,
    check,
    dead_rows,
    fact_rows,
    fresh,
    label_text,
    read_fact,
    read_run,
    run_row,
    seal,
)
from refold.stores.sqlite.tables import ALL, Tables, last_change, put_mark, read_mark

Named = tuple[str, str]
"""A run, and the key or the hash of something that belongs to it."""


class Draft:
    """The rows of one run's writes. Constructing a draft may fail, and changes nothing."""

    def __init__(self, namespace: str, writes: Writes) -> None:
        run = self.run = writes.run
        self.facts = fact_rows(namespace, writes)
        self.head = writes.expected + len(self.facts)
        self.row, self.summary = run_row(run, self.head, writes.summary), writes.summary
        plan = writes.summary.plan
        self.orders: list[tuple[str, CommandRow | Held | None]] = [
            (id, None if order is None else fresh(run, order, plan) if isinstance(order, Command) else order)
            for id, order in writes.commands.items()
        ]
        self.timers = [_timer_row(run, *timer) for timer in writes.timers.items()] if writes.timers else ()
        self.letters = [_letter_row(letter) for letter in writes.letters] if writes.letters else ()
        self.rest = writes  # needs no encoding, so it cannot fail later


def _timer_row(run: str, key: str, due: Instant | None) -> tuple[Named, Values | None]:
    if due is None:
        return (run, key), None
    due = min(due, FAR)
    return (run, key), (due, seal((run, key, due)))


def _letter_row(letter: Letter) -> tuple[Named, Values]:
    data = encode_letter(letter)
    return (letter.to, letter.key), (data, seal((letter.to, letter.key, data)))


class Buffer(Struct):
    """All that a turn will write, except commands."""

    namespace: str
    touched: set[str] = set()  # runs whose logs, letters or timers are not all in the file yet
    troubled: set[str] = set()  # runs whose letters or timers have changed
    blobs: dict[Named, bytes] = {}
    facts: list[Values] = []
    runs: dict[str, tuple[str | None, Values, Summary]] = {}
    migrated: set[str] = set()  # runs that may have another workflow now
    timers: dict[Named, Values | None] = {}
    letters: dict[Named, Values] = {}
    read: dict[Named, None] = {}
    plans: dict[str, bytes] = {}

    def add(self, draft: Draft, stored_status: str | None, plans: set[bytes]) -> None:
        """`stored_status`: the status in the stored row of the run, None without one. `plans`: those already stored."""
        run, rest = draft.run, draft.rest
        self.touched.add(run)
        self.facts += draft.facts
        stored = self.runs[run][0] if run in self.runs else stored_status
        self.runs[run] = (stored, draft.row, draft.summary)
        if any(type(fact) is RunMigrated for fact in rest.facts):
            self.migrated.add(run)
        if draft.timers or draft.letters or rest.read_letters:
            self._add_mail(draft)
        if rest.blobs:
            self.blobs.update(((run, hash), data) for hash, data in rest.blobs.items())
        if rest.plan is not None and rest.plan not in plans:
            self.plans[sha256(rest.plan).hexdigest()] = rest.plan
            plans.add(rest.plan)

    def _add_mail(self, draft: Draft) -> None:
        self.timers.update(draft.timers)
        if draft.timers or draft.rest.read_letters:
            self.troubled.add(draft.run)
        for named, row in draft.letters:
            self.touched.add(named[0])
            self.troubled.add(named[0])
            self.letters.setdefault(named, row)  # the first letter of a key counts
        for key in draft.rest.read_letters:
            self.letters.pop((draft.run, key), None)
            self.read[draft.run, key] = None

    def flush(self, file: File) -> None:
        """Write everything: one statement for each table and kind of change."""
        if self.facts:
            file.write(queries.ADD_FACT, self.facts)
        if self.runs:
            self._flush_runs(file)
        if self.timers or self.read or self.letters:
            self._flush_mail(file)
        if self.blobs:
            rows = [(self.namespace, *named, data, seal((*named, data))) for named, data in self.blobs.items()]
            file.write(queries.PUT_BLOB, rows)
        if self.plans:
            file.write(queries.PUT_PLAN, [(self.namespace, *plan) for plan in self.plans.items()])

    def _flush_runs(self, file: File) -> None:
        writing: dict[str, list[Values]] = {}
        last, _, change = last_change(lambda query: file.rows(query, (self.namespace,)))
        grows = list(self.runs) == [last]  # a position has the head too, so the last run can keep its number
        first = dict[str, int]()
        for fact in self.facts if not grows else ():
            first.setdefault(fact[1], fact[2])
        for run, (stored, row, summary) in self.runs.items():
            change += 1
            if not grows or stored != row[1]:
                after = first.get(run, row[0] + 1) - 1
                writing.setdefault(queries.CLOSE_FEED, []).append((self.namespace, run, after))
                writing.setdefault(queries.ADD_TO_FEED, []).append((self.namespace, run, after, change))
            place, query, values = (self.namespace, run), queries.ADD_RUN, row
            if stored == row[1] and grows:
                query, values = queries.GROW_RUN, (row[0], row[3], row[4], *place)
            elif stored == row[1]:
                query, values = queries.MOVE_RUN, (row[0], row[3], row[4], change, *place)
            elif stored:
                query, values = queries.CHANGE_RUN, (row[0], row[1], row[3], row[4], change, *place)
            else:
                values = (*row, change, *place, summary.workflow, summary.name, summary.key, summary.parent)
                labels = [(*place, label_text(*label), summary.created_at) for label in summary.labels.items()]
                writing.setdefault(queries.ADD_LABEL, []).extend(labels)
            writing.setdefault(query, []).append(values)
            if run in self.migrated:
                writing.setdefault(queries.RENAME_RUN, []).append((summary.workflow, *place))
        for query, rows in writing.items():
            if rows:
                file.write(query, rows)

    def _flush_mail(self, file: File) -> None:
        space = self.namespace
        writing = {
            queries.CLEAR_TIMER: [(space, *named) for named, row in self.timers.items() if row is None],
            queries.SET_TIMER: [(*row, space, *named) for named, row in self.timers.items() if row is not None],
            queries.REMOVE_LETTER: [(space, *named) for named in self.read],
            queries.ADD_LETTER: [(space, *named, *row) for named, row in self.letters.items()],
        }
        for query, rows in writing.items():
            if rows:
                file.write(query, rows)


class Tools(Struct, frozen=True):
    """What a turn gets from its store."""

    file: File
    namespace: str
    clock: StoreClock
    number: Callable[[], int]  # each greater than the one before
    workers: set[str]  # workers of this process that are already in the file
    remembered: Remembered
    tables: Tables
    rounds: Rounds


class SqliteTurn:
    """The transaction begins when it is first needed, so a worker that finds nothing to claim delays no writer."""

    def __init__(self, tools: Tools, at_once: bool, runs: Sequence[str] = ()) -> None:
        self._tools, self._file, self._namespace, self._at_once = tools, tools.file, tools.namespace, at_once
        self.now: Instant = 0
        self._begun = False
        self._wrote = False  # facts
        self._expected = runs
        self._new_workers: dict[str, Abilities] = {}
        self._asked: list[ClaimRequest] = []
        self._buffer = Buffer(tools.namespace)
        self._begin_anew()

    def _begin_anew(self) -> None:
        tools = self._tools
        self._openings = Openings(tools.file, tools.namespace, tools.remembered)
        rounds = Rounds(tools.rounds.positions)
        self.commands = Commands(tools.file, tools.namespace, self._openings, tools.number, tools.remembered, rounds)

    def __enter__(self) -> "SqliteTurn":
        self._file.guard.acquire()
        try:
            if self._at_once:
                self.begin()
                if len(self._expected) > 1:
                    self._openings.find(self._expected)
            else:
                self.now = self._tools.clock.now()
        except BaseException:
            self._file.guard.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                if self._asked:
                    self._answer()
                if self._begun:
                    self._commit()
            elif self._begun:
                self._tools.remembered.forget()
                self._file.roll_back()
        finally:
            self._file.guard.release()

    def begin(self) -> None:
        """Begin the transaction. Read the time after the lock is taken, so that waiting for it cannot make it stale."""
        if self._begun:
            return
        tools, version = self._tools, self._file.begin()
        if version != tools.remembered.version:  # another process has written, and its clock may be ahead
            read_mark(self._file, self._namespace, tools.clock)
        tools.remembered.begin(version)
        self._begun, self.now = True, tools.clock.now()

    def _answer(self) -> None:
        """Claim what was asked for, when everything else is written."""
        try:
            for asked in self._asked:
                asked.leases = self.claim(asked.can, asked.lease_for, asked.limit)
                asked.again = self.commands.again
                asked.heads = {lease.run: self._openings.get(lease.run).head for lease in asked.leases}
        except BaseException:
            if self._begun:
                self._tools.remembered.forget()
                self._file.roll_back()
            raise

    def _commit(self) -> None:
        try:
            self.commands.flush()
            self._buffer.flush(self._file)
            if self._new_workers:
                self._enrol()
            marks = self._wrote and self.now - self._tools.clock.marked >= MARK_EVERY
            if marks:
                put_mark(self._file, self._namespace, self._tools.clock)
        except BaseException:
            self._tools.remembered.forget()
            self._file.roll_back()
            raise
        try:
            self._file.commit()
        except BaseException:
            self._tools.remembered.forget()
            raise
        if marks:
            self._tools.clock.marked = self.now
        self._tools.rounds.positions = self.commands.rounds.positions
        self._tools.remembered.keep(self._openings.runs, self._buffer.troubled, self._file.version())
        if self._new_workers:
            self._tools.workers.update(self._new_workers)  # of which a remote one enrols again by itself

    def _enrol(self) -> None:
        """Write the new workers. Their process holds its life lock, so that other ones can tell when it is dead."""
        self._file.life.take()
        lock = self._file.life.name
        workers = self._new_workers.items()
        rows = [
            (self._namespace, each, self._sign_of_life(can) or lock, _listed(can.tools), _listed(can.queues))
            for each, can in workers
        ]
        self._file.write(queries.PUT_WORKER, rows)

    def _sign_of_life(self, can: Abilities) -> str:
        return "" if can.alive_for is None else alive_until(self.now + round(can.alive_for * SECOND))

    def head(self, run: str) -> int:
        if not self._begun:
            self.begin()
        return self._openings.get(run).head

    def facts(self, run: str, after: int = 0) -> Sequence[Record]:
        head = self.head(run)
        self._settle(run)
        rows = self._file.rows(queries.FACTS, (self._namespace, run, after, ALL))
        if len(rows) != max(head - after, 0):
            raise Corrupt(f"of the facts {after + 1} to {head} of run {run} only {len(rows)} are there (table facts)")
        return [read_fact(run, row) for row in rows]

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        self.begin()
        self._settle(run)
        return self._tools.tables.some_facts(run, numbers)

    def blob(self, run: str, hash: str) -> bytes:
        self.begin()
        if (run, hash) in self._buffer.blobs:
            return self._buffer.blobs[run, hash]
        return self._tools.tables.blob(run, hash)

    def letters(self, run: str) -> Sequence[Letter]:
        if not self._begun:
            self.begin()
        if not self._openings.get(run).has_letters and run not in self._buffer.touched:
            return []
        self._settle(run)
        rows = self._file.rows(queries.LETTERS, (self._namespace, run))
        for row in rows:
            LETTERS.check((run, row[0]), row)
            check(f"letter {row[0]} to run {run}", (run, *row[:2]), row[2], "letters")
        return [LETTERS.decoded((run, key), "data", codec.decode_letter, data) for key, data, _ in rows]

    def due_timers(self, run: str) -> Sequence[str]:
        if not self._begun:
            self.begin()
        next_due = self._openings.get(run).next_due
        if (next_due is None or next_due > self.now) and run not in self._buffer.touched:
            return []
        self._settle(run)
        rows = self._file.rows(queries.DUE_TIMERS, (self._namespace, run, self.now))
        for row in rows:
            TIMERS.check((run, row[0]), row)
            check(f"timer {row[0]} of run {run}", (run, *row[:2]), row[2], "timers")
        return [key for key, _, _ in rows]

    def generations(self, run: str, commands: Collection[str]) -> Mapping[str, int]:
        if not self._begun:
            self.begin()
        self.commands.load(run, commands)
        held: dict[str, int] = {}
        for id in commands:
            command = self.commands.get(run, id)
            if command is not None and command.is_held():
                held[id] = command.generation
        return held

    def lease(self, run: str, command: str) -> Lease | None:
        self.begin()
        found = self.commands.get(run, command)
        return None if found is None or found.state != LEASED else found.lease()

    def claimed(self, run: str) -> frozenset[str]:
        self.begin()
        return self.commands.claimed(run)

    def write(self, writes: Writes) -> None:
        self.begin()
        run, opening, commands = writes.run, self._openings.get(writes.run), self.commands
        if opening.head != writes.expected:
            raise Conflict(f"run {run} has moved on from fact {writes.expected} to {opening.head}")
        draft, lines = Draft(self._namespace, writes), encoded_lines(writes.lines) if writes.lines else ()
        commands.load(run, [id for id in writes.commands if id not in writes.new])
        self._wrote = True
        self._buffer.add(draft, opening.stored, self._tools.remembered.plans)  # nothing can fail from here on
        before, now = opening.status, writes.summary.status
        opening.head, opening.status, opening.stored = draft.head, now, now
        for id, order in draft.orders:
            if order is None:
                commands.remove(run, id)
            elif isinstance(order, CommandRow):
                commands.issue(order, opening.floor, self.now)
            else:
                commands.hold(run, id)
        if before != now and PAUSED in (before, now):
            (commands.pause if now == PAUSED else commands.resume)(run)
        if writes.dead is not None or lines or len(self._buffer.touched) >= MANY:
            self._write_more(writes, lines)

    def _write_more(self, writes: Writes, lines: Sequence[bytes]) -> None:
        if lines:
            append_lines(self._file, self._namespace, writes.run, lines)
        if writes.dead is not None:
            self._file.write(queries.CLEAR_DEAD, [(self._namespace, writes.run)])
            if writes.dead:
                self._file.write(queries.ADD_DEAD, dead_rows(self._namespace, writes.run, writes.dead))
        if len(self._buffer.touched) >= MANY:
            self.commands.flush()
            self._settle(writes.run)

    def ask(self, can: Abilities, lease_for: float, limit: int) -> ClaimRequest:
        asked = ClaimRequest(can, lease_for, limit)
        self._asked.append(asked)
        return asked

    def claim(self, can: Abilities, lease_for: float, limit: int) -> Sequence[Lease]:
        if not self._begun:
            if self.commands.finds_nothing(can, self.now):
                return []
            self.begin()
        leases = self.commands.claim(can, lease_for, limit, self.now)
        if leases and can.worker not in self._tools.workers and can.alive_for is None:
            self.enrol(can)
        return leases

    def enrol(self, can: Abilities) -> None:
        """Let other processes know the worker and what it can take."""
        self.begin()
        self._new_workers[can.worker] = can

    def remove(self, run: str) -> None:
        self.begin()
        self.commands.flush()
        self._buffer.touched.add(run)
        self._settle(run)  # and all other runs, because their rows are read again
        row = self._listed(run)
        refuse_removal(run, row, self._listed(row.parent) if row is not None and row.parent else None)
        for query in queries.REMOVE_RUN:
            self._file.write(query, [(self._namespace, run)])
        self._file.write(queries.LIFT_FLOOR, [(self._namespace, FLOOR_STEP)])
        rates = rate_limits_of(run)
        self._file.write(queries.REMOVE_RATES, [(self._namespace, rates, rates)])
        self._tools.remembered.forget()
        self._begin_anew()

    def _listed(self, run: str) -> Summary | None:
        row = self._file.row(queries.RUN, (self._namespace, run))
        return None if row is None else read_run(run, row)

    def forget(self) -> Sequence[str]:
        """Delete every row, command, timer and snapshot; return the runs that have a log, to be rebuilt from it.

        Generations continue above every earlier one, so that no report of a former holder is accepted.
        """
        self.begin()
        self._file.write(queries.RAISE_FLOOR, [(self._namespace, FLOOR_STEP)])
        for query in queries.FORGET:
            self._file.write(query, [(self._namespace,)])
        floor = self._file.row(queries.FLOOR, (self._namespace,))
        logs = self._file.rows(queries.LOGS, (self._namespace,))
        for run, head in self._file.readable(_log, logs):
            self._openings.runs[run] = Opening(head, "", None, True, 0, floor[0] if floor else 0)
        self._tools.remembered.forget()
        return list(self._openings.runs)

    def document(self, kind: str, id: str) -> Document | None:
        self.begin()
        return self._tools.tables.document(kind, id)

    def put_document(self, kind: str, id: str, data: bytes, version: int = 0, due: Instant | None = None) -> int:
        check_put(kind, id, data)
        check_version(kind, id, self.document(kind, id), version)
        made, due = next_version(version, self.now), None if due is None else min(due, FAR)
        values = (kind, id, made, due, data)
        self._file.write(queries.PUT_DOCUMENT, [(self._namespace, *values, seal(values))])
        return made

    def delete_document(self, kind: str, id: str, version: int) -> None:
        check_version(kind, id, self.document(kind, id), version)
        self._file.write(queries.DELETE_DOCUMENT, [(self._namespace, kind, id)])

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        encoded = encoded_lines(lines)
        if not self._begun:
            self.begin()
        command = self.commands.get(lease.run, lease.command.id)
        if command is None or not command.is_held() or command.generation != lease.generation:
            return False
        append_lines(self._file, self._namespace, lease.run, encoded)
        return True

    def _settle(self, run: str) -> None:
        """Write what this turn has buffered for the run, before the run is read again."""
        if run in self._buffer.touched:
            self._buffer.flush(self._file)
            for each in self._buffer.touched & self._openings.runs.keys():
                opening = self._openings.runs[each]
                opening.has_letters, opening.next_due = True, 0
            troubled, self._buffer = self._buffer.troubled, Buffer(self._namespace)
            self._buffer.troubled = troubled


def _log(row: Values) -> tuple[str, int]:
    """Return a run and the number of its last fact."""
    LOGS.check(row[:1], row)
    return row[0], row[1]


def _listed(names: Collection[str] | None) -> str | None:
    return None if names is None else json.encode(sorted(names)).decode()


def encoded_lines(lines: Sequence[Any]) -> list[bytes]:
    return [json.encode(line) for line in lines]


def append_lines(file: File, namespace: str, run: str, lines: Sequence[bytes]) -> None:
    """Append to the side stream of a run: what its steps print and publish, numbered from 1. Only inside a
    transaction."""
    last = file.row(queries.LAST_LINE, (namespace, run))
    first = 1 + ((last[0] or 0) if last else 0)
    rows = [(namespace, run, n, data, seal((run, n, data))) for n, data in enumerate(lines, first)]
    file.write(queries.ADD_LINE, rows)
