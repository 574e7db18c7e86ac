"""Answers that are remembered for a while, so that a call that is sent again has the same answer and is made once.

What is forgotten here, or was answered by another server, is found in the store: reports in the log, lines by their
number, leases by what the worker says it knows.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from msgspec import Struct

from refold.server.problems import HttpProblem

KEPT_FOR = 600.0  # seconds
MOST_BYTES = 64 * 1024 * 1024
MOST_ANSWERS = 100_000
COST = 500  # bytes of an answer in addition to its own

Key = tuple[str, str]
"""The token, and the id that its holder has given to the call."""


class Reply(Struct, frozen=True):
    """An answer as it is sent."""

    status: int
    data: bytes = b""


class Remembering(Struct):
    """A call that is being answered, or was."""

    digest: bytes
    began: float
    answer: "asyncio.Future[Reply | None]"  # None: the call has failed, and is made again
    size: int = COST
    followers: int = 0  # requests that wait for the same answer


class Answers:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: OrderedDict[Key, Remembering] = OrderedDict()
        self._size = 0

    async def once(self, key: Key, body: bytes, work: Callable[[Remembering], Awaitable[Reply]]) -> Reply:
        """Return the answer of the call with this id, which is made if it was not. Raises HttpProblem if the id was
        used for something else."""
        self._forget_old()
        digest = hashlib.sha256(body).digest()
        while True:
            found = self._kept.get(key)
            if found is None:
                return await self._first(key, digest, work)
            if found.digest != digest:
                why = "this id was used for another call; each call needs its own, and only its repetition has the same"
                raise HttpProblem(422, "call_reused", "The id belongs to another call", why)
            found.followers += 1
            try:
                answer = await asyncio.shield(found.answer)
            finally:
                found.followers -= 1
            if answer is not None:
                return answer

    async def _first(self, key: Key, digest: bytes, work: Callable[[Remembering], Awaitable[Reply]]) -> Reply:
        answering = self._kept[key] = Remembering(digest, self._now(), asyncio.get_running_loop().create_future())
        self._size += answering.size
        try:
            answer = await work(answering)
        except BaseException:
            self.forget(key)
            raise
        if self._kept.get(key) is answering:
            size = len(answer.data)
            answering.size += size
            self._size += size
        if not answering.answer.done():
            answering.answer.set_result(answer)
        return answer

    def forget(self, key: Key) -> None:
        """The next request with this id makes the call again; one that waits does so now."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= found.size
            if not found.answer.done():
                found.answer.set_result(None)

    def _forget_old(self) -> None:
        oldest = self._now() - KEPT_FOR
        for key in list(self._kept):
            found = self._kept[key]
            is_much = self._size > MOST_BYTES or len(self._kept) > MOST_ANSWERS
            if found.began > oldest and not is_much:
                return
            if found.answer.done():
                self.forget(key)
