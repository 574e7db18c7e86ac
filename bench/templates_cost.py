"""What a template costs as the state of its run grows: `python -m bench.templates_cost [--most RATIO]`."""

import argparse
import gc
import sys
import time
from typing import Any

from refold.core.expressions import TemplateScope
from refold.core.facts import RunStarted
from refold.core.outcomes import SetKey, Succeeded
from refold.core.plan import Arc, Plan, Step
from refold.core.read.loaded import Loaded
from refold.core.read.template_scope import RunScope
from refold.templates import Templates
from refold.testing.core import Given, reported, started

SIZES = (10, 10_000)
RATIO = 1.5
ROUNDS, EACH = 15, 300
TEMPLATES: dict[str, Any] = {
    "a path": "{{ steps.s3.value }}",
    "a text": "u/{{ s3.value }}/{{ ctx.k3 }}?q={{ input.i3 }}",
    "computed": "{{ steps.s3.value + k3 * 2 }}",
    "a guard": "{{ steps.s3.value > 1 and steps.later is not defined }}",
    "a default": "{{ steps.later.value | default(i3) }}",
    "a map": {"a": "{{ s3 }}", "b": ["{{ i3 }}", "{{ ctx.k3 ~ 'x' }}"]},
}


def view_of(size: int) -> TemplateScope:
    """A run with so many results, as many keys in its context, and as many in its input."""
    steps = tuple(Step(name=f"s{n}", arcs=(Arc(to=f"s{n + 1}"),) if n < size else ()) for n in range(size + 1))
    plan = Plan(name="grows", steps=(*steps, Step(name="later")), language="refold")
    run = Given(plan)
    first: RunStarted = started(plan, **{f"i{n}": n for n in range(size)})
    run.when(first)
    for n in range(size):
        run.when(reported(f"s{n}", Succeeded({"value": n, "more": [n] * 10}), writes=(SetKey(f"k{n}", n),)))
    return RunScope(run.graph, run.state, Loaded(), {"visit": 1})


def microseconds(template: Any, views: list[TemplateScope]) -> list[float]:
    """For each view, the least of many rounds; the views take turns, so that all have the same weather."""
    templates = Templates()
    best = [float("inf")] * len(views)
    for _ in range(ROUNDS):
        for number, view in enumerate(views):
            began = time.perf_counter()
            for _ in range(EACH):
                templates.value(template, view)
            best[number] = min(best[number], (time.perf_counter() - began) / EACH * 1e6)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.templates_cost", description=__doc__)
    parser.add_argument("--most", type=float, default=RATIO, metavar="RATIO", help=f"allowed growth ({RATIO})")
    most = parser.parse_args().most
    views = [view_of(size) for size in SIZES]
    gc.collect()
    print("a template, microseconds by step results" + "".join(f"{size:>10,}" for size in SIZES) + "     ratio")
    missed = False
    for name, template in TEMPLATES.items():
        costs = microseconds(template, views)
        ratio = costs[-1] / costs[0]
        missed = missed or ratio > most
        print(f"{name:40}" + "".join(f"{cost:10.1f}" for cost in costs) + f"{ratio:10.2f}", flush=True)
    if missed:
        print(f"MISSED: a template may cost {most} times as much, not more")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
