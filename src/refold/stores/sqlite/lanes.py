"""Which command is claimed next: the best lane, there the run whose turn it is, of it what was issued first."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from refold.ports import Abilities
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import Queued, read_queued

ABOVE_ALL = 2**63 - 1
FIRST_PAGE = 4  # commands read at once; each page is twice as long as the one before


class Waiting(Protocol):
    """Where commands wait, in the file or in the turn that issued them."""

    def best(self, queue: str, below: int) -> int | None:
        """The highest priority below another that has something to claim."""

    def first(self, queue: str, priority: int, after: int, limit: int) -> Sequence[Queued]:
        """The first command of each run of the lane, by the run's turn."""

    def behind(self, command: Queued, limit: int) -> Sequence[Queued]:
        """What its run has behind it in the lane."""


class InFile:
    """The commands of all runs."""

    def __init__(self, file: File, namespace: str) -> None:
        self.file, self.namespace = file, namespace

    def best(self, queue: str, below: int) -> int | None:
        row = self.file.row(queries.BEST_LANE, (self.namespace, queue, below))
        return None if row is None else int(row[0])

    def first(self, queue: str, priority: int, after: int, limit: int) -> Sequence[Queued]:
        rows = self.file.rows(queries.FIRST_IN_LANE, (self.namespace, queue, priority, after, limit))
        return [read_queued(row) for row in rows]

    def behind(self, command: Queued, limit: int) -> Sequence[Queued]:
        run, queue, priority = command.lane()
        where = (self.namespace, run, queue, priority, command.place, limit)
        return [read_queued(row) for row in self.file.rows(queries.NEXT_IN_LANE, where)]


class InFileOf:
    """The commands of some runs; the others cost nothing."""

    def __init__(self, file: File, namespace: str, runs: Collection[str]) -> None:
        self.file, self.namespace, self.runs = file, namespace, runs
        self.behind = InFile(file, namespace).behind

    def best(self, queue: str, below: int) -> int | None:
        found = [self._best_of(run, queue, below) for run in self.runs]
        return max((priority for priority in found if priority is not None), default=None)

    def first(self, queue: str, priority: int, after: int, limit: int) -> Sequence[Queued]:
        found = []
        for run in self.runs:
            where = (self.namespace, run, queue, priority, -1, 1)
            found += [read_queued(row) for row in self.file.rows(queries.NEXT_IN_LANE, where)]
        in_turn = [each for each in found if each.turn is not None and each.turn > after]
        return sorted(in_turn, key=_turn)[:limit]

    def _best_of(self, run: str, queue: str, below: int) -> int | None:
        row = self.file.row(queries.BEST_LANE_OF_RUN, (self.namespace, run, queue, below))
        return None if row is None or row[1] is None else int(row[0])


class InTurn:
    """The commands that a turn has issued and not stored yet; a worker can have them before they ever wait."""

    def __init__(self, fresh: Iterable[Queued]) -> None:
        self._lanes: dict[tuple[str, int], dict[str, list[Queued]]] = {}
        for each in fresh:
            self._lanes.setdefault((each.queue, each.priority), {}).setdefault(each.run, []).append(each)

    def best(self, queue: str, below: int) -> int | None:
        return max((lane[1] for lane in self._lanes if lane[0] == queue and lane[1] < below), default=None)

    def first(self, queue: str, priority: int, after: int, limit: int) -> Sequence[Queued]:
        """A run stands where its first command was issued."""
        runs = self._lanes.get((queue, priority), {}).values()
        return [commands[0] for commands in runs if commands[0].place > after][:limit]

    def behind(self, command: Queued, limit: int) -> Sequence[Queued]:
        commands = self._lanes[command.queue, command.priority][command.run]
        after = commands.index(command) + 1
        return commands[after : after + limit]


def _turn(command: Queued) -> int:
    """Where its run stands in the lane; one that was never stored stands where it was issued."""
    return command.place if command.turn is None else command.turn


class Line:
    """One lane, read as far as is needed; its runs take turns."""

    def __init__(self, waiting: Waiting, queue: str, priority: int, fits: Callable[[Queued], bool]) -> None:
        self.waiting, self.queue, self.priority, self.fits = waiting, queue, priority, fits
        self._page, self._last = FIRST_PAGE, -1
        self._more = True
        self._unserved: deque[RunInLine] = deque()
        self._served: deque[RunInLine] = deque()

    def take(self) -> Queued | None:
        while (run := self._next()) is not None:
            command = run.take(self.fits)
            if command is not None:
                self._served.append(run)  # behind the others
                return command
        return None

    def _next(self) -> "RunInLine | None":
        if not self._unserved and self._more:
            first = self.waiting.first(self.queue, self.priority, self._last, self._page)
            self._unserved.extend(RunInLine(self.waiting, each) for each in first)
            self._more, self._page = len(first) == self._page, self._page * 2
            self._last = _turn(first[-1]) if first else self._last
        for runs in (self._unserved, self._served):
            if runs:
                return runs.popleft()
        return None


class RunInLine:
    """What one run has in the lane, in the order of issue."""

    def __init__(self, waiting: Waiting, first: Queued) -> None:
        self.waiting = waiting
        self._read: list[Queued] = [first]
        self._last = first
        self._page = FIRST_PAGE
        self._more = True

    def take(self, fits: Callable[[Queued], bool]) -> Queued | None:
        looked = 0
        while True:
            for at in range(looked, len(self._read)):
                if fits(self._read[at]):
                    return self._read.pop(at)
            looked = len(self._read)
            if not self._more:
                return None
            behind = self.waiting.behind(self._last, self._page)
            self._more, self._page = len(behind) == self._page, self._page * 2
            self._last = behind[-1] if behind else self._last
            self._read.extend(behind)


class Picker:
    """Gives one command after the other to one worker, each the best there is."""

    def __init__(self, waiting: Waiting, can: Abilities) -> None:
        self.waiting, self.can = waiting, can
        self._lines: dict[str, Line | None] = {queue: self._line(queue, ABOVE_ALL) for queue in can.queues}

    def is_empty(self) -> bool:
        return not any(self._lines.values())

    def take(self) -> Queued | None:
        """The highest priority first, of one priority in the order of the worker's queues."""
        while True:
            lines = [line for line in self._lines.values() if line is not None]
            if not lines:
                return None
            best = max(lines, key=lambda line: line.priority)  # the first of equals
            command = best.take()
            if command is not None:
                return command
            self._lines[best.queue] = self._line(best.queue, best.priority)

    def _line(self, queue: str, below: int) -> Line | None:
        priority = self.waiting.best(queue, below)
        return None if priority is None else Line(self.waiting, queue, priority, self._fits)

    def _fits(self, command: Queued) -> bool:
        can = self.can
        return (can.tools is None or command.tool in can.tools) and (can.runs is None or command.run in can.runs)
