"""Fan-out beside the raw loop: items, items that are runs, how cost grows, and who comes between."""

import asyncio
import math
import statistics
import time

from bench.durable import WINDOW, Bench, chain_plan
from refold.core.plan import Child, Loop, Plan, Source, Step, plan_hash
from refold.runtime.engine import Engine

PAGE = 500  # items of a source


def listed(n: int) -> Plan:
    return Plan(name="listed", steps=(Step(name="each", loop=Loop(items=list(range(n)), max_in_flight=WINDOW)),))


def pulled(n: int) -> Plan:
    source = Source(kind="range", settings={"stop": n}, page=PAGE)
    return Plan(name="pulled", steps=(Step(name="each", loop=Loop(source=source, max_in_flight=WINDOW)),))


def per_second(bench: Bench, plan: Plan, n: int) -> float:
    async def body(engine: Engine) -> None:
        await engine.run(plan)

    return n / bench.timed(body)


def fan_items(bench: Bench, small: int = 1000, usual: int = 10_000, large: int = 100_000) -> None:
    """Many items as fast as few: the rate beside the raw loop, and the exponent of the cost."""
    many, beside, exponents = [], [], []
    for _ in range(bench.repeats):
        raw = bench.raw(2000)["rate"]
        rates = {n: per_second(bench, listed(n), n) for n in (small, usual, large)}
        many.append(rates[usual] / raw)
        beside.append(rates[large] / rates[usual])
        exponents.append(math.log((large / rates[large]) / (small / rates[small])) / math.log(large / small))
    bench.note_least(f"{usual} items, x raw", statistics.median(many), ">= 3 (aim 6)", 3.0)
    bench.note_least(f"{large} items, x {usual}", statistics.median(beside), ">= 0.8", 0.8)
    bench.note(f"exponent from {small} to {large} items", statistics.median(exponents), "<= 1.1", 1.1)


def fan_source(bench: Bench, n: int = 10_000) -> None:
    ratios = []
    for _ in range(bench.repeats):
        raw = bench.raw(2000)["rate"]
        ratios.append(per_second(bench, pulled(n), n) / raw)
    bench.note_least(f"{n} items of a source, x raw", statistics.median(ratios), ">= 3", 3.0)


def fan_children(bench: Bench, n: int = 1000) -> None:
    """Each item is a run of one step."""
    child = chain_plan(1)
    loop = Loop(items=[{"n": i} for i in range(n)], max_in_flight=WINDOW)
    step = Step(name="each", work=Child(plan=plan_hash(child)), loop=loop)

    async def body(engine: Engine) -> None:
        await engine.register(child)
        await engine.run(Plan(name="children", steps=(step,)))

    bench.compare(f"{n} child runs as items", n, body, 0.5, 1000)


def fan_between(bench: Bench, items: int = 100_000, runs: int = 100) -> None:
    """One-step runs that are started while a large fan-out goes on, beside those of an idle engine."""
    idle: list[float] = []
    busy: list[float] = []

    async def one(engine: Engine, times: list[float]) -> None:
        began = time.perf_counter()
        await engine.run(chain_plan(1))
        times.append(time.perf_counter() - began)

    async def body(engine: Engine) -> None:
        for _ in range(runs):
            await one(engine, idle)
        going = asyncio.ensure_future(engine.run(listed(items)))
        await asyncio.sleep(0.2)
        while not going.done() and len(busy) < runs:
            await one(engine, busy)
            await asyncio.sleep(0.01)
        await going

    bench.timed(body)
    slow = statistics.quantiles(busy, n=100)[98]
    bench.note(f"p99 of {len(busy)} runs beside {items} items", slow / statistics.median(idle), "<= 5 x idle p50", 5.0)


FAN_OUT = (fan_items, fan_source, fan_children, fan_between)
