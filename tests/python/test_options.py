"""Options stand apart from inputs, and every kind of workflow can be started in every way."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import refold
from refold import Context, Retry, RunFailed, Settings, StartEvent, StopEvent, SyncContext, Workflow, flow, open_engine
from refold.errors import Conflict, InvalidValue, NotFound, StepFailed
from refold.plan import Arc, Call, Plan, Step, Wait
from tests.python.house import result

SHORT = Settings(poll=0.05, sweep_every=0.05)
DOUBLE = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: double}
workload: {n: 1}
workflow:
  - step: double
    tool: {kind: python, isolation: inline, code: "result = n * 2"}
    input: {n: "{{ workload.n }}"}
"""
TOP = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: top}
workflow:
  - step: below
    tool: {kind: playbook, path: double.yaml}
    input: {n: 21}
"""
WAITS = Plan(name="waits", steps=(Step(name="a", work=Wait(signal="go"), arcs=(Arc(to="b"),)), Step(name="b", input=3)))
FAILS = Plan(name="fails", steps=(Step(name="a", work=Call(tool="fails")),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "double.yaml").write_text(DOUBLE)
    (tmp_path / "top.yaml").write_text(TOP)
    return tmp_path / "double.yaml"


def test_a_playbook_runs_in_one_call(file: Path) -> None:
    assert refold.run_sync(refold.playbook(file), n=4) == 8
    assert refold.run_sync(refold.playbook(str(file)), {"n": 5}) == 10
    assert refold.run_sync(refold.playbook(file.with_name("top.yaml"))) == 42


def test_a_playbook_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"there is no playbook .*none\.yaml"):
        refold.playbook(tmp_path / "none.yaml")


async def test_a_playbook_is_started_as_any_other_workflow_is(file: Path) -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.options(key="k", name="first").start(refold.playbook(file), n=4)
        assert await handle.result() == 8
        again = await engine.options(key="k").start(refold.playbook(file), n=5)
        assert again.id == handle.id
        assert await engine.run(refold.playbook(file.with_name("top.yaml"))) == 42
        assert await engine.register(refold.playbook(file)) == (await engine.show(handle.id)).state.plan


async def test_a_playbook_is_a_child_of_a_python_workflow(file: Path) -> None:
    @flow
    async def parent(ctx: Context) -> list[Any]:
        child = await ctx.run_child(refold.playbook(file), n=3)
        top = await ctx.options(key="top").run_child(refold.playbook(file.with_name("top.yaml")))
        return [child, top, list(await ctx.map(refold.playbook(file), [{"n": 1}, {"n": 2}]))]

    assert await result(parent) == [6, 42, [2, 4]]


async def test_a_run_of_a_plan_has_a_handle_with_plain_values() -> None:
    async def fails(call: Any) -> Any:
        raise ValueError("no")

    async with open_engine({"fails": fails}, settings=SHORT) as engine:
        handle = await engine.options(run="mine").start(WAITS)
        assert handle.id == "mine" and handle.definition is None
        assert await handle.requests() == [] and await handle.progress() is None
        assert list(await handle.why()) == ["a/1"]
        await handle.pause()
        data = await handle.export()
        await handle.resume()
        await handle.signal("go", {"a": 1})
        assert await handle.result() == 3
        assert [shown async for shown in handle.stream()] == []
        assert await (await engine.attach("mine")).result() == 3
        assert await (await engine.attach("mine", WAITS)).result() == 3
        with pytest.raises(Conflict, match="run mine is one of waits"):
            await engine.attach("mine", FAILS)
        with pytest.raises(Conflict):
            await engine.restore(data)
        failed = await engine.start(FAILS)
        with pytest.raises(RunFailed) as raised:
            await failed.result()
        assert type(raised.value) is RunFailed


async def test_a_handle_moves_a_run_to_another_plan() -> None:
    longer = Plan(name="waits", steps=(*WAITS.steps, Step(name="c")))
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(WAITS)
        moved = await handle.migrate(longer)
        assert (await engine.show(moved.id)).state.plan == await engine.register(longer)
        await moved.signal("go")
        assert await moved.result() == 3


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_durable_call_has_a_timeout_for_each_try(kind: str) -> None:
    tries: list[float] = []

    async def waits(span: float) -> str:
        tries.append(time.monotonic())
        await asyncio.sleep(span if len(tries) < 3 else 0)
        return "done"

    def blocks(span: float) -> str:
        tries.append(time.monotonic())
        time.sleep(span if len(tries) < 3 else 0)
        return "done"

    work = waits if kind == "async" else blocks

    @flow
    async def patient(ctx: Context) -> Any:
        return await ctx.options(timeout="200ms", retry=Retry(attempts=3)).call(work, 0.6)

    assert await result(patient) == "done"
    assert len(tries) == 3
    tries.clear()

    @flow
    def impatient(ctx: SyncContext) -> Any:
        return ctx.options(timeout=0.2).call(work, 0.6)

    with pytest.raises(StepFailed) as failed:
        await result(impatient)
    assert isinstance(failed.value.__cause__, TimeoutError) and len(tries) == 1


async def test_keywords_that_look_like_options_are_inputs_of_what_is_called() -> None:
    def echo(**named: Any) -> dict[str, Any]:
        return named

    class Echo(Workflow):
        @refold.step
        async def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=dict(vars(ev)))

    named: dict[str, Any] = {"key": 1, "retry": 2, "timeout": 3, "name": 4, "run": 5, "input": 6, "workflow": 7}

    @flow
    async def parent(ctx: Context) -> list[Any]:
        return [await ctx.call(echo, **named, work=8), await ctx.run_child(Echo, **named)]

    assert await result(parent) == [{**named, "work": 8}, named]
    async with open_engine(settings=SHORT) as engine:
        assert await engine.run(Echo, **named) == named
        shown = await engine.show((await engine.start(Echo, **named)).id)
        assert (shown.name, shown.state.key) == ("", "")


async def test_a_child_run_is_not_retried_as_a_whole() -> None:
    @flow
    async def child(ctx: Context) -> int:
        return 1

    @flow
    async def parent(ctx: Context) -> int:
        return await ctx.options(retry=Retry(attempts=3)).run_child(child)

    with pytest.raises(StepFailed, match="a child run is not retried as a whole"):
        await result(parent)


async def test_options_of_a_call_are_no_options_of_a_map() -> None:
    @flow
    async def parent(ctx: Context) -> Any:
        options: Any = {"retry": Retry()}
        return await ctx.map(abs, [1], **options)

    with pytest.raises(StepFailed, match=r"`key`, `retry` and `timeout` are given to ctx\.options") as failed:
        await result(parent)
    assert isinstance(failed.value.__cause__, InvalidValue)
