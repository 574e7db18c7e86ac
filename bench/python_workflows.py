"""Python workflows: on SQLite beside the raw store loop, and `import refold` beside a bare interpreter.

`python -m bench.python_workflows [--quick] [--json FILE]` prints the table. With `--line w1` or `--line w2` it runs one
workload once and prints a line of JSON as the scripts in bench/peers/ do, so that `bench.peer_runs` can set them side
by side.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path

import msgspec

from bench.durable import REPEATS, Bench, Figure
from refold import Collect, Engine, Event, StartEvent, StopEvent, Workflow, open_engine, step
from refold.settings import Settings

WINDOW = 64
CHAIN, FAN = 0.5, 3.0  # times the raw loop's single commits per second, at least
IMPORTS = 6.0  # times `python -c pass`, at most

Body = Callable[[Engine], Awaitable[None]]


class Tick(Event):
    v: int
    n: int


class Work(Event):
    i: int


class Done(Event):
    r: int


class Chain(Workflow):
    """One step after the other, each with what the last one sent."""

    @step
    async def start(self, ev: StartEvent) -> Tick:
        return Tick(v=0, n=ev.n)

    @step
    async def inc(self, ev: Tick) -> Tick | StopEvent:
        v = ev.v + 1
        return Tick(v=v, n=ev.n) if v < ev.n else StopEvent(result=v)


def fan_of(n: int) -> Workflow:
    """Many steps at once, and one that gets what all of them sent."""

    async def start(ev: StartEvent) -> list[Work]:
        return [Work(i=i) for i in range(ev.n)]

    @step(workers=WINDOW)
    async def work(ev: Work) -> Done:
        return Done(r=ev.i + 1)

    @step(collect=Collect(Done, n=n))
    async def join(done: list[Done]) -> StopEvent:
        return StopEvent(result=sum(each.r for each in done))

    return Workflow("fan", [start, work, join])


def chain(n: int) -> Body:
    async def body(engine: Engine) -> None:
        handle = await engine.start(Chain, n=n)
        assert await handle.result() == n

    return body


def fan(n: int) -> Body:
    workflow = fan_of(n)

    async def body(engine: Engine) -> None:
        handle = await engine.start(workflow, n=n)
        assert await handle.result() == n * (n + 1) // 2

    return body


WORKLOADS = {"w1": chain, "w2": fan}  # as the scripts of the peers name them


async def in_memory(body: Body) -> float:
    """Seconds of the body alone, with the engine already open."""
    async with open_engine(settings=Settings(slots=WINDOW)) as engine:
        began = time.perf_counter()
        await body(engine)
        return time.perf_counter() - began


def durable(bench: Bench, n: int) -> None:
    bench.compare(f"Python chain of {n} steps", n, chain(n), CHAIN, n)
    bench.compare(f"Python fan-out of {n} and collect", n, fan(n), FAN, n)


def import_ratio(rounds: int) -> float:
    """Of the time of a processor: the least of several runs of each, with the modules compiled as when installed."""
    with tempfile.TemporaryDirectory() as compiled:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        env.pop("PYTHONDONTWRITEBYTECODE", None)

        def seconds(code: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True, env=env)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

        seconds("import refold")
        taken = [(seconds("import refold"), seconds("pass")) for _ in range(rounds)]
        return min(ours for ours, _ in taken) / min(bare for _, bare in taken)


def line(workload: str, n: int) -> str:
    """One run in memory, told as the peers' scripts tell theirs."""
    import_module("refold.python.body_tool")  # before the clock starts, as the modules of the peers are
    seconds = asyncio.run(in_memory(WORKLOADS[workload](n)))
    told: dict[str, str | int | float] = {
        "peer": "refold-memory",
        "workload": workload,
        "durable": "no (in-memory)",
        "n": n,
    }
    told |= {"seconds": round(seconds, 5), "rate": round(n / seconds, 1)}
    told |= {"rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)}
    return msgspec.json.encode(told).decode()


class Results(msgspec.Struct):
    figures: list[Figure]
    synchronous: list[int]


def measure(quick: bool) -> Results:
    """REFOLD_BENCH_DIR chooses the disk."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("REFOLD_BENCH_DIR")) as place:
        bench = Bench(place)
        bench.repeats = 1 if quick else REPEATS
        bench.heads()
        durable(bench, 100 if quick else 1000)
        bench.note("import refold", import_ratio(3 if quick else 25), f"<= {IMPORTS:g} x python -c pass", IMPORTS)
        bench.tell_synchronous()
        return Results(bench.figures, sorted(bench.synchronous))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.python_workflows", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of every size, once; too little to judge by")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--line", choices=WORKLOADS, help="run one workload in memory, and print a line of JSON")
    parser.add_argument("--n", type=int, default=1000, help="steps of that workload")
    options = parser.parse_args()
    if options.line:
        print(line(options.line, options.n), flush=True)
        return 0
    results = measure(options.quick)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2))
    return 1 if any(not each.held for each in results.figures) and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
