"""What goes wrong on a first day, and what is said about it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import Context, Retry, StartEvent, StopEvent, Workflow, flow, open_engine, step
from refold.errors import InvalidPlan, InvalidValue, StepFailed
from refold.plan import Call, Plan, Step
from refold.python.definition import define
from refold.settings import Settings
from tests.python.house import SHORT, result


async def greet(ev: StartEvent) -> StopEvent:
    return StopEvent(result=f"Hello, {ev.name}!")


class Greeting(StartEvent):
    name: str
    key: int = 0
    db: str = "none"
    plan: str = ""


class Greets(Workflow):
    @step
    async def greet(self, ev: Greeting) -> StopEvent:
        return StopEvent(result=f"{ev.name}/{ev.key}/{ev.db}/{ev.plan}")


@flow
async def letter(ctx: Context, name: str, run: int = 1) -> str:
    return f"{name}/{run}"


@flow
def plainly(ctx: Any, n: int, times: int = 2) -> list[Any]:
    ctx.sleep(0.01)
    return [ctx.call(double_of, n) * times, threading.current_thread() is threading.main_thread()]


def double_of(n: int) -> int:
    return n * 2


async def double(ev: StartEvent) -> StopEvent:
    return StopEvent(result=ev.n * 2)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_an_input_can_have_the_name_of_an_option_in_a_map_and_as_a_keyword() -> None:
    assert refold.run_sync(Workflow("hello", [greet]), {"name": "Ada"}) == "Hello, Ada!"
    assert refold.run_sync(Workflow("hello", [greet]), name="Ada") == "Hello, Ada!"


def test_an_input_that_is_missing_is_named_with_those_that_are_there() -> None:
    with pytest.raises(StepFailed) as failed:
        refold.run_sync(Workflow("double", [double]), m=1)
    assert "without 'n'; it has m" in str(failed.value) and "in a map" not in str(failed.value)


def test_a_failure_tells_of_nothing_but_itself() -> None:
    with pytest.raises(StepFailed) as failed:
        refold.run_sync(Workflow("double", [double]), n=None)
    assert [type(each).__name__ for each in chain(failed.value)] == ["StepFailed", "TypeError"]


async def test_a_workflow_runs_in_one_call_inside_a_loop_too() -> None:
    assert refold.run_sync(Workflow("double", [double]), n=2) == 4


def test_a_keyword_is_an_input_whatever_else_it_could_mean() -> None:
    told: dict[str, Any] = {"name": "Ada", "key": 7, "db": "mine", "plan": "b"}
    assert refold.run_sync(Greets, **told) == "Ada/7/mine/b"
    assert refold.run_sync(letter, name="", run=3) == "/3"


async def test_options_speak_of_the_run_and_not_of_its_inputs() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.options(name="first", key="k").start(Greets, {"name": "Ada"})
        assert await handle.result() == "Ada/0/none/"
        shown = await engine.show(handle.id)
        assert (shown.name, shown.state.key) == ("first", "k")
        again = await engine.options(key="k").start(Greets, name="Eve")
        assert again.id == handle.id
        named = await engine.start(Greets, name="Ada")
        assert (await named.result(), (await engine.show(named.id)).name) == ("Ada/0/none/", "")


def test_an_option_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    assert refold.options(db=str(file)).run_sync(Greets, name="Ada") == "Ada/0/none/"
    assert file.exists()


async def test_what_a_child_declares_is_its_input_too() -> None:
    class Timed(StartEvent):
        timeout: str

    class Child(Workflow):
        @step
        async def only(self, ev: Timed) -> StopEvent:
            return StopEvent(result=ev.timeout)

    @flow
    async def parent(ctx: Context) -> list[Any]:
        late = await ctx.run_child(Child, timeout="late")
        return [late, await ctx.options(timeout="1h").run_child(Child, {"timeout": "b"})]

    assert await result(parent) == ["late", "b"]


def test_a_flow_without_async_runs_in_a_thread_with_a_context_that_waits() -> None:
    assert refold.run_sync(plainly, n=3) == [12, False]
    assert plainly.function.__name__ == "plainly"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "input `n`: `plainly` needs it, and it is not given"),
        ({"n": 1, "tims": 2}, "input `tims`: `plainly` has no such input; did you mean `times`?"),
    ],
)
async def test_wrong_inputs_of_a_flow_are_refused_before_anything_runs(given: dict[str, Any], why: str) -> None:
    async with open_engine(settings=SHORT) as engine:
        with pytest.raises(InvalidValue, match="input") as refused:
            await engine.start(plainly, **given)
        assert why in str(refused.value)
        assert await engine.runs() == []


def test_a_flow_that_takes_any_input_gets_it() -> None:
    @flow
    async def open_to_all(ctx: Context, **rest: Any) -> Any:
        return rest

    assert refold.run_sync(open_to_all, a=1) == {"a": 1}


def _nothing() -> None: ...


def _by_place(ctx: Any, n: int, /) -> None: ...


def _generator(ctx: Any) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "why"),
    [(_nothing, "must take `ctx` first"), (_by_place, "takes n by place only"), (_generator, "is a generator")],
)
def test_a_function_that_is_no_flow_is_refused_where_it_is_written(function: Any, why: str) -> None:
    with pytest.raises(InvalidPlan, match=why):
        flow(function)


def test_a_flow_takes_inputs_by_place_as_its_function_does() -> None:
    assert refold.run_sync(plainly, 3) == refold.run_sync(plainly, n=3)
    run_sync: Any = refold.run_sync
    with pytest.raises(InvalidValue, match="3 inputs are given by place, and these can be: n, times"):
        run_sync(plainly, 1, 2, 3)
    with pytest.raises(InvalidValue, match="input `n`: it is given twice, by place and by name"):
        run_sync(plainly, 1, n=1)


def test_an_input_without_its_name_is_refused_with_the_name_to_give() -> None:
    run_sync: Any = refold.run_sync
    with pytest.raises(InvalidValue, match=r"this is an int: give them by name, as in name=…, or as \{'name': …\}"):
        run_sync(Greets, 1)
    with pytest.raises(InvalidValue, match="inputs are one map, or keywords, and these are 2 values"):
        run_sync(Greets, {}, {})
    with pytest.raises(InvalidValue, match="this is of type int"):
        run_sync(Plan(name="p", steps=()), 1)
    with pytest.raises(InvalidValue, match="inputs are one map, or keywords, and these are 2 values"):
        run_sync(Plan(name="p", steps=()), {}, {})


def spans(delay: Any, longest: Any = None) -> Retry:
    return Retry(attempts=3, delay=delay, max_delay=longest)


async def test_spans_of_retries_are_written_as_all_others_are() -> None:
    tried: list[str] = []

    def fails(what: str) -> None:
        tried.append(what)
        if tried.count(what) < 3:
            raise ValueError(what)

    class Tries(Workflow):
        retry = spans("10ms")

        @step(retry=spans("5ms", "1s"))
        async def first(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.options(retry=spans("1ms")).call(fails, "call")
            fails("step")
            return StopEvent(result=sorted(tried))

    assert await result(Tries) == ["call"] * 3 + ["step"] * 3
    assert define(Tries).plan.steps[0].retry == Retry(attempts=3, delay=0.005, max_delay=1.0)
    slow = Workflow("slow", [double], retry=spans("2m"))
    assert define(slow).plan.steps[0].retry.delay == 120.0


def test_a_span_that_is_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidPlan, match=r"@step: delay of retry is 'soon': no duration"):
        step(retry=spans("soon"))
    with pytest.raises(InvalidPlan, match="@step: retry is 3; write it like retry=Retry"):
        step(retry=3)  # type: ignore[call-overload]


async def test_what_did_not_come_in_time_is_named() -> None:
    @flow
    async def waits(ctx: Context) -> list[str]:
        with pytest.raises(TimeoutError) as unpaid:
            await ctx.wait_for("paid", timeout="10ms")
        with pytest.raises(TimeoutError) as unasked:
            await ctx.ask("Go on?", timeout="10ms")
        return [str(unpaid.value), str(unasked.value)]

    assert await result(waits) == [
        "nothing came for signal 'paid' within 10ms",
        "nothing came for the question 'Go on?' within 10ms",
    ]


async def test_what_cannot_be_stored_is_told_with_what_to_do_instead() -> None:
    @flow
    async def locked(ctx: Context) -> None:
        ctx.set("lock", threading.Lock())

    with pytest.raises(StepFailed, match="a lock cannot be stored exactly") as failed:
        await result(locked)
    assert "`types`" in str(failed.value) and "@resource" in str(failed.value)


class Heavy(Workflow):
    @step(queue="gpu")
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="trained")


@pytest.mark.parametrize("db", [None, "runs.db"])
def test_a_step_of_any_queue_is_run_by_whoever_has_its_code(tmp_path: Path, db: str | None) -> None:
    assert refold.options(db=None if db is None else tmp_path / db).run_sync(Heavy) == "trained"
    plan = Plan(name="p", steps=(Step(name="a", queue="gpu", work=Call(settings={"result": 3})),))
    assert refold.options(db=None if db is None else tmp_path / db).run_sync(plan) is None


@pytest.mark.parametrize("db", [None, "runs.db"])
async def test_a_queue_that_nobody_serves_is_named(tmp_path: Path, db: str | None) -> None:
    narrow = Settings(poll=0.05, sweep_every=0.05, queues=("default", "cpu"))
    async with open_engine(db=None if db is None else tmp_path / db, settings=narrow) as engine:
        handle = await engine.start(Heavy)
        assert list((await handle.why()).values()) == ["no live worker serves the queue 'gpu'"]
        assert await engine.run(Workflow("double", [double]), n=2) == 4


def test_queues_are_named_in_the_environment() -> None:
    assert Settings.from_environment({"REFOLD_QUEUES": "gpu, big"}).queues == ("gpu", "big")
    assert Settings.from_environment({}).queues == ()


async def test_where_the_code_of_a_run_was_is_told_and_nothing_else_is_made_of_it() -> None:
    async with open_engine(settings=SHORT) as engine:
        for workflow, home in ((Heavy, f"{__name__}:Heavy"), (plainly, f"{__name__}:plainly"), (slow(), "")):
            handle = await engine.start(workflow, n=1)
            [first, *_] = await engine.history(handle.id)
            assert getattr(first[2], "code", None) == home


def slow() -> Workflow:
    return Workflow("double", [double])
