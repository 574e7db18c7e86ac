"""One turn: what it reads under the locks of its runs, what it will write, and the claims at its end.

A plain turn reads nothing: it decides on what is remembered, and one statement verifies that and writes everything. Any
other turn opens first: it locks its runs and reads what they have. What a turn will write is collected and sent as one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct, json, structs

from refold.core import codec
from refold.core.codec import encode_command, encode_fact, encode_letter
from refold.core.commands import Command, Letter, rate_limits_of
from refold.core.facts import Fact, RunMigrated
from refold.core.fold.apply import Record
from refold.core.outcomes import SECOND, Instant
from refold.core.read.summary import Summary
from refold.core.state import PAUSED, TERMINAL
from refold.errors import Conflict, Corrupt, NotFound, Outdated, TailLost
from refold.ports import Abilities, ClaimRequest, Document, Hint, Lease, Ring, Writes
from refold.stores.documents import check_put, check_version, next_version
from refold.stores.postgres import queries
from refold.stores.postgres.arrays import Blobs, Ints, Texts
from refold.stores.postgres.connection import Row, Session, Statement
from refold.stores.postgres.server_time import GivenTime, ServerTime
from refold.stores.removal import FLOOR_STEP, refuse_removal

FAR: Instant = 2**63 - 1
ALL = FAR  # as a limit
KINDS: dict[type, str] = {kind: str(kind.__struct_config__.tag) for kind in Fact.__args__}
BORN_LEASED = 16  # turns in a row that lease what they issue without a look at what others wait for
FRESH = 1.0  # seconds for which the time of the last answer serves a turn that verifies at its end
SERVES = 60.0  # and a claim
MANY = 10_000  # runs that are remembered
MOST_GROUPS = 100  # queues with priorities whose rounds are remembered

_summary = json.Encoder().encode
_read_summary = json.Decoder(Summary).decode


Lane = tuple[str, int, str, str, str, str]
"""Queue, priority, share, kind of executor, what it needs, limit."""


class KnownRun(Struct):
    """The row of a run, as it is stored or as this turn will write it."""

    rid: int
    status: str
    summary: bytes
    is_new: bool = False
    is_bare: bool = False  # only the log is there


class OpenedRun(Struct):
    """A run as the turn finds it, and leaves it."""

    head: int
    known: KnownRun | None
    letters: dict[str, Letter]
    next_due: Instant | None = None
    held: dict[str, int] = {}
    is_written: bool = False
    lost: int = 0  # how many facts were acknowledged, if the log has fewer


class StoreMemory(Struct):
    """What a store remembers between its turns."""

    ns: int
    floor: int = 0
    runs: dict[str, KnownRun] = {}
    lanes: dict[Lane, int] = {}
    plans: set[str] = set()
    enrolled: set[str] = set()
    block: list[int] = []  # numbers for runs that start
    is_idle: bool = False  # the last answer said that nothing waits
    born: int = 0
    cursors: list[int] = []  # where this process is in its rounds: in each queue and priority the share served last
    lefts: list[int] = []  # and what is left of its weight
    limited: set[tuple[str, str]] = set()  # commands of limits that were leased here

    heads: dict[str, int] = {}  # the facts of runs that were acknowledged here

    def keep(self, run: str, known: KnownRun, head: int) -> None:
        if len(self.runs) >= MANY:
            self.runs.clear()
            self.heads.clear()
        self.runs[run] = known
        self.heads[run] = head

    def reset(self) -> None:
        """Another connection: what follows from earlier answers is read again. What was acknowledged is remembered."""
        self.runs.clear()
        self.lanes.clear()
        self.plans.clear()
        self.enrolled.clear()
        self.block.clear()
        self.limited.clear()
        self.is_idle = False


class Batch:
    """Rows of one flush, table by table."""

    def __init__(self) -> None:
        self.is_empty = True
        self.new: list[tuple[Any, ...]] = []
        self.changed: list[tuple[Any, ...]] = []
        self.revived: list[tuple[Any, ...]] = []
        self.kept: list[int] = []
        self.facts: list[tuple[Any, ...]] = []
        self.verified: list[tuple[int, str, int]] = []
        self.ended: list[tuple[int, str, int | None]] = []
        self.issued: list[Issued] = []
        self.again = False
        self.held: list[tuple[int, str]] = []
        self.paused: list[int] = []
        self.resumed: list[int] = []
        self.timers: list[tuple[int, str, int]] = []
        self.cleared: list[tuple[int, str]] = []
        self.letters: list[tuple[str, str, bytes]] = []
        self.read: list[tuple[str, str]] = []
        self.blobs: list[tuple[int, str, bytes]] = []
        self.lines: list[tuple[int, int, bytes]] = []
        self.dead_of: list[int] = []
        self.dead: list[tuple[Any, ...]] = []
        self.plans: dict[str, bytes] = {}
        self.rates: dict[str, float] = {}  # limits of loops
        self.labels: list[tuple[Any, ...]] = []


class Issued(Struct):
    """A command that the turn issues."""

    rid: int
    run: str
    order: Command
    lane: int
    state: str
    not_before: Instant
    plan: str
    data: bytes


class Tools(Struct, frozen=True):
    """What a turn gets from its store."""

    session: Session
    memory: StoreMemory
    time: ServerTime | GivenTime
    lane: Callable[[Lane], int]
    reserve: Callable[[], list[int]]
    ring: Callable[[Collection[Ring]], None]  # others have something to look at
    life_lock: Callable[[], int | None]  # what this process holds while it lives


class PostgresTurn:
    def __init__(self, tools: Tools, runs: Sequence[str], hints: Mapping[str, Hint]) -> None:
        self._tools, self._session, self._memory, self._ns = tools, tools.session, tools.memory, tools.memory.ns
        self._runs, self._hints = runs, hints
        self.now: Instant = 0
        self._is_open = False  # a transaction is open, and the runs are locked
        self._plain = False
        self._opened: dict[str, OpenedRun] = {}
        self._batch = Batch()
        self._asked: list[ClaimRequest] = []
        self._new_workers: dict[str, Abilities] = {}
        self._due_rings: set[Ring] = set()  # of what was sent already, for the end of the turn
        self._rounds: tuple[list[int], list[int]] | None = None  # of claims that are not committed

    def __enter__(self) -> "PostgresTurn":
        self._session.guard.acquire()
        try:
            time = self._tools.time
            if self._runs and not self._begins_plain():
                self._open(self._runs)
            elif time.is_known() and time.age() < SERVES:
                self.now = time.now()
            else:
                self._open(())
        except BaseException:
            self._session.is_pinned = False
            self._session.roll_back()
            self._session.guard.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._finish()
            else:
                self._forget()
                self._session.roll_back()
        finally:
            self._session.is_pinned = False
            self._session.guard.release()

    # ---- opening

    def _begins_plain(self) -> bool:
        """Whether all runs are remembered, and their mail concerns them alone."""
        time, known, hints = self._tools.time, self._memory.runs, self._hints
        if len(hints) < len(self._runs) or not time.is_known() or time.age() > FRESH:
            return False
        for run in self._runs:
            hint = hints[run]
            if not hint.is_fresh and (hint.head == 0 or run not in known or known[run].status == PAUSED):
                return False
        self._plain = True
        for run in self._runs:
            hint = hints[run]
            self._opened[run] = OpenedRun(hint.head, None if hint.is_fresh else known[run], {}, None, dict(hint.held))
        return True

    def _must_open(self, run: str) -> OpenedRun:
        """Return the run as it is under its lock; a plain turn stops being one."""
        if self._plain:
            expected = {each: (opened.head, opened.held, opened.is_written) for each, opened in self._opened.items()}
            if any(is_written for _, _, is_written in expected.values()):
                raise Outdated("the turn needs more than it remembers")  # it is taken again, opened
            self._plain = False
            before, self._opened = self._opened, {}
            self._open(tuple(before))
            for each, opened in before.items():
                found = self._opened[each]
                wrong = {id for id, generation in opened.held.items() if found.held.get(id) != generation}
                if found.head != opened.head or wrong:
                    raise Outdated(f"run {each} is not what was remembered")
        if run not in self._opened or not self._is_open:
            self._open((run,))
        return self._opened[run]

    def _open(self, runs: Sequence[str]) -> None:
        """Lock the runs, and read what they have: one round trip."""
        ns, names = self._ns, Texts(runs)
        statements: list[Statement] = [] if self._is_open else [(queries.BEGIN, ())]
        first = len(statements)
        statements += [(queries.LOCK_RUNS, (ns, names)), (queries.OPENING, (ns,))]
        if runs:
            statements += [(queries.HEADS, (ns, names)), (queries.LETTERS, (ns, names))]
        held = [(run, id) for run in runs for id in (self._hints[run].held if run in self._hints else ())]
        if held:
            columns = Texts(run for run, _ in held), Texts(id for _, id in held)
            statements.append((queries.HELD_BY_RUN, (*columns, ns)))
        found = self._session.run(statements)[first:]
        self._is_open = self._session.is_pinned = True
        at, floor = found[1][0]
        seen = self._tools.time.seen(at)
        self.now = self.now or seen
        self._memory.floor = floor
        rows = {
            run: KnownRun(rid, status, bytes(summary), False, status == "") for run, rid, status, summary in found[0]
        }
        for run in runs:
            self._opened[run] = OpenedRun(0, rows.get(run), {})
            if run not in rows:
                self._memory.runs.pop(run, None)
        if not runs:
            return
        for run, head, next_due in found[2]:
            self._opened[run].head, self._opened[run].next_due = head or 0, next_due
        for run in runs:
            known = self._memory.heads.get(run, 0)
            self._opened[run].lost = known if known > self._opened[run].head else 0
        for run, key, data in found[3]:
            self._opened[run].letters[key] = _letter(run, key, data)
        for run, id, generation in found[4] if held else ():
            self._opened[run].held[id] = generation

    def _run(self, run: str) -> OpenedRun:
        opened = self._opened.get(run)
        if opened is None:
            opened = self._must_open(run)
        if opened.lost:
            raise TailLost(
                f"run {run} has {opened.head} facts on this server, and {opened.lost} were acknowledged: a failover "
                "has lost the others"
            )
        return opened

    def _read(self, run: str, sql: str, *values: Any) -> list[Row]:
        """Read behind the lock and behind what this turn has written."""
        opened = self._must_open(run) if self._plain or not self._is_open else self._opened.get(run)
        if opened is None or opened.is_written:
            self._flush()
        return self._session.rows(sql, *values)

    # ---- reading

    def head(self, run: str) -> int:
        return self._run(run).head

    def facts(self, run: str, after: int = 0) -> Sequence[Record]:
        head = self.head(run)
        if head <= after:
            return []
        rows = self._read(run, queries.FACTS, self._ns, run, after, ALL)
        if len(rows) != max(head - after, 0):
            raise Corrupt(f"of the facts {after + 1} to {head} of run {run} only {len(rows)} are there (table facts)")
        return [read_fact(run, row) for row in rows]

    def some_facts(self, run: str, numbers: Collection[int]) -> Sequence[Record]:
        if not self._run(run).head:
            return []
        rows = self._read(run, queries.SOME_FACTS, self._ns, run, Ints(sorted(set(numbers))))
        return [read_fact(run, row) for row in rows]

    def blob(self, run: str, hash: str) -> bytes:
        opened = self._opened.get(run)
        if opened is not None and opened.known is not None:
            for rid, each, data in self._batch.blobs:
                if (rid, each) == (opened.known.rid, hash):
                    return data
        rows = self._session.rows(queries.BLOB, self._ns, run, hash)
        if not rows:
            raise NotFound(f"run {run} has no blob {hash}")
        return bytes(rows[0][0])

    def letters(self, run: str) -> Sequence[Letter]:
        letters = self._run(run).letters
        return list(letters.values()) if letters else []

    def due_timers(self, run: str) -> Sequence[str]:
        opened = self._run(run)
        if not opened.is_written and (opened.next_due is None or opened.next_due > self.now):
            return []
        return [key for (key,) in self._read(run, queries.DUE_TIMERS, self._ns, run, self.now)]

    def generations(self, run: str, commands: Collection[str]) -> Mapping[str, int]:
        opened, hint = self._run(run), self._hints.get(run)
        if not opened.is_written and hint is not None and hint.held.keys() >= set(commands):
            return {id: opened.held[id] for id in commands if id in opened.held}
        opened = self._must_open(run) if self._plain else opened
        if opened.known is None:
            return {}
        self._flush()
        columns = Ints([opened.known.rid] * len(commands)), Texts(commands)
        return {id: generation for _, id, generation in self._session.rows(queries.HELD, *columns)}

    def lease(self, run: str, command: str) -> Lease | None:
        rows = self._read(run, queries.LEASE, self._ns, run, command)
        return read_lease(rows[0]) if rows else None

    def claimed(self, run: str) -> frozenset[str]:
        return frozenset(id for (id,) in self._read(run, queries.CLAIMED, self._ns, run))

    # ---- writing

    def write(self, writes: Writes) -> None:
        run = writes.run
        opened = self._run(run)
        if opened.head != writes.expected:
            raise Conflict(f"run {run} has moved on from fact {writes.expected} to {opened.head}")
        if opened.is_written:
            self._flush()  # the second write of a run sees the first one
        draft = self._draft(writes, opened)  # what fails here has changed nothing
        self._add(writes, opened, draft)

    def _draft(self, writes: Writes, opened: OpenedRun) -> "Draft":
        status, plan = writes.summary.status, writes.summary.plan
        row = writes.summary
        summary = _summary(structs.replace(row, seq=0) if row.seq else row)
        facts = [(KINDS[type(fact)], encode_fact(fact)) for fact in writes.facts]
        known = opened.known
        rid = known.rid if known is not None else self._new_rid()
        issued: list[Issued] = []
        for id, order in writes.commands.items():
            if isinstance(order, Command):
                moment = min(order.not_before, FAR) if order.not_before else 0
                state = "l" if moment > self.now else "p" if status == PAUSED else "w"
                share, limit = order.share, order.limit
                lane = self._tools.lane((order.queue, order.priority, share, order.executor, order.tool, limit))
                _check_text(id)
                issued.append(Issued(rid, writes.run, order, lane, state, moment, plan, encode_command(order)))
        letters = [(letter, encode_letter(letter)) for letter in writes.letters]
        lines = [json.encode(line) for line in writes.lines]
        dead = [json.encode(letter) for letter in writes.dead or ()]
        return Draft(rid, summary, facts, issued, letters, lines, dead)

    def _new_rid(self) -> int:
        block = self._memory.block
        if not block:
            block.extend(self._tools.reserve())
        return block.pop()

    def _add(self, writes: Writes, opened: OpenedRun, draft: "Draft") -> None:
        """Nothing can fail from here on."""
        batch, run, rid, row = self._batch, writes.run, draft.rid, writes.summary
        batch.is_empty = False
        known, status = opened.known, row.status
        moved = any(type(fact) is RunMigrated for fact in writes.facts)
        if known is None or known.is_bare:
            named = (row.workflow, row.name, row.key, draft.summary)
            if known is None:
                batch.new.append((rid, run, status, row.created_at, *named))
            else:
                batch.revived.append((rid, status, row.created_at, *named))
            batch.labels += [(rid, f"{key}={value}", row.created_at, run) for key, value in row.labels.items()]
        elif (status, draft.summary) != (known.status, known.summary) or moved:
            batch.changed.append((rid, status, row.workflow, draft.summary))
        if self._plain and known is not None:
            batch.kept.append(rid)
        turn: str | None = writes.turn
        for number, (kind, data) in enumerate(draft.facts, writes.expected + 1):
            batch.facts.append((rid, number, writes.at, kind, data, turn))
            turn = None
        self._add_commands(writes, opened, draft)
        before = known.status if known is not None else ""
        if before != status and PAUSED in (before, status) and known is not None:
            (batch.paused if status == PAUSED else batch.resumed).append(rid)
        self._add_mail(writes, opened, draft)
        for key, due in writes.timers.items():
            if due is None:
                batch.cleared.append((rid, key))
            else:
                batch.timers.append((rid, key, min(due, FAR)))
        batch.blobs += [(rid, hash, data) for hash, data in writes.blobs.items()]
        batch.lines += [(rid, n, data) for n, data in enumerate(draft.lines, 1)]
        if writes.dead is not None:
            batch.dead_of.append(rid)
            rows = zip(writes.dead, draft.dead, strict=True)
            batch.dead += [(rid, n, run, each.fingerprint, each.at, data) for n, (each, data) in enumerate(rows)]
        if writes.plan is not None:
            hash = sha256(writes.plan).hexdigest()
            if hash not in self._memory.plans:
                batch.plans[hash] = writes.plan
        opened.head, opened.is_written = writes.expected + len(draft.facts), True
        opened.known = KnownRun(rid, status, draft.summary, known is None or known.is_new)

    def _add_commands(self, writes: Writes, opened: OpenedRun, draft: "Draft") -> None:
        batch, rid = self._batch, draft.rid
        plain_held = opened.held if self._plain else {}
        for id, order in writes.commands.items():
            held = plain_held.get(id)
            if order is None:
                batch.ended.append((rid, id, held))
                continue
            if held is not None:
                batch.verified.append((rid, id, held))
            if not isinstance(order, Command):
                batch.held.append((rid, id))
            elif id not in writes.new:
                batch.again = True
        batch.issued += draft.issued
        batch.rates.update((each.order.limit, each.order.rate) for each in draft.issued if each.order.rate)
        for id, generation in plain_held.items():
            if id not in writes.commands:
                batch.verified.append((rid, id, generation))

    def _add_mail(self, writes: Writes, opened: OpenedRun, draft: "Draft") -> None:
        batch = self._batch
        for letter, data in draft.letters:
            batch.letters.append((letter.to, letter.key, data))
            receiver = self._opened.get(letter.to)
            if receiver is not None:
                receiver.letters.setdefault(letter.key, letter)  # the first letter of a key counts
        if writes.read_letters:
            read = set(writes.read_letters)
            batch.letters = [each for each in batch.letters if each[0] != writes.run or each[1] not in read]
            batch.read += [(writes.run, key) for key in writes.read_letters]
            for key in read:
                opened.letters.pop(key, None)

    def ask(self, can: Abilities, lease_for: float, limit: int) -> ClaimRequest:
        asked = ClaimRequest(can, lease_for, limit)
        if limit > 0:
            self._asked.append(asked)
        return asked

    def claim(self, can: Abilities, lease_for: float, limit: int) -> Sequence[Lease]:
        if not self._is_open:
            if self._plain:
                self._must_open(self._runs[0])
            else:
                self._open(())
        self._flush()
        asked = ClaimRequest(can, lease_for, limit)
        statements: list[Statement] = []
        if self._is_unknown(can):
            statements.append(self._enrolment(can, lease_for))
        rows = self._session.run([*statements, self._claim(asked)])[-1]
        self._hand_out(asked, rows, [asked])
        if asked.leases and can.alive_for is None:
            self._new_workers.setdefault(can.worker, can)
        return asked.leases

    def enrol(self, can: Abilities) -> None:
        self._new_workers[can.worker] = can

    # ---- the end

    def _flush(self) -> None:
        """Send what was collected, inside the open transaction."""
        if self._batch.is_empty:
            return
        batch, self._batch = self._batch, Batch()
        self._session.run(self._statements(batch, None, {}))
        self._due_rings |= self._rings(batch)

    def _finish(self) -> None:
        """Send everything and commit: one round trip."""
        batch, asked = self._batch, self._asked
        if batch.is_empty and not asked and not self._new_workers:
            if self._is_open:
                self._end_reading()
                self._keep_rounds()
            return
        memory = self._memory
        if self._plain and not self._session.is_open():
            self._forget()
            raise Outdated("the connection was lost, and what was remembered may not be true")
        self._session.is_pinned = self._plain
        together = _together(asked)
        born = self._born(batch, together)
        claims = [] if born is not None else together
        statements: list[Statement] = []
        ends = (queries.COMMIT, ()) if self._is_open else None
        can = asked[0].can if asked else None
        if not batch.is_empty:
            statements += self._statements(batch, can, born or {})
        for worker in self._new_workers.values():
            statements.append(self._enrolment(worker, 60.0))
        new = {each.can.worker: each for each in claims if self._is_unknown(each.can)}
        statements += [self._enrolment(each.can, each.lease_for) for each in new.values()]
        claims_from = len(statements)
        statements += [self._claim(each) for each in claims]
        if ends is not None:
            statements.append(ends)
        try:
            results = self._session.run(statements)
        except BaseException:
            self._forget()
            self._session.roll_back()
            raise
        self._is_open = False
        memory.enrolled.update(new, (name for name, can in self._new_workers.items() if can.alive_for is None))
        self._remember(batch)
        if not batch.is_empty:
            memory.is_idle = not results[0][0][0]
        for each, rows in zip(claims, results[claims_from:], strict=False):
            self._hand_out(each, rows, asked)
        self._keep_rounds()
        if rings := self._due_rings | self._rings(batch):
            self._tools.ring(rings)
        self._forget_limited(batch)
        if born is not None:
            memory.born += 1
            _distribute([(lease, self._head_of(lease.run)) for lease in born.values()], asked)

    def _rings(self, batch: Batch) -> set[Ring]:
        """What other processes should look at: work that waits, runs whose rows have changed, commands that were
        withdrawn. A chain of steps in one process rings for none of these."""
        rings: set[Ring] = set()
        if not self._memory.is_idle:
            rings.update(Ring("work", each.order.queue) for each in batch.issued if each.state == "w")
        if batch.resumed or self._frees_slots(batch):
            rings.add(Ring("work"))
        withdrawn = [rid for rid, _, generation in batch.ended if generation is None]
        if not (batch.new or batch.changed or batch.held or withdrawn):
            return rings
        runs = {opened.known.rid: run for run, opened in self._opened.items() if opened.known is not None}
        rows = [(row[0], row[2]) for row in batch.new] + [(row[0], row[1]) for row in batch.changed]
        rings.update(Ring("ended" if status in TERMINAL else "runs", runs.get(rid, "")) for rid, status in rows)
        rings.update(Ring("withdrawn", runs.get(rid, "")) for rid in (*withdrawn, *(rid for rid, _ in batch.held)))
        return rings

    def _keep_rounds(self) -> None:
        if self._rounds is not None:
            self._memory.cursors, self._memory.lefts = self._rounds

    def _forget_limited(self, batch: Batch) -> None:
        memory = self._memory
        if memory.limited:
            runs = {opened.known.rid: run for run, opened in self._opened.items() if opened.known is not None}
            memory.limited.difference_update((runs.get(rid, ""), id) for rid, id, _ in batch.ended)
            if len(memory.limited) > MANY:
                memory.limited.clear()

    def _end_reading(self) -> None:
        try:
            self._session.run([(queries.COMMIT, ())])
        except BaseException:
            self._session.roll_back()
            raise
        if self._due_rings:
            self._tools.ring(self._due_rings)

    def _head_of(self, run: str) -> int:
        opened = self._opened.get(run)
        return -1 if opened is None else opened.head

    def _born(self, batch: Batch, asked: Sequence[ClaimRequest]) -> dict[int, Lease] | None:
        """Leases of commands that are never stored as waiting, if nothing else waits; None: ask for them."""
        memory = self._memory
        if len(asked) != 1 or not memory.is_idle or memory.born >= BORN_LEASED or batch.again or batch.is_empty:
            memory.born = 0
            return None
        can, limit, lease_for = asked[0].can, asked[0].limit, asked[0].lease_for
        limited = any(each.state != "w" or each.order.share or each.order.limit for each in batch.issued)
        if limited or self._is_unknown(can) or self._frees_slots(batch):
            memory.born = 0
            return None
        until = self.now + round(lease_for * SECOND)
        places = dict(can.places)
        born: dict[int, Lease] = {}
        for at in _in_order(batch.issued, can):
            each = batch.issued[at]
            if len(born) == limit or places.get(each.order.executor, 1) <= 0:
                continue
            if each.order.executor in places:
                places[each.order.executor] -= 1
            timeout = each.order.timeout
            deadline = None if timeout is None else self.now + round(timeout * SECOND)
            held = (each.run, each.order, can.worker, memory.floor + 1, until, self.now)
            born[at] = Lease(*held, each.plan, 0, deadline, self.now)
            each.state = "h"
        return born

    def _frees_slots(self, batch: Batch) -> bool:
        """Whether commands end that count for a limit, so that others may start."""
        limited = self._memory.limited
        if not limited:
            return False
        runs = {opened.known.rid: run for run, opened in self._opened.items() if opened.known is not None}
        ended = {(runs.get(rid, ""), id) for rid, id, _ in batch.ended}
        ended.update((runs.get(rid, ""), id) for rid, id in batch.held)
        return not limited.isdisjoint(ended)

    def _claim(self, asked: ClaimRequest) -> Statement:
        can, memory = asked.can, self._memory
        tools = None if can.tools is None else Texts(sorted(can.tools))
        queues = None if can.queues is None else Texts(can.queues)
        runs = None if can.runs is None else Texts(sorted(can.runs))
        kinds, places = Texts(kind for kind, _ in can.places), Ints(free for _, free in can.places)
        of_worker = (self._ns, can.worker, queues, tools, runs, kinds, places)
        values = (*of_worker, round(asked.lease_for * SECOND), asked.limit)
        cursors, lefts = self._rounds or (memory.cursors, memory.lefts)
        return queries.CLAIM, (*values, self.now, Ints(cursors), Ints(lefts))

    def _hand_out(self, claim: ClaimRequest, rows: Sequence[Row], asked: Sequence[ClaimRequest]) -> None:
        memory = self._memory
        leases: list[tuple[Lease, int]] = []
        again = rows[0][-1] if rows else None
        for run, _, head, generation, until, plan, losses, deadline, data, cursors, lefts, more, _ in rows:
            if run is None:
                break  # limits kept everything back
            command = codec.decode_command(bytes(data))
            if command.limit:
                memory.limited.add((run, command.id))
            held = (run, command, claim.can.worker, generation, until, self.now)
            leases.append((Lease(*held, plan, losses, deadline, self.now), head or 0))
            self._rounds, memory.is_idle = (cursors[-MOST_GROUPS:], lefts[-MOST_GROUPS:]), not more
        places = dict(claim.can.places)
        for lease, _ in leases:
            places[lease.command.executor] = places.get(lease.command.executor, 1) - 1
        if len(leases) < claim.limit and all(free > 0 for kind, free in places.items() if kind):
            memory.is_idle = True  # for this worker: what waits is not for it
        for each in asked:
            each.again = again if _same(each, claim) else each.again
        _distribute(leases, [each for each in asked if _same(each, claim)])

    def _enrolment(self, can: Abilities, lease_for: float) -> Statement:
        tools = None if can.tools is None else Texts(sorted(can.tools))
        queues = None if can.queues is None else Texts(can.queues)
        until = self.now + round((lease_for if can.alive_for is None else can.alive_for) * SECOND)
        lock = self._tools.life_lock() if can.alive_for is None else None
        return queries.ENROL, (self._ns, can.worker, until, tools, queues, lock)

    def _is_unknown(self, can: Abilities) -> bool:
        """Whether it has to enrol with its first claim. A remote worker has done so before."""
        return can.alive_for is None and can.worker not in self._memory.enrolled

    def _forget(self) -> None:
        for run in self._opened:
            self._memory.runs.pop(run, None)
        self._memory.is_idle = False

    def _remember(self, batch: Batch) -> None:
        memory = self._memory
        for run, opened in self._opened.items():
            known = opened.known
            if known is None or known.is_bare:
                memory.runs.pop(run, None)
            else:
                known.is_new = False
                memory.keep(run, known, opened.head)
        if len(memory.plans) > 100:
            memory.plans.clear()
        memory.plans.update(batch.plans)

    def _statements(self, batch: Batch, can: Abilities | None, born: Mapping[int, Lease]) -> list[Statement]:
        ns = self._ns
        queues = None if can is None or can.queues is None else Texts(can.queues)
        issued = batch.issued
        until = next(iter(born.values())).until if born else 0
        close = (
            *(ns, self.now, queues),
            *_columns(batch.new, Ints, Texts, Texts, Ints, Texts, Texts, Texts, Blobs),
            *_columns(batch.changed, Ints, Texts, Texts, Blobs),
            Ints(batch.kept),
            *_columns(batch.facts, Ints, Ints, Ints, Texts, Blobs, Texts),
            *_columns(batch.verified, Ints, Texts, Ints),
            *_columns(batch.ended, Ints, Texts, Ints),
            *(Ints(each.rid for each in issued), Texts(each.order.id for each in issued)),
            *(Ints(each.lane for each in issued), Texts(each.order.tool for each in issued)),
            *(Texts(each.state for each in issued), Ints(each.not_before for each in issued)),
            Ints(self._memory.floor + (each.state == "h") for each in issued),
            *(Texts(each.plan for each in issued), Ints(_micros(each.order.timeout) for each in issued)),
            Texts(each.order.limit for each in issued),
            *(Texts(each.order.prefer for each in issued), Ints(each.order.prefer_until for each in issued)),
            *(Blobs(each.data for each in issued), can.worker if can is not None else None, until),
            *(batch.again, self._memory.floor),
        )
        return [(queries.CLOSE, close), *self._others(batch, ns)]

    def _others(self, batch: Batch, ns: int) -> list[Statement]:
        """What few turns write."""
        out: list[Statement] = []
        if batch.revived:
            out.append((queries.REVIVE, _columns(batch.revived, Ints, Texts, Ints, Texts, Texts, Texts, Blobs)))
        if batch.rates:
            micros = Ints(round(rate * 1e6) for rate in batch.rates.values())
            out.append((queries.ADD_RATES, (ns, Texts(batch.rates), micros)))
        if batch.held:
            out.append((queries.HOLD, _columns(batch.held, Ints, Texts)))
        if batch.paused:
            out.append((queries.PAUSE, (Ints(batch.paused),)))
        if batch.resumed:
            out.append((queries.RESUME, (Ints(batch.resumed),)))
        if batch.cleared:
            out.append((queries.CLEAR_TIMERS, _columns(batch.cleared, Ints, Texts)))
        if batch.timers:
            out.append((queries.SET_TIMERS, (ns, *_columns(batch.timers, Ints, Texts, Ints))))
        if batch.read:
            out.append((queries.REMOVE_LETTERS, (*_columns(batch.read, Texts, Texts), ns)))
        if batch.letters:
            out.append((queries.ADD_LETTERS, (ns, *_columns(batch.letters, Texts, Texts, Blobs))))
        if batch.blobs:
            unique = list({(rid, hash): (rid, hash, data) for rid, hash, data in batch.blobs}.values())
            out.append((queries.PUT_BLOBS, _columns(unique, Ints, Texts, Blobs)))
        if batch.lines:
            out.append((queries.ADD_LINES, _columns(batch.lines, Ints, Ints, Blobs)))
        if batch.dead_of:
            out.append((queries.CLEAR_DEAD, (Ints(batch.dead_of),)))
        if batch.dead:
            out.append((queries.ADD_DEAD, (ns, *_columns(batch.dead, Ints, Ints, Texts, Texts, Ints, Blobs))))
        if batch.plans:
            out.append((queries.PUT_PLANS, (ns, Texts(batch.plans), Blobs(batch.plans.values()))))
        if batch.labels:
            out.append((queries.ADD_LABELS, (ns, *_columns(batch.labels, Ints, Texts, Ints, Texts))))
        return out

    # ---- what few callers do

    def document(self, kind: str, id: str) -> Document | None:
        if not self._is_open:
            self._open(())
        locked = (queries.LOCK_DOCUMENT, (f"{self._ns} {kind} {id}",))
        rows = self._session.run([locked, (queries.DOCUMENT, (self._ns, kind, id))])[1]
        return Document(*rows[0]) if rows else None

    def put_document(self, kind: str, id: str, data: bytes, version: int = 0, due: Instant | None = None) -> int:
        check_put(kind, id, data)
        check_version(kind, id, self.document(kind, id), version)
        made, due = next_version(version, self.now), None if due is None else min(due, FAR)
        self._due_rings.add(Ring("documents"))
        self._session.rows(queries.PUT_DOCUMENT, self._ns, kind, id, made, bytes(data), due)
        return made

    def delete_document(self, kind: str, id: str, version: int) -> None:
        check_version(kind, id, self.document(kind, id), version)
        self._due_rings.add(Ring("documents"))
        self._session.rows(queries.DELETE_DOCUMENT, self._ns, kind, id)

    def publish(self, lease: Lease, lines: Sequence[Any]) -> bool:
        self._must_open(lease.run)
        self._flush()
        data = Blobs(json.encode(line) for line in lines)
        values = (self._ns, lease.run, lease.command.id, lease.generation, data)
        return bool(self._session.rows(queries.PUBLISH, *values)[0][0])

    def remove(self, run: str) -> None:
        self._must_open(run)
        self._flush()
        rows = self._session.rows(queries.REMOVABLE, self._ns, run)
        row = _read_summary(rows[0][1]) if rows else None
        parent = None
        if row is not None and row.parent:
            above = self._session.rows(queries.RUN, self._ns, row.parent)
            parent = _read_summary(above[0][0]) if above else None
        refuse_removal(run, row, parent)
        rid = rows[0][0]
        statements: list[Statement] = [(sql, (rid,)) for sql in queries.REMOVE_RUN]
        statements += [(queries.REMOVE_MAIL, (self._ns, run)), (queries.LIFT_FLOOR, (FLOOR_STEP, self._ns))]
        statements.append((queries.REMOVE_RATES, (self._ns, rate_limits_of(run))))
        self._session.run(statements)
        self._opened[run] = OpenedRun(0, None, {})
        self._memory.heads.pop(run, None)
        self._memory.floor += FLOOR_STEP

    def forget(self) -> Sequence[str]:
        if not self._is_open:
            self._open(())
        self._flush()
        self._session.run([(queries.RAISE_FLOOR, (FLOOR_STEP, self._ns, self._ns))])
        self._session.run([(sql, (self._ns,)) for sql in queries.FORGET])
        runs = [run for (run,) in self._session.rows(queries.LOGS, self._ns)]
        self._opened = {}
        self._memory.runs.clear()
        self._open(())  # generations begin elsewhere now
        return runs


class Draft(Struct):
    """The rows of one run's writes. Constructing a draft may fail, and changes nothing."""

    rid: int
    summary: bytes
    facts: list[tuple[str, bytes]]
    issued: list[Issued]
    letters: list[tuple[Letter, bytes]]
    lines: list[bytes]
    dead: list[bytes]


def _columns(rows: Sequence[tuple[Any, ...]], *kinds: type[list[Any]]) -> list[list[Any]]:
    """The columns of rows, as parameters."""
    return [kind(row[at] for row in rows) for at, kind in enumerate(kinds)]


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


def _check_text(text: str) -> None:
    text.encode()


def _letter(run: str, key: str, data: bytes) -> Letter:
    try:
        return codec.decode_letter(bytes(data))
    except ValueError as error:
        raise Corrupt(f"letter {key} to run {run} is not readable: {error}") from error


def read_fact(run: str, row: Row) -> Record:
    number, at, data = row
    try:
        return number, at, codec.decode_fact(bytes(data))
    except Corrupt as error:
        raise type(error)(f"fact {number} of run {run}: {error} (table facts, column data)") from error


def read_lease(row: Row) -> Lease:
    run, worker, generation, until, claimed_at, plan, losses, deadline, beat_at, data = row
    command = codec.decode_command(bytes(data))
    return Lease(run, command, worker or "", generation, until, claimed_at, plan, losses, deadline, beat_at)


def read_summary(data: bytes, head: int | None) -> Summary:
    try:
        row = _read_summary(data)
    except ValueError as error:
        raise Corrupt(f"the summary of a run is not readable: {error} (table runs, column summary)") from error
    return structs.replace(row, seq=head or 0)


def _together(asked: Sequence[ClaimRequest]) -> list[ClaimRequest]:
    """Requests of one worker that can take the same are one claim."""
    merged: list[ClaimRequest] = []
    for each in asked:
        same = next((other for other in merged if _same(each, other)), None)
        if same is None:
            merged.append(ClaimRequest(each.can, each.lease_for, each.limit))
            continue
        same.limit += each.limit
        if each.can.places:
            places = dict(same.can.places)
            for kind, free in each.can.places:
                places[kind] = places.get(kind, 0) + free
            same.can = structs.replace(same.can, places=tuple(places.items()))
    return merged


def _same(one: ClaimRequest, other: ClaimRequest) -> bool:
    """Whether two requests differ in the number of slots and places alone."""
    a, b = one.can, other.can
    return (
        (a.worker, a.queues, a.runs, one.lease_for) == (b.worker, b.queues, b.runs, other.lease_for)
        and (a.tools is b.tools or a.tools == b.tools)
        and bool(a.places) == bool(b.places)
    )


def _distribute(leases: Sequence[tuple[Lease, int]], asked: Sequence[ClaimRequest]) -> None:
    waiting = list(leases)
    for each in asked:
        taken, waiting = waiting[: each.limit], waiting[each.limit :]
        each.leases = [lease for lease, _ in taken]
        each.heads.update((lease.run, head) for lease, head in taken)


def _in_order(issued: Sequence[Issued], can: Abilities) -> list[int]:
    """Commands that fit, in the order in which a claim would give them."""
    fitting = [
        (at, each)
        for at, each in enumerate(issued)
        if (can.queues is None or each.order.queue in can.queues)
        and (can.tools is None or each.order.tool in can.tools)
        and (can.runs is None or each.run in can.runs)
        and each.order.prefer in ("", can.worker)
    ]
    if len(fitting) < 2:
        return [at for at, _ in fitting]
    known = can.queues if can.queues is not None else sorted({each.order.queue for _, each in fitting})
    queues = {queue: at for at, queue in enumerate(known)}
    rounds: dict[tuple[str, str, int], int] = {}
    ranked: list[tuple[tuple[int, int, int, int], int]] = []
    for at, each in fitting:
        line = (each.run, each.order.queue, each.order.priority)
        rounds[line] = rounds.get(line, 0) + 1
        ranked.append(((-each.order.priority, queues[each.order.queue], rounds[line], at), at))
    return [at for _, at in sorted(ranked)]
