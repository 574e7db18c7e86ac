"""Runs the benchmarks and prints their tables: `python -m bench [--only PART] [--json FILE] [--quick]`.

Parts: core (fold and decide), tools (where steps run), durable (SQLite), and one workload of that by its name, such as
chain.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec

from bench.core_cost import (
    EXPONENT,
    FOLD_RATE,
    REPEATS,
    SIZES,
    WORKLOADS,
    Cost,
    FoldCost,
    exponent,
    measure,
    measure_cold_fold,
)
from bench.durable import WORKLOADS as WORKLOADS_ON_DISK
from bench.durable import Figure, measure_durable
from bench.fan_out import FAN_OUT
from bench.http_cost import WANTED as HTTP_WANTED
from bench.http_cost import HttpCost
from bench.http_cost import measure as measure_http
from bench.http_cost import show as show_http
from bench.process_cost import ProcessCost, show
from bench.process_cost import measure as measure_tools


class Results(msgspec.Struct):
    costs: list[Cost] = []
    exponents: dict[str, float] = {}
    folds: list[FoldCost] = []
    tools: ProcessCost | None = None
    http: HttpCost | None = None
    durable: list[Figure] = []
    synchronous: list[int] = []
    missed: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="PART", help="core, tools, durable, or a workload such as chain")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--quick", action="store_true", help="a tenth of every size, once; too little to judge by")
    options = parser.parse_args()
    results = Results()
    if options.only in ("", "core"):
        show_core(results, options.quick)
    if options.only in ("", "tools"):
        show_tools(results, options.quick)
    if options.only not in ("core", "tools"):
        chosen = "" if options.only == "durable" else options.only
        bench = measure_durable(chosen, options.quick, (*WORKLOADS_ON_DISK, *FAN_OUT))
        results.durable, results.synchronous = bench.figures, sorted(bench.synchronous)
        results.missed += [f"{each.name}: {each.value}, {each.wanted}" for each in bench.figures if not each.held]
    for missed in results.missed:
        print(f"MISSED: {missed}")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2))
    return 1 if results.missed and not options.quick else 0


def show_core(results: Results, quick: bool) -> None:
    shrink, repeats = (10, 1) if quick else (1, REPEATS)
    show_costs(results, [size // shrink for size in SIZES], repeats)
    show_folds(results, 1_000_000 // shrink, repeats)


def show_tools(results: Results, quick: bool) -> None:
    results.tools = asyncio.run(measure_tools(50, 5) if quick else measure_tools())
    show(results.tools)
    ratios = results.tools.ratios()
    results.missed += [f"{name}: {ratios[name]:.2f}" for name in results.tools.missed()]
    results.http = asyncio.run(measure_http(200) if quick else measure_http())
    show_http(results.http)
    if results.http.ratio < HTTP_WANTED:
        results.missed.append(f"http: {results.http.ratio:.2f} of the bare client, at least {HTTP_WANTED}")


def show_costs(results: Results, sizes: list[int], repeats: int) -> None:
    print(f"fold and decide, microseconds per fact; CPU time, least of {repeats}; exponents of at most {EXPONENT}")
    print(f"{'':12}" + "".join(f"{size:>11,}" for size in sizes) + "   exponent   analysis of the plan")
    for workload in WORKLOADS:
        costs = measure(workload, sizes, repeats)
        slope = exponent((cost.units, cost.seconds) for cost in costs)
        analysis = exponent((cost.size, cost.analysis) for cost in costs)
        figures = "".join(f"{cost.micros:11.1f}" for cost in costs)
        print(f"{workload.name:12}{figures}{slope:11.2f}{analysis:11.2f}   {workload.about}", flush=True)
        results.costs += costs
        results.exponents[workload.name] = slope
        if slope > EXPONENT:
            results.missed.append(f"{workload.name}: exponent {slope:.2f}, at most {EXPONENT}")


def show_folds(results: Results, facts: int, repeats: int) -> None:
    results.folds = measure_cold_fold(facts, repeats)
    print(f"\ncold fold of {results.folds[0].facts:,} facts, {results.folds[0].size:.0f} bytes each on average")
    for cost in results.folds:
        read, fold = (seconds / cost.facts * 1e6 for seconds in (cost.read, cost.fold))
        print(f"{cost.rows:16} read and decoded {read:.2f} us, folded too {fold:.2f} us: {cost.rate:.2f} of the rate")
    if results.folds[0].rate < FOLD_RATE:
        results.missed.append(f"cold fold: {results.folds[0].rate:.2f} of the reading rate, at least {FOLD_RATE}")


if __name__ == "__main__":
    sys.exit(main())
