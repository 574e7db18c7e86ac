"""Runs a stage of a pipeline: its functions are called once, and its workflows are child runs."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from refold.core.outcomes import SECOND
from refold.errors import ChildFailed, StageFailed
from refold.python.events import Event
from refold.python.stages.stages import (
    BRANCH,
    AnyStage,
    LoopDecision,
    LoopStage,
    ParallelStage,
    PipelineResult,
    Stage,
    StageResult,
    total_usage,
)
from refold.python.stages.state import INPUT, RESULT, PipelineState


class ChildRunHandle(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def usage(self) -> Mapping[str, int | float]: ...

    @property
    def started_at(self) -> int: ...

    @property
    def ended_at(self) -> int: ...


class StageNames(Struct, frozen=True):
    """What a stage needs to know of its pipeline."""

    pipeline: str
    stages: tuple[str, ...]
    stage_timeout: float | None = None
    on_stage: Callable[[PipelineState, StageResult], Any] | None = None

    def place(self, stage: str) -> dict[str, Any]:
        number = self.stages.index(stage) + 1
        return {"pipeline": self.pipeline, "stage": stage, "number": number, "of": len(self.stages)}


class ChosenRun(Struct, frozen=True):
    """A child run that a stage starts; its label is unique in the pipeline."""

    label: str
    workflow: Any
    inputs: dict[str, Any]


class StageDone(Struct, frozen=True):
    """The outcome of a stage, a branch or a round, with the label of its run."""

    output: Any = None
    skipped: bool = False
    label: str = ""
    branches: dict[str, "StageDone"] = {}


async def run_stage(ctx: Any, event: Any, names: StageNames, stage: AnyStage) -> PipelineState:
    """Run a stage, keep its result in the state of the pipeline, and return that state."""
    if stage.name == names.stages[0]:
        ctx.state.keep(INPUT, dict(vars(event)))
    await ctx.publish(names.place(stage.name))
    running = StageRun(ctx, names)
    result = await running.result(stage)
    ctx.state.keep(f"{RESULT}{stage.name}", result)
    if names.on_stage is not None:
        await running.asked("on_stage", names.on_stage, stage.name, lambda value: None, result)
    return PipelineState(ctx.state, names.stages, {})


class StageRun:
    """One stage in one call of its body, which finds what an earlier call has recorded."""

    def __init__(self, ctx: Any, names: StageNames) -> None:
        self.ctx, self.names = ctx, names
        self.rounds: dict[str, Any] = {}  # what the last round of a loop gave
        self.labels: list[str] = []  # of all runs
        self.began: int | None = None  # when the first round did

    async def result(self, stage: AnyStage) -> StageResult:
        if isinstance(stage, LoopStage):
            return await self._loop(stage)
        return await self._told(stage.name, await self._once(stage, stage.name, ""))

    async def _loop(self, loop: LoopStage) -> StageResult:
        if self.names.stage_timeout is not None:
            self.began = await self.ctx.options(key=f"{loop.name} began").call(self._now)
        done, n, decision = StageDone(), 0, LoopDecision()
        while n < loop.max_rounds and not decision.is_done:
            n += 1
            await self.ctx.publish({**self.names.place(loop.name), "round": n})
            done = await self._once(loop.stage, loop.name, f"[{n}]")
            if not done.skipped:
                self.rounds[loop.name] = done.output
            decision = await self.asked("until", loop.until, f"{loop.name}[{n}]", _decision, n)
            if decision.failure is not None:
                raise StageFailed(
                    f"{loop.name}[{n}]", f"its `until` gave up: {decision.failure or 'it says no reason'}"
                )
        last = StageDone(self.rounds.get(loop.name), not self.rounds, done.label, done.branches)
        return structs.replace(await self._told(loop.name, last), rounds=n)

    async def _once(self, stage: Stage | ParallelStage, name: str, round: str) -> StageDone:
        if isinstance(stage, ParallelStage):
            return await self._parallel(stage, name, round)
        chosen = await self._chosen(stage, f"{name}{round}")
        return StageDone(skipped=True) if chosen is None else StageDone(await self._run(chosen), label=chosen.label)

    async def _parallel(self, stage: ParallelStage, name: str, round: str) -> StageDone:
        """Choose all branches before one begins, so that their functions see the same state in every try."""
        asked = {each.name: await self._chosen(each, f"{name}{BRANCH}{each.name}{round}") for each in stage.branches}
        chosen = {branch: each for branch, each in asked.items() if each is not None}
        if not chosen:
            return StageDone(skipped=True, branches={branch: StageDone(skipped=True) for branch in asked})
        if stage.join == "first":
            outputs = await self._first(f"{name}{round}", chosen)
        else:
            outputs = dict(zip(chosen, await _all(map(self._run, chosen.values())), strict=True))
        branches = {
            branch: StageDone(outputs.get(branch), branch not in outputs, each.label if each is not None else "")
            for branch, each in asked.items()
        }
        return StageDone(outputs if stage.join == "first" else {b: outputs.get(b) for b in asked}, branches=branches)

    async def _first(self, label: str, chosen: Mapping[str, ChosenRun]) -> dict[str, Any]:
        starts = {each.label: (each.workflow, each.inputs) for each in chosen.values()}
        try:
            won, output = await self.ctx.children.first(starts, timeout=self._left())
        except ChildFailed as error:
            raise StageFailed(label, str(error)) from error
        return {branch: _output(output) for branch, each in chosen.items() if each.label == won}

    async def _run(self, chosen: ChosenRun) -> Any:
        run = self.ctx.options(key=chosen.label, timeout=self._left()).run_child(chosen.workflow, **chosen.inputs)
        try:
            return _output(await run)
        except ChildFailed as error:
            raise StageFailed(chosen.label, str(error)) from error
        except TimeoutError as error:
            raise StageFailed(chosen.label, f"it has not ended within {self.names.stage_timeout:g} s") from error

    def _left(self) -> float | None:
        limit = self.names.stage_timeout
        if limit is None or self.began is None:
            return limit
        gone: int = self.ctx.children.now() - self.began
        return max(0.0, limit - gone / SECOND)

    async def _now(self) -> int:
        now: int = self.ctx.children.now()
        return now

    async def _chosen(self, stage: Stage, label: str) -> ChosenRun | None:
        if stage.when is not None and not await self.asked("when", stage.when, label, bool):
            return None
        if stage.input is not None:
            inputs = await self.asked("input", stage.input, label, _inputs)
        else:
            view = self._view()
            inputs = _inputs(view.last if view.outputs() else view.input)
        self.labels.append(label)
        return ChosenRun(label, stage.workflow, inputs)

    def _view(self) -> PipelineState:
        return PipelineState(self.ctx.state, self.names.stages, self.rounds)

    async def asked(
        self, what: str, function: Callable[..., Any], label: str, read: Callable[[Any], Any], *more: Any
    ) -> Any:
        """Call a function of the user once, and record its answer with what it has written. Raises StageFailed."""
        view = self._view()

        async def later(value: Awaitable[Any]) -> dict[str, Any]:
            return view.answered(read(await value))

        def ask() -> Any:
            value = function(view, *more)
            return later(value) if inspect.isawaitable(value) else view.answered(read(value))

        async def ask_here() -> Any:
            return await ask()

        is_async = inspect.iscoroutinefunction(function)
        try:
            answer = await self.ctx.options(key=f"{what} {label}").call(ask_here if is_async else ask)
        except Exception as error:
            raise StageFailed(label, f"its `{what}` raised {type(error).__name__}: {error}") from error
        for key in answer["deleted"]:
            self.ctx.state.delete(key)
        for key, value in answer["wrote"].items():
            self.ctx.set(key, value)
        return answer["value"]

    async def _told(self, name: str, done: StageDone) -> StageResult:
        """Return the result of a stage, with the time and the usage of all its runs."""
        runs = {label: await self.ctx.children.seen(label) for label in self.labels}
        branches = [
            _result(branch, each, [runs[each.label]] if each.label else []) for branch, each in done.branches.items()
        ]
        run = runs[done.label].id if done.label else ""
        return structs.replace(_result(name, done, list(runs.values())), run=run, branches=branches)


def _result(name: str, done: StageDone, runs: Sequence[ChildRunHandle]) -> StageResult:
    known = [each for each in runs if each.started_at]  # one of another store may not be here
    ended = [each.ended_at or each.started_at for each in known]
    span = max(ended) - min(each.started_at for each in known) if known else 0
    usage = total_usage([dict(each.usage) for each in runs])
    return StageResult(name, done.output, done.skipped, "".join(each.id for each in runs[:1]), span / SECOND, usage)


def _inputs(value: Any) -> dict[str, Any]:
    """Return the inputs of a run: a map as it is, an event by its fields, anything else as `value`."""
    if value is None:
        return {}
    if isinstance(value, Event):
        return dict(vars(value))
    is_map = isinstance(value, dict) and all(type(key) is str for key in value)
    return dict(value) if is_map else {"value": value}


def _output(value: Any) -> Any:
    """Return the output of a pipeline in a pipeline, or the value itself."""
    return value.output if isinstance(value, PipelineResult) else value


def _decision(value: Any) -> LoopDecision:
    return value if isinstance(value, LoopDecision) else LoopDecision(bool(value))


async def _all(works: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return all results. When one fails, cancel the others, and their child runs with them."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except Exception:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
