"""Entries that were fetched, for as long as they may be used again: in memory, and nowhere else."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from refold.core.outcomes import SECOND, Instant
from refold.ports import Clock
from refold.secrets.hidden import Hidden

MOST = 10_000  # entries


class Fetched(Struct, frozen=True):
    """The fields, and how many seconds they are good for; `renew` is when they are better fetched anew."""

    fields: Hidden[Mapping[str, Any]]
    good_for: float
    renew: float


class _Held(Struct, frozen=True):
    fields: Hidden[Mapping[str, Any]]
    renew: Instant
    until: Instant


Fetch = Callable[[], Awaitable[Fetched]]


class Kept:
    """One for a process. Whoever wants what is being fetched waits for that."""

    def __init__(self, clock: Clock, most: int = MOST) -> None:
        self._clock, self._most = clock, most
        self._held: dict[str, _Held] = {}  # the newest last
        self._coming: dict[str, asyncio.Task[Hidden[Mapping[str, Any]]]] = {}

    def __repr__(self) -> str:
        return f"Kept({len(self._held)} entries)"

    async def get(self, key: str, fetch: Fetch) -> Mapping[str, Any]:
        """What is kept, if it is good; one that is to be renewed and cannot be is used as long as it is good."""
        now, held = self._clock.now(), self._held.get(key)
        if held is not None and now < held.renew:
            return held.fields.open()
        try:
            return (await self._fetched(key, fetch)).open()
        except Exception:
            if held is not None and self._clock.now() < held.until:
                return held.fields.open()
            raise

    async def _fetched(self, key: str, fetch: Fetch) -> Hidden[Mapping[str, Any]]:
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.get_running_loop().create_task(self._fetch(key, fetch))
            coming.add_done_callback(lambda task: self._come(key, task))
        return await asyncio.shield(coming)  # one who gives up does not end it for the others

    def _come(self, key: str, task: "asyncio.Task[Hidden[Mapping[str, Any]]]") -> None:
        del self._coming[key]
        if not task.cancelled():
            task.exception()  # those who wait have it; perhaps nobody does

    async def _fetch(self, key: str, fetch: Fetch) -> Hidden[Mapping[str, Any]]:
        fetched, now = await fetch(), self._clock.now()
        self._held.pop(key, None)
        self._held[key] = _Held(
            fetched.fields, now + round(fetched.renew * SECOND), now + round(fetched.good_for * SECOND)
        )
        while len(self._held) > self._most:
            del self._held[next(iter(self._held))]
        return fetched.fields
