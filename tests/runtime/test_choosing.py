"""Items that somebody chooses in a running engine: run again while the loop goes on or after the end, or taken back."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from refold.core.facts import ItemsCancelled, ItemsReopened, RunReopened
from refold.core.plan import plan_hash
from refold.errors import CannotMigrate, Conflict, NotFound
from refold.plan import Call, Child, Plan
from refold.ports import ToolCall
from tests.compat.runkon.foreach import alone, begun, do_item, each, item, states
from tests.compat.stage import Refusal, Stage, plan, step, work


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    stage.tools["item"] = do_item
    yield stage
    stage.close()


def mended(stage: Stage) -> list[bool]:
    """Items called `bad…` fail until something is in this list."""
    told: list[bool] = []

    async def flaky(call: ToolCall) -> Any:
        if call.input["id"].startswith("bad") and not told:
            raise Refusal(kind="boom", message="it broke")
        return await do_item(call)

    stage.tools["item"] = flaky
    return told


def refused(stage: Stage, what: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        stage.do(what)


def test_a_failed_item_is_run_again_while_its_loop_goes_on(stage: Stage) -> None:
    told = mended(stage)
    run = stage.start(alone(each([item("bad"), item("b", "bad"), item("c", how="slow")])))
    stage.pass_time(1)
    told.append(True)
    stage.do(stage.engine.retry_items(run, "each", [0], by="ann"))
    stage.settle_down()
    assert begun(stage) == [0, 2, 0, 1]
    shown = stage.end(run)
    assert (shown.status, states(shown)) == ("completed", ["completed"] * 3)
    assert [(fact.items, fact.by) for fact in stage.facts(run, ItemsReopened)] == [((0,), "ann")]


def test_without_a_choice_all_that_failed_or_were_cancelled_are_run_again(stage: Stage) -> None:
    told = mended(stage)
    run = stage.start(alone(each([item("bad"), item("b", how="slow"), item("bad2"), item("d", how="slow")])))
    stage.pass_time(1)
    stage.do(stage.engine.cancel_items(run, "each", [1]))
    told.append(True)
    stage.do(stage.engine.retry_items(run, "each"))
    stage.settle_down()
    assert begun(stage) == [0, 1, 2, 3, 0, 1, 2]
    assert stage.end(run).status == "completed"


def test_one_item_is_taken_back_and_its_worker_is_told(stage: Stage) -> None:
    stopped: list[float] = []

    async def watched(call: ToolCall) -> Any:
        try:
            return await do_item(call)
        except asyncio.CancelledError:
            stopped.append(stage.loop.time())
            raise

    stage.tools["item"] = watched
    items = [item("a", how="slow", takes=1000), item("b", "a"), item("c", how="slow", takes=100)]
    run = stage.start(alone(each(items)))
    stage.pass_time(1)
    stage.do(stage.engine.cancel_items(run, "each", [0], by="ann"))
    stage.pass_time(50)
    assert len(stopped) == 1 and sorted(stage.show(run).state.open) == ["each/1/2"], "while the loop goes on"
    shown = stage.end(run)
    assert (shown.status, states(shown)) == ("completed", ["cancelled", "skipped", "completed"])
    assert [(fact.items, fact.by) for fact in stage.facts(run, ItemsCancelled)] == [((0,), "ann")]


def test_what_cannot_be_chosen_is_refused_and_changes_nothing(stage: Stage) -> None:
    mended(stage)
    items = [item("a"), item("bad"), item("c", how="slow"), item("d", "c")]
    run = stage.start(alone(each(items)))
    stage.pass_time(1)
    engine, before = stage.engine, stage.history(run)
    refused(stage, engine.retry_items(run, "each", [0]), Conflict, "item 0 has completed")
    refused(stage, engine.retry_items(run, "each", [2]), Conflict, "item 2 is not over yet")
    refused(stage, engine.retry_items(run, "each", [3]), Conflict, "item 3 is not over yet")
    refused(stage, engine.retry_items(run, "each", [4]), NotFound, "no item 4; there are 4, and the first is 0")
    refused(stage, engine.cancel_items(run, "each", [0]), Conflict, "item 0 has completed")
    refused(stage, engine.cancel_items(run, "each", [2, 1]), Conflict, "item 1 of 'each' is over already")
    refused(stage, engine.cancel_items(run, "each", [-1]), NotFound, "there is no item -1")
    refused(stage, engine.retry_items(run, "nope"), NotFound, "has no step 'nope'; it has each")
    assert stage.history(run) == before


def test_a_step_without_items_or_not_begun_has_none_to_choose(stage: Stage) -> None:
    loop = alone(each([item("a")])).steps[0]
    run = stage.start(plan(step("first", "each", work=work(takes=10)), loop))
    before = stage.history(run)
    refused(stage, stage.engine.retry_items(run, "first"), Conflict, "step 'first' has no items$")
    refused(stage, stage.engine.cancel_items(run, "each", [0]), Conflict, "step 'each' has no items yet")
    assert stage.history(run) == before


def test_items_of_a_step_that_is_over_wait_for_the_end_of_the_run(stage: Stage) -> None:
    mended(stage)
    loop = each([item("a"), item("bad")], tolerate=1).steps[0]
    first = step("each", "long", loop=loop.loop, work=loop.work, input=loop.input)
    run = stage.start(plan(first, step("long", work=work(takes=10))))
    stage.pass_time(1)
    refused(stage, stage.engine.retry_items(run, "each", [1]), Conflict, "wait for its end or cancel it")
    refused(stage, stage.engine.cancel_items(run, "each", [1]), Conflict, "step 'each' is over")
    assert stage.end(run).status == "completed"
    stage.do(stage.engine.retry_items(run, "each", [1]))
    assert stage.end(run).status == "completed" and begun(stage) == [0, 1, 1]


def test_what_was_tolerated_is_run_again_after_the_end_and_nothing_that_follows(stage: Stage) -> None:
    told = mended(stage)
    run = stage.start(each([item("a"), item("bad"), item("bad2")], tolerate=2))
    assert stage.end(run).status == "completed"
    told.append(True)
    stage.do(stage.engine.retry_items(run, ""))
    shown = stage.end(run)
    assert states(shown) == ["completed"] * 3 and begun(stage) == [0, 1, 2, 1, 2]
    assert stage.calls("tell") == ["tell/1"] and len(stage.facts(run, RunReopened)) == 1
    refused(stage, stage.engine.retry_items(run, ""), Conflict, "has tolerated no failure")
    refused(stage, stage.engine.retry_items(run, "each"), Conflict, "no item of 'each' has failed or was cancelled")


def test_a_loop_that_halts_wants_all_failed_items_chosen(stage: Stage) -> None:
    told = mended(stage)
    run = stage.start(alone(each([item("bad"), item("bad2"), item("c")], max_in_flight=2, on_item_error="stop")))
    assert stage.end(run).status == "failed" and states(stage.show(run)) == ["failed", "failed", "waiting"]
    told.append(True)
    why = "item 1 failed too, and step 'each' begins nothing after a failure: choose it as well, or choose none"
    refused(stage, stage.engine.retry_items(run, "each", [0]), Conflict, why)
    stage.do(stage.engine.retry_items(run, "each", [0, 1]))
    shown = stage.end(run)
    assert (shown.status, begun(stage)) == ("completed", [0, 1, 0, 1, 2])


def test_items_of_a_run_that_another_started_are_retried_there(stage: Stage) -> None:
    mended(stage)
    child = alone(each([item("bad")], work=Call(tool="item")))
    run = stage.start(Plan(name="parent", steps=(step("sub", work=Child(plan=stage.register(child))),)))
    assert stage.end(run).status == "failed"
    [kid] = [row.run for row in stage.store.rows.values() if row.parent == run]
    refused(stage, stage.engine.retry_items(kid, "each", [0]), Conflict, f"was started by run {run}: retry that one")


def test_a_failed_run_is_retried_by_another_plan_or_stays_as_it_is(stage: Stage) -> None:
    told: list[bool] = []

    async def flaky(call: ToolCall) -> Any:
        if call.command.step == "a" and not told:
            raise Refusal(kind="boom", message="it broke")
        return call.command.step

    stage.tools["item"] = flaky
    first, last = Call(tool="item"), step("b", work=Call(tool="item"))
    run = stage.start(plan(step("a", "b", work=first), last))
    assert stage.end(run).status == "failed"
    longer = plan(step("a", "c", work=first), step("c", "b", work=Call(tool="item")), last)
    other = plan(step("z", work=first))
    for known in (longer, other):
        stage.do(stage.engine.register(known))
    told.append(True)
    refused(stage, stage.engine.retry(run, plan=plan_hash(other)), CannotMigrate, "begins with z")
    assert stage.end(run).status == "failed" and stage.facts(run, RunReopened) == []
    stage.do(stage.engine.retry(run, plan=plan_hash(longer), by="ann"))
    assert (stage.end(run).status, stage.end(run).result) == ("completed", "b")
    assert [fact.by for fact in stage.facts(run, RunReopened)] == ["ann"]
