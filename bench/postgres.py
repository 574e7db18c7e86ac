"""Measures on PostgreSQL: `python -m bench.postgres [--url URL] [--rounds N]`.

Each round runs the raw loop of raw_pg.py and the engine on the same server, one after the other, so that a busy disk
slows both. The ratios are medians over the rounds. Without an address, a server is started from the wheel.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import raw_pg
from refold.core.plan import Arc, Call, Loop, Plan, Step
from refold.runtime.engine import Engine
from refold.stores.postgres.store import PostgresStore
from refold.wiring.opening import open_process

CHAIN, ITEMS, RUNS = 300, 2000, 200
QUIET = 1500  # raw steps in a second, above which the disk counts as quiet
WANTED = {"chain": (0.55, 0.7), "fan-out": (4.0, 4.0), "runs": (1.5, 1.5)}  # on a quiet disk, on a busy one

Workload = Callable[[Engine], Awaitable[int]]


def chain(steps: int) -> Plan:
    return Plan(
        name=f"chain{steps}",
        steps=tuple(
            Step(name=f"s{n}", work=Call("noop"), arcs=(Arc(to=f"s{n + 1}"),) if n < steps - 1 else ())
            for n in range(steps)
        ),
    )


async def run_chain(engine: Engine) -> int:
    await (await engine.start(chain(CHAIN))).result()
    return CHAIN


async def run_fan_out(engine: Engine) -> int:
    loop = Loop(items=list(range(ITEMS)), max_in_flight=64)
    await (await engine.start(Plan(name="fan", steps=(Step(name="each", work=Call("noop"), loop=loop),)))).result()
    return ITEMS


async def run_many(engine: Engine) -> int:
    handles = await asyncio.gather(*[engine.start(chain(3)) for _ in range(RUNS)])
    await asyncio.gather(*[handle.result() for handle in handles])
    return 3 * RUNS


WORKLOADS: dict[str, Workload] = {"chain": run_chain, "fan-out": run_fan_out, "runs": run_many}


async def engine_rates(url: str) -> dict[str, tuple[float, float]]:
    """Steps in a second, and round trips a step."""
    rates: dict[str, tuple[float, float]] = {}
    async with open_process(db=url) as process:
        store = process.sweep.store
        assert isinstance(store, PostgresStore)
        await (await process.engine.start(chain(5))).result()
        for name, workload in WORKLOADS.items():
            trips, began = store.trips, time.perf_counter()
            steps = await workload(process.engine)
            rates[name] = steps / (time.perf_counter() - began), (store.trips - trips) / steps
    return rates


def measure(url: str, rounds: int) -> int:
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in WORKLOADS}
    for _ in range(rounds):
        raw = max(raw_pg.measure(url, shape, CHAIN, 1, 1)["rate"] for shape in ("pipeline", "one"))
        for name, (rate, trips) in asyncio.run(engine_rates(url)).items():
            found[name].append((rate / raw, trips, raw))
    raw = statistics.median(each[2] for each in found["chain"])
    print(f"raw single: {raw:.0f} steps/s, a {'quiet' if raw > QUIET else 'busy'} disk")
    missed = 0
    for name, figures in found.items():
        ratio, trips = statistics.median(f[0] for f in figures), statistics.median(f[1] for f in figures)
        wanted = WANTED[name][raw <= QUIET]
        missed += ratio < wanted
        print(f"{name:8}  {ratio:5.2f} x raw single (wanted {wanted}), {trips:.3f} round trips a step")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.postgres", description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a server that is running; its schemas `raw` and `refold` are used")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.url:
        return 1 if measure(options.url, options.rounds) else 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with raw_pg.server(folder, None, 18) as url:
            return 1 if measure(url, options.rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
