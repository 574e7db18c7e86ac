"""Loops of every kind: over a list, over a source in an order, over runs; killed at a commit, finished by another."""

from functools import partial
from typing import Any

from refold.core.plan import Arc, Call, Child, Loop, Plan, Retry, Source, Step, plan_hash
from refold.runtime.engine import Engine
from tests.crash.trees import armed as armed_tree

CHILD = Plan(
    name="item",
    steps=(
        Step(name="one", work=Call(tool="flaky"), retry=Retry(attempts=2), arcs=(Arc(to="two"),)),
        Step(name="two", work=Call(tool="counts"), input={"path": ["input", "n"]}, retry=Retry(attempts=2)),
    ),
)
ORDERED = [
    {"id": "d", "needs": ["b", "c"]},
    {"id": "b", "needs": ["a"]},
    {"id": "c", "needs": ["a"]},
    {"id": "a", "needs": []},
    {"id": "e", "needs": []},
    {"id": "a", "needs": []},
]
ALL = {name: {"path": [name, "results"]} for name in ("listed", "pulled", "kids")}
ROOT = Plan(
    name="fans",
    steps=(
        Step(
            name="listed",
            work=Call(tool="counts"),
            loop=Loop(items=list(range(7)), max_in_flight=3),
            input={"path": ["item"]},
            retry=Retry(attempts=2, delay=0.01),
            arcs=(Arc(to="pulled"),),
        ),
        Step(
            name="pulled",
            work=Call(tool="plain"),
            loop=Loop(
                source=Source(kind="list", settings={"items": ORDERED}, page=2),
                max_in_flight=2,
                key={"path": ["item", "id"]},
                after={"path": ["item", "needs"]},
            ),
            input={"path": ["item", "id"]},
            arcs=(Arc(to="kids"),),
        ),
        Step(
            name="kids",
            work=Child(plan=plan_hash(CHILD)),
            loop=Loop(source=Source(kind="range", settings={"stop": 4}, page=3), max_in_flight=2, on_item_error="halt"),
            input={"n": {"path": ["item"]}},
            retry=Retry(attempts=2),
            arcs=(Arc(to="all"),),
        ),
        Step(name="all", work=Call(tool="plain"), input=ALL),
    ),
)
RESULT: dict[str, Any] = {
    "listed": list(range(7)),
    "pulled": ["d", "b", "c", "a", "e"],
    "kids": list(range(4)),
}
RUNS = 5


async def drive(engine: Engine) -> None:
    await engine.register(CHILD)
    shown = await engine.wait((await engine.options(key="fans").start(ROOT)).id)
    assert (shown.status, shown.result) == ("completed", RESULT), shown.error


armed = partial(armed_tree, drive=drive)
