"""Refold: durable workflows for Python, as a log of facts, a pure fold and one commit per step."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refold.authoring.workflows.classes import Collect, Workflow, flow, resource, step
    from refold.authoring.workflows.events import (
        ErrorEvent,
        Event,
        InputRequestEvent,
        InputResponseEvent,
        StartEvent,
        StopEvent,
    )
    from refold.authoring.workflows.live import Live
    from refold.authoring.workflows.pipeline_state import PipelineState
    from refold.authoring.workflows.pipelines import Pipeline
    from refold.authoring.workflows.stages import (
        LoopDecision,
        LoopStage,
        ParallelStage,
        PipelineResult,
        Stage,
        StageResult,
    )
    from refold.core.plan import Arc, Call, Child, Gate, Loop, Plan, Retry, Step, Wait
    from refold.errors import ChildFailed, LiveObjectLost, RefoldError, RunCancelled, RunFailed, StageFailed, StepFailed
    from refold.runtime.engine import Engine
    from refold.runtime.handle import Handle
    from refold.wiring import open_engine, run_sync
    from refold.worker.context import Context

__version__ = "0.1.0"

_HOME = {
    "refold.authoring.workflows.events": (
        "ErrorEvent",
        "Event",
        "InputRequestEvent",
        "InputResponseEvent",
        "StartEvent",
        "StopEvent",
    ),
    "refold.authoring.workflows.live": ("Live",),
    "refold.authoring.workflows.pipeline_state": ("PipelineState",),
    "refold.authoring.workflows.pipelines": ("Pipeline",),
    "refold.authoring.workflows.stages": (
        "LoopDecision",
        "LoopStage",
        "ParallelStage",
        "PipelineResult",
        "Stage",
        "StageResult",
    ),
    "refold.authoring.workflows.classes": ("Collect", "Workflow", "flow", "resource", "step"),
    "refold.core.plan": ("Arc", "Call", "Child", "Gate", "Loop", "Plan", "Retry", "Step", "Wait"),
    "refold.errors": (
        "ChildFailed",
        "LiveObjectLost",
        "RefoldError",
        "RunCancelled",
        "RunFailed",
        "StageFailed",
        "StepFailed",
    ),
    "refold.runtime.engine": ("Engine",),
    "refold.runtime.handle": ("Handle",),
    "refold.wiring": ("open_engine", "run_sync"),
    "refold.worker.context": ("Context",),
}

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
    """Names are imported when they are used: `import refold` alone costs next to nothing."""
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'refold' has no attribute {name!r}")
