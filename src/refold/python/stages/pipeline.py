"""Pipelines of workflows: stages one after the other, each a step that starts child runs."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypedDict, Unpack

from msgspec import structs

from refold.core.plan import ONCE, Plan, Retry
from refold.core.times import seconds
from refold.errors import InvalidPlan
from refold.python.definition import DEFINITION, is_workflow
from refold.python.events import Event, StartEvent, StopEvent
from refold.python.stages.compile import StageNames, run_stage
from refold.python.stages.stages import (
    AnyStage,
    LoopDecision,
    LoopStage,
    ParallelStage,
    PipelineResult,
    Stage,
    StageResult,
    plain_stages,
    problems_of,
)
from refold.python.stages.state import PipelineState, result_of
from refold.python.workflow import POLICY, Flow, Policy, Workflow

Span = str | int | float


class Options(TypedDict, total=False):
    retry: Retry | None
    timeout: Span | None
    stage_timeout: Span | None
    on_stage: Callable[[PipelineState, StageResult], Any] | None
    types: Sequence[type]


class Pipeline(Workflow[PipelineResult]):
    """A workflow made of others, which run as its children: what they show, use and ask goes through it.

    `retry` is for the steps of its workflows where neither step nor workflow says otherwise; `timeout` is for a run of
    the pipeline, `stage_timeout` for each stage. `on_stage` gets the state and the result of every stage that has
    ended. `types` are classes of objects that the functions of the pipeline put into the state.
    """

    def __init__(self, name: str = "", stages: Sequence[AnyStage] = (), **options: Unpack[Options]) -> None:
        unknown = options.keys() - Options.__annotations__.keys()
        problems = [f"a pipeline has no {each}; it has {', '.join(Options.__annotations__)}" for each in unknown]
        problems += problems_of(name, stages)
        problems = problems or [_unfit(each) for each in plain_stages(stages) if not _is_fit(each.workflow)]
        if problems:
            raise InvalidPlan(problems)
        self.options, retry, limit = options, options.get("retry"), options.get("stage_timeout")
        self.stages = tuple(_inheriting(each, retry) for each in stages)
        names = StageNames(
            name,
            tuple(each.name for each in stages),
            None if limit is None else seconds(limit),
            options.get("on_stage"),
        )
        types = (*options.get("types", ()), StageResult, PipelineResult, LoopDecision)
        super().__init__(name, _bodies(names, self.stages), timeout=options.get("timeout"), retry=retry, types=types)
        used = [each.workflow for each in plain_stages(self.stages) if not isinstance(each.workflow, Plan)]
        self.children = self.hands_on = used


def _is_fit(workflow: Any) -> bool:
    return isinstance(workflow, Plan) or is_workflow(workflow)


def _unfit(stage: Stage) -> str:
    return f"stage {stage.name!r}: {stage.workflow!r} is not a workflow"


def _bodies(names: StageNames, stages: Sequence[AnyStage]) -> list[Callable[..., Any]]:
    """Return one step for each stage; an event leads from each stage to the next."""
    between = [type(f"{each.name} is done", (Event,), {}) for each in stages[:-1]]
    takes: list[type] = [StartEvent, *between]
    gives: list[type] = [*between, StopEvent]
    return [_body(names, *each) for each in zip(stages, takes, gives, strict=True)]


def _body(names: StageNames, stage: AnyStage, takes: type, gives: type) -> Callable[..., Any]:
    async def body(ctx: Any, ev: Any) -> Any:
        state = await run_stage(ctx, ev, names, stage)
        return StopEvent(result=result_of(names.pipeline, state)) if gives is StopEvent else gives()

    body.__name__ = stage.name
    body.__annotations__ = {"ev": takes, "return": gives}
    setattr(body, POLICY, Policy(retry=ONCE, settings=_said(stage, names.stage_timeout)))
    return body


def _said(stage: AnyStage, timeout: float | None) -> dict[str, Any]:
    """Return what the plan records of a stage besides its name, so that a changed stage is a changed workflow."""
    match stage:
        case Stage():
            said: dict[str, Any] = {"stage": "one"}
        case ParallelStage():
            said = {"stage": "parallel", "branches": [each.name for each in stage.branches], "join": stage.join}
        case LoopStage():
            said = {"stage": "loop", "max_rounds": stage.max_rounds, "repeats": _said(stage.stage, None)}
    return said if timeout is None else {**said, "timeout": timeout}


def _inheriting(stage: Any, retry: Retry | None) -> Any:
    """Return the stage with the retry of the pipeline for workflows that have none."""
    match stage:
        case ParallelStage():
            return structs.replace(stage, branches=tuple(_inheriting(each, retry) for each in stage.branches))
        case LoopStage():
            return structs.replace(stage, stage=_inheriting(stage.stage, retry))
        case _:
            return structs.replace(stage, workflow=_retrying(stage.workflow, retry))


def _retrying(workflow: Any, retry: Retry | None) -> Any:
    if retry is None or isinstance(workflow, Plan):
        return workflow
    if isinstance(workflow, Flow):
        return Flow(workflow.function, _retrying(workflow.workflow, retry))
    if workflow.retry is not None:
        return workflow
    if isinstance(workflow, Pipeline):
        options = workflow.options.copy()
        options["retry"] = retry
        return Pipeline(workflow.name, workflow.stages, **options)
    inherits = workflow() if isinstance(workflow, type) else copy(workflow)
    vars(inherits).pop(DEFINITION, None)
    inherits.retry = retry
    return inherits
