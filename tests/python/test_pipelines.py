"""Pipelines of workflows: what goes from stage to stage, what runs at once, what is repeated, and what may go wrong."""

import asyncio
from typing import Any

import pytest

from refold import Context, Retry, StartEvent, StopEvent, Workflow, flow, run_sync, step, testing
from refold.core.plan import Call, Plan, Step
from refold.errors import InvalidPlan, StepFailed
from refold.python.definition import define
from refold.stages import (
    LoopDecision,
    LoopStage,
    ParallelStage,
    Pipeline,
    PipelineResult,
    PipelineState,
    Stage,
    StageFailed,
)
from tests.python.house import error, result, started


@flow
async def double(ctx: Context, value: int) -> int:
    ctx.usage(tokens=value)
    return value * 2


@flow
async def told(ctx: Context, **inputs: Any) -> Any:
    return inputs


@flow
async def fails(ctx: Context, **inputs: Any) -> Any:
    raise ValueError("broken")


class Report(StopEvent):
    pages: tuple[int, ...] = ()


class Counting(Workflow):
    @step
    async def only(self, ev: StartEvent) -> Report:
        return Report(pages=(1, 2))


def stage_failure(caught: BaseException) -> StageFailed:
    assert isinstance(caught, StepFailed), caught
    cause = caught.__cause__
    assert isinstance(cause, StageFailed), cause
    return cause


async def test_what_a_stage_gives_is_what_the_next_one_gets() -> None:
    pipeline = Pipeline("p", [Stage("first", double), Stage("second", double), Stage("last", told)])
    done: PipelineResult = await result(pipeline, value=3)
    assert (done.pipeline, done.output) == ("p", {"value": 12})
    assert [(each.name, each.output, each.skipped) for each in done.stages] == [
        ("first", 6, False),
        ("second", 12, False),
        ("last", {"value": 12}, False),
    ]
    assert [each.usage for each in done.stages] == [{"tokens": 3}, {"tokens": 6}, {}]
    assert len({each.run for each in done.stages}) == 3 and all(each.run for each in done.stages)
    assert all(0 < each.duration < 20 for each in done.stages)


async def test_a_map_is_given_as_inputs_and_the_first_stage_gets_those_of_the_pipeline() -> None:
    pipeline = Pipeline("p", [Stage("a", told), Stage("b", told)])
    assert (await result(pipeline, x=1, y=(2,))).output == {"x": 1, "y": (2,)}


async def test_a_function_chooses_the_inputs_from_all_that_is_known() -> None:
    def chosen(state: PipelineState) -> dict[str, Any]:
        return {"input": state.input, "last": state.last, "first": state.result("first"), "later": state.result("c")}

    pipeline = Pipeline("p", [Stage("first", double), Stage("b", double), Stage("c", told, input=chosen)])
    assert (await result(pipeline, value=1)).output == {"input": {"value": 1}, "last": 4, "first": 2, "later": None}


async def test_a_function_may_be_async_and_may_give_an_event() -> None:
    async def chosen(state: PipelineState) -> StartEvent:
        await asyncio.sleep(0)
        return StartEvent(value=20)

    assert (await result(Pipeline("p", [Stage("a", double, input=chosen)]))).output == 40


@pytest.mark.parametrize(("said", "output"), [(1, 12), ("yes", 12), (True, 12), (0, 6), (None, 6), ([], 6)])
async def test_a_stage_is_run_if_its_condition_is_true_or_something_like_it(said: Any, output: int) -> None:
    pipeline = Pipeline("p", [Stage("a", double), Stage("b", double, when=lambda state: said)])
    done = await result(pipeline, value=3)
    assert done.output == output
    assert done.stage("b").skipped is (output == 6)
    assert done.stage("b").output == (None if output == 6 else 12)


async def test_after_a_stage_that_was_skipped_comes_what_was_before_it() -> None:
    pipeline = Pipeline("p", [Stage("a", double), Stage("b", fails, when=lambda state: False), Stage("c", double)])
    done = await result(pipeline, value=1)
    assert done.output == 4
    assert done.stage("b").run == ""


async def test_a_pipeline_that_skips_everything_gives_nothing() -> None:
    done = await result(Pipeline("p", [Stage("a", fails, when=lambda state: False)]), value=1)
    assert (done.output, done.stages[0].skipped) == (None, True)


def boom(state: PipelineState, *more: Any) -> Any:
    raise KeyError("boom")


@pytest.mark.parametrize(
    ("stage", "name", "what"),
    [
        (Stage("s", told, input=boom), "s", "input"),
        (Stage("s", told, when=boom), "s", "when"),
        (ParallelStage("both", [Stage("a", told), Stage("b", told, input=boom)]), "both::b", "input"),
        (LoopStage("again", Stage("s", told), until=boom, max_rounds=3), "again[1]", "until"),
        (LoopStage("again", Stage("s", told, when=boom), until=lambda *_: True, max_rounds=3), "again[1]", "when"),
    ],
)
async def test_a_function_that_raises_fails_its_stage_by_name(stage: Any, name: str, what: str) -> None:
    failed = stage_failure(await error(Pipeline("p", [stage])))
    assert failed.stage == name
    assert str(failed) == f"stage {name!r} failed: its `{what}` raised KeyError: 'boom'"
    assert isinstance(failed.__cause__, KeyError)


async def test_a_callback_after_each_stage_is_called_once_and_its_failure_is_reported() -> None:
    seen: list[Any] = []

    def after(state: PipelineState, done: Any) -> None:
        seen.append((done.name, done.output, state.result(done.name)))
        if done.name == "b":
            raise OSError("no room")

    pipeline = Pipeline("p", [Stage("a", double), Stage("b", double), Stage("c", double)], on_stage=after)
    failed = stage_failure(await error(pipeline, value=1))
    assert str(failed) == "stage 'b' failed: its `on_stage` raised OSError: no room"
    assert seen == [("a", 2, 2), ("b", 4, 4)]


async def test_a_workflow_that_fails_fails_its_stage() -> None:
    caught = await error(Pipeline("p", [Stage("a", told), Stage("b", fails)]))
    failed = stage_failure(caught)
    assert failed.stage == "b"
    assert "broken" in str(failed)
    assert "step 'b'" in str(caught) and "broken" in str(caught)


async def test_branches_run_at_once_and_give_a_map_in_their_order() -> None:
    both = asyncio.Barrier(2)

    @flow
    async def meets(ctx: Context, value: int) -> int:
        await asyncio.wait_for(both.wait(), 60)
        return value + 1

    branches = [Stage("x", meets), Stage("y", meets, input=lambda state: 7), Stage("z", fails, when=lambda state: 0)]
    done = await result(Pipeline("p", [ParallelStage("both", branches)]), value=1)
    assert done.output == {"x": 2, "y": 8, "z": None}
    assert list(done.output) == ["x", "y", "z"]
    [stage] = done.stages
    assert [(each.name, each.output, each.skipped) for each in stage.branches] == [
        ("x", 2, False),
        ("y", 8, False),
        ("z", None, True),
    ]
    assert [bool(each.run) for each in stage.branches] == [True, True, False]


def waiting(marks: list[str]) -> Any:
    """A workflow that would leave a mark if it were not stopped."""

    @flow
    async def waits(ctx: Context, **inputs: Any) -> None:
        marks.append("begun")
        try:
            await asyncio.sleep(30)
            marks.append("ended")
        finally:
            marks.append("cleaned up")

    return waits


async def after(marks: list[str]) -> list[str]:
    async with asyncio.timeout(60):
        while "cleaned up" not in marks:
            await asyncio.sleep(0.01)
    return marks


def when_begun(marks: list[str], does: Any) -> Any:
    @flow
    async def then(ctx: Context, **inputs: Any) -> Any:
        async with asyncio.timeout(60):
            while not marks:
                await asyncio.sleep(0.01)
        return does()

    return then


async def test_a_failing_branch_cancels_the_others_for_real() -> None:
    marks: list[str] = []
    branches = [Stage("waits", waiting(marks)), Stage("fails", when_begun(marks, lambda: 1 / 0))]
    failed = stage_failure(await error(Pipeline("p", [ParallelStage("both", branches)])))
    assert failed.stage == "both::fails"
    assert await after(marks) == ["begun", "cleaned up"]


@pytest.mark.usefixtures("parked")
async def test_the_first_success_is_enough_and_the_others_are_cancelled_for_real() -> None:
    marks: list[str] = []
    branches = [
        Stage("waits", waiting(marks)),
        Stage("fails", fails),
        Stage("wins", when_begun(marks, lambda: "won")),
    ]
    pipeline = Pipeline("p", [ParallelStage("race", branches, join="first"), Stage("next", told)])
    async with started(pipeline) as handle:
        done = await asyncio.wait_for(handle.result(), 60)
        assert done.stage("race").output == {"wins": "won"}
        assert done.output == {"wins": "won"}
        assert [(each.name, each.skipped) for each in done.stage("race").branches] == [
            ("waits", True),
            ("fails", True),
            ("wins", False),
        ]
        assert await after(marks) == ["begun", "cleaned up"]
        loser = done.stage("race").branches[0].run
        assert (await handle.engine.show(loser)).state.life == "cancelled"


@pytest.mark.usefixtures("parked")
async def test_the_losers_of_a_round_are_gone_before_the_loop_is() -> None:
    marks: list[str] = []

    @flow
    async def wins(ctx: Context, **inputs: Any) -> str:
        async with asyncio.timeout(60):
            while marks.count("begun") <= marks.count("cleaned up"):
                await asyncio.sleep(0.01)
        return "won"

    def until(state: PipelineState, round: int) -> bool:
        return round == 3

    @flow
    async def waits(ctx: Context, **inputs: Any) -> None:
        async with asyncio.timeout(60):
            while marks.count("begun") > marks.count("cleaned up"):
                await asyncio.sleep(0.01)  # for the one before
        await waiting(marks)(ctx)

    race = ParallelStage("race", [Stage("waits", waits), Stage("wins", wins)], join="first")
    done = await result(Pipeline("p", [LoopStage("loop", race, until=until, max_rounds=9)]))
    assert (done.output, done.stages[0].rounds) == ({"wins": "won"}, 3)
    assert marks == ["begun", "cleaned up"] * 3


async def test_if_no_branch_succeeds_the_stage_fails_and_tells_of_all() -> None:
    branches = [Stage("a", fails), Stage("b", fails)]
    failed = stage_failure(await error(Pipeline("p", [ParallelStage("race", branches, join="first")])))
    assert failed.stage == "race"
    assert "race::a: fails: ValueError: broken; race::b: fails: ValueError: broken" in str(failed)


async def test_a_race_in_which_nobody_takes_part_is_skipped() -> None:
    branches = [Stage("a", fails, when=lambda state: False)]
    for stage in (ParallelStage("race", branches), ParallelStage("race", branches, "first")):
        done = await result(Pipeline("p", [stage]))
        assert (done.output, done.stages[0].skipped) == (None, True)


async def test_a_loop_goes_on_from_round_to_round_until_it_is_told_to_end() -> None:
    rounds: list[tuple[int, Any, Any]] = []

    def until(state: PipelineState, round: int) -> bool:
        rounds.append((round, state.last, state.result("grow")))
        return bool(state.last > 20)

    pipeline = Pipeline("p", [LoopStage("grow", Stage("s", double), until=until, max_rounds=99), Stage("n", told)])
    done = await result(pipeline, value=3)
    assert done.output == {"value": 24}
    assert rounds == [(1, 6, 6), (2, 12, 12), (3, 24, 24)]
    assert (done.stage("grow").rounds, done.stage("grow").usage) == (3, {"tokens": 3 + 6 + 12})


async def test_the_last_round_that_is_allowed_is_a_success() -> None:
    loop = LoopStage("grow", Stage("s", double), until=lambda state, n: LoopDecision.cont(), max_rounds=4)
    done = await result(Pipeline("p", [loop]), value=1)
    assert (done.output, done.stages[0].rounds) == (16, 4)


async def test_a_loop_may_give_up() -> None:
    def until(state: PipelineState, round: int) -> LoopDecision:
        return LoopDecision.abort("too dull") if round == 2 else LoopDecision.cont()

    loop = LoopStage("grow", Stage("s", double), until=until, max_rounds=4)
    failed = stage_failure(await error(Pipeline("p", [loop]), value=1))
    assert str(failed) == "stage 'grow[2]' failed: its `until` gave up: too dull"


async def test_a_loop_runs_its_branches_in_every_round() -> None:
    inner = ParallelStage(
        "inner",
        [
            Stage("a", double, input=lambda state: (state.last or {"a": 1})["a"]),
            Stage("b", double, input=lambda state: 5, when=lambda state: state.last is None),
        ],
    )
    loop = LoopStage("grow", inner, until=lambda state, n: LoopDecision.done() if n == 3 else None, max_rounds=9)
    done = await result(Pipeline("p", [loop]))
    assert done.output == {"a": 8, "b": None}
    assert done.stages[0].usage == {"tokens": 1 + 2 + 4 + 5}


@pytest.mark.usefixtures("parked")
async def test_functions_share_a_state_that_is_recorded_and_are_asked_once() -> None:
    asked: list[str] = []

    def first(state: PipelineState) -> dict[str, Any]:
        asked.append("input")
        state.set("seen", [1])
        state.set("gone", True)
        return {}

    def second(state: PipelineState) -> bool:
        asked.append("when")
        state.set("seen", [*state.get("seen"), 2])
        state.delete("gone")
        assert state.get("gone", "nothing") == "nothing" and state.keys() == ["seen"]
        return True

    @flow
    async def naps(ctx: Context) -> None:
        await ctx.sleep(0.01)

    pipeline = Pipeline("p", [Stage("a", naps, input=first), Stage("b", naps, when=second), Stage("c", told)])
    done = await result(pipeline)
    assert done.state == {"seen": [1, 2]}
    assert asked == ["input", "when"]


async def test_a_state_that_was_kept_can_be_read_and_not_written() -> None:
    kept: list[PipelineState] = []

    def chosen(state: PipelineState) -> int:
        kept.append(state)
        return 4

    await result(Pipeline("p", [Stage("a", double, input=chosen)]))
    assert (kept[0].get("x", "none"), kept[0].input) == ("none", {})
    with pytest.raises(Exception, match="has returned"):
        kept[0].set("x", 1)


async def test_what_cannot_be_stored_is_refused_where_it_was_written() -> None:
    def chosen(state: PipelineState) -> None:
        state.set("lock", asyncio.Lock())

    failed = stage_failure(await error(Pipeline("p", [Stage("a", told, input=chosen)])))
    assert failed.stage == "a"
    assert "wrote.lock: a Lock cannot be stored exactly" in str(failed)


async def test_objects_go_from_stage_to_stage_as_what_they_are() -> None:
    seen: list[Any] = []
    pipeline = Pipeline("p", [Stage("a", Counting), Stage("b", told, input=lambda state: seen.append(state.last))])
    done = await result(pipeline)
    assert seen == [Report(pages=(1, 2))]
    assert done.stage("a").output == Report(pages=(1, 2))


def flaky(tries: list[int], retry: Retry | None = None, of_step: Retry | None = None) -> Workflow:
    @step(retry=of_step)
    async def only(ev: StartEvent) -> StopEvent:
        tries.append(1)
        raise ConnectionError("away")

    return Workflow("flaky", [only], retry=retry)


async def test_a_call_a_step_a_workflow_and_a_pipeline_say_how_often_in_this_order() -> None:
    async def tried(pipeline: Retry | None, workflow: Retry | None, of_step: Retry | None) -> int:
        tries: list[int] = []
        stages = [Stage("a", flaky(tries, workflow, of_step))]
        await error(Pipeline("p", stages, retry=pipeline))
        return len(tries)

    assert await tried(None, None, None) == 1
    assert await tried(Retry(attempts=2), None, None) == 2
    assert await tried(Retry(attempts=2), Retry(attempts=3), None) == 3
    assert await tried(Retry(attempts=2), Retry(attempts=3), Retry(attempts=4)) == 4
    calls: list[int] = []

    async def call() -> None:
        calls.append(1)
        raise ConnectionError("away")

    @flow
    async def calling(ctx: Context) -> None:
        await ctx.options(retry=Retry(attempts=5)).call(call)

    await error(Pipeline("p", [Stage("a", calling)]))
    assert len(calls) == 5


async def test_the_retry_of_a_pipeline_reaches_every_kind_of_workflow_and_changes_none() -> None:
    times = {"flow": 0, "class": 0, "inner": 0}

    def count(name: str) -> None:
        times[name] += 1
        if times[name] == 1:
            raise ConnectionError("away")

    @flow
    async def of_flow(ctx: Context) -> None:
        count("flow")

    class OfClass(Workflow):
        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            count("class")
            return StopEvent()

    @flow
    async def innermost(ctx: Context) -> None:
        count("inner")

    loop = LoopStage("loop", Stage("x", of_flow), until=lambda *_: True, max_rounds=1)
    both = ParallelStage("both", [Stage("y", OfClass), Stage("z", Pipeline("inner", [Stage("in", innermost)]))])
    await result(Pipeline("p", [loop, both], retry=Retry(attempts=2)))
    assert times == {"flow": 2, "class": 2, "inner": 2}
    assert [define(each).plan.steps[0].retry.attempts for each in (of_flow, OfClass, innermost)] == [1, 1, 1]


def late(pipeline: Pipeline, marks: list[str]) -> BaseException:
    """What it fails with in virtual time; what it leaves has time to clean up."""
    with testing.engine() as t:
        with pytest.raises(Exception) as caught:
            t.run(pipeline)
        t.advance("1m")
        assert not marks or marks[-1] == "cleaned up"
    return caught.value


def test_a_stage_has_its_time_and_what_runs_then_is_cancelled() -> None:
    for wrapped in (
        lambda stage: stage,
        lambda stage: ParallelStage("slow", [stage]),
        lambda stage: ParallelStage("slow", [stage], "first"),
        lambda stage: LoopStage("slow", stage, until=lambda *_: False, max_rounds=9),
    ):
        marks: list[str] = []
        pipeline = Pipeline("p", [wrapped(Stage("slow", waiting(marks)))], stage_timeout="200ms")
        failed = stage_failure(late(pipeline, marks))
        assert failed.stage.startswith("slow") and "within 0.2" in str(failed)
        assert marks[-1] == "cleaned up" and "ended" not in marks


def test_the_time_of_a_stage_is_that_of_all_its_rounds() -> None:
    @flow
    async def naps(ctx: Context) -> None:
        await ctx.sleep(0.15)

    loop = LoopStage("slow", Stage("s", naps, input=lambda state: {}), until=lambda *_: False, max_rounds=50)
    failed = stage_failure(late(Pipeline("p", [loop], stage_timeout=0.5), []))
    assert failed.stage == "slow[4]"


def test_a_pipeline_has_its_time_too() -> None:
    marks: list[str] = []
    assert "no end after 0.3 s" in str(late(Pipeline("p", [Stage("slow", waiting(marks))], timeout=0.3), marks))
    assert marks == ["begun", "cleaned up"]


async def test_a_pipeline_in_a_pipeline_gives_what_its_last_stage_gives() -> None:
    inner = Pipeline("inner", [Stage("a", double), Stage("b", double)])
    outer = Pipeline("outer", [Stage("inner", inner), Stage("last", double)])
    done = await result(outer, value=1)
    assert (done.output, done.stage("inner").usage) == (8, {"tokens": 3})


async def test_a_body_starts_a_pipeline_and_a_pipeline_a_playbook() -> None:
    plan = Plan(name="book", steps=(Step(name="only", work=Call(tool="noop")),))
    pipeline = Pipeline("p", [Stage("book", plan), Stage("then", told, input=lambda state: {"gave": state.last})])

    @flow
    async def parent(ctx: Context) -> Any:
        return (await ctx.run_child(pipeline)).output

    assert await result(parent) == {"gave": None}


def test_a_pipeline_runs_without_an_event_loop() -> None:
    assert run_sync(Pipeline("p", [Stage("a", double)]), value=4).output == 8


def unfit(**changed: Any) -> Any:
    return LoopStage(**{"name": "l", "stage": Stage("s", told), "until": boom, "max_rounds": 3, **changed})


@pytest.mark.parametrize(
    ("name", "stages", "why"),
    [
        ("p", [], "pipeline 'p' has no stages"),
        ("", [Stage("a", told)], "a pipeline needs a name"),
        ("p", [Stage("a", told), Stage("b", told), Stage("a", told)], "2 stages of pipeline 'p' are called 'a'"),
        ("p", [Stage("", told)], "'' cannot be the name of a stage"),
        ("p", [Stage(" ", told)], "' ' cannot be the name of a stage"),
        ("p", [Stage("a/b", told)], "'a/b' cannot be the name of a stage"),
        ("p", [Stage("a::b", told)], "'a::b' cannot be the name of a stage"),
        ("p", [told], "is not a stage: write Stage"),
        ("p", [Stage("a", 3)], "stage 'a': 3 is not a workflow"),
        ("p", [Stage("a", told, input=3)], "stage 'a': input is a int"),  # type: ignore[arg-type]
        ("p", [Stage("a", told, when=True)], "stage 'a': when is a bool"),  # type: ignore[arg-type]
        ("p", [ParallelStage("b", [])], "stage 'b' has no branches"),
        ("p", [ParallelStage("b", [Stage("x", told), Stage("x", told)])], "2 branches of stage 'b' are called 'x'"),
        ("p", [ParallelStage("b", [Stage("x", told)], "last")], "join is 'last'"),  # type: ignore[arg-type]
        ("p", [ParallelStage("b", [unfit()])], "a branch is a Stage, and this is a LoopStage"),
        ("p", [ParallelStage("b", [Stage("x", 3)])], "stage 'x': 3 is not a workflow"),
        ("p", [unfit(max_rounds=0)], "max_rounds is 0"),
        ("p", [unfit(until=3)], "until is a int"),
        ("p", [unfit(stage=unfit())], "a loop repeats a Stage or a ParallelStage, and no LoopStage"),
    ],
)
def test_what_is_wrong_is_found_when_the_pipeline_is_made(name: str, stages: Any, why: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        Pipeline(name, stages)
    assert why in str(caught.value)


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidPlan, match="has no attempts; it has retry, timeout"):
        Pipeline("p", [Stage("a", told)], attempts=3)  # type: ignore[call-arg]


def test_a_change_of_the_stages_is_a_change_of_the_workflow() -> None:
    def hash_of(*stages: Any, **options: Any) -> str:
        return define(Pipeline("p", stages, **options)).hash

    one, two = Stage("x", told), Stage("y", told)
    plain = hash_of(one)
    assert plain == hash_of(Stage("x", double, when=boom))  # bodies do not count
    seen = {
        plain,
        hash_of(one, two),
        hash_of(one, stage_timeout=3),
        hash_of(ParallelStage("x", [one])),
        hash_of(ParallelStage("x", [one, two])),
        hash_of(ParallelStage("x", [one, two], "first")),
        hash_of(LoopStage("x", one, boom, 3)),
        hash_of(LoopStage("x", one, boom, 4)),
        hash_of(LoopStage("x", ParallelStage("x", [one]), boom, 4)),
    }
    assert len(seen) == 9


async def test_a_body_may_make_pipelines() -> None:
    @flow
    async def makes(ctx: Context) -> Any:
        return (await ctx.run_child(Pipeline("made", [Stage("a", double)]), value=1)).output

    assert await result(makes) == 2
