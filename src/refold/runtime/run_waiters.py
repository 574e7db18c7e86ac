"""Callers that wait for runs to end. One query for all of them finds runs that another process has ended."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from refold.body_tasks import outside_of_bodies
from refold.core.faults import text_of
from refold.core.state import TERMINAL
from refold.errors import EngineClosed, NotFound, Unavailable
from refold.logs import WARNING, event, logger
from refold.ports import Advance, Store
from refold.runtime.turn import RunSnapshot

log = logger("runtime")

PAGE = 100  # runs in one query
SOON = 0.1  # seconds until the first look at a run that its waiter has not looked at
RECENT, SMALL = 32, 1000  # runs that ended last and are remembered; facts that such a run has at most

RunEnd = asyncio.Future[RunSnapshot | None]
"""The run as it ended; None: another process has ended it, so it must be read from the store."""


class RunWaiters:
    def __init__(self, store: Store, advance: Advance, poll: float = 1.0) -> None:
        self.store, self.advance, self.poll = store, advance, poll
        self._closed = False
        self._ends: dict[str, list[RunEnd]] = {}
        self._watched: set[str] = set()  # runs of `_ends` that exist
        self._unseen: set[str] = set()  # those at which nobody has looked since their waiter came
        self._recent: OrderedDict[str, RunSnapshot] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._first_timer: asyncio.TimerHandle | None = None
        self._first_looks: set[asyncio.Task[None]] = set()

    def expect(self, run: str) -> RunEnd:
        """Call this before the run starts, because it may end immediately. The caller must call `forget` later."""
        if self._closed:
            raise EngineClosed
        end: RunEnd = asyncio.get_running_loop().create_future()
        self._ends.setdefault(run, []).append(end)
        return end

    def forget(self, run: str, end: RunEnd) -> None:
        ends = self._ends[run]
        ends.remove(end)
        if not ends:
            del self._ends[run]
            self._watched.discard(run)
            self._unseen.discard(run)

    def watch(self, run: str, seen: bool = True) -> None:
        """The run exists, so another process may end it: ask the store from time to time. If the waiter has not `seen`
        the row of the run, another process may have ended it already: ask soon, for all such runs together. Most of
        them have ended here before that, and need no look."""
        self._watched.add(run)
        self._look_later()
        if not seen:
            self._unseen.add(run)
            if self._first_timer is None:
                self._first_timer = asyncio.get_running_loop().call_later(SOON, self._look_at_unseen)

    def ended(self, snapshot: RunSnapshot) -> None:
        """A run has ended in this process."""
        state = snapshot.state
        if state.seq <= SMALL:
            self._recent[state.run] = snapshot
            if len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        self._resolve(state.run, snapshot)

    def close(self) -> None:
        """The engine is closed: whoever waits gets EngineClosed, because nothing would ever wake it."""
        self._closed = True
        for each in (self._timer, self._looking, self._first_timer, *self._first_looks):
            if each is not None:
                each.cancel()
        for run in list(self._ends):
            self._resolve(run, EngineClosed())

    def look_now(self) -> None:
        """Another process has written. With more than a page of waiters, the next poll finds what has changed."""
        if self._timer is not None and len(self._watched) <= PAGE:
            self._timer.cancel()
            self._begin_to_look()

    def recent(self, run: str) -> RunSnapshot | None:
        """Return a run that has just ended in this process, so that its log is not read back. None if it is not
        remembered, or if its log has grown since: another process may have reopened it."""
        snapshot = self._recent.get(run)
        row = None if snapshot is None else self.store.summary(run)
        return snapshot if snapshot is not None and row is not None and row.seq == snapshot.state.seq else None

    async def is_over(self, run: str) -> bool:
        [(_, answer)] = await self._ask([run])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _look_later(self) -> None:
        if self._timer is None and self._looking is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self.poll, self._begin_to_look)

    def _begin_to_look(self) -> None:
        self._timer = None
        if self._watched:
            self._looking = asyncio.get_running_loop().create_task(self._look(), context=outside_of_bodies())

    async def _look(self) -> None:
        try:
            await self._look_at(sorted(self._watched))
        finally:
            self._looking = None
            self._look_later()

    def _look_at_unseen(self) -> None:
        runs, self._unseen, self._first_timer = sorted(self._unseen), set(), None
        if runs:
            task = asyncio.get_running_loop().create_task(self._look_at(runs))
            self._first_looks.add(task)
            task.add_done_callback(self._first_looks.discard)

    async def _look_at(self, runs: Sequence[str]) -> None:
        for start in range(0, len(runs), PAGE):
            for run, answer in await self._ask(runs[start : start + PAGE]):
                if answer:
                    self._resolve(run, answer if isinstance(answer, Exception) else None)

    async def _ask(self, runs: Sequence[str]) -> list[tuple[str, bool | Exception]]:
        answers: list[tuple[str, bool | Exception]] = await self.advance(
            lambda: [(run, self._is_over(run)) for run in runs]
        )
        return answers

    def _is_over(self, run: str) -> bool | Exception:
        try:
            summary = self.store.summary(run)
        except Unavailable as error:
            event(log, WARNING, "run could not be looked at", run=run, why=text_of(error))
            return False  # the next poll asks again
        except Exception as error:
            return error
        return NotFound(f"there is no run {run}") if summary is None else summary.status in TERMINAL

    def _resolve(self, run: str, how: RunSnapshot | Exception | None) -> None:
        for end in self._ends.get(run, ()):
            if end.done():
                continue
            if isinstance(how, Exception):
                end.set_exception(how)
            else:
                end.set_result(how)
