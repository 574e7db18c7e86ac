"""The pages for those who come from elsewhere, and the tables beside others: words that exist, and sources."""

import re
from pathlib import Path

import pytest

import refold
from refold.python.session import Session
from refold.python.state import State
from refold.python.workflow import Policy

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "coming-from").glob("*.md"))
ASKED = {
    "blazen": "run_with_handler collect_events send_event write_event_to_stream stream_events InputRequestEvent "
    "snapshot resume_in_place respond_to_input max_concurrency RetryConfig ctx.state ctx.session SubWorkflowStep",
    "llamaindex-workflows": "collect_events ctx.send_event write_event_to_stream stream_events InputRequiredEvent "
    "HumanResponseEvent ctx.store num_workers retry_policy wait_for_event to_dict from_dict edit_state cancel_run",
    "dbos": "@DBOS.workflow @DBOS.step DBOS.sleep DBOS.recv DBOS.send set_event get_event Queue SetWorkflowID recovery "
    "start_workflow retrieve_workflow write_stream DBOS.patch priority",
    "temporal": "@workflow.defn @activity.defn execute_activity RetryPolicy start_to_close_timeout heartbeat "
    "@workflow.signal @workflow.query @workflow.update workflow.sleep workflow.wait workflow.now workflow.uuid4 "
    "workflow.random execute_child_workflow ABANDON continue_as_new handle.cancel task_queue Worker "
    "workflow.patched Replayer start_time_skipping get_workflow_handle id_reuse_policy",
    "langgraph": "StateGraph add_node add_edge add_conditional_edges START END Send interrupt Command(resume= "
    "checkpointer thread_id @entrypoint @task RetryPolicy get_stream_writer stream_mode get_state get_state_history "
    "update_state subgraph durability draw_mermaid",
    "runkon-flow": "ActionExecutor ItemProvider GateResolver ScriptEnvProvider WorkflowResolver injected_variables "
    "approve_gate resume cancel_run fan-out always fail_fast on_fail max_iterations pr_checks foreach",
    "jamjet": "validate inspect events approve state_patch model_ref tool_ref jamjet.toml remote_agents python_fn "
    "io_default llm_default no_retry token_budget cost_budget_usd blocked_tools require_approval_for react fleet",
}
FILES = ("jamjet", "runkon-flow")  # languages of files: what stands beside their words is no Python
OWN = {"ctx": refold.Context, "handle": refold.Handle, "engine": refold.Engine, "refold": refold}
INSIDE = {"ctx.state": State, "ctx.session": Session}
GIVEN = {"ctx": {"run_id", "attempt", "idempotency_key", "state", "session"}, "handle": {"id"}, "engine": set[str]()}


def table(page: Path) -> list[list[str]]:
    rows = [
        line.strip("|\n ").split(" | ") for line in page.read_text(encoding="utf-8").splitlines() if line[:2] == "| "
    ]
    return [[cell.strip() for cell in row] for row in rows if row[0].strip("- ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_its_readers_look_for_is_in_the_table(page: Path) -> None:
    theirs = " ".join(row[0] for row in table(page))
    assert [word for word in ASKED[page.stem].split() if word not in theirs] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in FILES], ids=lambda page: page.stem)
def test_every_word_of_ours_exists(page: Path) -> None:
    ours = " ".join(code for row in table(page)[1:] for code in re.findall(r"`([^`]+)`", " ".join(row[1:])))
    found = re.findall(r"(?<![\w.])(ctx|handle|engine|refold)\.(\w+)(?:\.(\w+))?", ours)
    assert len(found) > 15
    for owner, name, part in found:
        assert name in GIVEN.get(owner, ()) or hasattr(OWN[owner], name), f"{owner}.{name}"
        assert not part or hasattr(INSIDE[f"{owner}.{name}"], part), f"{owner}.{name}.{part}"
    options = re.findall(r"@step\((\w+)=", ours)
    assert options and set(options) <= set(Policy.__struct_fields__)
    assert set(re.findall(r"\b(Collect|Retry|Workflow|InputRequestEvent|InputResponseEvent)\b", ours)) <= {
        *refold.__all__
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_names_a_version_its_sources_and_what_is_not_here(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.search(r"\b\d+\.\d+\.\d+\b", text.split("##")[0])
    assert "https://" in text.split("Sources:")[1]
    assert "## What is different" in text and "## What is not here" in text


ENGINES = [
    *("**Refold**", "NoETL", "Blazen", "JamJet", "runkon-flow", "Temporal", "DBOS"),
    *("Prefect", "Airflow", "LangGraph", "LlamaIndex Workflows"),
]


@pytest.mark.parametrize(("page", "columns"), [("README.md", 3), ("docs/comparison.md", 4)])
def test_every_cell_about_another_engine_has_its_source(page: str, columns: int) -> None:
    rows = [row for row in table(ROOT / page) if row[0] in ENGINES]
    assert [row[0] for row in rows] == ENGINES
    for row in rows[1:]:
        assert len(row) == columns
        assert all(cell == "*nothing found*" or re.search(r"\]\(https://[^)\s]+\)", cell) for cell in row[1:]), row
