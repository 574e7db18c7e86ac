"""A TCP proxy on loopback that hurts what goes through it: delays, resets, silence, and answers that never come."""

import asyncio
import random
import socket
import struct
from collections import Counter
from threading import Thread


class Proxy:
    """On a thread and an event loop of its own. `hurt` says what the next connections and pieces of data meet."""

    def __init__(self, port: int, seed: int = 1) -> None:
        self.target, self.chance = port, random.Random(seed)
        self.faults = Counter[str]()  # that were observed, by kind
        self.rates: dict[str, float] = {}  # of pieces of data: delay, slow, reset, cut, silence, swallow
        self._loop = asyncio.new_event_loop()
        self._links: set[Link] = set()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        async with server:
            await self._over.wait()
            self._reset_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        link = Link(self, (reader, writer), there)
        self._links.add(link)
        try:
            await link.run()
        except asyncio.CancelledError:
            return  # the proxy is closed
        finally:
            self._links.discard(link)

    def reset_all(self) -> None:
        self._loop.call_soon_threadsafe(self._reset_all)

    def _reset_all(self) -> None:
        for link in list(self._links):
            link.reset()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(5)


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, here: Ends, there: Ends) -> None:
        self.proxy, self.here, self.there = proxy, here, there
        self.is_silent = False

    async def run(self) -> None:
        pumps = [
            asyncio.create_task(self._pump(self.here[0], self.there[1], False)),
            asyncio.create_task(self._pump(self.there[0], self.here[1], True)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self.close()
        await asyncio.wait(pumps)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool) -> None:
        try:
            while data := await reader.read(65536):
                if self.is_silent:
                    continue  # half-open: nobody hears of it
                kept = await self._hurt(data, is_answer)
                if kept is None:
                    return
                writer.write(kept)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError, RuntimeError):
            return

    async def _hurt(self, data: bytes, is_answer: bool) -> bytes | None:
        """Return what goes on, or None if the connection ends."""
        proxy = self.proxy
        for kind, rate in list(proxy.rates.items()):
            if kind == "swallow" and not is_answer:
                continue
            if proxy.chance.random() >= rate:
                continue
            proxy.faults[kind] += 1
            match kind:
                case "delay":
                    await asyncio.sleep(proxy.chance.uniform(0.01, 0.3))
                case "slow":
                    await asyncio.sleep(len(data) / 20_000)
                case "reset":
                    self.reset()
                    return None
                case "cut":
                    return data[: proxy.chance.randrange(len(data))] or None
                case "swallow":  # it was carried out, and nobody is told
                    self.reset()
                    return None
                case "silence":
                    self.is_silent = True
                    return b""
        return data

    def reset(self) -> None:
        for _, writer in (self.here, self.there):
            raw = writer.get_extra_info("socket")
            if raw is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def close(self) -> None:
        for _, writer in (self.here, self.there):
            writer.close()
