"""The commands as one turn sees and changes them: read once, changed in memory, written together.

The command that is claimed next: in the best lane, of the run whose turn it is, the command issued first.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct, json, structs

from refold.core.executors import EXECUTORS
from refold.core.outcomes import SECOND, Instant
from refold.core.state import PAUSED
from refold.errors import Corrupt
from refold.ports import Abilities, Lease
from refold.stores.sqlite import queries
from refold.stores.sqlite.columns import Values
from refold.stores.sqlite.file import File
from refold.stores.sqlite.remembered import Openings, Remembered
from refold.stores.sqlite.rows import HELD, LATER, LEASED, WAITING, CommandRow, Lane, added, moved, read_queued

ABOVE_ALL = 2**63 - 1
PLACE, TURN = 5, 18  # columns of a command
FIRST_PAGE = 4  # commands read together; each page is twice as long as the one before

Fits = Callable[[CommandRow], bool]
"""Whether the worker that claims may have this command, which waits in one of its queues."""


class Waiting(Protocol):
    """The commands that wait in the file."""

    def queues(self) -> Iterable[str]:
        """Return the names of the queues in which commands wait."""

    def best(self, queue: str, executor: str, below: int) -> int | None:
        """Return the highest priority below this one that has a command to claim."""

    def first(self, queue: str, executor: str, priority: int, after: int, limit: int) -> "CommandPage":
        """Return the first command of each run of the lane, in the order of the runs' turns."""

    def behind(self, command: CommandRow, after: int, limit: int) -> "CommandPage":
        """Return the commands that the same run has in the lane after a place."""


class CommandPage(Struct, frozen=True):
    """Some of the commands that wait. A row that cannot be read is left out; the rows behind it are still found."""

    commands: Sequence[CommandRow]
    last: int | None  # the turn or the place of the last row, after which the next page begins; None: there is no more


class OfAllRuns:
    def __init__(self, file: File, namespace: str) -> None:
        self.file, self.namespace = file, namespace

    def queues(self) -> Iterable[str]:
        return [queue for (queue,) in self.file.rows(queries.QUEUES, (self.namespace,))]

    def best(self, queue: str, executor: str, below: int) -> int | None:
        row = self.file.row(queries.BEST_LANE, (self.namespace, queue, executor, below))
        return None if row is None else int(row[0])

    def first(self, queue: str, executor: str, priority: int, after: int, limit: int) -> CommandPage:
        rows = self.file.rows(queries.FIRST_IN_LANE, (self.namespace, queue, executor, priority, after, limit))
        return CommandPage(self.file.readable(read_queued, rows), _last(rows, TURN, limit))

    def behind(self, command: CommandRow, after: int, limit: int) -> CommandPage:
        rows = self.file.rows(queries.NEXT_IN_LANE, (self.namespace, *command.lane(), after, limit))
        return CommandPage(self.file.readable(read_queued, rows), _last(rows, PLACE, limit))


def _last(rows: Sequence[Values], column: int, limit: int) -> int | None:
    last = rows[-1][column] if len(rows) == limit else None
    return last if type(last) is int else None


class OfSomeRuns:
    """The waiting commands of some runs. The backlog of all other runs costs nothing."""

    def __init__(self, file: File, namespace: str, runs: Collection[str]) -> None:
        self.file, self.namespace, self.runs = file, namespace, runs
        self.behind = OfAllRuns(file, namespace).behind

    def queues(self) -> Iterable[str]:
        found = [self.file.rows(queries.QUEUES_OF_RUN, (self.namespace, run)) for run in self.runs]
        return sorted({queue for rows in found for (queue,) in rows})

    def best(self, queue: str, executor: str, below: int) -> int | None:
        found = [self._best_of(run, queue, executor, below) for run in self.runs]
        return max((priority for priority in found if priority is not None), default=None)

    def first(self, queue: str, executor: str, priority: int, after: int, limit: int) -> CommandPage:
        found: list[CommandRow] = []
        for run in self.runs:
            where = (self.namespace, run, queue, executor, priority, -1, 1)
            found += self.file.readable(read_queued, self.file.rows(queries.NEXT_IN_LANE, where))
        in_turn = [(each.turn, each) for each in found if each.turn is not None and each.turn > after]
        page = [each for _, each in sorted(in_turn, key=lambda pair: pair[0])][:limit]
        return CommandPage(page, page[-1].turn if len(page) == limit else None)

    def _best_of(self, run: str, queue: str, executor: str, below: int) -> int | None:
        row = self.file.row(queries.BEST_LANE_OF_RUN, (self.namespace, run, queue, executor, below))
        return None if row is None or row[1] is None else int(row[0])


class Picker:
    """Gives waiting commands to one worker, one after the other, always the best one left for which it has a place."""

    def __init__(self, waiting: Waiting, can: Abilities, fits: Fits, places: Mapping[str, int]) -> None:
        self.waiting, self.fits, self.places = waiting, fits, places
        queues = can.queues if can.queues is not None else waiting.queues()
        self._rank = {queue: at for at, queue in reversed(list(enumerate(queues)))}
        self._lines: dict[tuple[str, str], LaneReader | None] = {}

    def take(self) -> CommandRow | None:
        """Return the next command: highest priority first; within a priority, in the order of the worker's queues, and
        there the run whose turn comes first, whatever executor its command needs."""
        while True:
            lines = [line for line in map(self._line, self._open_lanes()) if line is not None]
            if not lines:
                return None
            best = lines[0] if len(lines) == 1 else min(lines, key=self._order)
            command = best.take()
            if command is not None:
                return command
            self._lines[best.queue, best.executor] = self._next_line(best.queue, best.executor, best.priority)

    def _open_lanes(self) -> Iterator[tuple[str, str]]:
        return ((queue, each) for queue in self._rank for each in EXECUTORS if self.places.get(each, 1) > 0)

    def _order(self, line: "LaneReader") -> tuple[int, int, int]:
        return -line.priority, self._rank[line.queue], line.next_turn()

    def _line(self, lane: tuple[str, str]) -> "LaneReader | None":
        if lane not in self._lines:
            self._lines[lane] = self._next_line(*lane, ABOVE_ALL)
        return self._lines[lane]

    def _next_line(self, queue: str, executor: str, below: int) -> "LaneReader | None":
        priority = self.waiting.best(queue, executor, below)
        return None if priority is None else LaneReader(self.waiting, queue, executor, priority, self.fits)


class LaneReader:
    """One lane, read as far as is needed; its runs take turns."""

    def __init__(self, waiting: Waiting, queue: str, executor: str, priority: int, fits: Fits) -> None:
        self.waiting, self.queue, self.executor, self.priority, self.fits = waiting, queue, executor, priority, fits
        self._page = FIRST_PAGE
        self._last: int | None = -1
        self._unserved: deque[CommandRow] = deque()  # the first command of each run
        self._served: deque[RunInLine] = deque()

    def next_turn(self) -> int:
        """Return the turn of the run that comes next; one that was served here comes behind all others."""
        self._read()
        turn = self._unserved[0].turn if self._unserved else None
        return turn if turn is not None else ABOVE_ALL

    def take(self) -> CommandRow | None:
        while (run := self._next()) is not None:
            command = run.take(self.fits)
            if command is not None:
                self._served.append(run)  # behind the other runs
                return command
        return None

    def _read(self) -> None:
        while not self._unserved and self._last is not None:
            first = self.waiting.first(self.queue, self.executor, self.priority, self._last, self._page)
            self._unserved.extend(first.commands)
            self._last, self._page = first.last, self._page * 2

    def _next(self) -> "RunInLine | None":
        self._read()
        if self._unserved:
            return RunInLine(self.waiting, self._unserved.popleft())
        return self._served.popleft() if self._served else None


class RunInLine:
    """The commands of one run in the lane, in the order of issue."""

    def __init__(self, waiting: Waiting, first: CommandRow) -> None:
        self.waiting = waiting
        self._read: list[CommandRow] = [first]
        self._first, self._page = first, FIRST_PAGE
        self._last: int | None = first.place

    def take(self, fits: Fits) -> CommandRow | None:
        looked = 0
        while True:
            for at in range(looked, len(self._read)):
                if fits(self._read[at]):
                    return self._read.pop(at)
            looked = len(self._read)
            if self._last is None:
                return None
            behind = self.waiting.behind(self._first, self._last, self._page)
            self._last, self._page = behind.last, self._page * 2
            self._read.extend(behind.commands)


def in_order(fresh: Iterable[CommandRow], can: Abilities, fits: Fits) -> list[CommandRow]:
    """The same order for commands that are not stored yet, if nothing else waits: round by round in each lane."""
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
    rounds: dict[Lane, int] = {}
    ranked = []
    for each in fitting:
        lane = each.lane()
        rounds[lane] = rounds.get(lane, 0) + 1
        ranked.append(((-each.priority, queues[each.queue], rounds[lane], each.place), each))
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


Key = tuple[str, str]
"""Run and command."""


class Touched(Struct):
    """What a turn has changed in a run's part of a lane; the run's first command there may be another one now."""

    turn: int | None = None  # for the run's first command; None: it keeps the run's turn in the lane, or gets a new one
    returned: int = 0  # commands that came back, and may come before the one that has the turn


class Commands(Struct):
    """Reads and changes commands within one transaction. `number` returns numbers that only grow."""

    file: File
    namespace: str
    openings: Openings
    number: Callable[[], int]
    remembered: Remembered
    _known: dict[Key, CommandRow | None] = {}
    _fresh: dict[Key, CommandRow] = {}  # to be added
    _moved: dict[Key, CommandRow] = {}  # to be changed
    _removed: dict[Key, None] = {}
    _touched: dict[Lane, Touched] = {}
    _line: Iterator[CommandRow] | None = None  # the commands in the order in which they are claimed
    _claimer: Abilities | None = None
    _alive: dict[str, bool] = {}  # workers that hold parked bodies, and whether their processes are running
    _places: dict[str, int] = {}  # free places of the claimer, by kind of executor

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
        for queue, executor, priority in self.file.rows(queries.LANES_OF_RUN, (self.namespace, run)):
            self._touch((run, queue, executor, priority))
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
            lanes = [(queue, each) for queue in queues for each in EXECUTORS if each not in full]
            return later is None and all(waiting.best(*lane, ABOVE_ALL) is None for lane in lanes)
        if can.queues is None:
            return self.file.row(queries.ANYTHING_AT_ALL, (self.namespace, now)) is None
        return all(self.file.row(queries.ANYTHING, (self.namespace, now, queue)) is None for queue in can.queues)

    def flush(self) -> None:
        """Write the changes: one statement for each kind of change, however many commands there are."""
        space = self.namespace
        self._remember()
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
        if not self._touched and self.is_idle(can, now):
            fresh = in_order([each for each in self._fresh.values() if self._is_free(each)], can, fits)
            return (each for each in fresh if self._places.get(each.executor, 1) > 0) if can.places else iter(fresh)
        self._release(now)
        self.flush()
        return iter(Picker(self._waiting(can), can, fits, self._places).take, None)

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
            self._touch(command.lane()).turn = self.number()  # the other runs of the lane come first now
            self._moved[key] = command
        command.state, command.turn, command.worker, command.order = LEASED, None, worker, None
        command.generation += 1
        command.until, command.claimed_at, command.beat_at = until, now, now
        command.deadline = None if order.timeout is None else now + round(order.timeout * SECOND)
        return command.lease(order)

    def _return(self, command: CommandRow) -> None:
        command.state = WAITING
        self.change(command)
        self._touch(command.lane()).returned += 1

    def _leave(self, command: CommandRow) -> None:
        """Pass the command's turn on to the next command of its run."""
        if command.turn is not None:
            self._touch(command.lane()).turn = command.turn
            command.turn = None

    def _touch(self, lane: Lane) -> Touched:
        return self._touched.setdefault(lane, Touched())

    def _is_free(self, command: CommandRow) -> bool:
        return command.state == WAITING and self.openings.get(command.run).status != PAUSED

    def _set_turns(self) -> None:
        turns: list[tuple[int | None, str, str, str]] = []
        for lane, touched in self._touched.items():
            run = lane[0]
            if touched.turn is None and self.openings.get(run).status == PAUSED:
                continue  # a paused run gets no turn
            where = (self.namespace, *lane, 1 + touched.returned)
            changes = self._turns(self.file.rows(queries.FRONT, where), touched)
            turns += [(turn, self.namespace, run, id) for id, turn in changes]
        self._touched = {}
        if turns:
            self.file.write(queries.SET_TURN, turns)
            self._known = {}

    def _turns(self, front: Sequence[Values], touched: Touched) -> Iterable[tuple[str, int | None]]:
        """Yield the changes that give the turn to the first command and to no other."""
        if not front:
            return
        had = next((turn for _, turn in front if turn is not None), None)
        turn = touched.turn if touched.turn is not None else had if had is not None else self.number()
        first, *others = front
        if first[1] != turn:
            yield first[0], turn
        for id, other in others:
            if other is not None:
                yield id, None


def _as_asked(row: Values, run: str, id: str) -> CommandRow:
    """Refuse another command's row: in a damaged file, a search may end at an intact row that is the wrong one."""
    if row[0] != run or row[1] != id:
        raise Corrupt(f"in the place of command {id} of run {run} stands another one")
    return read_queued(row)


def _free(command: CommandRow) -> None:
    command.worker, command.until, command.deadline = None, 0, None
