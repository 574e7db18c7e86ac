"""Collects mail while a turn is under way and delivers it in the next one: the mailbox is the batch."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from refold.core.facts import Instant
from refold.errors import Unavailable
from refold.ports import Advance, Doorbell
from refold.runtime.mailbox import Look, Mail
from refold.runtime.turn import Post, Turned, Turns

BATCH = 1000  # posts in one commit


class Mailroom:
    def __init__(self, turns: Turns, advance: Advance, doorbell: Doorbell) -> None:
        self.turns, self.advance, self.doorbell = turns, advance, doorbell
        self.on_end: Callable[[str], None] = lambda run: None
        self.on_alarm: Callable[[Instant, str], None] = lambda due, run: None
        self.on_withdrawn: Callable[[str, str], None] = lambda run, command: None
        self._waiting: list[tuple[Post, asyncio.Future[Post] | None]] = []
        self._work: asyncio.Task[None] | None = None

    async def send(self, run: str, mail: Mail) -> Post:
        """Returns when it is committed; raises what the run has against it."""
        reply: asyncio.Future[Post] = asyncio.get_running_loop().create_future()
        self._put(Post(run, mail), reply)
        post = await reply
        if post.error is not None:
            raise post.error
        return post

    def nudge(self, runs: Sequence[str]) -> None:
        """These runs have letters or due timers; nobody waits for the answer."""
        for run in runs:
            self._put(Post(run, Look()), None)

    def wake(self, run: str) -> None:
        """Something of this run came due: a timer, or a command that may start now."""
        self.nudge([run])
        self.doorbell.ring()

    def drop(self, run: str, mail: Mail) -> None:
        """Mail whose sender does not wait."""
        self._put(Post(run, mail), None)

    def _put(self, post: Post, reply: asyncio.Future[Post] | None) -> None:
        self._waiting.append((post, reply))
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._deliver())

    async def _deliver(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            turned = Turned()
            try:
                turned = await self.advance(partial(self.turns.take, [post for post, _ in batch]))
            except Exception as error:  # a bug, but nobody may wait for ever because of it
                for post, _ in batch:
                    post.error = error
            for post, reply in batch:
                if reply is not None and not reply.done():
                    reply.set_result(post)
            self._tell(turned)
            for run in turned.grown:
                with suppress(Unavailable):
                    await self.advance(partial(self.turns.snapshot, run))

    def _tell(self, turned: Turned) -> None:
        if turned.issued:
            self.doorbell.ring()
        self.nudge(turned.sent_to)
        for due, run in turned.alarms:
            self.on_alarm(due, run)
        for run, command in turned.withdrawn:
            self.on_withdrawn(run, command)
        for run in turned.ended:
            self.on_end(run)
