"""Playbooks that run: what was read does on the engine what it says."""

import asyncio
from typing import Any

import pytest

from refold.core.expressions import Evaluate
from refold.errors import RunFailed
from refold.playbooks.playbook import read
from refold.ports import Tool, ToolCall
from refold.templates import Templates
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: running}\n"


class Stage:
    """Tools that need no process: `python` gives its bound input and its code, `shell` fails as often as it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.failures = 0

    async def python(self, call: ToolCall) -> Any:
        self.seen.append((call.command.id, call.input, dict(call.settings)))
        return call.input["input"]

    async def shell(self, call: ToolCall) -> Any:
        self.seen.append(call.command.id)
        if self.failures:
            self.failures -= 1
            raise ValueError("not yet")
        return "done"

    def tools(self) -> dict[str, Tool]:
        return {"python": self.python, "shell": self.shell}


def run(text: str, stage: Stage | None = None, **input: Any) -> Any:
    evaluate: Evaluate = Templates()
    plan = read(HEAD + text, "play.yaml", CATALOG).plan

    async def running() -> Any:
        async with open_engine((stage or Stage()).tools(), evaluate=evaluate) as engine:
            return await asyncio.wait_for(engine.run(plan, input), 60)

    return asyncio.run(running())


def test_a_tool_gets_its_bound_input_its_rendered_keys_and_its_settings_apart() -> None:
    stage = Stage()
    text = """\
workload: {city: Oslo, days: 3}
workflow:
  - step: a
    input: {place: "{{ city }}", span: "{{ workload.days }}"}
    tool: {kind: python, code: "return place", cwd: "/{{ place }}/{{ input.span }}", input: {more: [1]}}
"""
    assert run(text, stage, city="Bergen") == {"place": "Bergen", "span": 3, "more": [1]}
    bound = {"place": "Bergen", "span": 3, "more": [1]}
    assert stage.seen == [("a/1", {"input": bound, "config": {"cwd": "/Bergen/3"}}, {"code": "return place"})]


def test_arcs_conditions_and_sets_work_together() -> None:
    text = """\
workload: {n: 1}
workflow:
  - step: count
    tool: {kind: noop, result: "{{ visit * n }}"}
    set: {ctx.total: "{{ output.data }}"}
    next:
      arcs:
        - {step: count, when: "{{ ctx.total < 4 }}"}
        - {step: low, when: "{{ ctx.total < 100 }}", set: {ctx.why: "low at {{ ctx.total }}"}}
        - {step: high}
  - step: low
    tool: {kind: noop, result: "{{ why }}"}
  - step: high
    tool: {kind: noop, result: "high at {{ count }}"}
"""
    assert run(text) == "low at 4"
    assert run(text, n=1000) == "high at 1000"


def test_a_loop_gives_its_results_in_order_and_knows_its_item_and_place() -> None:
    text = """\
workload: {rows: [a, b, c]}
workflow:
  - step: each
    loop: {in: "{{ rows }}", iterator: row, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: noop, result: "{{ row }}{{ iter.index }} of {{ iter.count }} {{ loop_index }}"}
    next: sum_up
  - step: sum_up
    tool: {kind: noop, result: "{{ each.results }}"}
"""
    assert run(text) == ["a0 of 3 0", "b1 of 3 1", "c2 of 3 2"]
    assert run(text, rows=[]) == []


def test_code_gets_the_item_of_a_sequential_loop_by_name() -> None:
    stage = Stage()
    text = 'workflow: [{step: a, loop: {in: [5, 6], iterator: n}, tool: {kind: python, code: "return n"}}]'
    assert run(text, stage) == [{"n": 5, "loop_index": 0}, {"n": 6, "loop_index": 1}]


def test_a_guard_bypasses_a_step_and_its_arcs_are_followed() -> None:
    text = """\
workload: {on: false}
workflow:
  - step: a
    when: "{{ workload.on }}"
    tool: {kind: noop, result: worked}
    next: b
  - step: b
    tool: {kind: noop, result: "{{ 'ran' if on else 'bypassed' }}"}
"""
    assert run(text) == "bypassed" and run(text, on=True) == "ran"


def test_a_failed_step_is_tried_again_and_then_its_failure_arc_is_taken() -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: shell, command: ["true"]}
    retry: {attempts: 3}
    next: {arcs: [{step: good}, {step: bad, on: failure, set: {ctx.why: "{{ error.message }}"}}]}
  - step: good
    tool: {kind: noop, result: good}
  - step: bad
    tool: {kind: noop, result: "{{ ctx.why }}"}
"""
    stage = Stage()
    stage.failures = 2
    assert run(text, stage) == "good" and stage.seen == ["a/1"] * 3
    stage.failures = 3
    assert run(text, stage) == "not yet"


def test_joins_wait_for_what_they_say() -> None:
    text = """\
workflow:
  - {step: a, next: [b, c]}
  - {step: b, tool: {kind: noop, result: 1}, next: d}
  - {step: c, tool: {kind: noop, result: 2}, next: d}
  - {step: d, join: {at_least: 2}, tool: {kind: noop, result: "{{ b + steps.c }}"}}
"""
    assert run(text) == 3


def test_a_wait_ends_by_its_time() -> None:
    text = 'workload: {n: 0.01}\nworkflow: [{step: a, tool: {kind: wait, seconds: "{{ n }}"}, next: b}, {step: b}]'
    assert run(text) == {}


def test_finalizers_run_at_the_end() -> None:
    stage = Stage()
    stage.failures = 1
    text = """\
always: [clean]
on_fail: [alert]
workflow:
  - {step: a, tool: {kind: shell, command: ["false"]}}
  - {step: clean, tool: {kind: shell, command: ["true"]}}
  - {step: alert, tool: {kind: shell, command: ["true"]}}
"""
    with pytest.raises(RunFailed, match="not yet"):
        run(text, stage)
    assert sorted(stage.seen) == ["a/1", "alert/1", "clean/1"]


def test_a_name_that_is_only_wrong_at_run_time_fails_the_step_that_reads_it() -> None:
    text = 'workflow: [{step: a, input: {x: "{{ input.missing }}"}}]'
    with pytest.raises(RunFailed, match="missing"):
        run(text)
