"""The loop of the worker: claim a command, run it, report it, and get the next one with the same commit."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from msgspec import Struct, structs

from refold.body_tasks import noted_tasks
from refold.core.faults import text_of
from refold.core.outcomes import Cancelled, Failed, Fault
from refold.core.queueing import REMOTE
from refold.errors import BodyLost, LeaseLost, RefoldError, StaleWrite, Unavailable
from refold.logs import DEBUG, ERROR, INFO, WARNING, event, logger
from refold.ports import Abilities, Clock, Desk, Done, Doorbell, Lease, Offer, Redaction, Tool
from refold.worker.leases import Heartbeat, HeldLease, LeaseKeeper, as_task, fields_of
from refold.worker.live_body import LiveBody, ParkedBodies
from refold.worker.run_tool import NO_REDACTION, CallServices, guarded_loop, redacted, run_tool

log = logger("worker")

Settings = Callable[[Lease], Awaitable[Mapping[str, Any]]]
"""Returns the settings of the tool of a leased command, from the plan."""


def _no_context(run: str) -> Context | None:
    return None


class WorkerOptions(Struct, frozen=True, kw_only=True):
    slots: int = 16  # commands at a time
    places: Mapping[str, int] = {}  # of them, those whose bodies need an executor of this kind
    lease_for: float = 30.0  # seconds
    poll: float = 1.0  # seconds between two claims when the doorbell does not ring
    patience: float = 5.0  # seconds for bodies to end when they are cancelled
    parked_bodies: int = 10_000  # bodies that wait without a slot; of more, the least recently used are dropped
    heartbeat: Heartbeat = as_task
    redaction: Redaction = NO_REDACTION
    context_of: Callable[[str], Context | None] = _no_context  # the context variables of whoever started a run here


class BodyPlaces:
    """The places of a worker for bodies that need an executor of their own, so that it claims only what it can start.

    A slot is room for any command; a place is what a command of one kind of executor needs besides. A place is taken
    from the claim of its command to the end of its body. While a worker asks for a command, it reserves the places that
    the answer may need. `limits` says how many places there are, by kind of executor. Other kinds need none.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.limits = dict(limits)
        self.free = dict(limits)
        self._wanted = False  # whether a command may have been passed over because there was no place

    def reserve(self, most: int, own: str = "") -> tuple[tuple[str, int], ...]:
        """Reserve up to `most` places of each kind, and return how many there are. `own` is a kind of which the caller
        has a place already, which counts."""
        if not self.limits:
            return ()
        reserved: list[tuple[str, int]] = []
        for kind, free in self.free.items():
            held = 1 if kind == own else 0
            taken = max(min(free, most - held), 0)
            self.free[kind] = free - taken
            reserved.append((kind, taken + held))
        self._wanted = self._wanted or any(not count for _, count in reserved)
        return tuple(reserved)

    def has_remote(self) -> bool:
        """Whether there is a place for a body that runs on other machines."""
        return any(self.free.get(kind, 0) > 0 for kind in REMOTE)

    def reserve_remote(self, most: int, own: str = "") -> tuple[tuple[str, int], ...]:
        """Like `reserve`, where no slot of this machine is free: there is no place for any body that needs one."""
        self._wanted = True
        found: list[tuple[str, int]] = [("", 0)]
        for kind, free in self.free.items():
            held = 1 if kind == own else 0
            taken = max(min(free, most - held), 0) if kind in REMOTE else 0
            self.free[kind] = free - taken
            found.append((kind, taken + held))
        return tuple(found)

    def held(self, kind: str) -> tuple[tuple[str, int], ...]:
        """Return the place that a command of this kind has, in the form in which it is given back."""
        return ((kind, 1),) if kind in self.limits else ()

    def release(self, reserved: tuple[tuple[str, int], ...], *used: str) -> bool:
        """Give back what was reserved, except the places that commands of these kinds use. Return True if a command
        that was passed over may be claimed now."""
        freed = False
        for kind, count in reserved:
            if kind not in self.limits:
                continue
            back = count - used.count(kind)
            self.free[kind] += back
            freed = freed or back > 0
        wanted, self._wanted = self._wanted, self._wanted and not freed
        return freed and wanted


class Worker:
    def __init__(
        self,
        desk: Desk,
        tools: Mapping[str, Tool],
        settings: Settings,
        clock: Clock,
        doorbell: Doorbell,
        can: Abilities,
        options: WorkerOptions | None = None,
    ) -> None:
        options = options or WorkerOptions()
        self.desk, self.tools, self.settings, self.clock, self.doorbell = desk, tools, settings, clock, doorbell
        self.can, self.slots, self.lease_for, self.poll = can, options.slots, options.lease_for, options.poll
        self.patience, self.heartbeat, self.redaction = options.patience, options.heartbeat, options.redaction
        self.context_of = options.context_of
        self._context = copy_context()  # that of the engine: a body must not see that of another caller
        self.places = BodyPlaces(options.places)
        self._abilities: dict[tuple[tuple[str, int], ...], Abilities] = {}  # by the places that are free
        self.keeper = LeaseKeeper(desk, clock, can.worker, self.lease_for)
        self.parked = ParkedBodies(options.parked_bodies)
        self._busy: set[asyncio.Task[None]] = set()
        self._promised = 0  # free slots that are offered to a turn
        self._remote = 0  # commands whose bodies run on other machines
        self._kept = asyncio.Event()  # set while no slot is offered
        self._kept.set()
        self._unseen = False  # there may be a command for the next free slot
        self._stopping = False
        self._over = asyncio.Event()  # set when the worker holds no command and claims none
        self._over.set()

    async def run(self) -> None:
        """Run until stopped: fill the slots, then wait for the doorbell, the clock, or a free slot."""
        self._over.clear()
        self._context = copy_context()
        try:
            with noted_tasks(asyncio.get_running_loop()):
                await self._serve()
        finally:
            self._over.set()
            for task in self._busy:
                task.cancel()

    async def _serve(self) -> None:
        async with guarded_loop(), self.heartbeat(self.keeper):
            while not self._stopping:
                await self._kept.wait()  # an offer is answered soon
                if await self._take_one():
                    continue
                await self.doorbell.wait(self.poll)
            await self._kept.wait()
            while self._busy:  # the heartbeat runs until the last body has ended
                await asyncio.wait(self._busy)

    def add_tool(self, name: str) -> None:
        """From now on the worker also claims commands of this tool."""
        self._change(tools=(self.can.tools or frozenset()) | {name})
        self.doorbell.ring()

    def remove_tool(self, name: str) -> None:
        """From now on the worker claims no commands of this tool."""
        self._change(tools=(self.can.tools or frozenset()) - {name})

    def serve_runs(self, runs: frozenset[str]) -> None:
        """From now on the worker claims only commands of these runs."""
        self._change(runs=runs)

    def _change(self, **changes: Any) -> None:
        self.can, self._abilities = structs.replace(self.can, **changes), {}

    def _can_now(self, places: tuple[tuple[str, int], ...]) -> Abilities:
        """Return what the worker can take, with so many free places."""
        found = self._abilities.get(places)
        if found is None:
            found = self._abilities[places] = structs.replace(self.can, places=places) if places else self.can
        return found

    def withdraw(self, run: str, command: str) -> None:
        """Stop the body of a command that its run has withdrawn."""
        self.keeper.withdraw(run, command)
        self.parked.drop_command(run, command)

    def offer(self) -> Offer | None:
        """Offer the free slots to a turn that is about to issue commands; `accept` follows."""
        free = self._free()
        self._unseen = self._unseen or free <= 0
        if self._over.is_set() or self._stopping or free <= 0:
            return None
        self._promised += free
        self._kept.clear()
        return Offer(self._can_now(self.places.reserve(free)), free, self.keeper.begin_asking())

    def accept(self, offer: Offer, leases: Sequence[Lease]) -> None:
        self._promised -= offer.slots
        for lease in leases:
            self._begin(lease)
        self.places.release(offer.can.places, *(lease.command.executor for lease in leases))
        self.keeper.end_asking(offer.number)
        if not self._promised:
            self._kept.set()

    def is_alone(self) -> bool:
        return len(self._busy) == 1 and not self._promised

    async def stop(self, grace: float = 0.0) -> None:
        """Claim nothing more. A body that has not ended within the grace is cancelled, and its command is handed back
        for other workers; this counts neither as a try nor as a loss. The same holds for a body that ignores the
        cancellation, such as a thread: it runs on, and its result is dropped."""
        event(log, INFO, "worker stops", worker=self.can.worker, grace=grace, held=len(self.keeper.held))
        self._stopping = True
        self.doorbell.ring()
        await self.parked.close(self.patience)
        if await self._over_within(grace):
            return
        self.keeper.stop_bodies()
        if await self._over_within(self.patience):
            return
        for held in list(self.keeper.held.values()):
            await self._hand_back(held.lease)

    async def _over_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):  # the caller checks the event
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self._over.is_set()

    async def _take_one(self) -> bool:
        self._unseen = is_full = self._free() <= 0
        if is_full and not self.places.has_remote():
            return False
        asking = self.keeper.begin_asking()
        can, used = self._can_now(self.places.reserve_remote(1) if is_full else self.places.reserve(1)), list[str]()
        try:
            lease = await self.desk.claim(can, self.lease_for)
            if lease is None:
                return False
            used.append(lease.command.executor)
            self._begin(lease)
        except Unavailable as error:
            event(log, WARNING, "no command could be claimed", worker=self.can.worker, why=text_of(error))
            self._unseen = True
            return False  # the doorbell or the clock starts the next claim
        finally:
            self.places.release(can.places, *used)
            self.keeper.end_asking(asking)
        return True

    def _free(self) -> int:
        """Slots for bodies of this machine; those that run elsewhere need none."""
        return self.slots - len(self._busy) + self._remote - self._promised

    def _begin(self, lease: Lease) -> None:
        task = asyncio.create_task(self._work(self.keeper.hold(lease)), context=self._context.copy())
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _work(self, first: HeldLease) -> None:
        """Use one slot: run command after command, as long as each report brings the next."""
        held: HeldLease | None = first
        task = asyncio.current_task()
        assert task is not None
        try:
            while held is not None:
                held = await self._work_on(held)
        finally:
            self._busy.discard(task)
            if self._unseen or held is not None:
                self.doorbell.ring()  # a slot is free, and its last report did not show that no command waits

    async def _work_on(self, held: HeldLease) -> HeldLease | None:
        asking, lease, used = -1, held.lease, list[str]()
        places, is_remote = self.places.held(lease.command.executor), lease.command.executor in REMOTE
        self._remote += is_remote
        if log.isEnabledFor(DEBUG):
            event(log, DEBUG, "command claimed", fields_of(lease))
        try:
            if self._stopping:
                await self._hand_back(lease)
                return None
            done = await self._run(held)
            if done is None:
                if self._stopping:
                    await self._hand_back(lease)
                self._unseen = True
                return None  # the lease was lost
            asking = self.keeper.begin_asking()
            if not self._stopping:
                own = lease.command.executor
                is_full = own in REMOTE and self._free() <= 0
                places = self.places.reserve_remote(1, own) if is_full else self.places.reserve(1, own)
            next_lease = await self._settle(lease, done, None if self._stopping else self._can_now(places))
            if held.live is not None:
                held.live.released()
            if next_lease is None:
                return None
            used.append(next_lease.command.executor)
            return self.keeper.hold(next_lease)
        except asyncio.CancelledError:
            if self._stopping or not self._over.is_set():  # else the process ends, and its leases run out
                await self._hand_back(lease, lost=not self._stopping)
            raise
        except BodyLost as error:
            event(log, WARNING, "what ran the body has died; that counts as a loss", fields_of(lease), why=str(error))
            await self._hand_back(lease, lost=True)
            self._unseen = True
            return None
        except LeaseLost as error:
            self._unseen = True
            event(log, WARNING, "report refused: the lease is lost", fields_of(lease), why=text_of(error))
            return None  # another holder owns the command now; its report counts, not this one
        except Unavailable as error:
            why = self.redaction.text(text_of(error))
            event(log, WARNING, "command handed back: the store did not answer", fields_of(lease), why=why)
            await self._hand_back(lease)
            self._unseen = True
            return None
        except Exception as error:  # whatever happens, other workers get the command, and it is not tried for ever
            told = self.redaction.text("".join(traceback.format_exception(error)))  # it may quote values of the body
            event(log, ERROR, "worker gives a command up; that counts as a loss", fields_of(lease), error=told)
            await self._hand_back(lease, lost=True)
            self._unseen = True
            return None
        finally:
            if held.live is not None and not held.live.is_released():
                self.parked.drop(held.live)  # its report is not committed
            if self.places.release(places, *used):
                self.doorbell.ring()  # a command that was passed over has a place now
            self._remote -= is_remote
            self.keeper.end_asking(asking)
            self.keeper.release(held)

    async def _run(self, held: HeldLease) -> Done | None:
        """Return the report of the body, which has ended or is parked; None if it was stopped because the lease is lost
        or the worker stops."""
        lease = held.lease
        live = self.parked.take(lease) if self.parked else None
        if live is None:
            settings = await self.settings(lease)
            if held.stopped:
                return None
            live = LiveBody(held, self.desk, self.clock, self.lease_for / 30, self.redaction)
            beside = CallServices(live.say, live, live, live.watch)
            running = run_tool(lease, settings, self.tools, self.clock, beside, self.redaction)
            live.begin(running, self.parked, self.context_of(lease.run))
        elif not await self._resumed(live, held):
            return None
        body, printed, done = live.body, live.printed, None
        try:
            if not body.ended:
                held.body = live
                if held.interrupted:  # before it began
                    live.interrupt()
                await live.rest()
                held.body = None
            done = live.take_report()
            held.live = live if done is not None else None
            if done is None:
                done = _came_of(live, held, self.clock, self.redaction)
                live.forget()
            held.reporting = True  # from here on the desk refuses the report if the lease is lost
        except asyncio.CancelledError:
            held.body = None
            live.cancel()
            await asyncio.wait((body.task,))
            raise
        finally:
            if done is None and printed.any:
                await printed.close()
        return structs.replace(done, lines=await printed.rest()) if done is not None and printed.any else done

    async def _resumed(self, live: LiveBody, held: HeldLease) -> bool:
        """Let a parked body continue; False if it was stopped before."""
        held.body = live
        try:
            await live.resume(held)
        except BaseException:
            self.parked.drop(live)
            raise
        return live.has_lease

    async def _settle(self, lease: Lease, done: Done, then: Abilities | None) -> Lease | None:
        """Report, and return the next lease. A store that does not answer is asked again while the lease may be valid.
        A stale write fails the try, unless the body can compute it again."""
        refused = False
        while True:
            try:
                return await self.desk.settle(lease, done, then)
            except Unavailable as error:
                why = self.redaction.text(text_of(error))
                event(log, WARNING, "report not taken: the store did not answer", fields_of(lease), why=why)
                await self.clock.sleep(self.lease_for / 30)
            except StaleWrite as stale:
                renewed = done.renew(stale) if done.renew is not None else _stale(stale, done)
                done = structs.replace(redacted(renewed, self.redaction), lines=done.lines)
            except LeaseLost:
                raise
            except Exception as error:  # whatever the reason for the refusal, the step fails with it instead of hanging
                if refused:
                    raise RuntimeError(f"run {lease.run} takes no report at all: {error}") from error
                refused = True
                why = self.redaction.text(text_of(error))
                told = self.redaction.text("".join(traceback.format_exception(error)))
                event(log, WARNING, "report refused; its step fails", fields_of(lease), error=told)
                fault = Fault("refused", why, retryable=False)
                done = Done(Failed(fault), done.started_at, usage=done.usage, lines=done.lines)

    async def _hand_back(self, lease: Lease, lost: bool = False) -> None:
        event(log, DEBUG, "command handed back", fields_of(lease), lost=lost)
        try:
            await self.desk.hand_back(lease, lost)
        except RefoldError as error:
            event(log, WARNING, "command not handed back", fields_of(lease), why=text_of(error))
            return  # the heartbeat finds a lease without a body, and hands it back


def _came_of(live: LiveBody, held: HeldLease, clock: Clock, redaction: Redaction) -> Done | None:
    """A body that was stopped has no report. A body that ends as cancelled without being stopped has cancelled
    itself."""
    body = live.body
    if live.is_void:
        return None
    if not body.is_cancelled():
        done = body.result if body.ended else body.task.result()
        return done if live.lease is live.first else structs.replace(done, started_at=live.started_at)
    if held.stopped:
        return None
    if live.is_withdrawn:
        return Done(Cancelled("its run was cancelled"), clock.now())
    why = "the body has cancelled its own task, or something that it has begun did so later"
    return redacted(Done(Failed(Fault("cancelled_itself", why, type="CancelledError")), clock.now()), redaction)


def _stale(stale: StaleWrite, done: Done) -> Done:
    return Done(Failed(Fault("stale_write", str(stale), retryable=True)), done.started_at, (), done.usage)
