"""The commands as one turn sees and changes them: read once, changed in memory, written together.

The command that is claimed next: in the best queue and priority, of the share whose turn it is, and there of the run
whose turn it is, the command issued first.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct, json, structs

from refold.core.outcomes import SECOND, Instant
from refold.core.state import PAUSED
from refold.errors import Corrupt
from refold.ports import Abilities, Lease, Limit
from refold.stores.limits import MOST_SLOTS, Bucket, Rooms
from refold.stores.rounds import Rounds
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.remembered import Openings, Remembered
from refold.stores.sqlite.rows import (
    HELD,
    LATER,
    LEASED,
    WAITING,
    CommandRow,
    Line,
    Values,
    added,
    moved,
    parts_of_lane,
    read_queued,
)
from refold.stores.sqlite.tables import limit_row, read_limit, read_weight

ABOVE_ALL = 2**63 - 1
PLACE, TURN = 5, 18  # columns of a command
FIRST_PAGE = 4  # commands read together; each page is twice as long as the one before

Fits = Callable[[CommandRow], bool]
"""Whether the worker that claims may have this command, which waits in one of its queues."""


class Waiting(Protocol):
    """The commands that wait in the file."""

    def queues(self) -> Iterable[str]:
        """Return the names of the queues in which commands wait."""

    def best(self, queue: str, below: int) -> int | None:
        """Return the highest priority below this one that has a command to claim."""

    def next_share(self, queue: str, priority: int, first: str) -> str | None:
        """Return the first share from this one on, by name, that has a command to claim."""

    def lanes(self, queue: str, priority: int, share: str) -> Iterable[str]:
        """Return the lanes of a line that have a command to claim."""

    def first(self, lane: "LanePlace", after: int, limit: int) -> "CommandPage":
        """Return the first command of each run of the lane, in the order of the runs' turns."""

    def behind(self, command: CommandRow, after: int, limit: int) -> "CommandPage":
        """Return the commands that the same run has in the lane after a place."""


LanePlace = tuple[str, int, str, str]
"""Queue, priority, share and lane."""

NEXT = "\0"  # appended to a name: the first text after it, because no name has a NUL


class CommandPage(Struct, frozen=True):
    """Some of the commands that wait. A row that cannot be read is left out; the rows behind it are still found."""

    commands: Sequence[CommandRow]
    last: int | None  # the turn or the place of the last row, after which the next page begins; None: there is no more


class OfAllRuns:
    def __init__(self, file: File, namespace: str) -> None:
        self.file, self.namespace = file, namespace

    def queues(self) -> Iterable[str]:
        return [queue for (queue,) in self.file.rows(queries.QUEUES, (self.namespace,))]

    def best(self, queue: str, below: int) -> int | None:
        row = self.file.row(queries.BEST_PRIORITY, (self.namespace, queue, below))
        return None if row is None else int(row[0])

    def next_share(self, queue: str, priority: int, first: str) -> str | None:
        return _text(self.file.row(queries.NEXT_SHARE, (self.namespace, queue, priority, first)))

    def lanes(self, queue: str, priority: int, share: str) -> Iterable[str]:
        return _each(self.file, queries.NEXT_LANE, (self.namespace, queue, priority, share))

    def first(self, lane: LanePlace, after: int, limit: int) -> CommandPage:
        rows = self.file.rows(queries.FIRST_IN_LANE, (self.namespace, *lane, after, limit))
        return CommandPage(self.file.readable(read_queued, rows), _last(rows, TURN, limit))

    def behind(self, command: CommandRow, after: int, limit: int) -> CommandPage:
        where = (self.namespace, *command.line(), command.lane, after, limit)
        rows = self.file.rows(queries.NEXT_IN_LANE, where)
        return CommandPage(self.file.readable(read_queued, rows), _last(rows, PLACE, limit))


def _last(rows: Sequence[Values], column: int, limit: int) -> int | None:
    last = rows[-1][column] if len(rows) == limit else None
    return last if type(last) is int else None


def _text(row: Values | None) -> str | None:
    """The only column of a row; data of another type, as in a damaged file, ends the search."""
    return row[0] if row is not None and type(row[0]) is str else None


def _each(file: File, query: str, where: Values) -> Iterator[str]:
    """Yield the texts that a query finds, each from the one before it on. What is behind them costs nothing."""
    found = _text(file.row(query, (*where, "")))
    while found is not None:
        yield found
        found = _text(file.row(query, (*where, found + NEXT)))


class OfSomeRuns:
    """The waiting commands of some runs. The backlog of all other runs costs nothing."""

    def __init__(self, file: File, namespace: str, runs: Collection[str]) -> None:
        self.file, self.namespace, self.runs = file, namespace, runs
        self.behind = OfAllRuns(file, namespace).behind

    def queues(self) -> Iterable[str]:
        found = [self.file.rows(queries.QUEUES_OF_RUN, (self.namespace, run)) for run in self.runs]
        return sorted({queue for rows in found for (queue,) in rows})

    def best(self, queue: str, below: int) -> int | None:
        found = [self._best_of(run, queue, below) for run in self.runs]
        return max((priority for priority in found if priority is not None), default=None)

    def next_share(self, queue: str, priority: int, first: str) -> str | None:
        where = [(self.namespace, run, queue, priority, first) for run in self.runs]
        found = [_text(self.file.row(queries.NEXT_SHARE_OF_RUN, each)) for each in where]
        return min((share for share in found if share is not None), default=None)

    def lanes(self, queue: str, priority: int, share: str) -> Iterable[str]:
        where = [(self.namespace, run, queue, priority, share) for run in self.runs]
        return sorted({lane for each in where for lane in _each(self.file, queries.NEXT_LANE_OF_RUN, each)})

    def first(self, lane: LanePlace, after: int, limit: int) -> CommandPage:
        found: list[CommandRow] = []
        for run in self.runs:
            where = (self.namespace, run, *lane, -1, 1)
            found += self.file.readable(read_queued, self.file.rows(queries.NEXT_IN_LANE, where))
        in_turn = [(each.turn, each) for each in found if each.turn is not None and each.turn > after]
        page = [each for _, each in sorted(in_turn, key=lambda pair: pair[0])][:limit]
        return CommandPage(page, page[-1].turn if len(page) == limit else None)

    def _best_of(self, run: str, queue: str, below: int) -> int | None:
        row = self.file.row(queries.BEST_PRIORITY_OF_RUN, (self.namespace, run, queue, below))
        return None if row is None or row[1] is None else int(row[0])


class Picker:
    """Gives waiting commands to one worker, one after the other, always the best one left that it may have."""

    def __init__(
        self, waiting: Waiting, can: Abilities, fits: Fits, is_open: Callable[[str], bool], rounds: Rounds
    ) -> None:
        self.waiting, self.fits, self.is_open, self.rounds = waiting, fits, is_open, rounds
        queues = can.queues if can.queues is not None else waiting.queues()
        self._rank = {queue: at for at, queue in reversed(list(enumerate(queues)))}
        self._groups: dict[str, GroupReader | None] = {}

    def take(self) -> CommandRow | None:
        """Return the next command: highest priority first; within a priority, in the order of the worker's queues, and
        there in the round of the shares."""
        while True:
            groups = [group for group in map(self._group, self._rank) if group is not None]
            if not groups:
                return None
            best = groups[0] if len(groups) == 1 else min(groups, key=self._order)
            command = best.take()
            if command is not None:
                return command
            self._groups[best.queue] = self._next_group(best.queue, best.priority)

    def _order(self, group: "GroupReader") -> tuple[int, int]:
        return -group.priority, self._rank[group.queue]

    def _group(self, queue: str) -> "GroupReader | None":
        if queue not in self._groups:
            self._groups[queue] = self._next_group(queue, ABOVE_ALL)
        return self._groups[queue]

    def _next_group(self, queue: str, below: int) -> "GroupReader | None":
        priority = self.waiting.best(queue, below)
        return None if priority is None else GroupReader(self, queue, priority)


class GroupReader:
    """A queue and priority: its shares go round."""

    def __init__(self, picker: Picker, queue: str, priority: int) -> None:
        self.picker, self.queue, self.priority = picker, queue, priority
        self._lines: dict[str, LineReader | None] = {}
        self._next: dict[str, str | None] = {}  # the first share from a text on

    def take(self) -> CommandRow | None:
        for share in self._in_turn():
            if share not in self._lines:
                self._lines[share] = LineReader(self.picker, self.queue, self.priority, share)
            line = self._lines[share]
            command = line.take() if line is not None else None
            if command is not None:
                return command
            self._lines[share] = None
        return None

    def _in_turn(self) -> Iterator[str]:
        share, is_current = self.picker.rounds.first((self.queue, self.priority))
        first = share if is_current else share + NEXT
        found = self._from(first)
        while found is not None:
            yield found
            found = self._from(found + NEXT)
        found = self._from("")
        while found is not None and found < first:
            yield found
            found = self._from(found + NEXT)

    def _from(self, first: str) -> str | None:
        if first not in self._next:
            self._next[first] = self.picker.waiting.next_share(self.queue, self.priority, first)
        return self._next[first]


class LineReader:
    """One share of a queue and priority, read as far as is needed; its runs take turns."""

    def __init__(self, picker: Picker, queue: str, priority: int, share: str) -> None:
        self.picker = picker
        lanes = picker.waiting.lanes(queue, priority, share)
        self._lanes = [
            LaneReader(picker.waiting, (queue, priority, share, lane)) for lane in lanes if picker.is_open(lane)
        ]
        self._served: deque[RunInLine] = deque()

    def take(self) -> CommandRow | None:
        while (run := self._next()) is not None:
            command = run.take(self.picker.fits, self.picker.is_open)
            if command is not None:
                self._served.append(run)  # behind the other runs
                return command
        return None

    def _next(self) -> "RunInLine | None":
        """The run whose turn comes next, with what it has in each lane."""
        fronts = [(front.turn or 0, front.run) for lane in self._lanes if (front := lane.front()) is not None]
        if not fronts:
            return self._served.popleft() if self._served else None
        turn, run = min(fronts)
        return RunInLine(self.picker.waiting, [lane.pop() for lane in self._lanes if lane.is_at(turn, run)])


class LaneReader:
    """The first command of each run in one lane."""

    def __init__(self, waiting: Waiting, place: LanePlace) -> None:
        self.waiting, self.place = waiting, place
        self._page = FIRST_PAGE
        self._last: int | None = -1
        self._read: deque[CommandRow] = deque()

    def front(self) -> CommandRow | None:
        while not self._read and self._last is not None:
            first = self.waiting.first(self.place, self._last, self._page)
            self._read.extend(first.commands)
            self._last, self._page = first.last, self._page * 2
        return self._read[0] if self._read else None

    def is_at(self, turn: int, run: str) -> bool:
        front = self.front()
        return front is not None and (front.turn or 0, front.run) == (turn, run)

    def pop(self) -> CommandRow:
        return self._read.popleft()


class RunInLine:
    """The commands of one run in a line, in the order of issue."""

    def __init__(self, waiting: Waiting, firsts: Sequence[CommandRow]) -> None:
        self._lanes = [RunInLane(waiting, each) for each in firsts]

    def take(self, fits: Fits, is_open: Callable[[str], bool]) -> CommandRow | None:
        fronts = [(front.place, lane) for lane in self._lanes if is_open(lane.name) and (front := lane.front(fits))]
        return min(fronts, key=lambda pair: pair[0])[1].pop() if fronts else None


class RunInLane:
    """Those of one lane; what does not fit is passed over."""

    def __init__(self, waiting: Waiting, first: CommandRow) -> None:
        self.waiting, self.name = waiting, first.lane
        self._read: list[CommandRow] = [first]
        self._first, self._page = first, FIRST_PAGE
        self._last: int | None = first.place
        self._at = 0

    def front(self, fits: Fits) -> CommandRow | None:
        while True:
            while self._at < len(self._read):
                if fits(self._read[self._at]):
                    return self._read[self._at]
                self._at += 1
            if self._last is None:
                return None
            behind = self.waiting.behind(self._first, self._last, self._page)
            self._last, self._page = behind.last, self._page * 2
            self._read.extend(behind.commands)

    def pop(self) -> CommandRow:
        self._at += 1
        return self._read[self._at - 1]


def in_order(fresh: Iterable[CommandRow], can: Abilities, fits: Fits) -> list[CommandRow]:
    """The same order for commands that are not stored yet, if nothing else waits: round by round in each line."""
    fitting = [
        each
        for each in fresh
        if (can.queues is None or each.queue in can.queues)
        and (can.runs is None or each.run in can.runs)
        and fits(each)
    ]
    if len(fitting) < 2:
        return fitting
    known = can.queues if can.queues is not None else sorted({each.queue for each in fitting})
    queues = {queue: at for at, queue in enumerate(known)}
    rounds: dict[Line, int] = {}
    ranked = []
    for each in fitting:
        line = each.line()
        rounds[line] = rounds.get(line, 0) + 1
        ranked.append(((-each.priority, queues[each.queue], rounds[line], each.place), each))
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


Key = tuple[str, str]
"""Run and command."""


class Touched(Struct):
    """What a turn has changed in a run's part of a line; the run's first command in a lane may be another one now."""

    turn: int | None = None  # for the run's first commands; None: they keep the run's turn, or get a new one
    returned: int = 0  # commands that came back, and may come before the one that has the turn


class Commands(Struct):
    """Reads and changes commands within one transaction. `number` returns numbers that only grow."""

    file: File
    namespace: str
    openings: Openings
    number: Callable[[], int]
    remembered: Remembered
    rounds: Rounds
    again: Instant | None = None  # when a limit that kept commands back allows more
    _known: dict[Key, CommandRow | None] = {}
    _fresh: dict[Key, CommandRow] = {}  # to be added
    _moved: dict[Key, CommandRow] = {}  # to be changed
    _removed: dict[Key, None] = {}
    _touched: dict[Line, Touched] = {}
    _line: Iterator[CommandRow] | None = None  # the commands in the order in which they are claimed
    _claimer: Abilities | None = None
    _alive: dict[str, bool] = {}  # workers that hold parked bodies, and whether their processes are running
    _places: dict[str, int] = {}  # free places of the claimer, by kind of executor
    _rooms: Rooms | None = None  # what limits allow the claimer
    _weights: dict[str, int] = {}
    _buckets: dict[str, Bucket] = {}  # of limits with a rate, as they are before the claim
    _rates: dict[str, float] = {}  # limits of loops

    def load(self, run: str, ids: Iterable[str]) -> None:
        """Read these commands first, so that changing them cannot fail."""
        known, leased = self._known, self.remembered.leased
        unknown: list[str] = []
        for id in ids:
            key = (run, id)
            if key in leased:
                known.setdefault(key, leased[key])
            elif key not in known:
                unknown.append(id)
        if unknown:
            self._read(run, unknown)

    def _read(self, run: str, ids: Sequence[str]) -> None:
        if len(ids) == 1:
            row = self.file.row(queries.COMMAND, (self.namespace, run, ids[0]))
            self._known[run, ids[0]] = None if row is None else _as_asked(row, run, ids[0])
        else:
            self._known.update(((run, id), None) for id in ids)
            wanted = json.encode(ids).decode()
            for row in self.file.rows(queries.COMMANDS, (self.namespace, run, wanted)):
                self._known[run, row[1]] = _as_asked(row, run, row[1])

    def get(self, run: str, id: str) -> CommandRow | None:
        if (run, id) not in self._known:
            self.load(run, (id,))
        return self._known[run, id]

    def claimed(self, run: str) -> frozenset[str]:
        self.flush()
        rows = self.file.rows(queries.CLAIMED, (self.namespace, run))
        return frozenset(_as_asked(row, run, row[1]).id for row in rows)

    def issue(self, fresh: CommandRow, floor: int, now: Instant) -> None:
        """Add a command that is free to claim. If it replaces one of the same id, generation and losses are kept."""
        key = (fresh.run, fresh.id)
        old = self._known.get(key)  # None if it was never issued
        fresh.place = self.number()
        if old is None:
            fresh.generation = floor
        else:
            fresh.generation, fresh.losses, fresh.hand_backs = old.generation, old.losses, old.hand_backs
            self.remove(*key)
        if fresh.not_before > now:
            fresh.state = LATER
        if fresh.order is not None and fresh.order.rate:
            self._rates[fresh.limit] = fresh.order.rate
        self._line = None
        self._known[key] = self._fresh[key] = fresh

    def hold(self, run: str, id: str) -> None:
        command = self._known.get((run, id))
        if command is not None:
            self._leave(command)
            _free(command)
            command.state = HELD
            self.change(command)

    def remove(self, run: str, id: str) -> None:
        self._line = None
        key = (run, id)
        command = self._known.get(key)
        if command is None:
            return
        self._known[key] = None
        self._moved.pop(key, None)
        if self._fresh.pop(key, None) is None:
            self._leave(command)
            self._removed[key] = None

    def change(self, command: CommandRow) -> None:
        """Let `flush` store the command as it is now."""
        self._line = None
        key = (command.run, command.id)
        self._known[key] = command
        if key not in self._fresh:
            self._moved[key] = command

    def take_back(self, command: CommandRow, losses: int) -> None:
        """Take the command from its holder, and put it back in its place in the order of issue."""
        _free(command)
        command.losses = losses
        self._return(command)

    def give_up(self, command: CommandRow, now: Instant) -> None:
        """End the lease, so that no worker can extend it; the next look for expired leases counts a loss."""
        _free(command)
        command.until, command.hand_backs = now, 0
        self.change(command)

    def pause(self, run: str) -> None:
        """Remove the run from all lanes."""
        self.flush()
        self.file.write(queries.CLEAR_TURNS, [(self.namespace, run)])
        self._known = {}

    def resume(self, run: str) -> None:
        """Put the run back into each of its lanes, behind the other runs."""
        self.flush()
        for queue, priority, share in self.file.rows(queries.LINES_OF_RUN, (self.namespace, run)):
            self._touch((run, queue, priority, share)).turn = self.number()
        self.flush()

    def claim(self, can: Abilities, lease_for: float, limit: int, now: Instant) -> list[Lease]:
        if self._line is None or (self._claimer is not can and self._claimer != can):
            self._line, self._claimer = self._line_for(can, now), can
        self._places.clear()
        self._places.update(can.places)
        leases: list[Lease] = []
        until = now + round(lease_for * SECOND)
        while len(leases) < limit and (command := next(self._line, None)) is not None:
            if command.executor in self._places:
                self._places[command.executor] -= 1
            try:
                leases.append(self._lease(command, can.worker, now, until))
            except Corrupt as error:
                self.file.on_wrong(error)
        self.again = None if self._rooms is None else self._rooms.again
        return leases

    def is_idle(self, can: Abilities, now: Instant) -> bool:
        """Whether nothing in the file waits for this worker. Under the lock, so the answer can be remembered."""
        if can.places:
            can = structs.replace(can, places=tuple((kind, 0) for kind in can.full()))
        if can in self.remembered.idle:
            return True
        idle = self.finds_nothing(can, now)
        if idle and self.file.row(queries.SOME_LATER, (self.namespace,)) is None:
            self.remembered.idle.add(can)
        return idle

    def finds_nothing(self, can: Abilities, now: Instant) -> bool:
        full = can.full()
        if can.runs is not None or full:
            later = self.file.row(queries.ANY_LATER, (self.namespace, now))
            waiting = self._waiting(can)
            queues = can.queues if can.queues is not None else waiting.queues()
            return later is None and not any(_has_other(waiting, queue, full) for queue in queues)
        if can.queues is None:
            return self.file.row(queries.ANYTHING_AT_ALL, (self.namespace, now)) is None
        return all(self.file.row(queries.ANYTHING, (self.namespace, now, queue)) is None for queue in can.queues)

    def flush(self) -> None:
        """Write the changes: one statement for each kind of change, however many commands there are."""
        space = self.namespace
        self._remember()
        if self._rates:
            self._add_rates()
        if self._rooms is not None:
            self._spend(self._rooms)
        if self._removed:
            self.file.write(queries.REMOVE_COMMAND, [(space, *key) for key in self._removed])
            self._removed = {}
        if self._moved:
            self.file.write(queries.MOVE_COMMAND, [moved(space, each) for each in self._moved.values()])
            self._moved = {}
        if self._fresh:
            self._add()
        if self._touched:
            self._set_turns()
        self._line = None

    def _add_rates(self) -> None:
        limits = [Limit(name=name, rate=rate) for name, rate in self._rates.items()]
        self.file.write(queries.ADD_LIMIT, [limit_row(self.namespace, each, Bucket(1.0, 0)) for each in limits])
        self._rates = {}

    def _spend(self, rooms: Rooms) -> None:
        """Write which tokens were taken."""
        spent = [(limit, taken) for limit, taken in rooms.taken.values() if taken and limit.rate is not None]
        for limit, taken in spent:
            bucket = self._buckets[limit.name]
            left = Bucket(bucket.tokens - taken, bucket.at)
            self.file.write(queries.PUT_LIMIT, [limit_row(self.namespace, limit, left)])
        self._rooms = None

    def _add(self) -> None:
        in_lane: list[Values] = []
        apart: list[Values] = []
        for command in self._fresh.values():
            if self._is_free(command):
                in_lane.append(added(self.namespace, command, command.place))
            else:
                apart.append(added(self.namespace, command, None))
        if in_lane:
            self.file.write(queries.ADD_COMMAND, in_lane)
        if apart:
            self.file.write(queries.ADD_APART, apart)
        self._fresh, self._known = {}, {}  # only the file knows which of them have a turn

    def _remember(self) -> None:
        """Remember the leased commands, and forget which workers are idle if any of them might find work now."""
        leased, waits = self.remembered.leased, bool(self._touched)
        for key in self._removed:
            leased.pop(key, None)
        for key, command in (self._moved | self._fresh).items():
            if command.state == LEASED:
                leased[key] = command
            else:
                leased.pop(key, None)
                waits = True
        if waits:
            self.remembered.idle.clear()

    def _line_for(self, can: Abilities, now: Instant) -> Iterator[CommandRow]:
        """If nothing else waits, a command of this turn is claimed before it is stored, and stored once, as leased."""
        fits = partial(self._fits, can, now)
        limited = any(each.share or each.limit for each in self._fresh.values())
        if not limited and not self._touched and self.is_idle(can, now):
            fresh = in_order([each for each in self._fresh.values() if self._is_free(each)], can, fits)
            return (each for each in fresh if self._places.get(each.executor, 1) > 0) if can.places else iter(fresh)
        self._release(now)
        self.flush()
        self._rooms = rooms = self._new_rooms(now)
        is_open = partial(self._is_open, can, rooms)
        return iter(Picker(self._waiting(can), can, fits, is_open, self.rounds).take, None)

    def _is_open(self, can: Abilities, rooms: Rooms, lane: str) -> bool:
        """Whether the worker can take the commands of a lane now."""
        tool, executor, limit = parts_of_lane(lane)
        return (
            (can.tools is None or tool in can.tools)
            and self._places.get(executor, 1) > 0
            and (not limit or rooms.is_open(limit))
        )

    def _new_rooms(self, now: Instant) -> Rooms:
        self._buckets = buckets = dict[str, Bucket]()

        def limit_of(name: str) -> Limit | None:
            row = self.file.row(queries.LIMIT, (self.namespace, name))
            if row is None:
                return None
            try:
                limit, bucket = read_limit(row)
            except Corrupt as error:
                self.file.on_wrong(error)
                return Limit(name=name, slots=0)  # what it allows is not known
            buckets[name] = bucket.filled(limit, now)
            return limit

        def leased(name: str) -> int:
            row = self.file.row(queries.LEASED_OF_LIMIT, (self.namespace, name, MOST_SLOTS))
            return 0 if row is None else int(row[0])

        return Rooms(limit_of, leased, buckets.__getitem__)

    def _waiting(self, can: Abilities) -> Waiting:
        space, runs = self.namespace, can.runs
        return OfAllRuns(self.file, space) if runs is None else OfSomeRuns(self.file, space, runs)

    def _fits(self, can: Abilities, now: Instant, command: CommandRow) -> bool:
        """Whether the worker has the tool of the command, and no other living worker is to have it first."""
        if can.tools is not None and command.tool not in can.tools:
            return False
        try:
            order = command.order = command.order if command.order is not None else command.ordered()
        except Corrupt:
            return True  # leasing it fails, and reports what is wrong
        return order.is_for(can.worker, now) or not self._is_alive(order.prefer, now)

    def _is_alive(self, worker: str, now: Instant) -> bool:
        if worker not in self._alive:
            row = self.file.row(queries.LOCK_OF_WORKER, (self.namespace, worker))
            lock, life = row[0] if row is not None else None, self.file.life
            self._alive[worker] = type(lock) is str and life.is_held(lock, now)
        return self._alive[worker]

    def _release(self, now: Instant) -> None:
        """Let each command whose start time has come join its lane, in its place in the order of issue."""
        for read in self.file.readable(read_queued, self.file.rows(queries.DUE_LATER, (self.namespace, now))):
            key = (read.run, read.id)
            command = self._known.setdefault(key, read)
            if command is not None and command.state == LATER and key not in self._fresh:
                self._return(command)

    def _lease(self, command: CommandRow, worker: str, now: Instant, until: Instant) -> Lease:
        key = (command.run, command.id)
        order = command.order if command.order is not None else command.ordered()  # nothing is changed if this fails
        self._known[key] = command
        if key not in self._fresh:
            self._touch(command.line()).turn = self.number()  # the other runs of the lane come first now
            self._moved[key] = command
        command.state, command.turn, command.worker, command.order = LEASED, None, worker, None
        command.generation += 1
        command.until, command.claimed_at, command.beat_at = until, now, now
        command.deadline = None if order.timeout is None else now + round(order.timeout * SECOND)
        self.rounds.served((command.queue, command.priority), command.share, self._weight(command.share))
        if command.limit and self._rooms is not None:
            self._rooms.take(command.limit)
        return command.lease(order)

    def _weight(self, share: str) -> int:
        if not share:
            return 1
        if share not in self._weights:
            row = self.file.row(queries.WEIGHT, (self.namespace, share))
            read = self.file.readable(read_weight, [] if row is None else [(share, *row)])
            self._weights[share] = read[0][1] if read else 1
        return self._weights[share]

    def _return(self, command: CommandRow) -> None:
        command.state = WAITING
        self.change(command)
        self._touch(command.line()).returned += 1

    def _leave(self, command: CommandRow) -> None:
        """Pass the command's turn on to the next command of its run."""
        if command.turn is not None:
            self._touch(command.line()).turn = command.turn
            command.turn = None

    def _touch(self, line: Line) -> Touched:
        return self._touched.setdefault(line, Touched())

    def _is_free(self, command: CommandRow) -> bool:
        return command.state == WAITING and self.openings.get(command.run).status != PAUSED

    def _set_turns(self) -> None:
        turns: list[tuple[int | None, str, str, str]] = []
        for line, touched in self._touched.items():
            run = line[0]
            if touched.turn is None and self.openings.get(run).status == PAUSED:
                continue  # a paused run gets no turn
            where, most = (self.namespace, *line), 1 + touched.returned
            lanes = _each(self.file, queries.NEXT_LANE_OF_RUN, where)
            fronts = [self.file.rows(queries.FRONT, (*where, lane, most)) for lane in lanes]
            changes = self._turns(fronts, touched)
            turns += [(turn, self.namespace, run, id) for id, turn in changes]
        self._touched = {}
        if turns:
            self.file.write(queries.SET_TURN, turns)
            self._known = {}

    def _turns(self, fronts: Sequence[Sequence[Values]], touched: Touched) -> Iterable[tuple[str, int | None]]:
        """Yield the changes that give the run's turn to the first command of each lane and to no other."""
        if not fronts:
            return
        had = [turn for front in fronts for _, turn, _ in front if type(turn) is int]
        turn = touched.turn if touched.turn is not None else min(had) if had else self.number()
        for front in fronts:
            for at, (id, other, _) in enumerate(front):
                if other != (turn if at == 0 else None):
                    yield id, turn if at == 0 else None


def _has_other(waiting: Waiting, queue: str, full: Collection[str]) -> bool:
    """Whether a queue has something to claim for an executor that is not full."""
    priority = waiting.best(queue, ABOVE_ALL)
    while priority is not None:
        share = waiting.next_share(queue, priority, "")
        while share is not None:
            if any(parts_of_lane(lane)[1] not in full for lane in waiting.lanes(queue, priority, share)):
                return True
            share = waiting.next_share(queue, priority, share + NEXT)
        priority = waiting.best(queue, priority)
    return False


def _as_asked(row: Values, run: str, id: str) -> CommandRow:
    """Refuse another command's row: in a damaged file, a search may end at an intact row that is the wrong one."""
    if row[0] != run or row[1] != id:
        raise Corrupt(f"in the place of command {id} of run {run} stands another one")
    return read_queued(row)


def _free(command: CommandRow) -> None:
    command.worker, command.until, command.deadline = None, 0, None
