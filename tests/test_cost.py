"""What a fact costs does not grow with the graph or the history: counted in lines of the core, not in seconds.

What happens inside one call into C is not seen here; `make bench` measures it, at a hundred times the size.
"""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from bench.core_cost import NOON, WORKLOADS, Drive, Workload, long_run
from bench.python_workflows import IMPORTS, import_ratio
from refold.core.fold.apply import fold
from refold.core.graph import analyse
from refold.core.state import RunState

SMALL, LARGE = 200, 2_000
GROWTH = 1.15


def lines_of_core(work: Callable[[], object]) -> int:
    """How many lines of the core were run; a loop counts once per round, a comprehension too."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if "/refold/core/" not in frame.f_code.co_filename:
            return None
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def cost_of_a_run(workload: Workload, size: int) -> float:
    drive = Drive(analyse(workload.plan(size)))
    lines = lines_of_core(drive.run)
    return lines / (size if workload.per_step else drive.state.seq)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_fact_costs_as_much_in_a_run_ten_times_as_large(workload: Workload) -> None:
    small, large = cost_of_a_run(workload, SMALL), cost_of_a_run(workload, LARGE)
    assert large <= small * GROWTH, f"{small:.0f} lines of the core per fact became {large:.0f}"


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_step_costs_as_much_to_analyse_in_a_plan_ten_times_as_large(workload: Workload) -> None:
    small, large = (lines_of_core(partial(analyse, workload.plan(size))) / size for size in (SMALL, LARGE))
    assert large <= small * GROWTH, f"{small:.0f} lines of the core per step became {large:.0f}"


def test_folding_a_fact_costs_as_much_in_a_log_ten_times_as_long() -> None:
    small, large = map(cost_of_a_fold, (5 * SMALL, 5 * LARGE))
    assert large <= small * GROWTH, f"{small:.0f} lines of the core per fact became {large:.0f}"


def cost_of_a_fold(size: int) -> float:
    graph = analyse(long_run(size))
    drive = Drive(graph)
    drive.run()
    records = [(number, NOON, fact) for number, fact in enumerate(drive.log, 1)]
    return lines_of_core(partial(fold, graph, records, RunState(run="r"))) / len(records)


def test_the_count_sees_loops_and_comprehensions_that_grow() -> None:
    few, many = (lines_of_core(partial(analyse, WORKLOADS[0].plan(size))) for size in (SMALL, LARGE))
    assert many > 8 * few > 1000


def test_to_import_refold_costs_little_more_than_an_interpreter() -> None:
    assert import_ratio(rounds=7) <= IMPORTS
