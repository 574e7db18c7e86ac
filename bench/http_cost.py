"""What a request costs through the tool `http`, beside the same request through the bare client, on this machine.

The server is a process of its own that answers at once. Each ratio is that of two rates of one run, taken in turns so
that a machine that is busy slows both.
"""

import asyncio
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import httpx2
from msgspec import Struct

from refold.core.commands import Command
from refold.ports import ToolCall
from refold.tools.http.tool import HttpTool

IN_FLIGHT = 64
TURNS = 10
WANTED = 0.6

SERVER = """
import asyncio

BODY = b'{"id": 7, "name": "order", "lines": [1, 2, 3]}'
HEAD = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY)

class Answers(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.seen = transport, b""

    def data_received(self, data):
        self.seen += data
        asked = self.seen.count(b"\\r\\n\\r\\n")
        if asked:
            self.seen = self.seen.rpartition(b"\\r\\n\\r\\n")[2]
            self.transport.write((HEAD + BODY) * asked)

async def main():
    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(input)

try:
    asyncio.run(main())
except EOFError:
    pass
"""

Get = Callable[[], Awaitable[Any]]


class HttpCost(Struct, frozen=True):
    """Requests in a second, medians."""

    bare: float
    tool: float

    @property
    def ratio(self) -> float:
        return self.tool / self.bare


async def measure(requests: int = 2000) -> HttpCost:
    async with _served() as address, httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None)) as client:
        tool = HttpTool(private=True)

        async def bare() -> Any:
            return (await client.get(address)).json()

        async def through() -> Any:
            return await tool(_call(address))

        ways: dict[str, Get] = {"bare": bare, "tool": through}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for get in ways.values():
            await _rate(get, IN_FLIGHT)
        for _ in range(TURNS):
            for name, get in ways.items():
                rates[name].append(await _rate(get, requests // TURNS))
        await tool.close()
    return HttpCost(**{name: statistics.median(found) for name, found in rates.items()})


def _call(address: str) -> ToolCall:
    given = {"input": {}, "config": {"url": address}}
    return ToolCall("run", Command(id="a/1", step="a", visit=1, attempt=1, input=given), {})


async def _rate(get: Get, requests: int) -> float:
    left = iter(range(requests))

    async def one_after_the_other() -> None:
        for _ in left:
            await get()

    began = perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(IN_FLIGHT)))
    return requests / (perf_counter() - began)


@asynccontextmanager
async def _served() -> AsyncIterator[str]:
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdin=pipe, stdout=pipe)
    assert server.stdin is not None and server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await server.stdout.readline())}/orders/7"
    finally:
        server.stdin.close()
        await server.wait()


def show(cost: HttpCost) -> None:
    print(f"http, {IN_FLIGHT} in flight: {cost.tool:,.0f} requests in a second through the tool")
    print(f"beside {cost.bare:,.0f} of the bare client: {cost.ratio:.2f}, at least {WANTED}")


if __name__ == "__main__":
    show(asyncio.run(measure()))
