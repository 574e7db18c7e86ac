"""Failures in NoETL files: every error outcome fails the task, and nothing that failed counts as done."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.noetl.house import House

KINDS = {
    "a python exception": ("kind: python, code: \"raise ValueError('x')\"", "error"),
    "python that cannot be read": ('kind: python, code: "{% if true %}({% endif %}"', None),
    "a program that fails": ("kind: shell, command: exit 7", "exit"),
    "a refused connection": ('kind: http, url: "http://127.0.0.1:9/"', "connection"),
    "an sql error": ("kind: duckdb, command: SELECT * FROM nowhere", None),
    "a time limit": ("kind: shell, command: sleep 20, timeout: 0.2", "timeout"),
    "a wrong configuration": ('kind: http, url: "{{ nothing }}"', None),
    "a template error": ('kind: noop, result: "{{ 1 / 0 }}"', "expression"),
}


@pytest.mark.parametrize("name", KINDS)
def test_an_error_outcome_fails_the_step_and_the_run(house: House, name: str) -> None:
    tool, kind = KINDS[name]
    seen = house.play(f"workflow: [{{step: a, tool: {{{tool}}}, next: {{arcs: [{{step: b}}]}}}}, {{step: b}}]")
    assert (seen.status, seen.lives["a"]) == ("failed", "failed") and "b/1" not in seen.history
    assert seen.fault.message and (kind is None or seen.fault.kind == kind)


@pytest.mark.parametrize("name", KINDS)
def test_an_error_outcome_can_be_handled_by_an_arc(house: House, name: str) -> None:
    tool, _ = KINDS[name]
    arc = "{step: b, when: \"{{ event.name == 'call.error' and output.status == 'error' and output.error.message }}\"}"
    seen = house.play(
        f"workflow: [{{step: a, tool: {{{tool}}}, next: {{arcs: [{arc}]}}}}, {{step: b, tool: {{kind: noop, "
        f"result: 1}}}}]"
    )
    assert (seen.status, seen.result, seen.lives["a"]) == ("completed", 1, "failed")


@pytest.mark.parametrize("name", KINDS)
def test_an_error_outcome_can_be_handled_by_a_rule_of_a_single_tool(house: House, name: str) -> None:
    tool, _ = KINDS[name]
    rules = "[{when: \"{{ output.status == 'error' and output.error.message }}\", then: {do: continue}}]"
    seen = house.play(f"workflow: [{{step: a, tool: {{{tool}, spec: {{policy: {{rules: {rules}}}}}}}}}]")
    assert seen.status == "completed" and seen.lives["a"] == "completed"


def test_the_error_keeps_type_message_and_traceback(house: House) -> None:
    seen = house.play(
        "workflow: [{step: a, tool: {kind: python, code: \"def f():\\n  raise LookupError('no such')\\nf()\"}}]"
    )
    assert seen.fault.type == "LookupError" and "no such" in seen.fault.message and "in f" in seen.fault.traceback


def test_a_handled_failure_is_kept_in_the_record_of_the_run(house: House) -> None:
    text = """\
workflow:
  - {step: a, tool: {kind: shell, command: exit 3}, next: {arcs: [{step: b,
      when: "{{ output.error.code is defined }}"}]}}
  - {step: b, tool: {kind: noop, result: ["{{ a.status }}", "{{ a.error.kind }}", "{{ a.data }}"]}}
"""
    seen = house.play(text)
    assert seen.result == ["error", "exit", None] and seen.steps["a"]["error"].kind == "exit"


def test_a_time_limit_of_the_step_counts_waits_between_tries(house: House) -> None:
    text = """\
workflow:
  - step: a
    spec: {timeout: 0.5}
    tool: {kind: shell, command: exit 3, spec: {policy: {rules: [{else: {do: retry, attempts: 9, delay: 60}}]}}}
    next: {arcs: [{step: late, when: "{{ output.error.kind == 'timeout' }}"}]}
  - {step: late, tool: {kind: noop, result: late}}
"""
    assert house.play(text).result == "late"


def test_retries_come_only_from_policy(house: House, tmp_path: Path) -> None:
    text = 'workload: {f: x}\nworkflow: [{step: a, tool: {kind: shell, command: "echo x >> {{ f }}; exit 3"}}]'
    house.play(text, {"f": str(tmp_path / "n")})
    assert (tmp_path / "n").read_text() == "x\n"


def test_cancelling_a_run_stops_its_tools(house: House, tmp_path: Path) -> None:
    text = """\
workload: {f: x}
workflow:
  - {step: a, tool: {kind: shell, command: "echo $$ > {{ f }}; sleep 60"}, next: {arcs: [{step: b}]}}
  - {step: b}
"""
    file = tmp_path / "pid"
    run = house.start(text, {"f": str(file)})
    until = time.monotonic() + 60
    while not (file.exists() and file.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.02)
    house.do(house.engine.cancel(run, reason="enough"))
    shown = house.do(asyncio.wait_for(house.engine.wait(run), 60))
    assert shown.status == "cancelled"
    program = Path("/proc") / file.read_text().strip()
    while program.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not program.exists()
