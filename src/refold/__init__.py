"""Refold: durable workflows for Python, as a log of facts, a pure fold and one commit per step."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Retry, Step, Wait
    from refold.errors import ChildFailed, LiveObjectLost, RefoldError, RunCancelled, RunFailed, StageFailed, StepFailed
    from refold.python.context import Context
    from refold.python.events import ErrorEvent, Event, InputRequestEvent, InputResponseEvent, StartEvent, StopEvent
    from refold.python.session import Live
    from refold.python.stages.pipeline import Pipeline
    from refold.python.stages.stages import LoopDecision, LoopStage, ParallelStage, PipelineResult, Stage, StageResult
    from refold.python.stages.state import PipelineState
    from refold.python.workflow import Collect, Workflow, flow, resource, step
    from refold.runtime.engine import Engine
    from refold.runtime.handle import Handle
    from refold.wiring import open_engine, run_sync

__version__ = "0.1.0"

__all__ = [
    "Arc",
    "Call",
    "Child",
    "ChildFailed",
    "Collect",
    "Context",
    "Engine",
    "ErrorEvent",
    "Event",
    "Gate",
    "Handle",
    "InputRequestEvent",
    "InputResponseEvent",
    "Live",
    "LiveObjectLost",
    "Loop",
    "LoopDecision",
    "LoopStage",
    "ParallelStage",
    "Pipeline",
    "PipelineResult",
    "PipelineState",
    "Plan",
    "RefoldError",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "Stage",
    "StageFailed",
    "StageResult",
    "StartEvent",
    "Step",
    "StepFailed",
    "StopEvent",
    "Wait",
    "Workflow",
    "flow",
    "open_engine",
    "resource",
    "run_sync",
    "step",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: `import refold` alone costs next to nothing."""
    if name in ("ErrorEvent", "Event", "InputRequestEvent", "InputResponseEvent", "StartEvent", "StopEvent"):
        from refold.python import events

        return getattr(events, name)
    if name in ("Live",):
        from refold.python import session

        return getattr(session, name)
    if name in ("PipelineState",):
        from refold.python.stages import state

        return getattr(state, name)
    if name in ("Pipeline",):
        from refold.python.stages import pipeline

        return getattr(pipeline, name)
    if name in ("LoopDecision", "LoopStage", "ParallelStage", "PipelineResult", "Stage", "StageResult"):
        from refold.python.stages import stages

        return getattr(stages, name)
    if name in ("Collect", "Workflow", "flow", "resource", "step"):
        from refold.python import workflow

        return getattr(workflow, name)
    if name in ("Arc", "Call", "Child", "Gate", "Loop", "Plan", "Retry", "Step", "Wait"):
        from refold.core import plan

        return getattr(plan, name)
    if name in (
        "ChildFailed",
        "LiveObjectLost",
        "RefoldError",
        "RunCancelled",
        "RunFailed",
        "StageFailed",
        "StepFailed",
    ):
        from refold import errors

        return getattr(errors, name)
    if name in ("Engine",):
        from refold.runtime import engine

        return getattr(engine, name)
    if name in ("Handle",):
        from refold.runtime import handle

        return getattr(handle, name)
    if name in ("open_engine", "run_sync"):
        from refold import wiring

        return getattr(wiring, name)
    if name in ("Context",):
        from refold.python import context

        return getattr(context, name)
    if name in __all__:
        from refold import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'refold' has no attribute {name!r}")
