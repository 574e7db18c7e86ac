"""A run with all that it starts: what a process serves that does not serve everything."""

from collections.abc import Callable, Iterable

from refold.core.faults import text_of
from refold.core.state import TERMINAL
from refold.errors import Unavailable
from refold.logs import WARNING, event, logger
from refold.ports import Advance, Clock
from refold.runtime.turn import Turns

log = logger("runtime")

EVERY = 5.0  # seconds


class ServedRuns:
    """The run itself stays; a child is here from its birth to its end, so the cost does not grow with what is over."""

    def __init__(self, run: str, turns: Turns, advance: Advance) -> None:
        self.run, self.turns, self.advance = run, turns, advance
        self.runs = frozenset({run})
        self.on_change: Callable[[frozenset[str]], None] = lambda runs: None

    def add(self, births: Iterable[tuple[str, str]]) -> None:
        """Parents and their children."""
        self._set(self.runs.union(child for parent, child in births if parent in self.runs))

    def ended(self, run: str) -> None:
        self._set(self.runs - {run} | {self.run})

    async def run_for(self, clock: Clock) -> None:
        """Now and then, others may have started one."""
        while True:
            await self.gather()
            await clock.sleep(EVERY)

    async def gather(self) -> None:
        """Those that are there already, whichever process started them."""
        before = self.runs
        try:
            found = await self.advance(self._found)
        except Unavailable as error:
            event(log, WARNING, "look for child runs failed", run=self.run, why=text_of(error))
            return  # the next time will find the same
        self._set(found | (self.runs - before))  # a child may have been born meanwhile

    def _found(self) -> frozenset[str]:
        """A detached child is known only by its birth, and stays until it has ended."""
        found: set[str] = set()
        over: set[str] = set()
        todo = set(self.runs)
        while todo:
            found |= todo
            started: set[str] = set()
            for state in self.turns.states(todo):
                started.update(state.children.values(), state.orphans)
                if state.life in TERMINAL:
                    over.add(state.run)
            todo = started - found
        return frozenset(found - over | {self.run})

    def _set(self, runs: frozenset[str]) -> None:
        if runs != self.runs:
            self.runs = runs
            self.on_change(runs)
