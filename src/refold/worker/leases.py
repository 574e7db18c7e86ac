"""The leases of a worker: one heartbeat extends all of them, and a body whose lease is lost is stopped.

The heartbeat runs on a thread of its own; or in a simulation, which has no threads, as a task.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import count
from threading import Thread
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from refold.core.faults import text_of
from refold.core.outcomes import Awaited, Failed, Outcome, Succeeded
from refold.errors import RefoldError, Unavailable
from refold.logs import DEBUG, ERROR, INFO, WARNING, event, logger
from refold.ports import Clock, Desk, Lease, Memory, Place, Redaction
from refold.time_limits import Stopwatch
from refold.worker.run_tool import NO_REDACTION

log = logger("worker")


def place(lease: Lease) -> Place:
    return lease.run, lease.command.id, lease.generation


def fields_of(lease: Lease) -> dict[str, str | int]:
    """The fields by which the log names a command."""
    command = lease.command
    known: dict[str, str | int] = {"run": lease.run, "step": command.step, "command": command.id}
    return {**known, "worker": lease.worker, "attempt": command.attempt, "generation": lease.generation}


class Stoppable(Protocol):
    def cancel(self, drop: bool = True) -> object:
        """Cancel a body. With `drop`, the durable calls that it makes on its way out do nothing."""

    def interrupt(self) -> None:
        """The run of the body is cancelled: it may clean up, if it can make durable calls."""


class HeldLease(Struct):
    where: Place
    lease: Lease
    body: Stoppable | None = None  # cancelled if the lease is lost; None: not running
    live: Any = None  # the LiveBody that was parked under this lease
    stopped: bool = False  # the body was cancelled, or must not start
    interrupted: bool = False  # its run is cancelled, and the body may clean up
    reporting: bool = False  # the body has ended, so only the desk can tell whether the lease is still valid
    watch: Stopwatch = field(default_factory=Stopwatch)  # how long its body has run


class Beat(Struct, frozen=True):
    """The result of one heartbeat."""

    asked: Sequence[Place]  # held when it began
    kept: Mapping[Place, Lease]


class LeaseKeeper:
    """`run` may have a thread and an event loop of its own; all other methods belong to the loop of the bodies."""

    def __init__(self, desk: Desk, clock: Clock, worker: str, lease_for: float) -> None:
        self.desk, self.clock, self.worker, self.lease_for = desk, clock, worker, lease_for
        self.every = lease_for / 3
        self.held: dict[Place, HeldLease] = {}
        self._number = count().__next__
        self._asking: set[int] = set()  # calls that may bring a lease
        self._strange: dict[Place, frozenset[int]] = {}  # leases that one of these calls may still bring
        self._returns: set[asyncio.Task[None]] = set()

    async def run(self, tell: Callable[[Beat], object]) -> None:
        """Beat for ever; `tell` passes each result to `hear`, on the loop of the bodies."""
        while True:
            await self.clock.sleep(self.every)
            asked = tuple(self.held)  # atomic in the interpreter, so another thread may do it
            try:
                leases = await self.desk.extend(self.worker, self.lease_for, self._left(asked))
            except RefoldError as error:
                event(log, WARNING, "heartbeat failed", worker=self.worker, held=len(asked), why=text_of(error))
                continue  # the next beat may succeed in time
            tell(Beat(asked, {place(lease): lease for lease in leases}))

    async def look(self) -> None:
        """Check all leases now, because another process has written and may have withdrawn a command. If this fails,
        the next beat finds it."""
        asked = tuple(self.held)
        try:
            leases = await self.desk.leases_of(self.worker) if asked else ()
        except RefoldError as error:
            event(log, WARNING, "leases could not be looked at", worker=self.worker, why=text_of(error))
            return
        self.hear(Beat(asked, {place(lease): lease for lease in leases}))
        await self._look_for_cancelled_runs()

    async def _look_for_cancelled_runs(self) -> None:
        held = [each.lease for each in self.held.values() if each.body is not None and not each.interrupted]
        try:
            interrupted = await self.desk.interrupted(held) if held else ()
        except RefoldError as error:
            event(log, WARNING, "cancelled runs could not be looked for", worker=self.worker, why=text_of(error))
            return  # the next look finds the same
        for run, command, _ in interrupted:
            self.interrupt(run, command)

    def _left(self, asked: Sequence[Place]) -> dict[Place, float]:
        """Return the seconds that are left of each timeout. A timeout starts with the body, not with the claim."""
        left: dict[Place, float] = {}
        for where in asked:
            held = self.held.get(where)
            if held is not None and held.lease.command.timeout is not None:
                left[where] = held.lease.command.timeout - held.watch.ran()
        return left

    def hold(self, lease: Lease) -> HeldLease:
        where = place(lease)
        held = self.held[where] = HeldLease(where, lease)
        return held

    def release(self, held: HeldLease) -> None:
        self.held.pop(held.where, None)

    def begin_asking(self) -> int:
        """Note that a call to the desk that may bring a lease begins. It ends after `hold`."""
        number = self._number()
        self._asking.add(number)
        return number

    def end_asking(self, number: int) -> None:
        self._asking.discard(number)

    def hear(self, beat: Beat) -> None:
        """Stop bodies whose lease is lost, and hand back leases of this worker that no call has brought."""
        for where in beat.asked:
            if where not in beat.kept:
                self._lose(where, WARNING, "lease lost: its body is stopped")
        before, self._strange = self._strange, {}
        for where, lease in beat.kept.items():
            if where in self.held or where in beat.asked:
                continue
            calls = before[where] & self._asking if where in before else frozenset(self._asking)
            if where in before and not calls:
                self._give_back(lease)  # every call that might bring it has ended without: its answer was lost
            else:
                self._strange[where] = calls

    def withdraw(self, run: str, command: str) -> None:
        """Stop a command that its run has withdrawn, without waiting for the next heartbeat."""
        for where in [each for each in self.held if each[:2] == (run, command)]:
            self._lose(where, DEBUG, "command withdrawn by its run", drop=False)  # its cleanup may call what undoes

    def interrupt(self, run: str, command: str) -> None:
        """The run of this command is cancelled, and keeps the command open so that its body can clean up."""
        for held in [each for where, each in self.held.items() if where[:2] == (run, command)]:
            if held.interrupted or held.stopped or held.reporting:
                continue
            event(log, DEBUG, "body interrupted, for its run is cancelled", fields_of(held.lease))
            held.interrupted = True
            if held.body is not None:
                held.body.interrupt()

    def stop_bodies(self) -> None:
        for where in list(self.held):
            self._lose(where, INFO, "body stopped, for the worker stops")

    def _lose(self, where: Place, level: int, why: str, drop: bool = True) -> None:
        held = self.held.get(where)
        if held is None or held.reporting:
            return
        event(log, level, why, fields_of(held.lease))
        held.stopped = True
        if held.body is not None:
            held.body.cancel(drop)
            held.body = None  # cancelled once: its cleanup must not be cancelled too

    def _give_back(self, lease: Lease) -> None:
        async def give_back() -> None:
            try:
                await self.desk.hand_back(lease)
            except RefoldError as error:
                event(log, WARNING, "command not handed back", fields_of(lease), why=text_of(error))
                return  # the lease runs out by itself

        task = asyncio.get_running_loop().create_task(give_back())
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)


T = TypeVar("T")


class PatientDesk(Struct, frozen=True):
    """The desk as a running body uses it. A store that does not answer is asked again; if that takes too long, the
    lease is lost and the body is stopped."""

    desk: Desk
    lease: Lease
    clock: Clock
    pause: float
    redaction: Redaction = NO_REDACTION

    async def recall(self) -> Memory:
        """Return the memory that the claim has brought, or else the current one."""
        memory = self.lease.memory
        return memory if memory is not None else await self._asked(lambda: self.desk.recall(self.lease))

    async def recorded_before(self) -> Mapping[str, Outcome]:
        """Return what was recorded under earlier leases; this costs nothing under the first."""
        if self.lease.generation <= 1:
            return {}
        return (await self.recall()).recorded

    async def record(self, key: str, outcome: Outcome) -> None:
        """Record a durable call. Raises ToolFailed for a result that holds a secret, and records nothing of it.

        The key of a call shows its arguments.
        """
        key = self.redaction.text(key)
        if isinstance(outcome, Failed):
            outcome = Failed(self.redaction.fault(outcome.fault))
        elif isinstance(outcome, Succeeded):
            self.redaction.check_result(outcome.result)
        await self._asked(lambda: self.desk.record(self.lease, key, outcome))

    async def read_memory(self) -> Memory:
        """Return the current memory."""
        return await self._asked(lambda: self.desk.recall(self.lease))

    async def expect(self, calls: Sequence[Awaited]) -> None:
        """Wait for durable calls. Raises ToolFailed for an input that holds a secret."""
        self.redaction.check_result([call.input for call in calls])
        await self._asked(lambda: self.desk.expect(self.lease, calls))

    async def publish(self, lines: Sequence[Any]) -> None:
        shown = [self.redaction.value(line) for line in lines]
        await self._asked(lambda: self.desk.publish(self.lease, shown))

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except Unavailable as error:
                why = self.redaction.text(text_of(error))
                event(log, WARNING, "body waits for the store, which did not answer", fields_of(self.lease), why=why)
                await self.clock.sleep(self.pause)


Heartbeat = Callable[[LeaseKeeper], AbstractAsyncContextManager[None]]
"""Keeps the leases of a worker alive while its bodies run."""


@asynccontextmanager
async def as_task(keeper: LeaseKeeper) -> AsyncIterator[None]:
    """Beat on the event loop of the bodies: while that loop is blocked, no lease is extended."""
    beating = asyncio.get_running_loop().create_task(keeper.run(keeper.hear))
    try:
        yield
    finally:
        beating.cancel()


@asynccontextmanager
async def on_thread(keeper: LeaseKeeper) -> AsyncIterator[None]:
    """Beat on another thread with its own event loop, so that a body that blocks its loop does not lose its lease."""
    work = asyncio.get_running_loop()
    beating: asyncio.Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = work.create_future()
    ended = asyncio.Event()

    def tell(beat: Beat) -> None:
        work.call_soon_threadsafe(keeper.hear, beat)

    async def beat() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        work.call_soon_threadsafe(beating.set_result, (loop, task))
        while True:
            try:
                await keeper.run(tell)
            except Exception as error:  # a defect; it is logged, and costs one beat instead of every lease
                event(log, ERROR, "heartbeat ended with an internal error", worker=keeper.worker, error=error)
                work.call_soon_threadsafe(work.call_exception_handler, {"message": "heartbeat", "exception": error})

    def run() -> None:
        with suppress(asyncio.CancelledError, RuntimeError):  # it was stopped, or the loop of the bodies is closed
            asyncio.run(beat())
        with suppress(RuntimeError):  # the loop of the bodies is closed, so no task waits
            work.call_soon_threadsafe(ended.set)

    Thread(target=run, name="refold-heartbeat", daemon=True).start()
    try:
        yield
    finally:
        loop, task = await beating
        with suppress(RuntimeError):  # the thread has ended already
            loop.call_soon_threadsafe(task.cancel)
        await ended.wait()
