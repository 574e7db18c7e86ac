"""A proxy before one or several servers that does what networks do: it cuts, loses, delays and doubles, by a seed."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

Seen = Callable[[str, bytes], Awaitable[bool]]
"""Called with the path of a request and its answer, before the answer goes on; True: the answer is lost."""


class Rates(Struct, frozen=True):
    """How often each thing happens, between 0 and 1."""

    cut_before: float = 0.0  # the request does not arrive
    lose_answer: float = 0.0  # it arrives, and its answer does not
    double: float = 0.0  # it arrives a second time, later
    delay: float = 0.0  # the answer comes late
    half_open: float = 0.0  # nothing comes for a while, and then the connection is cut


class FaultyProxy:
    def __init__(self, seed: int, rates: Rates) -> None:
        self.rates, self.chance = rates, random.Random(seed)
        self.servers: list[int] = []  # ports
        self.address = ""
        self.faults: Counter[str] = Counter()
        self.seen: Seen | None = None
        self._turn = 0
        self._tasks: set[asyncio.Task[object]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["FaultyProxy"]:
        listening = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            listening.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read_message(reader)
        path = request.split(b" ", 2)[1].decode()
        if self._strikes("cut_before", self.rates.cut_before):
            return False
        if self._strikes("double", self.rates.double):
            self._later(request)
        answer = await self._forwarded(request, reader)
        if self.seen is not None and answer and await self.seen(path, answer):
            self.faults["lost with its server"] += 1
            return False
        if not answer or self._strikes("lose_answer", self.rates.lose_answer):
            return False
        if self._strikes("half_open", self.rates.half_open):
            await asyncio.sleep(self.chance.uniform(0.1, 0.4))
            return False
        if self._strikes("delay", self.rates.delay):
            await asyncio.sleep(self.chance.uniform(0.01, 0.3))
        writer.write(answer)
        await writer.drain()
        return True

    async def _forwarded(self, request: bytes, client: asyncio.StreamReader) -> bytes:
        """Return the answer of the next server; empty if there is none, or if the client has gone meanwhile."""
        self._turn += 1
        port = self.servers[self._turn % len(self.servers)]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return b""
        answering = asyncio.ensure_future(_sent(request, reader, writer))
        leaving = asyncio.ensure_future(client.read(1))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                return b""
            return answering.result()
        except (OSError, asyncio.IncompleteReadError):
            return b""
        finally:
            for each in (answering, leaving):
                each.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _later(self, request: bytes) -> None:
        async def again() -> None:
            await asyncio.sleep(self.chance.uniform(0.0, 0.5))
            _, away = asyncio.StreamReader(), asyncio.StreamReader()
            with suppress(asyncio.CancelledError, OSError):
                await self._forwarded(request, away)

        task: asyncio.Task[object] = asyncio.create_task(again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _strikes(self, kind: str, rate: float) -> bool:
        struck = self.chance.random() < rate
        self.faults[kind] += struck
        return struck


async def _sent(request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(request)
    await writer.drain()
    return await _read_message(reader)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer, with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    size = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
    if b"transfer-encoding: chunked" in lines:
        raise OSError("this proxy knows no chunks")
    return head + await reader.readexactly(size)
