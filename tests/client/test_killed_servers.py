"""A server is killed between its commit and its answer, again and again: what it had committed is not done twice."""

import asyncio
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from refold.client.worker import open_remote_worker
from refold.core.facts import Fact
from refold.core.state import TERMINAL
from refold.stores.sqlite.store import SqliteStore
from refold.wiring import open_intake
from refold.wiring.world import wall
from tests.cli.program import PROGRAM, environment, refold
from tests.client.faulty_proxy import FaultyProxy, Rates
from tests.client.test_faulty_network import STEADY, Counted, chain, settled


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class KilledServer:
    """`refold serve` in a process of its own, on a port that stays."""

    def __init__(self, folder: Path, public: str) -> None:
        self.port, self.kills = free_port(), 0
        options = ["--workers", "0", "--port", str(self.port), "--public-address", public, "--plain-http", "--quiet"]
        self._command = [*PROGRAM, "serve", "--db", "refold.db", *options]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        env = environment(REFOLD_LEASE_FOR="20", XDG_CONFIG_HOME=str(self._folder))
        self._process = subprocess.Popen(
            self._command, cwd=self._folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        async with httpx2.AsyncClient(trust_env=False) as client, asyncio.timeout(60):
            while True:
                try:
                    if (await client.get(f"http://127.0.0.1:{self.port}/livez")).status_code == 200:
                        return
                except httpx2.HTTPError:
                    assert self._process.poll() is None, "the server has ended by itself"
                await asyncio.sleep(0.05)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.kills += 1

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextmanager
def closing(server: KilledServer) -> Iterator[KilledServer]:
    try:
        yield server
    finally:
        server.close()


async def killed(folder: Path, runs: int, items: int, kills: int) -> None:
    """Kill the server behind every fifth report that it has answered; the answer is lost with it."""
    with open_intake(folder / "refold.db") as (intake, _):
        for n in range(runs):
            intake.start(chain(3, items), {}, f"run{n}")
    token = refold(folder, "token", "create", "fleet", "--role", "worker").out.strip()
    tool, reports = Counted(Counter()), 0
    async with FaultyProxy(1, Rates()).open() as proxy:
        with closing(KilledServer(folder, proxy.address)) as server:
            await server.start()
            proxy.servers = [server.port]
            settling = asyncio.Lock()

            async def seen(path: str, answer: bytes) -> bool:
                nonlocal reports
                if not path.endswith("/settle") or not answer.startswith(b"HTTP/1.1 200"):
                    return False
                reports += 1
                if reports % 5 or server.kills >= kills or settling.locked():
                    return False
                async with settling:
                    server.kill()
                    await server.start()
                return True

            proxy.seen = seen
            async with open_remote_worker(proxy.address, token, STEADY, {"counted": tool}):
                async with asyncio.timeout(60 + 10 * kills):
                    logs = await finished(folder, [f"run{n}" for n in range(runs)])
        assert server.kills == kills
        assert proxy.faults["lost with its server"] >= kills
    for facts in logs.values():
        assert set(settled(facts).values()) == {1}
        assert len(settled(facts)) == 3 + items
    assert set(tool.done.values()) == {1}, "a report was lost, or a lease with its server"


async def finished(folder: Path, runs: list[str]) -> dict[str, list[Fact]]:
    store = SqliteStore(folder / "refold.db", wall)
    try:
        while any((row := store.views.summary(run)) is None or row.status not in TERMINAL for run in runs):
            await asyncio.sleep(0.1)
        return {run: [fact for _, _, fact in store.views.facts(run)] for run in runs}
    finally:
        store.close()


async def test_a_server_that_is_killed_between_commit_and_answer_loses_and_doubles_nothing(tmp_path: Path) -> None:
    await killed(tmp_path, runs=2, items=8, kills=2)


@pytest.mark.proof
@pytest.mark.timeout(1800)
async def test_a_server_that_is_killed_forty_times_loses_and_doubles_nothing(tmp_path: Path) -> None:
    await killed(tmp_path, runs=10, items=25, kills=40)
