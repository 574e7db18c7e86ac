"""The engine on SQLite beside the raw store loop of the same run: ratios, never absolute times."""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import raw_apsw
from refold import Arc, Call, Engine, Loop, Plan, Step, Wait, open_engine
from refold.settings import Settings

REPEATS = 3
WINDOW = 64


def chain_plan(n: int, tool: str = "noop") -> Plan:
    def arcs(i: int) -> tuple[Arc, ...]:
        return (Arc(to=f"s{i + 1}"),) if i < n - 1 else ()

    return Plan(
        name="chain", steps=tuple(Step(name=f"s{i}", work=Call(tool=tool), input=i, arcs=arcs(i)) for i in range(n))
    )


def loop_plan(n: int) -> Plan:
    return Plan(name="loop", steps=(Step(name="each", loop=Loop(items=list(range(n)), window=WINDOW)),))


class Bench:
    """One folder for the engine's file and the raw loop's: the same disk, the same minute."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.figures: dict[str, Any] = {}

    def raw(self, n: int, batch: int = 1) -> dict[str, Any]:
        return raw_apsw.measure(n, batch, "FULL", self.folder)

    def timed(self, body: Callable[[Engine], Awaitable[None]], slots: int = WINDOW) -> float:
        """Seconds of the body alone, on a fresh file, with the engine already open."""

        async def run() -> float:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                async with open_engine(db=Path(folder) / "refold.db", settings=Settings(slots=slots)) as engine:
                    began = time.perf_counter()
                    await body(engine)
                    return time.perf_counter() - began

        return asyncio.run(run())

    def compare(
        self, name: str, steps: int, body: Callable[[Engine], Awaitable[None]], bound: float, n_raw: int
    ) -> None:
        """Interleaved with the raw loop; medians of ratios."""
        ratios, batched = [], []
        for _ in range(REPEATS):
            raw = self.raw(n_raw)["rate"]
            rate = steps / self.timed(body)
            ratios.append(rate / raw)
            batched.append(rate / self.raw(max(n_raw, 5000), WINDOW)["rate"])
        self.note(name, statistics.median(ratios), f">= {bound} x raw", bound)
        self.figures[name]["of the raw loop in batches of 64"] = round(statistics.median(batched), 3)

    def note(self, name: str, value: float, wanted: str, bound: float | None = None, most: float | None = None) -> None:
        held = (bound is None or value >= bound) and (most is None or value <= most)
        self.figures[name] = {"value": round(value, 3), "wanted": wanted, "held": held}
        print(f"{name:44} {value:9.3f}   {wanted:28} {'' if held else 'MISSED'}", flush=True)


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
    for _ in range(REPEATS):
        times.clear()
        raw = bench.raw(1000)["commit_ms"]
        bench.timed(body)
        ratios.append(1000 * statistics.median(times) / raw)
    bench.note("one-step run, p50, in raw commits", statistics.median(ratios), "<= 4", most=4.0)


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
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            command = [sys.executable, "-c", CHAIN_IN_A_PROCESS, str(Path(folder) / "refold.db")]
            seen, first = _lines(command, stop_after=500)
            began = time.perf_counter()
            rest, _ = _lines(command)
            whole = time.perf_counter() - began
            remaining = first * len(rest) / 500
            over.append((whole - 0.3) / remaining)
            repeated = max(repeated, len(set(seen) & set(rest)))
    bench.note("recovery at 500 of 1000, less 0.3 s", statistics.median(over), "<= 1.2 x the rest", most=1.2)
    bench.note("steps begun again by the recovery", repeated, "<= 1 (under way when killed)", most=1.0)


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
    bench.note(f"one-step run after {runs} others", grown, "<= 1.5 x in an empty file", most=1.5)


ONE_STEP = """
import sys, refold
from refold import Plan, Step
refold.run_sync(Plan(name="one", steps=(Step(name="a"),)), db=sys.argv[1])
"""


def cold_start(bench: Bench) -> None:
    def seconds(*arguments: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, cwd=Path(__file__).parents[1])
        return time.perf_counter() - began

    ratios = []
    for _ in range(5):
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            ratios.append(seconds("-c", ONE_STEP, str(Path(folder) / "refold.db")) / seconds("-c", "pass"))
    bench.note("process for a one-step workflow", statistics.median(ratios), "<= 15 x python -c pass", most=15.0)


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
    bench.note(f"MB more after {runs} runs than after 1000", seen["late"] - seen["early"], "<= 32", most=32.0)
    bench.timed(idling)
    bench.note(f"MB for {waiting} idle waiting runs", seen["waiting"] - seen["before"], "< 60", most=60.0)


WORKLOADS = (chain, list_loop, many_runs, latency, recovery, cold_start, growth, memory)


def main(only: str = "") -> dict[str, Any]:
    folder = os.environ.get("REFOLD_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        bench = Bench(place)
        for workload in WORKLOADS:
            if only in workload.__name__:
                workload(bench)
        return bench.figures


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:2]), indent=1))
