"""Exceptions of any class, out of expressions, out of turns and out of bodies: every run ends, and no body runs again
after its outcome was known."""

import logging
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from refold.runtime.accept import MailReader
from refold.testing.core import Scripted
from refold.testing.simulator.faults import KINDS, Faults, Rates, draw_error_rates, draw_rates
from refold.testing.simulator.simulation import Simulation, SimulationResult
from tests.simulator.scenarios import Client, Stage

BLOCKS = 2
SEEDS_PER_BLOCK = 50


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each internal error is logged with its traceback, and there are many."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def rates_of(seed: int) -> Rates:
    """Half of the seeds have nothing but these errors, so nothing is lost on the way, and each try begins once."""
    chance = random.Random(f"{seed}/errors")
    rates = draw_error_rates(chance)
    if seed % 2:
        world = draw_rates(chance)
        world.expression, world.decide, world.body = rates.expression, rates.decide, rates.body
        return world
    return rates


def simulate(seed: int, rates: Rates | None = None) -> tuple[SimulationResult, int]:
    """What came of it, and how many bodies began. Raises Violation."""
    rates = rates or rates_of(seed)
    stage, client = Stage(), Client(seed)
    simulation = stage.simulation = Simulation(seed, stage.tools(), Scripted(), rates)
    simulation.oracles.exactly_once = not (rates.error or rates.applied or rates.crash or rates.stall)
    try:
        simulated = simulation.run(client.script)
        if not simulated.faults.get("expression") and not simulated.faults.get("body"):
            client.compare(simulation)
    finally:
        simulation.loop.close()
    return simulated, sum(simulation.oracles.bodies.values())


def check(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        simulated, bodies = simulate(seed)
        seen.update(simulated.faults)
        seen.update(bodies=bodies, runs=len(simulated.runs))
    return seen


@pytest.mark.parametrize("block", range(BLOCKS))
def test_100_seeds_with_errors_of_any_class_end_and_repeat_no_known_outcome(block: int) -> None:
    seen = check(range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK))
    assert min(seen[kind] for kind in ("expression", "decide", "body")) > 20
    assert seen["bodies"] > 700


@pytest.mark.parametrize("seed", [20263977])
def test_seeds_that_once_broke_a_promise_with_errors_of_any_class_keep_it(seed: int) -> None:
    """20263977: a decision that comes too late is refused in the turn that reads the kept report of an item."""
    assert simulate(seed)[0].runs


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(50))
def test_5000_seeds_with_errors_of_any_class_end_and_repeat_no_known_outcome(block: int) -> None:
    first = int(os.environ.get("REFOLD_FIRST_SEED", "1000")) + 100 * block
    seen = check(range(first, first + 100))
    print(f"\nseeds {first} to {first + 99}: {dict(seen)}; 0 bodies after their outcome was known, 0 runs without end")
    assert min(seen[kind] for kind in ("expression", "decide", "body")) > 15


def test_errors_of_turns_come_while_mail_is_accepted_and_while_rules_are_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Counter[str] = Counter()
    accepting = 0

    def watched(call: Callable[..., Any]) -> Callable[..., Any]:
        def accept(*given: Any) -> Any:
            nonlocal accepting
            accepting += 1
            try:
                return call(*given)
            finally:
                accepting -= 1

        return accept

    def strike(faults: Faults, run: str) -> None:
        try:
            strike_turn(faults, run)
        except BaseException:
            seen["accept" if accepting else "rules"] += 1
            raise

    strike_turn = Faults.strike_turn
    monkeypatch.setattr(Faults, "strike_turn", strike)
    for name in ("read", "accept", "ring", "flush"):
        monkeypatch.setattr(MailReader, name, watched(getattr(MailReader, name)))
    for seed in range(4):
        simulate(seed, Rates(decide=0.1))
    assert seen["accept"] > 5 and seen["rules"] > 5


def test_the_same_seed_gives_the_same_bytes_with_errors_too() -> None:
    for seed in (2, 3):
        assert simulate(seed)[0].digest == simulate(seed)[0].digest


def test_errors_are_of_every_class_that_python_has() -> None:
    kinds = {type(Faults(Rates(), random.Random(n)).error()).__name__ for n in range(2000)}
    assert kinds == {kind.__name__ for kind in KINDS}
    assert {"SystemExit", "GeneratorExit", "CancelledError", "RecursionError", "MemoryError", "Panic"} <= kinds
    assert {"StopIteration", "StopAsyncIteration", "TimeoutError", "Speechless", "BaseException"} <= kinds
