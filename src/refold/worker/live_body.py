"""A body and the lease that it runs under. While it is parked it has none, and its coroutine stays where it is."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any

from msgspec import structs

from refold.body_tasks import outside_of_bodies
from refold.core.faults import text_of
from refold.core.outcomes import Awaited, Outcome, Suspended
from refold.core.plan import BODY
from refold.errors import LeaseLost, RefoldError, Unavailable
from refold.logs import DEBUG, WARNING, event, logger
from refold.ports import Clock, Desk, Done, Lease, Memory, Redaction, Sleeper
from refold.worker.leases import HeldLease, PatientDesk, fields_of
from refold.worker.output import TryOutput
from refold.worker.run_tool import StartedBody, redacted

log = logger("worker")

ASK_EVERY = 1.0  # seconds after which a body that waits for a lease asks whether another worker has its command

Key = tuple[str, str]
"""Run and command."""


class LiveBody:
    """One try of a command, for as long as its coroutine exists: the `Meanwhile` and the `Parking` of its tool."""

    body: StartedBody[Done]
    has_lease = True
    dropped = False
    is_void = False  # it was stopped, and its durable calls do nothing: what it returns or raises is ignored
    is_withdrawn = False  # it was ended because its run is cancelled
    _is_interrupted = False  # its run is cancelled, and the body has not begun
    parked: Done | None = None  # the report of a body that wants to be parked, until the worker has taken it
    _sleeper: Sleeper | None = None
    _resting: "asyncio.Future[None] | None" = None  # done when the body has ended or wants to be parked
    _released: "asyncio.Future[None] | None" = None  # done when its report is committed
    _leased: "asyncio.Future[None] | None" = None  # done when it has a lease again, or was dropped
    _asking: "asyncio.Task[None] | None" = None

    def __init__(self, held: HeldLease, desk: Desk, clock: Clock, pause: float, redaction: Redaction) -> None:
        self.desk, self.clock, self.pause, self.redaction = desk, clock, pause, redaction
        self.lease, self.watch = held.lease, held.watch  # the last lease
        self.first = held.lease
        self._reads_memory = held.lease.command.tool.startswith(f"{BODY}:")  # a Python body, until it has begun
        self.printed = TryOutput(held.lease, desk.publish, clock, redaction)
        self.started_at = clock.now()  # under this lease
        self._unsaid: list[tuple[str, str]] = []

    @property
    def key(self) -> Key:
        return self.lease.run, self.lease.command.id

    def begin(self, coroutine: Coroutine[Any, Any, Done], parked: "ParkedBodies", context: Context | None) -> None:
        """Run the body up to its first wait."""
        self._parked = parked
        self.body = StartedBody(coroutine, context)
        if self.body.ended:
            self._sleeper = None
        else:
            self.body.task.add_done_callback(self._end)

    async def rest(self) -> None:
        """Return when the body has ended or wants to be parked."""
        if self.parked is None and not self.body.task.done():
            self._resting = asyncio.get_running_loop().create_future()
            try:
                await self._resting
            finally:
                self._resting = None

    def forget(self) -> None:
        """The body has ended and is not looked at again. It leads to this object, and the two would keep each other
        alive until the garbage is collected."""
        self._sleeper = None
        del self.body

    def take_report(self) -> Done | None:
        """Return the report of a body that wants to be parked. Without a storable report it cannot be."""
        done, self.parked = self.parked, None
        if done is None:
            return None
        done = redacted(structs.replace(done, started_at=self.started_at), self.redaction)
        if not isinstance(done.outcome, Suspended):
            self._parked.drop(self)
        return done

    def released(self) -> None:
        """The report of the parked body is committed: from now on it may ask for its command."""
        if self._released is not None and not self._released.done():
            self._released.set_result(None)

    def is_released(self) -> bool:
        return self._released is None or self._released.done()

    async def resume(self, held: HeldLease) -> None:
        """Give the body a new lease and what was recorded meanwhile."""
        self.lease, held.watch = held.lease, self.watch
        command = held.lease.command
        memory = Memory(recorded=command.recorded, count=len(command.recorded))
        if command.item is None:
            memory = await PatientDesk(self.desk, held.lease, self.clock, self.pause, self.redaction).recall()
        if self.dropped or held.stopped:
            return
        self.printed = TryOutput(held.lease, self.desk.publish, self.clock, self.redaction)
        self.started_at, self.has_lease, self._released = self.clock.now(), True, None
        unsaid, self._unsaid = self._unsaid, []
        for stream, text in unsaid:
            self.printed.say(stream, text)
        if self._leased is not None and not self._leased.done():
            self._leased.set_result(None)
        self._leased = None
        if self._sleeper is not None and not self.body.task.done():
            self._sleeper.resumed(memory)

    def cancel(self, drop: bool = True) -> None:
        """Stop the body: its lease is lost, the worker stops, or its run has withdrawn the command."""
        if drop:
            self.is_void = self._sleeper is not None and not self.body.task.done()
            self._drop()
        self.body.task.cancel()

    def interrupt(self) -> None:
        """A body that makes durable calls gets CancelledError where it is, and cleans up. Any other one is ended. One
        that still reads its memory is told when it begins, because an earlier try may have done what it must undo."""
        if self._sleeper is not None:
            self._sleeper.interrupted()
        elif self._reads_memory:
            self._is_interrupted = True
        else:
            self.is_withdrawn = True
            self.body.task.cancel()

    def drop(self) -> None:
        """Let go of a parked body."""
        event(log, DEBUG, "parked body dropped", fields_of(self.lease))
        self._drop()
        if self._sleeper is None:
            self.body.task.cancel()

    def _drop(self) -> None:
        self.dropped, self.has_lease = True, False
        for future in (self._leased, self._released):
            if future is not None and not future.done():
                future.set_result(None)
        if self._asking is not None:
            self._asking.cancel()
        if self._sleeper is not None:
            self._sleeper.dropped()

    def attach(self, sleeper: Sleeper | None) -> None:
        self._sleeper, self._reads_memory = sleeper, False
        if self._is_interrupted:
            self.interrupt()

    def park(self, done: Done) -> None:
        loop = asyncio.get_running_loop()
        self.has_lease, self.parked, self._released = False, done, loop.create_future()
        self._parked.add(self)
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)

    async def leased(self) -> bool:
        while not self.has_lease and not self.dropped:
            self._ask()
            assert self._leased is not None
            await asyncio.shield(self._leased)
        return not self.dropped

    async def expect(self, calls: Sequence[Awaited]) -> None:
        await self._with_lease(lambda desk: desk.expect(calls))

    async def news(self) -> Memory:
        memory: Memory = await self._with_lease(lambda desk: desk.read_memory())
        return memory

    async def recall(self) -> Memory:
        if self.has_lease and self.lease.memory is not None:
            return self.lease.memory  # it came with the claim
        memory: Memory = await self._with_lease(lambda desk: desk.recall())
        return memory

    async def recorded_before(self) -> Mapping[str, Outcome]:
        found: Mapping[str, Outcome] = await self._with_lease(lambda desk: desk.recorded_before())
        return found

    async def record(self, key: str, outcome: Outcome) -> None:
        await self._with_lease(lambda desk: desk.record(key, outcome))

    async def publish(self, lines: Sequence[Any]) -> None:
        await self._with_lease(lambda desk: desk.publish(lines))

    def say(self, stream: str, text: str) -> None:
        if self.has_lease:
            self.printed.say(stream, text)
        elif not self.dropped:
            self._unsaid.append((stream, text))

    async def _with_lease(self, ask: Callable[[PatientDesk], Awaitable[Any]]) -> Any:
        if not self.has_lease and not await self.leased():
            raise LeaseLost(f"{self.lease.command.id} of run {self.lease.run} is no longer held")
        return await ask(PatientDesk(self.desk, self.lease, self.clock, self.pause, self.redaction))

    def _ask(self) -> None:
        """Ask for the command of a parked body that has continued by itself or has ended."""
        if self._leased is None:
            loop = asyncio.get_running_loop()
            self._leased = loop.create_future()
            self._asking = loop.create_task(self._ask_until_leased(self._leased), context=outside_of_bodies())

    async def _ask_until_leased(self, leased: "asyncio.Future[None]") -> None:
        if self._released is not None:
            await asyncio.shield(self._released)
        while not leased.done():
            try:
                await self.desk.wake(self.lease)
            except Unavailable as error:
                event(log, WARNING, "parked body waits for the store", fields_of(self.lease), why=text_of(error))
            except RefoldError as error:
                if leased.done():
                    return  # it has the lease already, or was dropped
                event(log, DEBUG, "parked body cannot continue", fields_of(self.lease), why=text_of(error))
                self._parked.drop(self)
                return
            with suppress(TimeoutError):  # else it is asked again whether another worker has the command
                async with asyncio.timeout(ASK_EVERY):
                    await asyncio.shield(leased)

    def _end(self, _: object) -> None:
        self._sleeper = None
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)
        if not self.has_lease and not self.dropped:
            self._ask()


class ParkedBodies:
    """The parked bodies of a worker. Of too many, those are dropped that were used least recently."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._bodies: OrderedDict[Key, LiveBody] = OrderedDict()
        self.unwinding: set[asyncio.Task[Done]] = set()  # tasks of dropped bodies

    def __len__(self) -> int:
        return len(self._bodies)

    def bodies(self) -> list[LiveBody]:
        return list(self._bodies.values())

    def add(self, live: LiveBody) -> None:
        self._bodies[live.key] = live
        while len(self._bodies) > self.most:
            self.drop(next(iter(self._bodies.values())))

    def take(self, lease: Lease) -> LiveBody | None:
        """Return the body that continues under this lease. A body whose command was claimed by another worker, or
        follows another plan now, is dropped."""
        live = self._bodies.get((lease.run, lease.command.id))
        if live is None:
            return None
        last = live.lease
        same = (last.generation + 1, last.plan, last.command.tool, last.command.attempt)
        if same != (lease.generation, lease.plan, lease.command.tool, lease.command.attempt):
            self.drop(live)
            return None
        del self._bodies[live.key]
        return live

    def drop(self, live: LiveBody) -> None:
        if self._bodies.get(live.key) is live:
            del self._bodies[live.key]
        task = live.body.task
        if not task.done():
            self.unwinding.add(task)
            task.add_done_callback(self._unwound)
        live.drop()

    def drop_command(self, run: str, command: str) -> None:
        live = self._bodies.get((run, command))
        if live is not None:
            self.drop(live)

    async def close(self, patience: float) -> None:
        """Drop all bodies, and from now on each that would be parked; wait for those that unwind."""
        self.most = 0
        for live in self.bodies():
            self.drop(live)
        if self.unwinding:
            await asyncio.wait(self.unwinding, timeout=patience)

    def _unwound(self, task: "asyncio.Task[Done]") -> None:
        self.unwinding.discard(task)
        if not task.cancelled():
            task.exception()  # whatever it raises is ignored
