"""Whether a server is ready: its store can be written and has our schema, and the loops behind it turn."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from refold.core.outcomes import SECOND
from refold.runtime.background import BUSY, PERIODS
from refold.runtime.schedules import LONGEST_WAIT
from tests.server.conftest import Server, served

OTHER = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    print(other.execute(line).fetchone(), flush=True)
"""


class OtherProgram:
    """A process of its own with the same file: in this one it would take the locks of the store."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def execute(self, sql: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(sql + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def other_program(folder: Path) -> Iterator[OtherProgram]:
    command = [sys.executable, "-c", OTHER, str(folder / "refold.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield OtherProgram(process)  # it ends with its stdin


async def ready(client: httpx2.AsyncClient) -> str:
    """Why the server is not ready; nothing if it is."""
    answer = await client.get("/readyz")
    assert answer.status_code in (200, 503)
    why: str = answer.json().get("detail", "")
    assert bool(why) == (answer.status_code == 503)
    return why


async def until_ready(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while await ready(client):
            await asyncio.sleep(0.01)


async def test_a_server_is_not_ready_while_its_sweep_cannot_write(server: Server, tmp_path: Path) -> None:
    sweep = server.process.sweep
    async with server.client() as client:
        assert await ready(client) == ""
        with other_program(tmp_path) as other:
            assert other.execute("begin immediate") == "None"
            sweep.turned_at = sweep.clock.now() - round((BUSY - 5) * SECOND)
            assert await ready(client) == ""
            async with asyncio.timeout(60):  # a turn of the sweep may be about to end
                why = ""
                while not why:
                    sweep.turned_at = sweep.clock.now() - round((BUSY + 5) * SECOND)
                    why = await ready(client)
            assert "nothing has been heard of sweep" in why
        await until_ready(client)


async def test_a_server_is_not_ready_while_its_schedules_are_not_looked_at(server: Server) -> None:
    schedules = server.process.schedules
    assert schedules is not None
    async with server.client() as client:
        assert await ready(client) == ""
        schedules.turned_at = schedules.clock.now() - round((PERIODS * LONGEST_WAIT + 5) * SECOND)
        assert "nothing has been heard of schedules" in await ready(client)
        schedules.wake()
        await until_ready(client)


async def test_a_server_is_not_ready_on_a_schema_of_another_release(tmp_path: Path) -> None:
    async with served(tmp_path, works=False) as server, server.client() as client:
        assert await ready(client) == ""
        with other_program(tmp_path) as other:
            known = int(other.execute("pragma user_version").strip("(),"))
            other.execute(f"pragma user_version = {known + 1}")
            assert f"schema {known + 1}, which is not that of this release" in await ready(client)
            other.execute(f"pragma user_version = {known}")
        assert await ready(client) == ""
