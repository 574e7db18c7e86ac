"""The waiting commands of the memory store, in the order in which they are claimed."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge

from msgspec import Struct

Lane = tuple[str, str, int]
"""Queue, kind of executor and priority."""

Waiting = list[tuple[int, str]]
"""A run's commands with their places in the order of issue, which stay the same after a claim."""


class LaneQueue(Struct):
    """One lane: its runs take turns."""

    turns: list[tuple[int, str]] = []  # sorted: the run served longest ago comes first
    turn_of: dict[str, int] = {}
    waiting: dict[str, Waiting] = {}

    def move(self, run: str, turn: int | None) -> None:
        """Give the run another turn; None removes it from the line."""
        if run in self.turn_of:
            del self.turns[bisect_left(self.turns, (self.turn_of.pop(run), run))]
        if turn is not None:
            self.turn_of[run] = turn
            insort(self.turns, (turn, run))


class Lanes:
    """All lanes. Claiming looks at lanes, then runs, then commands, so its cost does not grow with the backlog."""

    def __init__(self) -> None:
        self._lines: dict[Lane, LaneQueue] = {}
        self._number = 0

    def number(self) -> int:
        """Return the next number, for a place or a turn."""
        self._number += 1
        return self._number

    def join(self, lane: Lane, run: str, command: tuple[int, str], turn: int | None = None) -> None:
        """Add a command. A run that is new in the lane queues behind the others, unless it gets back its old turn."""
        line = self._lines.get(lane) or self._lines.setdefault(lane, LaneQueue())
        if turn is not None or run not in line.turn_of:
            line.move(run, self.number() if turn is None else turn)
        insort(line.waiting.setdefault(run, []), command)

    def leave(self, lane: Lane, run: str, command: tuple[int, str]) -> None:
        """Remove a command, if it is in the lane."""
        line = self._lines.get(lane)
        waiting = line.waiting.get(run) if line is not None else None
        if line is None or waiting is None:
            return
        at = bisect_left(waiting, command)
        if at == len(waiting) or waiting[at] != command:
            return
        del waiting[at]
        if not waiting:
            del line.waiting[run]
            line.move(run, None)
        if not line.waiting:
            del self._lines[lane]

    def turn_of(self, lane: Lane, run: str) -> int | None:
        return self._lines[lane].turn_of.get(run) if lane in self._lines else None

    def served(self, lane: Lane, run: str) -> None:
        """Move the run behind the other runs of the lane."""
        if self.turn_of(lane, run) is not None:
            self._lines[lane].move(run, self.number())

    def walk(
        self, queues: Sequence[str] | None, runs: Collection[str] | None, places: Mapping[str, int]
    ) -> Iterator[tuple[str, Waiting]]:
        """Yield runs and their commands: highest priority first, then in the order of the queues, then of the turns.
        Lanes of executors without a free place are left out."""
        if queues is None:
            queues = sorted({lane[0] for lane in self._lines})
        lanes = [lane for lane in self._lines if lane[0] in queues and places.get(lane[1], 1) > 0]
        ranks = {(-priority, queues.index(queue)) for queue, _, priority in lanes}
        for rank in sorted(ranks):
            alike = [lane for lane in lanes if (-lane[2], queues.index(lane[0])) == rank]
            for _, run, lane in merge(*(self._turns(lane, runs) for lane in alike)):
                yield run, self._lines[lane].waiting[run]

    def _turns(self, lane: Lane, runs: Collection[str] | None) -> Iterator[tuple[int, str, Lane]]:
        line = self._lines[lane]
        turns = line.turns if runs is None else sorted((line.turn_of[r], r) for r in runs if r in line.turn_of)
        return ((turn, run, lane) for turn, run in turns)
