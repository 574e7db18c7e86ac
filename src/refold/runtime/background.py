"""What a process does in the background: the sweep, timers, the runs that it serves, and writes of other processes."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress

from refold.core.faults import text_of
from refold.core.outcomes import SECOND, Instant
from refold.core.state import TERMINAL
from refold.errors import Unavailable
from refold.logs import WARNING, event, logger
from refold.ports import ANYTHING, Advance, Clock, Doorbell, Heard, Ring, Store
from refold.runtime.mail import Expire
from refold.runtime.mailroom import Mailroom
from refold.runtime.turn import Turns

log = logger("runtime")

LOSSES = 5  # lost leases of one command before it fails
BATCH = 1000
PERIODS = 3  # that may pass before a loop counts as stopped
BUSY = 10.0  # seconds that may pass in any case
SHORTER = 0.9  # of the interval: a process that sweeps alone does so in each


class Sweep:
    """Finds leases that ran out, timers that are due and unread letters, from time to time. It only queues work again
    and never executes anything itself."""

    def __init__(
        self,
        store: Store,
        advance: Advance,
        mailroom: Mailroom,
        clock: Clock,
        doorbell: Doorbell,
        *,
        every: float = 1.0,
        lease_for: float = 30.0,
        served_runs: "ServedRuns | None" = None,
    ) -> None:
        """Without `served_runs` the sweep covers every run of the store."""
        self.lease_for = lease_for
        self.store, self.advance, self.mailroom, self.clock, self.doorbell = store, advance, mailroom, clock, doorbell
        self.every, self.served_runs = every, served_runs
        self.turned_at = clock.now()  # when it last found out what is due

    def is_late(self) -> bool:
        """Whether it has not turned for three of its periods, or as long as a busy machine may need."""
        return self.clock.now() - self.turned_at > max(PERIODS * self.every, BUSY) * SECOND

    async def run(self) -> None:
        while True:
            next_due = await self.once()
            wait = self.every
            if next_due is not None:
                wait = min(wait, max((next_due - self.clock.now()) / SECOND, self.every / 100))
            await self.clock.sleep(wait)

    async def once(self) -> Instant | None:
        try:
            is_ours = await self.advance(lambda: self.store.begin_sweep(self.every * SHORTER, self.lease_for))
            if not is_ours and self.served_runs is None:
                self.turned_at = self.clock.now()
                return None  # another process does it in this interval
            expired = await self.advance(lambda: self.store.expire(LOSSES))
            runs, next_due = await self.advance(lambda: self.store.due(BATCH))
        except Unavailable as error:
            event(log, WARNING, "sweep failed", why=text_of(error))
            return None  # the next round finds the same
        self.turned_at = self.clock.now()
        if self.served_runs is not None:
            runs = tuple(self.served_runs.runs)
            expired = [each for each in expired if each.run in self.served_runs.runs]
        for each in expired:
            self.mailroom.drop(each.run, Expire(each.command, each.generation, LOSSES))
        self.mailroom.nudge(runs)
        self.doorbell.ring()
        moment: Instant | None = next_due
        return moment


class Timers:
    """Wakes runs at their moments, and the worker when a limit allows more."""

    def __init__(self, clock: Clock, wake: Callable[[str], None], doorbell: Doorbell) -> None:
        self.clock, self.wake, self.doorbell = clock, wake, doorbell
        self._heap: list[tuple[Instant, str]] = []
        self._rings: set[Instant] = set()  # moments at which the doorbell rings
        self._set = asyncio.Event()

    def set(self, due: Instant, run: str) -> None:
        if not self._heap or due < self._heap[0][0]:
            self._set.set()
        heapq.heappush(self._heap, (due, run))

    def ring_at(self, due: Instant) -> None:
        if due not in self._rings:
            self._rings.add(due)
            self.set(due, "")

    async def run(self) -> None:
        while True:
            wait = (self._heap[0][0] - self.clock.now()) / SECOND if self._heap else None
            if wait is None or wait > 0:
                await self._sleep(wait)
                continue
            due, run = heapq.heappop(self._heap)
            if not run and due in self._rings:
                self._rings.discard(due)
                self.doorbell.ring()
            else:
                self.wake(run)

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep until the first timer is due, or an earlier one is set."""
        self._set.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._set.wait()
        except TimeoutError:
            return  # the first is due


log = logger("runtime")

EVERY = 5.0  # seconds


class ServedRuns:
    """A run and the runs that it starts, for a process that serves no others. The run itself stays in the set; a child
    is in it from its start to its end, so that the cost does not grow with the runs that have ended."""

    def __init__(self, run: str, turns: Turns, advance: Advance, on_change: Callable[[frozenset[str]], None]) -> None:
        self.run, self.turns, self.advance, self.on_change = run, turns, advance, on_change
        self.runs = frozenset({run})

    def add(self, births: Iterable[tuple[str, str]]) -> None:
        """Add the children of served runs, given as pairs of parent and child."""
        self._set(self.runs.union(child for parent, child in births if parent in self.runs))

    def ended(self, run: str) -> None:
        self._set(self.runs - {run} | {self.run})

    async def run_for(self, clock: Clock) -> None:
        """Look from time to time for children that other processes have started."""
        while True:
            await self.gather()
            await clock.sleep(EVERY)

    async def gather(self) -> None:
        """Find the children that exist already, whichever process started them."""
        before = self.runs
        try:
            found = await self.advance(self._found)
        except Unavailable as error:
            event(log, WARNING, "look for child runs failed", run=self.run, why=text_of(error))
            return  # the next round finds the same
        self._set(found | (self.runs - before))  # a child may have been started meanwhile

    def _found(self) -> frozenset[str]:
        """A detached child is not in `state.children`; it stays in the set from its start letter to its end."""
        found: set[str] = set()
        over: set[str] = set()
        todo = set(self.runs)
        while todo:
            found |= todo
            started: set[str] = set()
            for state in self.turns.states(todo):
                started.update(state.children.values(), state.orphans)
                if state.life in TERMINAL:
                    over.add(state.run)
            todo = started - found
        return frozenset(found - over | {self.run})

    def _set(self, runs: frozenset[str]) -> None:
        if runs != self.runs:
            self.runs = runs
            self.on_change(runs)


log = logger("runtime")

SHARE = 0.05  # of the time that looking may take, however much other processes write


SHORTEST = 0.01  # seconds between two looks
UNHEARD = 5.0  # seconds after which a store that calls is looked at all the same, because a call may be lost


class Listener:
    """Notices what other processes write to the same store. A process that only sends a signal or decides a gate
    commits the turn and leaves the new commands to the processes that serve the run. Those find them with the next
    look; a missed look costs a poll, never a run. Rings say what to look at; without them everything is looked at."""

    def __init__(
        self,
        foreign_writes: Callable[[], int],
        advance: Advance,
        clock: Clock,
        heard: Callable[[Collection[Ring]], Awaitable[None]],
        every: float,
        listen: Callable[[Heard], bool] = lambda heard: False,
    ) -> None:
        """`listen` is that of the store: if it can call, it is not asked every few moments. While calls without rings
        follow each other, it is looked at less and less often, down to every `every` seconds, as if it could not call:
        they may be about what this process has written."""
        self.foreign_writes, self.advance, self.clock, self.every = foreign_writes, advance, clock, every
        self.heard = heard  # called when another process has written
        self._known: int | None = None  # the last value of `foreign_writes`
        self.listen = listen
        self._rings: set[Ring] = set()
        self._heard_now = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            is_called = await self.advance(lambda: self.listen(lambda rings: self._called(loop, rings)))
        except Unavailable:
            is_called = False
        gap = SHORTEST
        while True:
            began = self.clock.now()
            await self.once()
            took = (self.clock.now() - began) / SECOND
            if not is_called:
                await self.clock.sleep(max(self.every, took / SHARE))
                continue
            await self.clock.sleep(max(gap, took / SHARE))
            is_quiet = not self._heard_now.is_set() or self._rings
            gap = SHORTEST if is_quiet else min(2 * gap, max(self.every, SHORTEST))
            await self._until_called()

    def _called(self, loop: asyncio.AbstractEventLoop, rings: Collection[Ring]) -> None:
        """On any thread."""
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._note, rings)

    def _note(self, rings: Collection[Ring]) -> None:
        self._rings.update(rings)
        self._heard_now.set()

    async def _until_called(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(UNHEARD):
                await self._heard_now.wait()
        if not self._heard_now.is_set():
            self._known = None  # a ring may have been lost: look once
        self._heard_now.clear()

    async def once(self) -> None:
        rings, self._rings = self._rings, set()  # those that come from now on are for the next look
        try:
            written = await self.advance(self.foreign_writes)
            if rings or written != self._known:
                await self.heard(rings or {ANYTHING})
            self._known = written
        except Unavailable as error:
            event(log, WARNING, "look for what others have written failed", why=text_of(error))
            self._rings |= rings
            return  # the next look finds the same


def concerns(rings: Collection[Ring], kind: str, keys: Collection[str] | None = None) -> bool:
    """Whether one of the rings is of this kind, about one of these keys; None: about any."""
    return any(
        not ring.kind or (ring.kind == kind and (keys is None or not ring.key or ring.key in keys)) for ring in rings
    )
