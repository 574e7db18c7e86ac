"""The recorded durable calls of a body: each has a key, is made once, and is found again when the body starts over."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from refold.core.faults import fault_from_exception
from refold.core.outcomes import NO_QUEUEING, WITHDRAWN, Awaited, Blob, Cancelled, Failed, Outcome, Queueing, Succeeded
from refold.core.plan import Retry
from refold.errors import Unstorable
from refold.ports import Meanwhile, Memory
from refold.python.call_records import TASK, CallRecords, unnumbered
from refold.python.parking import DurableWaits, Suspension, is_withdrawn

Span = str | int | float
ReadBlob = Callable[[Blob], Awaitable[Any]]


class CallOptions(Struct, frozen=True):
    """What `ctx.options` says about a durable call."""

    key: str | None = None
    retry: Retry | None = None
    timeout: Span | None = None
    queueing: Queueing = NO_QUEUEING  # of a child run


class Continuation(BaseException):
    """Ends a body that lets another run continue its own."""


class Race:
    """The waits of one `first` in a body that cannot be parked."""

    def __init__(self) -> None:
        self.open: dict[str, Awaited] = {}  # they have no outcome
        self.last: dict[asyncio.Task[Any] | None, str] = {}  # what each task has asked for last
        self._stuck: set[asyncio.Task[Any] | None] = set()
        self._moved = asyncio.Event()

    async def outcome(self, call: Awaited, recorded: Outcome | None) -> Outcome:
        """Return a recorded outcome. Without one, this task waits until it is cancelled."""
        task = asyncio.current_task()
        self.last[task] = call.key
        if recorded is not None and not is_withdrawn(recorded):
            return recorded
        if recorded is None:
            self.open[call.key] = call
        self._stuck.add(task)
        self._moved.set()
        never: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        return await never

    async def all_wait(self, tasks: Collection["asyncio.Future[Any]"]) -> None:
        """Return when each task has ended, or waits for what has not come."""
        for task in tasks:
            task.add_done_callback(lambda _: self._moved.set())
        while not all(task.done() or task in self._stuck for task in tasks):
            self._moved.clear()
            await self._moved.wait()


RACE: ContextVar[Race | None] = ContextVar("refold_race", default=None)
"""Set in the tasks of a `first` of a body that cannot be parked."""


class RecordedCalls:
    """The durable calls of one call of a body."""

    def __init__(
        self, memory: Memory, meanwhile: Meanwhile, read_blob: ReadBlob, check_open: Callable[[], None]
    ) -> None:
        self.memory, self.meanwhile, self.read_blob = memory, meanwhile, read_blob
        self.check_open = check_open  # raises if the body has returned
        self.recorded: dict[str, Outcome] = dict(memory.recorded)
        self.pending: dict[str, Awaited] = {}
        self.records = CallRecords(memory.recorded, memory.awaited)  # which of them is which
        self.waits: DurableWaits | None = None  # None: a body that has to wait is ended, and starts over
        self.is_suspended = False  # once it is, further calls of this pass do nothing
        self._busy = 0  # calls under way in this very moment
        self._uninterrupted = 0  # parts of calls that a cancellation of the run does not interrupt
        self._quiet: asyncio.Event | None = None  # none of them is; made with the first

    def asked(self) -> CallRecords:
        """Return the records, to find the key of a call. Raises Conflict if the body has returned."""
        self.check_open()
        return self.records

    async def outcome(self, call: Awaited) -> Outcome:
        """Return the outcome when there is one. A body that cannot be parked is ended with Suspension."""
        waits = self.waits
        if waits is not None:
            if call.key not in self.recorded:
                await waits.ready()  # this may bring the outcome
            if call.key in self.recorded:
                return await self._whole(await waits.recorded(call, self.recorded[call.key]))
            await waits.interrupt()
            return await self._whole(await waits.outcome(call))
        race = RACE.get()
        if race is not None and not self.is_suspended:
            return await self._whole(await race.outcome(call, self.recorded.get(call.key)))
        if call.key in self.recorded and not self.is_suspended:
            return await self._whole(self.recorded[call.key])
        if not self.is_suspended:
            self.pending[call.key] = call
            await self._suspend()
            self.is_suspended = True
        raise Suspension

    async def first(self, waits: Mapping[str, Awaitable[Any]]) -> tuple[str, Any]:
        """The durable race of a body that cannot be parked: if nothing has come, it is ended, and starts over.

        Of several outcomes the one that was recorded first wins, in this pass and in all later ones.
        """
        race = Race()
        token = RACE.set(race)
        try:
            tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
        finally:
            RACE.reset(token)
        try:
            await race.all_wait(tasks.values())
            over = [name for name, task in tasks.items() if task.done()]
            if not over:
                self.pending.update(race.open)
                await self._suspend()
                self.is_suspended = True
                raise Suspension
            order = {key: number for number, key in enumerate(self.recorded)}
            last = {name: race.last.get(tasks[name]) for name in over}
            won = min(over, key=lambda name: order.get(last[name] or "", -1))
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        for key in race.open:
            await self.withdraw(key)
        return won, tasks[won].result()

    async def once(self, key: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do the work and record its result, unless there is a recorded one.

        A failure is raised in the body and not recorded, except that a result which cannot be stored is recorded as a
        failure: the work was done, and is never done again.
        """
        if self.is_suspended:
            raise Suspension
        waits = self.waits
        if waits is not None and (waits.is_dropped or not waits.parking.has_lease):
            await waits.ready()
        if key in self.recorded:
            if waits is not None:
                waits.met(key)
            done = await self._whole(self.recorded[key])
            if isinstance(done, Failed):
                path, _, why = done.fault.message.partition(": ")
                raise Unstorable(path, why)
            assert isinstance(done, Succeeded)
            return done.result
        if waits is not None:
            await waits.interrupt()
        self._busy += 1
        self._quiet = self._quiet or asyncio.Event()
        self._quiet.clear()
        try:
            token = TASK.set(self.records.inside())
            try:
                result = await work()
            finally:
                TASK.reset(token)
            await self._record(key, Succeeded(result))
        except Unstorable as error:
            refused = Failed(fault_from_exception(error))
            self.recorded[key] = refused
            await self._record(key, refused)
            raise
        finally:
            self._busy -= 1
            if not self._busy:
                self._quiet.set()
        self.recorded[key] = Succeeded(result)
        return result

    async def give_up(self, key: str, reason: str) -> None:
        """Record a call as cancelled unless it has an outcome; its child run is cancelled."""
        if key not in self.recorded:
            self.recorded[key] = Cancelled(reason)
            await self._record(key, Cancelled(reason))

    async def withdraw(self, key: str, gives_back: str = "") -> None:
        """Record that the body no longer waits for a call. `gives_back` is the signal that the call may have taken."""
        if gives_back or key not in self.recorded:
            withdrawn = Cancelled(WITHDRAWN, gives_back)
            self.recorded[key] = withdrawn
            await self._record(key, withdrawn)

    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._busy > 0

    def can_be_interrupted(self) -> bool:
        return not self._uninterrupted

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """What happens in it has an effect that must be recorded: a cancellation of the run comes after it."""
        self._uninterrupted += 1
        try:
            yield
        finally:
            self._uninterrupted -= 1
            if self.waits is not None:  # soon, because a call that has returned is recorded first
                asyncio.get_running_loop().call_soon(self.waits.cancel_if_interrupted)

    async def _record(self, key: str, outcome: Outcome) -> None:
        with unnumbered(), self.uninterrupted():
            await self.meanwhile.record(key, outcome)
        if self.waits is not None and key not in self.memory.recorded:
            self.waits.known += 1

    async def settle(self, key: str, outcome: Outcome) -> None:
        """Record an outcome under a key, unless an earlier try has recorded one."""
        if self.is_suspended:
            raise Suspension
        if self.waits is not None:
            await self.waits.ready()
        if key not in self.recorded:
            await self._record(key, outcome)
            self.recorded[key] = outcome
        elif self.waits is not None:
            self.waits.met(key)

    async def _suspend(self) -> None:
        """Let other tasks of the body continue first, so that their calls finish or are known as waiting too."""
        for _ in range(3):
            await asyncio.sleep(0)
        if self._quiet is not None:
            await self._quiet.wait()

    async def _whole(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Succeeded) and outcome.blob is not None:
            return Succeeded(await self.read_blob(outcome.blob))
        return outcome
