"""A pooler of the tests that gives each transaction of a client to another session of the server, on loopback.

It does what PgBouncer does in transaction mode, without passwords: a client gets a session with its first message and
keeps it until the server says that no transaction is open. Settings, locks and named statements stay in the session.
"""

import asyncio
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

SSL, GSS, CANCEL = 80877103, 80877104, 80877102
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """`in_rounds`: a client gets the session that was idle for the longest time, else the one that was used last."""

    def __init__(self, port: int, in_rounds: bool = False) -> None:
        self.target, self.in_rounds = port, in_rounds
        self.moves = 0  # transactions that ran in another session than the one before of the same client
        self._idle: dict[bytes, list[Ends]] = defaultdict(list)
        self._loop = asyncio.new_event_loop()
        self._ready = Event()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._thread = Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(30)

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self._ready.set()
        await self._over.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for each in (ends for idle in self._idle.values() for ends in idle):
            await _close(each[1])

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(5)
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                (size, code) = struct.unpack("!ii", await reader.readexactly(8))
                start = await reader.readexactly(size - 8)
                if code not in (SSL, GSS):
                    break
                writer.write(b"N")
            if code != CANCEL:
                await self._serve_client((reader, writer), struct.pack("!ii", size, code) + start)
        await _close(writer)

    async def _serve_client(self, client: Ends, start: bytes) -> None:
        first, answer = await self._connect(start)
        self._idle[start].append(first)
        key = b"K" + struct.pack("!i", 12) + os.urandom(8)  # of no session
        client[1].write(answer + key + b"Z" + struct.pack("!i", 5) + b"I")
        session: Ends | None = None
        before: Ends | None = None
        pump: asyncio.Task[None] | None = None
        counts = [0, 0]  # answers that are owed, and messages since the last one that asks for an answer
        try:
            while True:
                head, body = await _message(client[0])
                if head == b"X":
                    return
                if pump is not None and pump.done():
                    session = None
                if session is None:
                    session = await self._take(start)
                    self.moves += before not in (None, session)
                    before, counts[:] = session, [0, 0]
                    pump = asyncio.create_task(self._answer(session, client[1], counts, start))
                asks = head in (b"Q", b"S")
                counts[0], counts[1] = counts[0] + asks, 0 if asks else counts[1] + 1
                session[1].write(head + body)
        finally:
            if pump is not None:
                pump.cancel()

    async def _answer(self, session: Ends, client: asyncio.StreamWriter, counts: list[int], start: bytes) -> None:
        is_over = False
        try:
            while not is_over:
                head, body = await _message(session[0])
                is_over = head == b"Z" and body[-1:] == b"I" and counts == [1, 0]
                counts[0] -= head == b"Z"
                if is_over:
                    self._idle[start].append(session)
                client.write(head + body)
        except (ConnectionError, asyncio.IncompleteReadError):
            client.close()
        finally:
            if not is_over:
                await _close(session[1])  # the server undoes what was under way

    async def _take(self, start: bytes) -> Ends:
        idle = self._idle[start]
        while idle:
            session = idle.pop(0 if self.in_rounds else -1)
            if not session[0].at_eof():
                return session
            await _close(session[1])
        return (await self._connect(start))[0]

    async def _connect(self, start: bytes) -> tuple[Ends, bytes]:
        """Return a new session, and what it says of itself."""
        ends = await asyncio.open_connection("127.0.0.1", self.target)
        ends[1].write(start)
        answer = b""
        while True:
            head, body = await _message(ends[0])
            if head == b"Z":
                return ends, answer
            answer += head + body if head != b"K" else b""


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(1)
    size = await reader.readexactly(4)
    return head, size + await reader.readexactly(struct.unpack("!i", size)[0] - 4)


@contextmanager
def pooler(port: int, in_rounds: bool = False) -> Iterator[Pooler]:
    made = Pooler(port, in_rounds)
    try:
        yield made
    finally:
        made.close()
