"""Whatever an expression does or a body returns: the run ends, and no body runs after its outcome is known."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from refold import Retry, open_engine
from refold.core.facts import ItemsSettled, StepSettled
from refold.core.outcomes import AddTo, SetKey, Succeeded
from refold.core.plan import Quality
from refold.core.state import TERMINAL
from refold.plan import Arc, Call, Loop, Plan, Step
from refold.ports import Done, ToolCall
from refold.runtime.engine import Engine
from tests.templates.views import world
from tests.templates.writer import Writer

FIRST_SEED = int(os.environ.get("REFOLD_FIRST_SEED", "0"))
EXPRESSIONS = 20  # in each run
VALUES = 20
AT_A_TIME = 25  # runs
PATIENCE = 300.0  # seconds; a run without an end is a bug, and nothing else takes so long


class Bodies:
    """Counts the runs of each body."""

    def __init__(self) -> None:
        self.begun: Counter[tuple[str, str]] = Counter()
        self.returned: Counter[tuple[str, str]] = Counter()

    async def note(self, call: ToolCall) -> Any:
        place = (call.run, call.command.id)
        self.begun[place] += 1
        self.returned[place] += 1
        return {"n": 1}


def plan_with_expressions(seed: int) -> Plan:
    """A run with one generated expression in each of its branches, at every kind of place that has expressions."""
    noetl = bool(seed % 2)
    writer = Writer(f"run {seed}")
    last = len(PLACES) if seed % 10 == 0 else None  # most of these runs end with the first condition that raises
    branches = [branch(f"b{n}", writer.template(), last or n % len(PLACES)) for n in range(EXPRESSIONS)]
    first = Step(name="first", work=Call(tool="note"), mode="inclusive", arcs=tuple(Arc(to=b.name) for b in branches))
    return Plan(
        name="expressions",
        steps=(first, *branches, Step(name="end", work=Call(tool="note"))),
        constants=world() | {"large": "z" * 5000},
        language="noetl" if noetl else "refold",
    )


def branch(name: str, text: str, place: int) -> Step:
    failed = Arc(to="end", on="failure")
    work, plain = Call(tool="note"), (Arc(to="end"), failed)
    return PLACES[place](name, text, work, plain) if place < len(PLACES) else on_both(name, text, work)


PLACES: tuple[Callable[[str, str, Call, tuple[Arc, ...]], Step], ...] = (
    lambda name, text, work, arcs: Step(name=name, work=work, arcs=arcs, input={"x": text}),
    lambda name, text, work, arcs: Step(name=name, work=work, arcs=arcs, when=text),
    lambda name, text, work, arcs: Step(name=name, work=work, arcs=(Arc(to="end", when=text), arcs[1])),
    lambda name, text, work, arcs: Step(name=name, work=work, arcs=(Arc(to="end", set={"x": text}), arcs[1])),
    lambda name, text, work, arcs: Step(name=name, work=work, arcs=arcs, set={"y": text}),
    lambda name, text, work, arcs: Step(name=name, work=work, arcs=arcs, loop=Loop(items=[1, 2]), input={"x": text}),
    lambda name, text, work, arcs: Step(name=name, work=work, arcs=arcs, loop=Loop(items=[1, 2, 3], key=text)),
    lambda name, text, work, arcs: Step(name=name, work=work, arcs=(Arc(to="end", input={"x": text}), arcs[1])),
    lambda name, text, work, arcs: Step(
        name=name, work=Quality(source=text, threshold=1, on_fail="continue"), arcs=arcs
    ),
)


def on_both(name: str, text: str, work: Call) -> Step:
    """A condition that raises for the outcome and then for the error of its own: that ends the run."""
    return Step(name=name, work=work, arcs=(Arc(to="end", on="both", when=text),))


async def run_all(engine: Engine, plans: list[Plan], inputs: list[dict[str, Any]]) -> list[str]:
    """Start them, a few at a time, and wait until each has ended."""
    room = asyncio.Semaphore(AT_A_TIME)

    async def one(plan: Plan, input: dict[str, Any]) -> str:
        async with room:
            run = (await engine.start(plan, input)).id
            async with asyncio.timeout(PATIENCE):
                assert (await engine.wait(run)).state.life in TERMINAL
            return run

    return await asyncio.gather(*(one(plan, input) for plan, input in zip(plans, inputs, strict=True)))


async def expressions(first: int, runs: int) -> Counter[str]:
    bodies, seen = Bodies(), Counter[str]()
    async with open_engine({"note": bodies.note}) as engine:
        for start in range(first, first + runs, 500):
            plans = [plan_with_expressions(seed) for seed in range(start, min(start + 500, first + runs))]
            for run in await run_all(engine, plans, [{}] * len(plans)):
                shown = await engine.show(run)
                seen[shown.status] += 1
                settled = completed(await engine.history(run))
                ran = {id: count for (of, id), count in bodies.returned.items() if of == run}
                assert all(count == 1 for count in ran.values()), (run, ran)
                assert ran.keys() <= settled, (run, ran.keys() - settled)
            bodies.begun.clear()
            bodies.returned.clear()
    return seen


def completed(history: Any) -> set[str]:
    """The ids of the commands whose success is in the log."""
    found = set()
    for _, _, fact in history:
        reports = (
            (fact.report,) if isinstance(fact, StepSettled) else fact.reports if isinstance(fact, ItemsSettled) else ()
        )
        for report in reports:
            if isinstance(report.outcome, Succeeded):
                found.add(f"{fact.step}/{fact.visit}" + (f"/{report.item}" if report.item is not None else ""))
    return found


class Odd:
    """An object that raises whatever is done with it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        raise RuntimeError("repr")


def odd_reports() -> list[Any]:
    """Reports whose parts have the wrong type, as a tool of somebody else may build them."""
    make: Any = Done
    good = Succeeded(1)
    return [
        make(good, usage={"n": "many"}),
        make(good, usage={"n": float("nan")}),
        make(good, usage=5),
        make(good, writes=(SetKey("k", Odd()),)),
        make(good, writes=(AddTo("k", "x"),)),  # type: ignore[arg-type]
        make(good, writes=5),
        make(Succeeded(Odd())),
        make(None),
    ]


def odd_value(chance: random.Random, depth: int = 0) -> Any:
    """Something that a body may return: data, data that looks like a mark of the engine, and what is not data."""
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = 1
    for _ in range(chance.choice((10, 200, 5000))):
        deep = [deep]
    leaves = [
        None, True, 0, -1, 2**53, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, float("nan"), float("inf"), "", "é✔",
        "\ud800", "\x00", "x" * 70_000, b"bytes", bytearray(b"b"), {1, 2}, frozenset({1}), (1, 2), range(3), object(),
        Odd(), int, len, lambda: 1, iter([1]), (n for n in (1, 2)), ValueError("returned"), 1 + 2j, circle, deep,
        NotImplemented, ...,
        *odd_reports(),
    ]  # fmt: skip
    if depth > 3 or chance.random() < 0.4:
        return chance.choice(leaves)
    marks = (
        "$usage",
        "$result",
        "$sealed",
        "$refold",
        "$secret",
        "$given",
        "$type",
        "$blob",
        "error",
        "status",
        "data",
    )
    keys: tuple[Any, ...] = (*marks, "a", "", 1, None, ("t",), "\ud800")
    if chance.random() < 0.5:
        return {chance.choice(keys): odd_value(chance, depth + 1) for _ in range(chance.randrange(4))}
    return [odd_value(chance, depth + 1) for _ in range(chance.randrange(4))]


SCHEMAS: tuple[dict[str, Any] | None, ...] = (
    None,
    None,
    {"type": "object"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"type": "array", "items": {"$ref": "#"}},
    {"anyOf": [{"type": "string", "pattern": "^(a+)+$"}, {"type": "number"}, {"type": "null"}]},
)


async def values(first: int, runs: int) -> Counter[str]:
    begun: Counter[tuple[str, str]] = Counter()
    made: dict[str, Any] = {}
    seen = Counter[str]()

    async def give(call: ToolCall) -> Any:
        begun[call.run, call.command.id] += 1
        return made[f"{call.input['seed']}/{call.command.step}"]

    async def look(call: ToolCall) -> Any:
        return None

    def steps(seed: int) -> Plan:
        chance = random.Random(seed)
        names = [f"v{n}" for n in range(VALUES)]
        arcs = (Arc(to="end", on="both"),)
        given = [
            Step(
                name=name,
                work=Call(tool="give"),
                input={"seed": seed},
                retry=Retry(attempts=3),
                result=chance.choice(SCHEMAS),
                arcs=arcs,
            )
            for name in names
        ]
        first = Step(name="first", work=Call(tool="look"), mode="inclusive", arcs=tuple(Arc(to=name) for name in names))
        for name in names:
            made[f"{seed}/{name}"] = odd_value(chance)
        return Plan(name="values", steps=(first, *given, Step(name="end", work=Call(tool="look"))))

    async with open_engine({"give": give, "look": look}) as engine:
        for start in range(first, first + runs, 200):
            plans = [steps(seed) for seed in range(start, min(start + 200, first + runs))]
            for run in await run_all(engine, plans, [{}] * len(plans)):
                shown = await engine.show(run)
                assert shown.status == "completed", (run, shown.error)
                for name, step in shown.steps.items():
                    seen[step["status"]] += name.startswith("v")
                    fault = shown.state.steps[[*shown.steps].index(name)].fault
                    if (
                        fault is None or fault.kind != "schema" or fault.retryable is False
                    ):  # else it may be tried again
                        assert begun[run, f"{name}/1"] <= 1, (run, name, fault)
            made.clear()
            begun.clear()
    return seen


async def test_some_thousand_expressions_end_their_runs_and_no_body_runs_twice() -> None:
    seen = await expressions(FIRST_SEED, 150)
    assert sum(seen.values()) == 150


async def test_some_hundred_odd_values_end_their_runs_and_no_body_runs_twice() -> None:
    seen = await values(FIRST_SEED, 30)
    assert seen["completed"] > 30
    assert seen["failed"] > 30
    assert seen["completed"] + seen["failed"] == 30 * VALUES


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_two_hundred_thousand_expressions_end_their_runs_and_no_body_runs_twice() -> None:
    seen = await expressions(FIRST_SEED, 200_000 // EXPRESSIONS)
    print(f"200,000 expressions in {200_000 // EXPRESSIONS} runs: {dict(seen)}")


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_twenty_thousand_odd_values_end_their_runs_and_no_body_runs_twice() -> None:
    seen = await values(FIRST_SEED, 20_000 // VALUES)
    print(f"20,000 values: {dict(seen)}")
