"""The waiting commands of the memory store, in the order in which they are claimed."""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby

from msgspec import Struct

from refold.core.commands import Command
from refold.stores.rounds import Group, Rounds

Line = tuple[str, int, str]
"""Queue, priority and share: its runs take turns."""

Lane = tuple[str, str, str]
"""Tool, kind of executor and limit: a worker can take any command of a lane, or none."""

Waiting = list[tuple[int, str]]
"""A run's commands with their places in the order of issue, which stay the same after a claim."""


def line_of(command: Command) -> Line:
    return command.queue, command.priority, command.share


def lane_of(command: Command) -> Lane:
    return command.tool, command.executor, command.limit


class LaneQueue(Struct):
    """One lane of a line."""

    turns: list[tuple[int, str]] = []  # sorted: the run served longest ago comes first
    waiting: dict[str, Waiting] = {}

    def entries(self) -> Iterator[tuple[int, str, Waiting]]:
        return ((turn, run, self.waiting[run]) for turn, run in self.turns)


class LineQueue(Struct):
    """A run has one turn in all lanes."""

    turn_of: dict[str, int] = {}
    lanes: dict[Lane, LaneQueue] = {}

    def move(self, run: str, turn: int) -> None:
        """Give the run another turn."""
        old = self.turn_of.get(run)
        for lane in self.lanes.values():
            if run in lane.waiting:
                if old is not None:
                    _remove(lane.turns, (old, run))
                insort(lane.turns, (turn, run))
        self.turn_of[run] = turn


def _remove(turns: list[tuple[int, str]], entry: tuple[int, str]) -> None:
    at = bisect_left(turns, entry)
    if at < len(turns) and turns[at] == entry:
        del turns[at]


class Lanes:
    """All lines. Claiming looks at lines, then runs, then commands, so its cost does not grow with the backlog."""

    def __init__(self) -> None:
        self._lines: dict[Line, LineQueue] = {}
        self._number = 0

    def number(self) -> int:
        """Return the next number, for a place or a turn."""
        self._number += 1
        return self._number

    def join(self, command: Command, run: str, place: int, turn: int | None = None) -> None:
        """Add a command. A run that is new in the line queues behind the others, unless it gets back its old turn."""
        line = self._lines.setdefault(line_of(command), LineQueue())
        lane = line.lanes.setdefault(lane_of(command), LaneQueue())
        is_new = run not in lane.waiting
        insort(lane.waiting.setdefault(run, []), (place, command.id))
        if turn is None and run in line.turn_of:
            if is_new:
                insort(lane.turns, (line.turn_of[run], run))
        else:
            line.move(run, self.number() if turn is None else turn)

    def leave(self, command: Command, run: str, place: int) -> None:
        """Remove a command, if it is in its lane."""
        line = self._lines.get(line_of(command))
        lane = line.lanes.get(lane_of(command)) if line is not None else None
        waiting = lane.waiting.get(run) if lane is not None else None
        if line is None or lane is None or waiting is None:
            return
        at = bisect_left(waiting, (place, command.id))
        if at == len(waiting) or waiting[at] != (place, command.id):
            return
        del waiting[at]
        if waiting:
            return
        del lane.waiting[run]
        _remove(lane.turns, (line.turn_of[run], run))
        if not lane.waiting:
            del line.lanes[lane_of(command)]
        if not any(run in each.waiting for each in line.lanes.values()):
            del line.turn_of[run]
        if not line.lanes:
            del self._lines[line_of(command)]

    def turn_of(self, command: Command, run: str) -> int | None:
        line = self._lines.get(line_of(command))
        return None if line is None else line.turn_of.get(run)

    def served(self, command: Command, run: str) -> None:
        """Move the run behind the other runs of the line."""
        if self.turn_of(command, run) is not None:
            self._lines[line_of(command)].move(run, self.number())

    def move_behind(self, run: str) -> Callable[[], None]:
        """Put a run behind the others of each of its lines; return what undoes that."""
        before = [(key, line.turn_of[run]) for key, line in self._lines.items() if run in line.turn_of]
        for key, _ in before:
            self._lines[key].move(run, self.number())

        def undo() -> None:
            for key, turn in before:
                self._lines[key].move(run, turn)

        return undo

    def walk(
        self,
        queues: Sequence[str] | None,
        runs: Collection[str] | None,
        is_open: Callable[[Lane], bool],
        rounds: Rounds,
    ) -> Iterator[tuple[str, Iterable[tuple[int, str]]]]:
        """Yield runs and their commands: the highest priority first, then in the order of the queues, then of the round
        of the shares, then of the turns."""
        if queues is None:
            queues = sorted({queue for queue, _, _ in self._lines})
        groups: dict[Group, list[str]] = {}
        for queue, priority, share in self._lines:
            if queue in queues:
                groups.setdefault((queue, priority), []).append(share)
        for group in sorted(groups, key=lambda each: (-each[1], queues.index(each[0]))):
            for share in rounds.in_turn(group, sorted(groups[group])):
                yield from self._runs(self._lines[*group, share], runs, is_open)

    def _runs(
        self, line: LineQueue, runs: Collection[str] | None, is_open: Callable[[Lane], bool]
    ) -> Iterator[tuple[str, Iterable[tuple[int, str]]]]:
        lanes = [queue for lane, queue in line.lanes.items() if is_open(lane)]
        turns: Iterator[tuple[int, str, Waiting]] = merge(*(lane.entries() for lane in lanes))
        if runs is not None:
            own = [run for run in runs if run in line.turn_of]
            found = [(line.turn_of[run], run, lane.waiting) for lane in lanes for run in own if run in lane.waiting]
            turns = iter(sorted((turn, run, waiting[run]) for turn, run, waiting in found))
        for (_, run), entries in groupby(turns, key=lambda entry: entry[:2]):
            yield run, merge(*(waiting for _, _, waiting in entries))
