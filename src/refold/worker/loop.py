"""The worker's loop: claim, run, settle, and take the next command with the same commit."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from refold.core.facts import Failed, Fault
from refold.errors import LeaseLost, RefoldError, StaleWrite, Unavailable
from refold.ports import Abilities, Clock, Desk, Done, Doorbell, Lease, Tool
from refold.worker.lease import Keeper, place
from refold.worker.run_tool import run_tool

Settings = Callable[[Lease], Awaitable[Mapping[str, Any]]]
"""What the plan says about the tool of a leased command."""


class Worker:
    def __init__(
        self,
        desk: Desk,
        tools: Mapping[str, Tool],
        settings: Settings,
        clock: Clock,
        doorbell: Doorbell,
        can: Abilities,
    ) -> None:
        self.desk, self.tools, self.settings, self.clock, self.doorbell = desk, tools, settings, clock, doorbell
        self.can = can
        self.slots = 16
        self.lease_for = 30.0
        self.poll = 1.0
        self.keeper = Keeper(desk, clock, can.worker, self.lease_for)
        self._busy: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def run(self) -> None:
        """Until stopped: fill the slots, then wait for the bell, the clock, or a slot."""
        self.keeper.lease_for, self.keeper.every = self.lease_for, self.lease_for / 3
        heartbeat = asyncio.create_task(self.keeper.run())
        try:
            while not self._stopping:
                if len(self._busy) < self.slots and await self._take_one():
                    continue
                await self.doorbell.wait(self.poll)
        finally:
            heartbeat.cancel()

    async def stop(self) -> None:
        """Take nothing new; finish what is under way."""
        self._stopping = True
        self.doorbell.ring()
        if self._busy:
            await asyncio.wait(self._busy)

    async def hand_back(self) -> None:
        """Stop at once: what is under way goes to somebody else, and counts as nothing."""
        self._stopping = True
        for task in list(self._busy):
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy)
        self.doorbell.ring()

    async def _take_one(self) -> bool:
        try:
            lease = await self.desk.claim(self.can, self.lease_for)
        except Unavailable:
            return False  # the bell or the clock will bring us back
        if lease is None:
            return False
        task = asyncio.create_task(self._work(lease))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        return True

    async def _work(self, lease: Lease) -> None:
        """One slot: command after command, as long as each settlement brings the next."""
        next_lease: Lease | None = lease
        while next_lease is not None:
            lease = next_lease
            self.keeper.held[place(lease)] = asyncio.current_task()
            try:
                done = await self._run(lease)
                next_lease = await self._settle(lease, done)
            except asyncio.CancelledError:
                await self._let_go(lease)
                raise
            except LeaseLost:
                next_lease = None  # another holder owns the command now; its report counts, not this one
            finally:
                self.keeper.held.pop(place(lease), None)
        self.doorbell.ring()  # a slot is free

    async def _run(self, lease: Lease) -> Done:
        try:
            settings = await self.settings(lease)
        except RefoldError as error:
            raise LeaseLost(f"the store cannot say what {lease.command.id} needs: {error}") from None
        return await run_tool(lease, settings, self.tools, self.clock)

    async def _settle(self, lease: Lease, done: Done) -> Lease | None:
        """A store that does not answer is asked again while the lease may live; a stale write fails the try."""
        then = None if self._stopping else self.can
        refused = False
        while True:
            try:
                return await self.desk.settle(lease, done, then)
            except Unavailable:
                await self.clock.sleep(self.lease_for / 30)
            except StaleWrite as stale:
                done = Done(Failed(Fault("stale_write", str(stale), retryable=True)), done.started_at, (), done.usage)
            except LeaseLost:
                raise
            except Exception as error:  # whatever the run has against it, its step fails by name instead of hanging
                if refused:
                    raise LeaseLost(f"run {lease.run} takes no report at all: {error}") from None
                refused = True
                done = Done(Failed(Fault("refused", str(error), retryable=False)), done.started_at, (), done.usage)

    async def _let_go(self, lease: Lease) -> None:
        if self._stopping:
            try:
                await self.desk.hand_back(lease)
            except RefoldError:
                return  # the lease will run out by itself
