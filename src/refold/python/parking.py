"""The durable waits of a body, and when the body is parked: its coroutine stays, without a slot and without a lease.

A body is parked when it has an open durable wait and none of its tasks has run for 50 ms; at once if all of them wait
for durable calls alone. A body that keeps running gets the outcomes of its durable waits too: it asks for them.

Recorded outcomes are handed to a body one at a time, in the order in which they were recorded, and each when the body
rests. So a body that starts over meets them in the order in which it met them before.

A body whose run is cancelled gets CancelledError where it waits or runs. One that starts over gets it when all that was
recorded before has reached it: where it waits, or at its next durable call that has no record.
"""

import asyncio
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from refold.body_tasks import BodyTasks
from refold.core.outcomes import RUN_CANCELLED, WITHDRAWN, Awaited, Cancelled, Outcome, Suspended
from refold.errors import LeaseLost, RefoldError
from refold.ports import Done, Memory, Parking
from refold.python.call_records import unnumbered
from refold.time_limits import clocks_of_task

QUIET = 0.05  # seconds in which no task of the body has run
ASK_EVERY = 0.2  # seconds between two looks for outcomes, while the body keeps running
TICKS = 10  # rounds of the loop in which tasks that are about to run may begin their waits
MOST_INERT = 100  # durable calls of a dropped body that are refused; after that it waits for ever


class Suspension(BaseException):
    """Ends a body that cannot be parked, or was dropped. Its command is run again by a body that starts over."""


class OpenWait(Struct):
    call: Awaited
    future: "asyncio.Future[Outcome]"
    outcome: Outcome | None = None  # recorded, and not handed over yet
    is_old: bool = False  # an earlier try has got it

    def can_end(self) -> bool:
        return self.outcome is not None and not self.future.done() and not is_withdrawn(self.outcome)


def _until_cancel(recorded: Mapping[str, Outcome]) -> set[str]:
    """Return the calls that were recorded before the run of a running body was cancelled. A body that waited is brought
    to its waits instead."""
    if RUN_CANCELLED not in recorded or any(map(is_withdrawn, recorded.values())):
        return set()
    return set(takewhile(lambda key: key != RUN_CANCELLED, recorded))


def is_withdrawn(outcome: Outcome) -> bool:
    return isinstance(outcome, Cancelled) and outcome.reason == WITHDRAWN


class DurableWaits(BodyTasks):
    """The durable waits of one call of a body."""

    def __init__(self, parking: Parking, body_call: Any) -> None:
        """`body_call` is the BodyCall that these waits belong to."""
        super().__init__()
        self.parking, self._body_call = parking, body_call
        self.is_dropped = False
        self.is_cancelled = False  # it has got CancelledError, because its run is cancelled
        self._is_to_cancel: bool = body_call.calls.memory.is_cancelled  # it will get it
        self.known = body_call.calls.memory.count  # recorded calls that the body knows
        self._told = set(body_call.calls.memory.awaited)  # calls that the run waits for
        self._open: dict[str, OpenWait] = {}
        self._inner: set[asyncio.Future[Any]] = set()  # that only tasks of this body can end
        recorded = [key for key in body_call.calls.recorded if key != RUN_CANCELLED]
        self._order = {key: number for number, key in enumerate(recorded)}
        self._unmet = dict.fromkeys(recorded)  # recorded calls that the body has not asked for yet
        self._until_cancel = _until_cancel(body_call.calls.recorded)
        self._is_interrupted = False  # it gets CancelledError wherever it is
        self._look: asyncio.Handle | None = None
        self._before: dict[Any, Any] = {}  # what each task waited for at the last look
        self._restless = 0  # looks in a row at which a task had run
        self._asking: asyncio.Task[None] | None = None
        self._inert = 0
        self._main = asyncio.current_task()  # None: it has ended
        self._clocks = clocks_of_task()
        self.begin()
        parking.attach(self)

    async def ready(self) -> None:
        """Return when the body has its lease. Raises Suspension if it was dropped."""
        with unnumbered():
            is_leased = not self.is_dropped and await self.parking.leased()
        if not is_leased:
            await self.refuse()

    async def refuse(self) -> None:
        """Refuse a durable call of a dropped body. A body that catches this again and again is left alone."""
        self._inert += 1
        await asyncio.sleep(0)
        if self._inert > MOST_INERT:
            await asyncio.get_running_loop().create_future()
        raise Suspension

    def met(self, key: str) -> None:
        """The body has asked for a recorded call."""
        self._unmet.pop(key, None)
        if key in self._until_cancel:
            self._until_cancel.remove(key)
            if self._is_to_cancel and not self._until_cancel:
                asyncio.get_running_loop().call_soon(self._interrupt)

    async def recorded(self, call: Awaited, outcome: Outcome) -> Outcome:
        """Return an outcome of an earlier try, when the body has met those that were recorded before it."""
        if is_withdrawn(outcome):
            self.met(call.key)
            if not self._is_to_cancel:
                return await self._wait_for_ever()
            return await self._wait(OpenWait(call, asyncio.get_running_loop().create_future(), outcome, is_old=True))
        if next(iter(self._unmet), call.key) == call.key:
            self.met(call.key)
            return outcome
        return await self._wait(OpenWait(call, asyncio.get_running_loop().create_future(), outcome, is_old=True))

    async def outcome(self, call: Awaited) -> Outcome:
        """Return what comes of a call that has no recorded outcome yet."""
        return await self._wait(OpenWait(call, asyncio.get_running_loop().create_future()))

    async def interrupt(self) -> None:
        """Raise CancelledError in a body that makes a new durable call after its run was cancelled."""
        if self._is_to_cancel:
            self._cancel()
            await asyncio.sleep(0)

    def interrupted(self) -> None:
        if self.is_dropped or self.is_cancelled:
            return
        if not self._is_to_cancel:
            calls = self._body_call.calls
            calls.memory = replace(calls.memory, is_cancelled=True)
            self.known += 1  # the record that says so
            self._is_to_cancel = True
            self._until_cancel = set(self._unmet)
        if not self._until_cancel and not self._unmet:
            self._interrupt()

    def _interrupt(self) -> None:
        self._is_interrupted = True
        self.cancel_if_interrupted()

    def cancel_if_interrupted(self) -> None:
        """Raise CancelledError in a body that was running when its run was cancelled. If a call must be recorded first,
        this is called again."""
        if self._is_interrupted and self._is_to_cancel and self._body_call.calls.can_be_interrupted():
            self._cancel()

    def _cancel(self) -> None:
        self._is_to_cancel, self.is_cancelled = False, True
        if self._main is not None:
            self._main.cancel()

    async def _wait(self, wait: OpenWait) -> Outcome:
        key = wait.call.key
        self._open[key] = wait
        self._look_soon()
        try:
            return await wait.future
        except asyncio.CancelledError:
            if not self.is_dropped and key in self._open:
                del self._open[key]
                with unnumbered():
                    await asyncio.shield(asyncio.ensure_future(self._withdraw(wait)))
            raise
        finally:
            self._open.pop(key, None)

    async def _wait_for_ever(self) -> Outcome:
        outcome: Outcome = await self.inner(asyncio.get_running_loop().create_future())
        return outcome

    async def inner(self, future: "asyncio.Future[Any]") -> Any:
        """Wait for a future that only other tasks of this body can end."""
        self._inner.add(future)
        try:
            return await future
        finally:
            self._inner.discard(future)

    async def _withdraw(self, wait: OpenWait) -> None:
        """A signal that the call has taken, and that the body has not got, is given back."""
        may_have_taken = not wait.is_old and (wait.outcome is not None or wait.call.key in self._told)
        try:
            await self._body_call.calls.withdraw(wait.call.key, wait.call.signal if may_have_taken else "")
        except LeaseLost:
            return  # the body is dropped

    async def finish(self) -> None:
        """The body has ended: withdraw what tasks that it has left behind still wait for. It is not parked again."""
        if self.is_cancelled and self._main is not None:
            self._main.uncancel()  # the task of the body continues with the report
        self._stop_looking()
        open_waits, self._open = self._open, {}
        for wait in open_waits.values():
            wait.future.cancel()
            if not self.is_dropped:
                await self._withdraw(wait)

    # What the worker does with the body

    def resumed(self, memory: Memory) -> None:
        for clock in self._clocks:
            clock.go_on()
        self._body_call.state._renew(memory)
        self._take(memory)
        self._hand_over()
        self._look_soon()

    def dropped(self) -> None:
        self.is_dropped = True
        self._stop_looking()
        for wait in list(self._open.values()):
            if not wait.future.done():
                wait.future.set_exception(Suspension())
        self._open = {}
        asyncio.get_running_loop().call_soon(self._cancel_rest, TICKS)

    def _cancel_rest(self, ticks: int) -> None:
        """Cancel what a dropped body waits for besides its durable calls."""
        running = [task for task in self.running if not task.done()]
        if ticks and any(task is self._main for task in running):
            asyncio.get_running_loop().call_soon(self._cancel_rest, ticks - 1)
            return
        for task in running:
            task.cancel()

    def _take(self, memory: Memory) -> None:
        """Note what has come for the open waits."""
        self._body_call.calls.memory = memory
        self.known, self._told = memory.count, set(memory.awaited)
        self._is_to_cancel = memory.is_cancelled and not self.is_cancelled
        came = [key for key, wait in self._open.items() if wait.outcome is None and key in memory.recorded]
        if len(came) > 1:
            numbers = {key: number for number, key in enumerate(memory.recorded)}
            came.sort(key=numbers.__getitem__)
        first = len(self._order)
        for number, key in enumerate(came, first):
            self._order[key] = number
            self._open[key].outcome = self._body_call.calls.recorded[key] = memory.recorded[key]

    def _hand_over(self) -> bool:
        """Hand the outcome that was recorded first to the wait for it; False if there is none."""
        came = [key for key, wait in self._open.items() if wait.can_end()]
        if not came:
            return False
        key = min(came, key=self._order.__getitem__)
        wait = self._open[key]
        assert wait.outcome is not None
        self.met(key)
        wait.future.set_result(wait.outcome)
        return True

    # When the body rests

    def task_ended(self, task: "asyncio.Task[Any]") -> None:
        if task is self._main:
            self._main, self._clocks = None, []  # its context leads here, and the two would keep each other alive
        if not task.cancelled() and isinstance(task.exception(), Suspension):
            return  # asked for, so that the loop does not report it as never retrieved
        if self._open:
            self._look_soon()

    def _look_soon(self, ticks: int = TICKS) -> None:
        if self.is_dropped or not self.parking.has_lease:
            return
        self._stop_looking()
        self._before = {}
        self._look = asyncio.get_running_loop().call_soon(self._look_at_once, ticks)

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_at_once(self, ticks: int) -> None:
        """Park a body whose tasks wait for durable calls alone. Otherwise look again later."""
        self._look = None
        if not self._open or not self.parking.has_lease:
            return
        if self._waits_for_lines():
            return
        waiters = self.waiters()
        if ticks and any(waiter is None for waiter in waiters.values()):
            self._look = asyncio.get_running_loop().call_soon(self._look_at_once, ticks - 1)
        elif not self._body_call.calls.is_busy() and all(map(self._is_durable, waiters.values())):
            self._rest()
        else:
            self._before = waiters
            self._look_later()

    def _waits_for_lines(self) -> bool:
        """Whether published lines are being stored, which needs the lease: then the next look is after that."""
        sending = self._body_call.published.sending
        if sending is not None:
            sending.add_done_callback(lambda _: self._look_soon())
        return sending is not None

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(QUIET, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        if not self._open or not self.parking.has_lease:
            return
        if self._waits_for_lines():
            return
        before, self._before = self._before, self.waiters()
        ran = before.keys() != self._before.keys() or any(
            waiter is None or waiter is not before[task] for task, waiter in self._before.items()
        )
        if not ran and not self._body_call.calls.is_busy():
            self._restless = 0
            self._rest()
            return
        self._restless += 1
        if self._restless > 1 and self._asking is None:
            with unnumbered():
                self._asking = asyncio.get_running_loop().create_task(self._ask())
            self._asking.add_done_callback(self._asked)
            self.running.pop(self._asking, None)
        self._look_later()

    def _is_durable(self, waiter: Any) -> bool:
        """Whether only the outcome of a durable call can end this wait."""
        if waiter in self._inner or waiter in self.running:
            return True
        if any(waiter is wait.future for wait in self._open.values()):
            return True
        gathered: Any = getattr(waiter, "_children", ())
        return bool(gathered) and all(child.done() or self._is_durable(child) for child in gathered)

    def _rest(self) -> None:
        if self._hand_over():
            self._look_soon()
            return
        if self._is_to_cancel:
            self._cancel()
            return
        calls = [wait.call for wait in self._open.values()]
        new = [call for call in calls if call.key not in self._told]
        for clock in self._clocks:
            clock.pause()
        self.parking.park(Done(Suspended(tuple(new or calls[:1]), self._body_call.progress(), self.known)))

    # A body that keeps running

    async def _ask(self) -> None:
        """Let the run wait for the durable calls of a body that keeps running, and look for their outcomes."""
        try:
            while self._open and self.parking.has_lease and not self.is_dropped:
                new = [wait.call for key, wait in self._open.items() if key not in self._told]
                if new:
                    await self.parking.expect(new)
                    self._told.update(call.key for call in new)
                memory = await self.parking.news()
                self._take(memory)
                if not self._hand_over() and self._is_to_cancel:
                    self._cancel()
                await asyncio.sleep(ASK_EVERY)
        except RefoldError:
            return  # the body is dropped, or the next report says what is wrong

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking, self._restless = None, 0
        if not task.cancelled():
            task.exception()
