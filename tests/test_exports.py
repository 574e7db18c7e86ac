"""The public API is a short list, and importing it costs next to nothing."""

import subprocess
import sys

import refold
import refold.plan
import refold.stages
from refold import tool_api

PUBLIC = (
    "Collect Context Engine ErrorEvent Event Handle InputRequestEvent InputResponseEvent Live Ray RefoldError Retry "
    "RunCancelled RunFailed Settings StartEvent StopEvent SyncContext SyncEngine SyncHandle Workflow flow open_engine "
    "options playbook "
    "run_sync step"
)
PLAN = "Arc Call Child Fail Gate Input Loop Plan Poll Quality Retry Source Step Wait"
STAGES = "LoopDecision LoopStage ParallelStage Pipeline PipelineResult PipelineState Stage StageFailed StageResult"

FOR_TOOLS = (
    "Arguments Done Failed Fault Keys Page Pull Source Succeeded Tool ToolCall ToolFailed ToolInfo ToolKey ToolProblem "
    "folder_of path_of refused seconds_of text_of type_name"
)


def test_the_public_names_are_these() -> None:
    assert sorted(refold.__all__) == PUBLIC.split(" ")
    assert sorted(refold.plan.__all__) == PLAN.split(" ")
    assert sorted(refold.stages.__all__) == STAGES.split(" ")


def test_the_names_for_authors_of_tools_and_sources_are_these() -> None:
    assert tool_api.__all__ == FOR_TOOLS.split(" ")
    assert all(hasattr(tool_api, name) for name in tool_api.__all__)


def test_everything_of_refold_can_be_imported_without_hiding_the_standard_module_resource() -> None:
    code = "import resource; from refold import *; from refold import resource as made; print(resource.__name__, made)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("resource <function resource")


def test_every_public_name_can_be_imported() -> None:
    for module in (refold, refold.plan, refold.stages):
        for name in module.__all__:
            assert getattr(module, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(refold, "Nothing")


def test_importing_refold_imports_nothing_heavy() -> None:
    code = (
        "import sys, refold; print(sorted(m for m in sys.modules if m.split('.')[0] in ('msgspec', 'asyncio', 'apsw')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
