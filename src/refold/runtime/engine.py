"""The engine object: starts runs, tells of them, steers them. It delegates and computes nothing."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from refold.core import codec
from refold.core.facts import StepFault
from refold.core.fold import Record
from refold.core.loops import analyse
from refold.core.plan import Plan, canonical, hash_of
from refold.core.progress import Progress, progress
from refold.core.state import CANCELLED, FAILED, TERMINAL, RunState
from refold.core.summary import Summary, shown_steps, status_of, why
from refold.errors import Conflict, NotFound, RunCancelled, RunFailed, Unavailable
from refold.ports import Advance, Clock, Store
from refold.runtime.intake import run_of_key
from refold.runtime.mailbox import Cancel, DecideGate, Pause, Resume, Signal, Start
from refold.runtime.mailroom import Mailroom
from refold.runtime.turn import Seen

PLANS = 100  # prepared ones that are kept


class Shown(Struct, frozen=True):
    """A run as people see it."""

    id: str
    name: str
    workflow: str
    status: str
    result: Any
    error: StepFault | None
    steps: dict[str, dict[str, Any]]
    waits: dict[str, str]
    usage: dict[str, int | float]
    state: RunState


class Engine:
    def __init__(
        self, store: Store, mailroom: Mailroom, advance: Advance, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self.store, self.mailroom, self.advance, self.clock, self.new_id = store, mailroom, advance, clock, new_id
        self.poll = 1.0
        self._plans: dict[int, tuple[Plan, bytes, str]] = {}
        self._ends: dict[str, list[asyncio.Future[Seen]]] = {}
        mailroom.on_end = self._ended

    async def register(self, plan: Plan) -> str:
        """Make a workflow known, so that others can start it as their child; returns its hash."""
        analyse(plan)
        data, hash = self._prepared(plan)
        await self.advance(lambda: self.store.put_plan(hash, data))
        return hash

    def _prepared(self, plan: Plan) -> tuple[bytes, str]:
        """The plan as it is stored, and its hash; the same object started again and again is prepared once."""
        known = self._plans.get(id(plan))
        if known is None or known[0] is not plan:
            if len(self._plans) >= PLANS:
                self._plans.clear()
            data = canonical(plan)
            known = self._plans[id(plan)] = (plan, data, hash_of(data))
        return known[1], known[2]

    async def start(
        self, plan: Plan, input: dict[str, Any] | None = None, *, name: str = "", key: str = "", run: str = ""
    ) -> str:
        """Start a run and return its id. The same key again gives the run that has it, whatever else is passed."""
        codec.check_value(input or {}, "input")
        run = run_of_key(key) if key else run or self.new_id()
        data, hash = self._prepared(plan)
        try:
            await self.mailroom.send(run, Start(data, hash, input or {}, name, key))
        except Conflict:
            if not key:
                raise
        return run

    async def run(self, plan: Plan, input: dict[str, Any] | None = None, *, name: str = "", key: str = "") -> Any:
        """Start and wait: the run's result, or RunFailed, or RunCancelled."""
        run = run_of_key(key) if key else self.new_id()
        with self._told(run) as ended:  # before it starts, for it may end in a moment
            await self.start(plan, input, name=name, key=key, run=run)
            return _result(await self._until_ended(run, ended, look_first=bool(key)))

    async def result(self, run: str) -> Any:
        return _result(await self.wait(run))

    async def wait(self, run: str) -> Shown:
        """Until the run has ended, whoever ends it."""
        with self._told(run) as ended:
            return await self._until_ended(run, ended, look_first=True)

    async def _until_ended(self, run: str, ended: asyncio.Future[Seen], look_first: bool) -> Shown:
        look = look_first
        while not ended.done():
            with suppress(Unavailable):  # look again later
                if look and await self._is_over(run):
                    return await self.show(run)
            await asyncio.wait([ended], timeout=self.poll)
            look = True  # another process may have ended it
        return await self._shown(ended.result())

    async def _is_over(self, run: str) -> bool:
        summary = await self.advance(lambda: self.store.summary(run))
        if summary is None:
            raise NotFound(f"there is no run {run}")
        return summary.status in TERMINAL

    async def show(self, run: str) -> Shown:
        return await self._shown(await self.advance(lambda: self.mailroom.turns.look(run)))

    async def _shown(self, seen: Seen) -> Shown:
        graph, state = seen.graph, seen.state
        result, blob = state.result, state.blob
        if blob is not None:
            result = codec.unbox(await self.advance(lambda: self._blob(state.run, blob.hash)))
        return Shown(
            id=state.run,
            name=state.name,
            workflow=graph.plan.name,
            status=status_of(graph, state, seen.now),
            result=result,
            error=state.error,
            steps=shown_steps(graph, state),
            waits=why(graph, state),
            usage=dict(state.usage),
            state=state,
        )

    async def progress(self, run: str) -> Progress | None:
        """How a run stands that this process has in memory; costs no reading."""

        def look() -> Progress | None:
            known = self.mailroom.turns.known.get(run)
            return None if known is None else progress(known.graph, known.state, self.clock.now())

        seen: Progress | None = await self.advance(look)
        return seen

    async def runs(self, status: str | None = None, limit: int = 100) -> Sequence[Summary]:
        rows: Sequence[Summary] = await self.advance(lambda: self.store.summaries(status, limit))
        return rows

    async def history(self, run: str, after: int = 0) -> Sequence[Record]:
        records: Sequence[Record] = await self.advance(lambda: self.store.facts(run, after))
        return records

    async def logs(self, run: str, after: int = 0) -> Sequence[tuple[int, Any]]:
        """What its steps have printed, each line with its number; `after` the last that is known."""
        lines: Sequence[tuple[int, Any]] = await self.advance(lambda: self.store.stream(run, after))
        return lines

    async def signal(self, run: str, name: str, value: Any = None, sender: str = "") -> None:
        codec.check_value(value, "value")
        await self.mailroom.send(run, Signal(name, value, sender))

    async def decide(self, run: str, step: str, option: str, *, by: str = "", feedback: Any = None) -> None:
        """A person's decision at a gate; the first one counts."""
        codec.check_value(feedback, "feedback")
        await self.mailroom.send(run, DecideGate(step, option, by, feedback))

    async def pause(self, run: str, by: str = "") -> None:
        await self.mailroom.send(run, Pause(by))

    async def resume(self, run: str, by: str = "") -> None:
        await self.mailroom.send(run, Resume(by))

    async def cancel(self, run: str, reason: str = "", by: str = "", command: str = "") -> None:
        """The whole run, or one open command of it, which is then routed as a failure."""
        await self.mailroom.send(run, Cancel(reason, by, command))

    def _blob(self, run: str, hash: str) -> bytes:
        with self.store.turn([run]) as turn:
            return turn.blob(run, hash)

    @contextmanager
    def _told(self, run: str) -> Iterator[asyncio.Future[Seen]]:
        """Done when the run ends in this process."""
        ended: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(run, []).append(ended)
        try:
            yield ended
        finally:
            self._ends[run].remove(ended)
            if not self._ends[run]:
                del self._ends[run]

    def _ended(self, seen: Seen) -> None:
        for ended in self._ends.get(seen.state.run, ()):
            if not ended.done():
                ended.set_result(seen)


def _result(shown: Shown) -> Any:
    if shown.status == FAILED:
        raise RunFailed(shown.id, shown.error)
    if shown.status == CANCELLED:
        raise RunCancelled(f"run {shown.id} was cancelled")
    return shown.result
