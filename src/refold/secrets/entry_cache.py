"""A cache of fetched keychain entries, which exists only in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from refold.core.outcomes import SECOND, Instant
from refold.ports import Clock
from refold.secrets.hidden import Hidden

MOST = 10_000  # entries


class Fetched(Struct, frozen=True):
    """The fields, for how many seconds they are valid, and after how many seconds they should be fetched again."""

    fields: Hidden[Mapping[str, Any]]
    good_for: float
    renew: float


class _Cached(Struct, frozen=True):
    fields: Hidden[Mapping[str, Any]]
    renew: Instant
    until: Instant


Fetch = Callable[[], Awaitable[Fetched]]


class EntryCache:
    """The cache of one process. Callers that want an entry that is being fetched wait for that fetch."""

    def __init__(self, clock: Clock, most: int = MOST) -> None:
        self._clock, self._most = clock, most
        self._entries: dict[str, _Cached] = {}  # the newest last
        self._fetching: dict[str, asyncio.Task[Hidden[Mapping[str, Any]]]] = {}

    def __repr__(self) -> str:
        return f"EntryCache({len(self._entries)} entries)"

    async def get(self, key: str, fetch: Fetch) -> Mapping[str, Any]:
        """Return the fields. An entry that should be renewed but cannot be is used as long as it is valid."""
        now, cached = self._clock.now(), self._entries.get(key)
        if cached is not None and now < cached.renew:
            return cached.fields.open()
        try:
            return (await self._fetched(key, fetch)).open()
        except Exception:
            if cached is not None and self._clock.now() < cached.until:
                return cached.fields.open()
            raise

    async def _fetched(self, key: str, fetch: Fetch) -> Hidden[Mapping[str, Any]]:
        task = self._fetching.get(key)
        if task is None:
            task = self._fetching[key] = asyncio.get_running_loop().create_task(self._fetch(key, fetch))
            task.add_done_callback(lambda task: self._done(key, task))
        return await asyncio.shield(task)  # a caller that is cancelled does not end the fetch for the others

    def _done(self, key: str, task: "asyncio.Task[Hidden[Mapping[str, Any]]]") -> None:
        del self._fetching[key]
        if not task.cancelled():
            task.exception()  # the callers get it; there may be none left

    async def _fetch(self, key: str, fetch: Fetch) -> Hidden[Mapping[str, Any]]:
        fetched, now = await fetch(), self._clock.now()
        self._entries.pop(key, None)
        self._entries[key] = _Cached(
            fetched.fields, now + round(fetched.renew * SECOND), now + round(fetched.good_for * SECOND)
        )
        while len(self._entries) > self._most:
            del self._entries[next(iter(self._entries))]
        return fetched.fields
