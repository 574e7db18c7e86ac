"""The engine on SQLite beside the raw store loop of the same run: ratios, never absolute times."""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench import raw_apsw
from bench.counting import Written, written
from refold import Engine, open_engine
from refold.plan import Arc, Call, Loop, Plan, Step, Wait
from refold.settings import Settings
from refold.stores.sqlite.store import SqliteStore

REPEATS = 5
WINDOW = 64


def chain_plan(n: int, tool: str = "noop") -> Plan:
    def arcs(i: int) -> tuple[Arc, ...]:
        return (Arc(to=f"s{i + 1}"),) if i < n - 1 else ()

    return Plan(
        name="chain", steps=tuple(Step(name=f"s{i}", work=Call(tool=tool), input=i, arcs=arcs(i)) for i in range(n))
    )


def loop_plan(n: int) -> Plan:
    return Plan(name="loop", steps=(Step(name="each", loop=Loop(items=list(range(n)), max_in_flight=WINDOW)),))


class Figure(Struct, frozen=True):
    name: str
    value: float
    wanted: str
    held: bool
    batched: float | None = None  # beside the raw loop in batches of 64
    written: Written | None = None


class Bench:
    """One folder for the engine's file and the raw loop's: the same disk, the same minute."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.figures: list[Figure] = []
        self.repeats = REPEATS
        self.synchronous: set[int] = set()  # as the engine's own connections read it back

    def raw(self, n: int, batch: int = 1) -> dict[str, Any]:
        return raw_apsw.measure(n, batch, "FULL", self.folder)

    def timed(self, body: Callable[[Engine], Awaitable[None]], slots: int = WINDOW) -> float:
        """Seconds of the body alone, on a fresh file, with the engine already open."""

        async def run() -> float:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                async with open_engine(db=Path(folder) / "refold.db", settings=Settings(slots=slots)) as engine:
                    began = time.perf_counter()
                    await body(engine)
                    took = time.perf_counter() - began
                    assert isinstance(engine.store, SqliteStore)
                    self.synchronous.add(engine.store.file.db.pragma("synchronous"))
                    return took

        return asyncio.run(run())

    def compare(
        self, name: str, steps: int, body: Callable[[Engine], Awaitable[None]], bound: float, n_raw: int
    ) -> None:
        """Interleaved with the raw loop; medians of ratios."""
        ratios, batched = [], []
        for _ in range(self.repeats):
            raw = self.raw(n_raw)["rate"]
            rate = steps / self.timed(body)
            ratios.append(rate / raw)
            batched.append(rate / self.raw(max(n_raw, 5000), WINDOW)["rate"])
        value, beside = round(statistics.median(ratios), 3), round(statistics.median(batched), 3)
        self.show(Figure(name, value, f">= {bound} x raw", value >= bound, beside, written(body, WINDOW, self.folder)))

    def note(self, name: str, value: float, wanted: str, most: float) -> None:
        self.show(Figure(name, round(value, 3), wanted, value <= most))

    def note_least(self, name: str, value: float, wanted: str, least: float) -> None:
        self.show(Figure(name, round(value, 3), wanted, value >= least))

    def heads(self) -> None:
        """The first lines of the table."""
        print("on SQLite, beside the raw loop of bench/raw_apsw.py on the same disk in the same minute; medians")
        heads = f"{'x raw64':>7} {'rows':>7} {'facts':>7} {'commits':>7} {'syncs':>6} synchronous"
        print(f"{'':42} {'':9}   {'wanted':28} {heads}")

    def tell_synchronous(self) -> None:
        levels = ", ".join(map(str, sorted(self.synchronous)))
        print(f"PRAGMA synchronous, read back from the connections of the engine: {levels} (2 is FULL)")

    def show(self, figure: Figure) -> None:
        self.figures.append(figure)
        line = f"{figure.name:42} {figure.value:9.3f}   {figure.wanted:28}"
        if figure.batched is not None and figure.written is not None:
            wrote = figure.written
            line += f" {figure.batched:7.3f} {wrote.rows:7} {wrote.facts:7} {wrote.commits:7} {wrote.syncs:6}"
            line += f" {wrote.synchronous:11}"
        print(line + ("" if figure.held else "   MISSED"), flush=True)


def chain(bench: Bench, n: int = 1000) -> None:
    plan = chain_plan(n)

    async def body(engine: Engine) -> None:
        await engine.run(plan)

    bench.compare(f"chain of {n} steps", n, body, 0.5, n)


def list_loop(bench: Bench, n: int = 10_000) -> None:
    plan = loop_plan(n)

    async def body(engine: Engine) -> None:
        await engine.run(plan)

    bench.compare(f"list loop of {n} items, window {WINDOW}", n, body, 3.0, 2000)


def many_runs(bench: Bench, runs: int = 500) -> None:
    plan = chain_plan(3)

    async def body(engine: Engine) -> None:
        await asyncio.gather(*(engine.run(plan) for _ in range(runs)))

    bench.compare(f"{runs} runs of 3 steps", 3 * runs, body, 1.5, 1000)


def latency(bench: Bench, n: int = 200) -> None:
    plan = chain_plan(1)
    times: list[float] = []

    async def body(engine: Engine) -> None:
        for _ in range(n):
            began = time.perf_counter()
            await engine.run(plan)
            times.append(time.perf_counter() - began)

    ratios = []
    for _ in range(bench.repeats):
        times.clear()
        raw = bench.raw(1000)["commit_ms"]
        bench.timed(body)
        ratios.append(1000 * statistics.median(times) / raw)
    bench.note("one-step run, p50, in raw commits", statistics.median(ratios), "<= 4", 4.0)


CHAIN_IN_A_PROCESS = """
import asyncio, sys
from bench.durable import chain_plan
from refold import open_engine
async def step(call):
    print(call.command.step, flush=True)
    return call.input
async def main():
    async with open_engine({"step": step}, db=sys.argv[1]) as engine:
        await engine.run(chain_plan(1000, "step"), key="one")
asyncio.run(main())
"""


def recovery(bench: Bench, n: int = 1000) -> None:
    """Killed at step 500, started again: how long beyond the time that the rest takes anyway."""
    over, repeated = [], 0
    for _ in range(bench.repeats):
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            command = [sys.executable, "-c", CHAIN_IN_A_PROCESS, str(Path(folder) / "refold.db")]
            seen, first = _lines(command, stop_after=500)
            began = time.perf_counter()
            rest, _ = _lines(command)
            whole = time.perf_counter() - began
            remaining = first * len(rest) / 500
            over.append((whole - 0.3) / remaining)
            repeated = max(repeated, len(set(seen) & set(rest)))
    bench.note("recovery at 500 of 1000, less 0.3 s", statistics.median(over), "<= 1.2 x the rest", 1.2)
    bench.note("steps begun again by the recovery", repeated, "<= 1 (under way when killed)", 1.0)


def _lines(command: list[str], stop_after: int | None = None) -> tuple[list[str], float]:
    """The step names that a process prints, until its end or its death; and the time from the first to the last."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    assert process.stdout is not None
    seen, began = [], 0.0
    for line in process.stdout:
        began = began or time.perf_counter()
        seen.append(line.strip())
        if stop_after is not None and len(seen) == stop_after:
            os.kill(process.pid, signal.SIGKILL)
            break
    took = time.perf_counter() - began
    process.stdout.close()
    process.wait()
    return seen, took


def growth(bench: Bench, runs: int = 20_000) -> None:
    """A one-step run in a file of many finished runs, beside one in an empty file."""
    plan = chain_plan(1)
    early: list[float] = []
    late: list[float] = []

    async def one(engine: Engine, times: list[float]) -> None:
        began = time.perf_counter()
        await engine.run(plan)
        times.append(time.perf_counter() - began)

    async def body(engine: Engine) -> None:
        for _ in range(200):
            await one(engine, early)
        for _ in range(runs // 500):
            await asyncio.gather(*(engine.run(plan) for _ in range(500)))
        for _ in range(200):
            await one(engine, late)

    bench.timed(body)
    grown = statistics.median(late) / statistics.median(early)
    bench.note(f"one-step run after {runs} others", grown, "<= 1.5 x in an empty file", 1.5)


ONE_STEP = """
import sys, refold
from refold.plan import Plan, Step
refold.run_sync(Plan(name="one", steps=(Step(name="a"),)), db=sys.argv[1])
"""


def cold_start(bench: Bench) -> None:
    """With the modules compiled, as an installed package has them."""
    compiles = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def seconds(*arguments: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, cwd=Path(__file__).parents[1], env=compiles)
        return time.perf_counter() - began

    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        seconds("-c", ONE_STEP, str(Path(folder) / "refold.db"))
    ratios = []
    for _ in range(7):
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            ratios.append(seconds("-c", ONE_STEP, str(Path(folder) / "refold.db")) / seconds("-c", "pass"))
    bench.note("process for a one-step workflow", statistics.median(ratios), "<= 15 x python -c pass", 15.0)


def _rss() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory(bench: Bench, runs: int = 100_000, waiting: int = 10_000) -> None:
    plan, idle = chain_plan(1), Plan(name="idle", steps=(Step(name="w", work=Wait(signal="go")),))
    seen: dict[str, float] = {}

    async def finished(engine: Engine) -> None:
        for done in range(0, runs, 500):
            await asyncio.gather(*(engine.run(plan) for _ in range(500)))
            if done == 500:
                seen["early"] = _rss()
        seen["late"] = _rss()

    async def idling(engine: Engine) -> None:
        seen["before"] = _rss()
        for _ in range(0, waiting, 500):
            await asyncio.gather(*(engine.start(idle) for _ in range(500)))
        seen["waiting"] = _rss()

    bench.timed(finished)
    bench.note(f"MB more after {runs} runs than after 1000", seen["late"] - seen["early"], "<= 32", 32.0)
    bench.timed(idling)
    bench.note(f"MB for {waiting} idle waiting runs", seen["waiting"] - seen["before"], "< 60", 60.0)


WORKLOADS = (chain, list_loop, many_runs, latency, recovery, cold_start, growth, memory)


def measure_durable(only: str, quick: bool, workloads: Sequence[Callable[[Bench], None]] = WORKLOADS) -> Bench:
    """The workloads whose name contains `only`; REFOLD_BENCH_DIR chooses the disk."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("REFOLD_BENCH_DIR")) as place:
        bench = Bench(place)
        bench.repeats = 1 if quick else REPEATS
        bench.heads()
        for workload in workloads:
            if only in workload.__name__:
                workload(bench)
        bench.tell_synchronous()
        return bench
