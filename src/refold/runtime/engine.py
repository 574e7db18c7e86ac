"""The engine object: starts runs, tells of them, steers them. It delegates and computes nothing."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from refold.core import codec
from refold.core.facts import StepFault
from refold.core.fold import Record
from refold.core.loops import analyse
from refold.core.plan import Plan, canonical, plan_hash
from refold.core.state import CANCELLED, FAILED, TERMINAL, RunState
from refold.core.summary import Summary, shown_steps, status_of, why
from refold.errors import Conflict, NotFound, RunCancelled, RunFailed, Unavailable
from refold.ports import Advance, Clock, Store
from refold.runtime.mailbox import Cancel, DecideGate, Pause, Resume, Signal, Start
from refold.runtime.mailroom import Mailroom
from refold.runtime.turn import Seen


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


def run_of_key(key: str) -> str:
    """The id follows from the key, so that however many start it at once, there is one run."""
    return hashlib.sha256(f"key/{key}".encode()).hexdigest()[:32]


class Engine:
    def __init__(
        self, store: Store, mailroom: Mailroom, advance: Advance, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self.store, self.mailroom, self.advance, self.clock, self.new_id = store, mailroom, advance, clock, new_id
        self.poll = 1.0
        self._ends: dict[str, list[asyncio.Event]] = {}
        mailroom.on_end = self._ended

    async def register(self, plan: Plan) -> str:
        """Make a workflow known, so that others can start it as their child; returns its hash."""
        analyse(plan)
        hash = plan_hash(plan)
        await self.advance(lambda: self.store.put_plan(hash, canonical(plan)))
        return hash

    async def start(
        self, plan: Plan, input: dict[str, Any] | None = None, *, name: str = "", key: str = "", run: str = ""
    ) -> str:
        """Start a run and return its id. The same key again gives the run that has it, whatever else is passed."""
        codec.check_value(input or {}, "input")
        run = run_of_key(key) if key else run or self.new_id()
        try:
            await self.mailroom.send(run, Start(canonical(plan), plan_hash(plan), input or {}, name, key))
        except Conflict:
            if not key:
                raise
        return run

    async def run(self, plan: Plan, input: dict[str, Any] | None = None, *, name: str = "", key: str = "") -> Any:
        """Start and wait: the run's result, or RunFailed, or RunCancelled."""
        return await self.result(await self.start(plan, input, name=name, key=key))

    async def result(self, run: str) -> Any:
        shown = await self.wait(run)
        if shown.status == FAILED:
            raise RunFailed(run, shown.error)
        if shown.status == CANCELLED:
            raise RunCancelled(f"run {run} was cancelled")
        return shown.result

    async def wait(self, run: str) -> Shown:
        """Until the run has ended, whoever ends it."""
        ended = asyncio.Event()
        self._ends.setdefault(run, []).append(ended)
        try:
            while True:
                with suppress(Unavailable):  # look again later
                    summary = await self.advance(lambda: self.store.summary(run))
                    if summary is None:
                        raise NotFound(f"there is no run {run}")
                    if summary.status in TERMINAL:
                        return await self.show(run)
                with suppress(TimeoutError):  # another process may have ended it
                    await asyncio.wait_for(ended.wait(), self.poll)
        finally:
            self._ends[run].remove(ended)
            if not self._ends[run]:
                del self._ends[run]

    async def show(self, run: str) -> Shown:
        seen: Seen = await self.advance(lambda: self.mailroom.turns.look(run))
        graph, state = seen.graph, seen.state
        result, blob = state.result, state.blob
        if blob is not None:
            result = codec.unbox(await self.advance(lambda: self._blob(run, blob.hash)))
        return Shown(
            id=run,
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

    async def runs(self, status: str | None = None, limit: int = 100) -> Sequence[Summary]:
        rows: Sequence[Summary] = await self.advance(lambda: self.store.summaries(status, limit))
        return rows

    async def history(self, run: str, after: int = 0) -> Sequence[Record]:
        records: Sequence[Record] = await self.advance(lambda: self.store.facts(run, after))
        return records

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

    def _ended(self, run: str) -> None:
        for event in self._ends.get(run, ()):
            event.set()
