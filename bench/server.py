"""What the server costs, next to the same work without it, on this machine: `python -m bench.server [--quick]`.

Ratios are of one run, with the two sides in turns, so that a machine that is busy slows both.
"""

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path

import httpx2
from msgspec import Struct

from refold.core.plan import Call, Plan, Step
from refold.settings import Settings
from refold.wiring import open_process

NS = "/api/v1/ns/default"
PROGRAM = (sys.executable, "-m", "refold.cli")
HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: NAME}\nworkflow:\n"
ONE = Plan(name="one", steps=(Step(name="a", work=Call(tool="noop")),))


class Row(Struct, frozen=True):
    """One figure, with what it is held against."""

    what: str
    found: str
    wanted: str


class Sizes(Struct, frozen=True):
    starts: int
    batch: int
    steps: int
    watchers: int
    turns: int
    listed: int


FULL = Sizes(starts=200, batch=1000, steps=1000, watchers=20, turns=3, listed=10_000)
QUICK = Sizes(starts=10, batch=20, steps=20, watchers=2, turns=1, listed=40)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """`refold serve` in a process of its own; yield its address and the token of its administrator."""
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder), "REFOLD_SETTINGS": "/dev/null"}
    command = [*PROGRAM, "serve", "--port", "0", "--playbooks", "."]
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            text = ""
            while "ticket=" not in text:
                line = process.stderr.readline()
                if not line:
                    raise SystemExit(f"the server did not start: {text}")
                text += line
            address = re.search(r" on (http://\S+)", text)
            token = re.search(r"rfd_\w{8}_\S+", text)
            assert address is not None
            assert token is not None
            yield address[1], token[0]
        finally:
            process.terminate()


def write_playbooks(folder: Path, steps: int) -> None:
    one = "  - {step: a, tool: {kind: noop}}\n"
    chain = "".join(f"  - {{step: s{n}, tool: {{kind: noop}}, next: s{n + 1}}}\n" for n in range(steps - 1))
    last = f"  - {{step: s{steps - 1}, tool: {{kind: noop}}}}\n"
    for name, text in (("one", one), ("chain", chain + last)):
        (folder / f"{name}.yaml").write_text(HEAD.replace("NAME", name) + text)


async def median_of(number: int, work: Callable[[], Awaitable[object]]) -> float:
    seconds = []
    for _ in range(number):
        began = time.perf_counter()
        await work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


async def start_rows(client: httpx2.AsyncClient, folder: Path, sizes: Sizes) -> AsyncIterator[Row]:
    """Starts through the API, and of an engine in this process."""
    async with open_process(db=folder / "embedded.db", settings=Settings()) as process:
        embedded = await median_of(sizes.starts, lambda: process.engine.start(ONE))
        through = await median_of(sizes.starts, lambda: client.post(f"{NS}/runs", json={"workflow": "one"}))
        more = (through - embedded) * 1000
        yield Row("start of a one-step run, p50, more than embedded", f"{more:.1f} ms", "5 ms")
        began = time.perf_counter()
        await asyncio.gather(*(process.engine.start(ONE) for _ in range(sizes.batch)))
        alone = time.perf_counter() - began
        began = time.perf_counter()
        answer = await client.post(f"{NS}/runs:batch", json={"runs": [{"workflow": "one"}] * sizes.batch})
        assert all("run" in each for each in answer.json()["items"])
        rate = alone / (time.perf_counter() - began)
        yield Row(f"{sizes.batch:,} starts in a batch, rate next to embedded", f"{rate:.2f} x", "0.5 x")


@asynccontextmanager
async def watching(address: str, token: str, run: str, watchers: int) -> AsyncIterator[None]:
    """So many readers on the stream of a run."""

    async def read() -> None:
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(base_url=address, headers=headers, timeout=None, trust_env=False) as client,
            client.stream("GET", f"{NS}/runs/{run}/stream") as answer,
        ):
            async for _ in answer.aiter_bytes():
                pass

    tasks = [asyncio.create_task(read()) for _ in range(watchers)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def chain(client: httpx2.AsyncClient, address: str, token: str, watchers: int) -> float:
    """Seconds of a chain of steps, with so many watchers: a credential has eight streams, so they share tokens."""
    tokens = [token]
    while len(tokens) * 8 < watchers:
        body = {"name": f"watcher-{len(tokens)}", "role": "viewer"}
        tokens.append((await client.post(f"{NS}/tokens", json=body)).json()["token"])
    run = (await client.post(f"{NS}/runs", json={"workflow": "chain"})).json()["id"]
    spread = [watchers // len(tokens) + (n < watchers % len(tokens)) for n in range(len(tokens))]
    readers = [watching(address, each, run, number) for each, number in zip(tokens, spread, strict=True)]
    for reader in readers:
        await reader.__aenter__()
    while (shown := (await client.get(f"{NS}/runs/{run}")).json())["status"] != "completed":
        await asyncio.sleep(0.3)  # this client asks rarely
    for reader in readers:
        await reader.__aexit__(None, None, None)
    begin, end = (datetime.fromisoformat(shown[name]) for name in ("created_at", "ended_at"))
    return (end - begin).total_seconds()


async def watch_rows(client: httpx2.AsyncClient, address: str, token: str, sizes: Sizes) -> AsyncIterator[Row]:
    alone, watched = [], []
    for _ in range(sizes.turns):
        alone.append(await chain(client, address, token, 0))
        watched.append(await chain(client, address, token, sizes.watchers))
    more = 100 * (min(watched) / min(alone) - 1)
    yield Row(f"{sizes.watchers} watchers on a chain of {sizes.steps:,} steps, slower by", f"{more:.0f} %", "5 %")


async def list_rows(client: httpx2.AsyncClient, sizes: Sizes) -> AsyncIterator[Row]:
    left = sizes.listed
    while left > 0:
        body = {"runs": [{"workflow": "one"}] * min(left, 1000)}
        await client.post(f"{NS}/runs:batch", json=body, timeout=300)
        left -= 1000
    seconds, size = [], 0
    for _ in range(50):
        began = time.perf_counter()
        answer = await client.get(f"{NS}/runs", params={"status": "completed", "workflow": "one"})
        seconds.append(time.perf_counter() - began)
        size = len(answer.content)
    p95 = 1000 * sorted(seconds)[int(len(seconds) * 0.95) - 1]
    yield Row(f"list of more than {sizes.listed:,} runs, filtered, p95", f"{p95:.0f} ms", "20 ms")
    yield Row("the same, bytes", f"{size / 1000:.0f} KB", "60 KB")


def seconds_of(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def start_of_process(folder: Path) -> Iterator[Row]:
    """From the start of the process to the first answer of `/readyz`."""
    bare = min(seconds_of(sys.executable, "-c", "pass") for _ in range(5))
    found = []
    for _ in range(3):
        began = time.perf_counter()
        with served(folder) as (address, _):
            while httpx2.get(f"{address}/readyz", trust_env=False).status_code != 200:
                time.sleep(0.005)
            found.append(time.perf_counter() - began)
        for name in ("refold.db", "refold.db-wal", "refold.db-shm"):
            (folder / name).unlink(missing_ok=True)
    yield Row("start to the first /readyz, next to a bare interpreter", f"{min(found) / bare:.0f} x", "50 x")
    version = min(seconds_of(*PROGRAM, "--version") for _ in range(5))
    yield Row("refold --version, next to a bare interpreter", f"{version / bare:.1f} x", "-")


async def rows_of(folder: Path, sizes: Sizes) -> list[Row]:
    write_playbooks(folder, sizes.steps)
    rows = list(start_of_process(folder))
    with served(folder) as (address, token):
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=120, trust_env=False) as client:
            rows += [row async for row in start_rows(client, folder, sizes)]
            rows += [row async for row in watch_rows(client, address, token, sizes)]
            rows += [row async for row in list_rows(client, sizes)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    sizes = QUICK if parser.parse_args().quick else FULL
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(rows_of(Path(folder), sizes))
    width = max(len(row.what) for row in rows)
    for row in rows:
        sys.stdout.write(f"{row.what:{width}}  {row.found:>10}  (wanted: {row.wanted})\n")


if __name__ == "__main__":
    main()
