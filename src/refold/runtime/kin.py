"""A run with all that it starts: what a process serves that does not serve everything."""

from collections.abc import Callable, Iterable

from refold.core.state import TERMINAL
from refold.errors import RefoldError
from refold.ports import Advance, Clock
from refold.runtime.turn import Turns

EVERY = 5.0  # seconds


class Kin:
    """The run itself stays; a child is here from its birth to its end, so the cost does not grow with what is over."""

    def __init__(self, run: str, turns: Turns, advance: Advance) -> None:
        self.run, self.turns, self.advance = run, turns, advance
        self.runs = frozenset({run})
        self.on_change: Callable[[frozenset[str]], None] = lambda runs: None

    def born(self, births: Iterable[tuple[str, str]]) -> None:
        """Parents and their children."""
        self._be(self.runs.union(child for parent, child in births if parent in self.runs))

    def ended(self, run: str) -> None:
        self._be(self.runs - {run} | {self.run})

    async def run_for(self, clock: Clock) -> None:
        """Now and then, others may have started one."""
        while True:
            await self.gather()
            await clock.sleep(EVERY)

    async def gather(self) -> None:
        """Those that are there already, whoever started them."""
        self._be(await self.advance(self._found))

    def _found(self) -> frozenset[str]:
        """One that nobody waits for is known only by its birth, and stays until it has ended."""
        found = set(self.runs)
        todo = list(found)
        while todo:
            for child in self._children(todo.pop()):
                if child not in found:
                    found.add(child)
                    todo.append(child)
        return frozenset(run for run in found if run == self.run or not self._is_over(run))

    def _is_over(self, run: str) -> bool:
        try:
            return self.turns.look(run).state.life in TERMINAL
        except RefoldError:
            return False

    def _children(self, run: str) -> tuple[str, ...]:
        try:
            state = self.turns.look(run).state
        except RefoldError:
            return ()  # it has not begun, or whoever serves it will say what is wrong with it
        return (*state.children.values(), *state.orphans)

    def _be(self, runs: frozenset[str]) -> None:
        if runs != self.runs:
            self.runs = runs
            self.on_change(runs)
