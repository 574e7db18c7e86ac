"""Who waits for a run to end: told when it ends in this process, and one look for all tells what others have ended."""

import asyncio
from collections.abc import Sequence

from refold.core.faults import text_of
from refold.core.state import TERMINAL
from refold.errors import NotFound, Unavailable
from refold.logs import WARNING, event, logger
from refold.ports import Advance, Store
from refold.runtime.turn import RunSnapshot

log = logger("runtime")

PAGE = 100  # runs asked for in one go

RunEnd = asyncio.Future[RunSnapshot | None]
"""How a run ended; None: in another process, so the store must be asked."""


class RunWaiters:
    def __init__(self, store: Store, advance: Advance) -> None:
        self.store, self.advance = store, advance
        self.poll = 1.0
        self._ends: dict[str, list[RunEnd]] = {}
        self._watched: set[str] = set()  # those of them that are there
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    def expect(self, run: str) -> RunEnd:
        """Before it starts, for it may end in a moment; `forget` follows."""
        end: RunEnd = asyncio.get_running_loop().create_future()
        self._ends.setdefault(run, []).append(end)
        return end

    def forget(self, run: str, end: RunEnd) -> None:
        ends = self._ends[run]
        ends.remove(end)
        if not ends:
            del self._ends[run]
            self._watched.discard(run)

    def watch(self, run: str) -> None:
        """The run is there, and another process may end it."""
        self._watched.add(run)
        self._look_later()

    def ended(self, seen: RunSnapshot) -> None:
        self._tell(seen.state.run, seen)

    def look_now(self) -> None:
        """Another process has written. Where many wait, they wait for the next poll."""
        if self._timer is not None and len(self._watched) <= PAGE:
            self._timer.cancel()
            self._begin_to_look()

    async def is_over(self, run: str) -> bool:
        [(_, found)] = await self._ask([run])
        if isinstance(found, Exception):
            raise found
        return found

    def _look_later(self) -> None:
        if self._timer is None and self._looking is None:
            self._timer = asyncio.get_running_loop().call_later(self.poll, self._begin_to_look)

    def _begin_to_look(self) -> None:
        self._timer = None
        if self._watched:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            runs = sorted(self._watched)
            for at in range(0, len(runs), PAGE):
                for run, found in await self._ask(runs[at : at + PAGE]):
                    if found:
                        self._tell(run, found if isinstance(found, Exception) else None)
        finally:
            self._looking = None
            self._look_later()

    async def _ask(self, runs: Sequence[str]) -> list[tuple[str, bool | Exception]]:
        found: list[tuple[str, bool | Exception]] = await self.advance(
            lambda: [(run, self._is_over(run)) for run in runs]
        )
        return found

    def _is_over(self, run: str) -> bool | Exception:
        try:
            summary = self.store.summary(run)
        except Unavailable as error:
            event(log, WARNING, "run could not be looked at", run=run, why=text_of(error))
            return False  # look again later
        except Exception as error:
            return error
        return NotFound(f"there is no run {run}") if summary is None else summary.status in TERMINAL

    def _tell(self, run: str, what: RunSnapshot | Exception | None) -> None:
        for end in self._ends.get(run, ()):
            if end.done():
                continue
            if isinstance(what, Exception):
                end.set_exception(what)
            else:
                end.set_result(what)
