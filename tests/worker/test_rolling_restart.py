"""Graceful stops in virtual time: processes come and go, and no command is lost, run twice or left waiting."""

import random

import pytest

from refold.core.facts import ItemsSettled, StepSettled
from refold.plan import Loop
from tests.compat.stage import House, Stage, plan, step, work

RESTARTS = 100


@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_restarts_with_two_live_processes_strand_nothing(seed: int) -> None:
    stage, chance = Stage(seed), random.Random(seed)
    each = step("items", "end", work=work(takes=3), loop=Loop(items=list(range(6)), max_in_flight=3))
    shape = plan(step("a", "b", work=work(takes=7)), step("b", "items", work=work(takes=0.5)), each, step("end"))
    keeper = stage.house("office", serves=False)
    old, runs = stage.house(slots=4, lease_for=3.0), list[str]()
    for number in range(RESTARTS):
        new = stage.house(f"new{number}", slots=4, lease_for=3.0)
        if number % 5 == 0:
            runs.append(stage.do(keeper.engine.start(shape), keeper).id)
        stage.pass_time(chance.uniform(0, 2))
        stage.do(old.parts.stop(chance.choice([0.0, 0.0, 1.0, 10.0])), old)
        holds = [queued for queued in stage.store.commands.values() if queued.worker == old.sim.name]
        assert holds == [], "what it held is finished or free for others"
        old.kill()
        old = new
    assert {stage.end(run).status for run in runs} == {"completed"}
    for run in runs:
        reports = [fact.report for fact in stage.facts(run, StepSettled)]
        reports += [report for fact in stage.facts(run, ItemsSettled) for report in fact.reports]
        assert {(report.losses, report.attempt) for report in reports} == {(0, 1)}
    stage.close()


def test_a_process_that_is_stopped_serves_no_more_and_its_parts_end() -> None:
    stage = Stage()
    house = stage.house(serves=False)
    serving = house.sim.spawn(house.parts.serve())
    run = stage.start(plan(step("a", "b", work=work(takes=5)), step("b")))
    stage.pass_time(1)
    stage.do(house.parts.stop(grace=60), house)
    assert stage.until(serving.done, 1.0) and serving.exception() is None
    assert stage.calls() == ["a/1"]
    other: House = stage.house("other")
    assert stage.end(run).status == "completed" and other.sim.alive
    stage.close()
