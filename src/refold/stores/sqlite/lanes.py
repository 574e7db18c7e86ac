"""Which command is claimed next: in the best lane, of the run whose turn it is, the command issued first."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from refold.ports import Abilities
from refold.stores.sqlite import queries
from refold.stores.sqlite.columns import Values
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import Queued, read_queued

ABOVE_ALL = 2**63 - 1
PLACE, TURN = 5, 18  # columns of a command
FIRST_PAGE = 4  # commands read together; each page is twice as long as the one before

Tools = frozenset[str] | None
"""The tools of a worker; None: any tool."""


class Waiting(Protocol):
    """The commands that wait in the file."""

    def queues(self) -> Iterable[str]:
        """Return the names of the queues in which commands wait."""

    def best(self, queue: str, below: int) -> int | None:
        """Return the highest priority below this one that has a command to claim."""

    def first(self, queue: str, priority: int, after: int, limit: int) -> "Page":
        """Return the first command of each run of the lane, in the order of the runs' turns."""

    def behind(self, command: Queued, after: int, limit: int) -> "Page":
        """Return the commands that the same run has in the lane after a place."""


class Page(Struct, frozen=True):
    """Some of the commands that wait. A row that cannot be read is left out; the rows behind it are still found."""

    commands: Sequence[Queued]
    last: int | None  # the turn or the place of the last row, after which the next page begins; None: there is no more


class OfAllRuns:
    def __init__(self, file: File, namespace: str) -> None:
        self.file, self.namespace = file, namespace

    def queues(self) -> Iterable[str]:
        return [queue for (queue,) in self.file.rows(queries.QUEUES, (self.namespace,))]

    def best(self, queue: str, below: int) -> int | None:
        row = self.file.row(queries.BEST_LANE, (self.namespace, queue, below))
        return None if row is None else int(row[0])

    def first(self, queue: str, priority: int, after: int, limit: int) -> Page:
        rows = self.file.rows(queries.FIRST_IN_LANE, (self.namespace, queue, priority, after, limit))
        return Page(self.file.readable(read_queued, rows), _last(rows, TURN, limit))

    def behind(self, command: Queued, after: int, limit: int) -> Page:
        run, queue, priority = command.lane()
        rows = self.file.rows(queries.NEXT_IN_LANE, (self.namespace, run, queue, priority, after, limit))
        return Page(self.file.readable(read_queued, rows), _last(rows, PLACE, limit))


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

    def best(self, queue: str, below: int) -> int | None:
        found = [self._best_of(run, queue, below) for run in self.runs]
        return max((priority for priority in found if priority is not None), default=None)

    def first(self, queue: str, priority: int, after: int, limit: int) -> Page:
        found: list[Queued] = []
        for run in self.runs:
            where = (self.namespace, run, queue, priority, -1, 1)
            found += self.file.readable(read_queued, self.file.rows(queries.NEXT_IN_LANE, where))
        in_turn = [(each.turn, each) for each in found if each.turn is not None and each.turn > after]
        page = [each for _, each in sorted(in_turn, key=lambda pair: pair[0])][:limit]
        return Page(page, page[-1].turn if len(page) == limit else None)

    def _best_of(self, run: str, queue: str, below: int) -> int | None:
        row = self.file.row(queries.BEST_LANE_OF_RUN, (self.namespace, run, queue, below))
        return None if row is None or row[1] is None else int(row[0])


class Picker:
    """Gives waiting commands to one worker, one after the other, always the best one left."""

    def __init__(self, waiting: Waiting, can: Abilities) -> None:
        self.waiting, self.can = waiting, can
        queues = can.queues if can.queues is not None else waiting.queues()
        self._lines: dict[str, Line | None] = {queue: self._line(queue, ABOVE_ALL) for queue in queues}

    def take(self) -> Queued | None:
        """Return the next command: highest priority first; within a priority, in the order of the worker's queues."""
        while True:
            lines = [line for line in self._lines.values() if line is not None]
            if not lines:
                return None
            best = max(lines, key=lambda line: line.priority)  # the first of equals
            command = best.take()
            if command is not None:
                return command
            self._lines[best.queue] = self._line(best.queue, best.priority)

    def _line(self, queue: str, below: int) -> "Line | None":
        priority = self.waiting.best(queue, below)
        return None if priority is None else Line(self.waiting, queue, priority, self.can.tools)


class Line:
    """One lane, read as far as is needed; its runs take turns."""

    def __init__(self, waiting: Waiting, queue: str, priority: int, tools: Tools) -> None:
        self.waiting, self.queue, self.priority, self.tools = waiting, queue, priority, tools
        self._page = FIRST_PAGE
        self._last: int | None = -1
        self._unserved: deque[Queued] = deque()  # the first command of each run
        self._served: deque[RunInLine] = deque()

    def take(self) -> Queued | None:
        while (run := self._next()) is not None:
            command = run.take(self.tools)
            if command is not None:
                self._served.append(run)  # behind the other runs
                return command
        return None

    def _next(self) -> "RunInLine | None":
        while not self._unserved and self._last is not None:
            first = self.waiting.first(self.queue, self.priority, self._last, self._page)
            self._unserved.extend(first.commands)
            self._last, self._page = first.last, self._page * 2
        if self._unserved:
            return RunInLine(self.waiting, self._unserved.popleft())
        return self._served.popleft() if self._served else None


class RunInLine:
    """The commands of one run in the lane, in the order of issue."""

    def __init__(self, waiting: Waiting, first: Queued) -> None:
        self.waiting = waiting
        self._read: list[Queued] = [first]
        self._first, self._page = first, FIRST_PAGE
        self._last: int | None = first.place

    def take(self, tools: Tools) -> Queued | None:
        looked = 0
        while True:
            for at in range(looked, len(self._read)):
                if tools is None or self._read[at].tool in tools:
                    return self._read.pop(at)
            looked = len(self._read)
            if self._last is None:
                return None
            behind = self.waiting.behind(self._first, self._last, self._page)
            self._last, self._page = behind.last, self._page * 2
            self._read.extend(behind.commands)


def in_order(fresh: Iterable[Queued], can: Abilities) -> list[Queued]:
    """The same order for commands that are not stored yet, if nothing else waits: round by round in each lane."""
    fitting = [
        each
        for each in fresh
        if (can.queues is None or each.queue in can.queues)
        and (can.tools is None or each.tool in can.tools)
        and (can.runs is None or each.run in can.runs)
    ]
    if len(fitting) < 2:
        return fitting
    known = can.queues if can.queues is not None else sorted({each.queue for each in fitting})
    queues = {queue: at for at, queue in enumerate(known)}
    rounds: dict[tuple[str, str, int], int] = {}
    ranked = []
    for each in fitting:
        lane = each.lane()
        rounds[lane] = rounds.get(lane, 0) + 1
        ranked.append(((-each.priority, queues[each.queue], rounds[lane], each.place), each))
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]
