"""Pipelines of workflows: stages that run one after the other, side by side, or again and again, as one workflow."""

from refold.errors import StageFailed
from refold.python.stages.pipeline import Pipeline
from refold.python.stages.stages import LoopDecision, LoopStage, ParallelStage, PipelineResult, Stage, StageResult
from refold.python.stages.state import PipelineState

__all__ = [
    "LoopDecision",
    "LoopStage",
    "ParallelStage",
    "Pipeline",
    "PipelineResult",
    "PipelineState",
    "Stage",
    "StageFailed",
    "StageResult",
]
