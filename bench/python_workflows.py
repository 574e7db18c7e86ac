"""Python workflows: on SQLite beside the raw store loop, and `import refold` beside a bare interpreter.

Each workload is written twice: with events, and as a flow. Below them stands where the time of a step goes, by the
rooms of Refold and by what they use; it is counted apart, because a profile makes everything slower.

`python -m bench.python_workflows [--quick] [--json FILE]` prints the table. With `--line w1` or `--line w2` it runs one
workload once and prints a line of JSON as the scripts in bench/peers/ do, so that `bench.peer_runs` can set them side
by side.
"""

import argparse
import asyncio
import cProfile
import os
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from bench.durable import REPEATS, Bench, Figure
from refold import Collect, Context, Engine, Event, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.runtime import turn_thread
from refold.settings import Settings

PACKAGE = Path(turn_thread.__file__).parents[1]
WINDOW = 64
CHAIN, FAN = (0.6, 0.55), (5.0, 4.0)  # with events, as a flow: times the raw loop's single commits per second, at least
MANY, RUNS, STEPS = 1.5, 500, 3  # the same, of runs that are started at once
WAITS = 1.5  # of flows that wait often, times the CPU time of the same loop with events, at most
LATENCY = 4.0  # raw commits for a run of one step, at most
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


class Short(Workflow):
    """As many steps as it is told."""

    @step
    async def start(self, ev: StartEvent) -> Tick | StopEvent:
        return Tick(v=1, n=ev.n) if ev.n > 1 else StopEvent(result=1)

    @step
    async def inc(self, ev: Tick) -> Tick | StopEvent:
        v = ev.v + 1
        return Tick(v=v, n=ev.n) if v < ev.n else StopEvent(result=v)


async def plus_one(v: int) -> int:
    return v + 1


@flow
async def chain_flow(ctx: Context, n: int) -> int:
    v = 0
    for _ in range(n):
        v = await ctx.call(plus_one, v)
    return v


@flow
async def fan_flow(ctx: Context, n: int) -> int:
    return sum(await asyncio.gather(*(ctx.call(plus_one, i) for i in range(n))))


@flow
async def one_flow(ctx: Context, n: int) -> int:
    """One step is the body itself, as it is with events."""
    return n


def started(workflow: Any, n: int, result: int) -> Body:
    async def body(engine: Engine) -> None:
        handle = await engine.start(workflow, n=n)
        assert await handle.result() == result

    return body


def at_once(workflow: Any, runs: int) -> Body:
    one = started(workflow, STEPS, STEPS)

    async def body(engine: Engine) -> None:
        await asyncio.gather(*(one(engine) for _ in range(runs)))

    return body


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


def durable(bench: Bench, n: int, runs: int) -> None:
    bench.compare(f"chain of {n} steps, events", n, chain(n), CHAIN[0], n)
    bench.compare(f"chain of {n} steps, flow", n, started(chain_flow, n, n), CHAIN[1], n)
    bench.compare(f"fan-out of {n} and collect, events", n, fan(n), FAN[0], n)
    bench.compare(f"fan-out of {n} and gather, flow", n, started(fan_flow, n, n * (n + 1) // 2), FAN[1], n)
    bench.compare(f"{runs} runs of {STEPS} steps at once, events", STEPS * runs, at_once(Short, runs), MANY, n)
    bench.compare(f"{runs} runs of {STEPS} steps at once, flow", STEPS * runs, at_once(chain_flow, runs), MANY, n)
    latency(bench, "events", started(Short, 1, 1), max(runs // 2, 5))
    latency(bench, "flow", started(one_flow, 1, 1), max(runs // 2, 5))


@flow
async def waits_flow(ctx: Context, n: int) -> int:
    for _ in range(n):
        await ctx.sleep(0)
    return n


class Waits(Workflow):
    """The same loop, written with events."""

    @step
    async def start(self, ev: StartEvent) -> Tick:
        return Tick(v=0, n=ev.n)

    @step
    async def wait(self, ctx: Context, ev: Tick) -> Tick | StopEvent:
        await ctx.sleep(0)
        return Tick(v=ev.v + 1, n=ev.n) if ev.v + 1 < ev.n else StopEvent(result=ev.n)


def waits(bench: Bench, runs: int, n: int) -> None:
    """Bodies that wait often, in memory: the CPU time of flows, compared with the same loop written with events."""

    def seconds(workflow: Any, runs: int, n: int) -> float:
        async def body(engine: Engine) -> None:
            handles = [await engine.start(workflow, n=n) for _ in range(runs)]
            for handle in handles:
                assert await handle.result() == n

        began = time.process_time()
        asyncio.run(in_memory(body))
        return time.process_time() - began

    long = seconds(waits_flow, runs, n)
    name = f"{runs} flows of {n} waits"
    bench.note(f"{name}, times the same loop with events", long / seconds(Waits, runs, n), f"<= {WAITS:g}", WAITS)
    short = seconds(waits_flow, 8 * runs, n // 8)
    bench.note(f"{name}, times as many waits of 8 times the flows", long / short, f"<= {WAITS:g}", WAITS)


def latency(bench: Bench, form: str, one: Body, times: int) -> None:
    """The median of runs one after the other, in raw commits of the same minute."""
    seconds: list[float] = []

    async def body(engine: Engine) -> None:
        for _ in range(times):
            began = time.perf_counter()
            await one(engine)
            seconds.append(time.perf_counter() - began)

    ratios = []
    for _ in range(bench.repeats):
        seconds.clear()
        raw = bench.raw(1000)["commit_ms"]
        bench.timed(body)
        ratios.append(1000 * statistics.median(seconds) / raw)
    bench.note(f"one-step run, {form}, p50, in raw commits", statistics.median(ratios), f"<= {LATENCY:g}", LATENCY)


def where_time_goes(bench: Bench, name: str, body: Body, steps: int) -> None:
    """Print the microseconds of a step in each room, by a profile, which adds to every call. It sees one thread, so all
    turns stay on the thread of the caller."""
    profile, short = cProfile.Profile(), turn_thread.SHORT

    async def profiled(engine: Engine) -> None:
        await engine.runs()  # the first turn has a thread of its own
        profile.enable()
        await body(engine)
        profile.disable()

    turn_thread.SHORT = 60.0
    try:
        bench.timed(profiled)
    finally:
        turn_thread.SHORT = short
    rooms: Counter[str] = Counter()
    calls = 0
    for (file, _, function), (_, count, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        rooms[_room(file, function)] += own
        calls += count
    shares = ", ".join(f"{room} {1e6 * own / steps:.0f}" for room, own in rooms.most_common())
    print(f"where a step of the {name} spends its time, in us under a profile: {shares}; {calls / steps:.0f} calls")


def _room(file: str, function: str) -> str:
    if file == "~":
        return "SQLite" if "apsw" in function or "Cursor" in function else "built-in functions"
    path = Path(file)
    if not path.is_relative_to(PACKAGE):
        return "asyncio" if "asyncio" in path.parts else "other libraries"
    return "/".join(path.relative_to(PACKAGE).parts[:-1][:2]) or "refold"


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
        n = 100 if quick else 1000
        durable(bench, n, n // 2)
        waits(bench, n // 10, 80 if quick else 800)
        where_time_goes(bench, "chain with events", chain(n), n)
        where_time_goes(bench, "chain as a flow", started(chain_flow, n, n), n)
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
