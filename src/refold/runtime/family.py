"""What a run shows together with the runs it has started: one stream, in the order in which it is found."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from refold.core.commands import child_id
from refold.core.facts import RunEnded, StepSettled
from refold.core.fold import Record
from refold.core.outcomes import Suspended
from refold.errors import NotFound
from refold.ports import Clock

LOOK = 0.05  # seconds


class Reader(Protocol):
    @property
    def clock(self) -> Clock: ...

    async def history(self, run: str, after: int = 0) -> Sequence[Record]: ...

    async def lines(self, run: str, after: int = 0) -> Sequence[tuple[int, Any]]: ...


class Family:
    """`plans` are those of the children, by their runs; `calls` are the names of the calls of the first run to which
    they, or the runs above them, belong."""

    def __init__(self, reader: Reader, run: str, after: int) -> None:
        self.reader = reader
        self.plans: dict[str, str] = {}
        self.calls: dict[str, str] = {}
        self._lines, self._facts = {run: after}, {run: 0}
        self._over: set[str] = set()

    async def follow(self) -> AsyncIterator[tuple[str, int, Any]]:
        """Run, number and line, until all of them are over."""
        while True:
            over = await self._look()
            found = False
            for run in list(self._lines):
                for number, line in await self.reader.lines(run, self._lines[run]):
                    self._lines[run], found = number, True
                    yield run, number, line
            if over and not found:
                return
            if not found:
                await self.reader.clock.sleep(LOOK)

    async def _look(self) -> bool:
        """Who was born, and whether all have ended."""
        for run in list(self._facts):
            for number, _, fact in await self._history(run):
                self._facts[run] = number
                if isinstance(fact, RunEnded):
                    self._over.add(run)
                elif isinstance(fact, StepSettled) and isinstance(fact.report.outcome, Suspended):
                    for call in fact.report.outcome.calls:
                        if call.child:
                            child = child_id(run, f"{fact.step}/{fact.visit}#{call.key}")
                            self._meet(child, call.child, self.calls.get(run) or call.key.partition(":")[2])
        return self._over >= self._facts.keys()

    def _meet(self, child: str, plan: str, call: str) -> None:
        self.plans[child], self.calls[child] = plan, call
        self._lines.setdefault(child, 0)
        self._facts.setdefault(child, 0)

    async def _history(self, run: str) -> Sequence[Record]:
        try:
            return await self.reader.history(run, self._facts[run])
        except NotFound:
            return ()  # its letter is still on its way
