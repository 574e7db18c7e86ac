"""Playbooks that NoETL files start: with their inputs, waited for or not, and failing like anything else."""

import asyncio

import pytest

from tests.noetl.house import House, errors, warnings

CHILD = """\
workload: {a: 1, b: 2}
workflow:
  - {step: first, tool: {kind: noop, result: {sum: "{{ a + b }}"}}, next: {arcs: [{step: last}]}}
  - {step: last, tool: {kind: noop, result: {last: "{{ first.sum }}"}}}
"""
FILES = {"kids/child.yaml": CHILD}


def parent(keys: str, more: str = "") -> str:
    return f"workflow: [{{step: p, tool: {{kind: playbook, path: kids/child, {keys}}}{more}}}]"


@pytest.mark.parametrize(
    "given", ["input: {a: 10}", "args: {a: 10}", "payload: {a: 10}", "args: {a: 3}, payload: {a: 4}, input: {a: 10}"]
)
def test_a_child_gets_its_inputs_however_they_are_written(house: House, given: str) -> None:
    assert house.play(parent(f"return_result: true, {given}"), files=FILES).result == {"last": 12}


def test_by_default_a_child_is_only_started(house: House) -> None:
    seen = house.play(parent("input: {a: 5}"), files=FILES)
    child = seen.result.pop("execution_id")
    assert seen.result == {"status": "started", "path": "kids/child", "async": True}
    shown = house.do(asyncio.wait_for(house.engine.wait(child), 60))
    assert (shown.status, shown.result) == ("completed", {"last": 7})
    assert shown.state.parent is not None and shown.state.parent.run == seen.id


def test_return_step_and_result_step_wait_and_choose_whose_data_it_is(house: House) -> None:
    assert house.play(parent("return_step: first"), files=FILES).result == {"sum": 3}
    assert house.play(parent("return_step: end"), files=FILES).result == {"last": 3}
    assert house.play(parent("return_step: last, result_step: first"), files=FILES).result == {"sum": 3}


def test_a_result_step_that_the_child_has_not_is_an_error() -> None:
    assert [code for code, _ in errors(parent("result_step: firts"), FILES)] == ["unknown-step"]


def test_a_child_in_a_list_of_tools_gets_its_inputs_and_its_data_is_read_by_label(house: House) -> None:
    text = """\
workflow:
  - step: p
    input: {b: 20}
    tool:
      - {name: before, kind: noop, result: {n: 7}}
      - {name: kid, kind: playbook, path: kids/child, return_step: last, input: {a: "{{ before.n }}"}}
      - {name: after, kind: noop, result: {got: "{{ kid.last + 1 }}"}}
"""
    assert house.play(text, files=FILES).result["got"] == 28


def test_each_item_of_a_loop_has_a_child_run(house: House) -> None:
    text = """\
workflow:
  - step: p
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel}}
    tool: {kind: playbook, path: kids/child.yaml, return_result: true, input: {a: "{{ n }}", b: 0}}
"""
    assert [each["last"] for each in house.play(text, files=FILES).result["results"]] == [1, 2, 3]


FAILING = {"kids/child.yaml": "workflow: [{step: a, tool: {kind: python, code: \"raise ValueError('no')\"}}]"}


def test_a_failed_child_is_an_error_outcome(house: House) -> None:
    seen = house.play(parent("return_result: true"), files=FAILING)
    assert seen.status == "failed" and seen.fault.kind == "child_failed"
    arc = ", next: {arcs: [{step: q, when: \"{{ output.error.kind == 'child_failed' }}\"}]}"
    text = parent("return_result: true", arc)[:-1] + ", {step: q, tool: {kind: noop, result: q}}]"
    assert house.play(text, files=FAILING).result == "q"


def test_a_failed_child_can_be_tried_again_by_a_rule_each_time_as_a_run_of_its_own(house: House) -> None:
    rules = (
        "spec: {policy: {rules: [{when: \"{{ output.status == 'error' }}\", then: {do: retry, attempts: 2, "
        "delay: 0.01}}]}}"
    )
    seen = house.play(parent(f"return_result: true, {rules}"), files=FAILING)
    assert seen.status == "failed" and seen.history.count("suspended") == 2


def test_a_child_that_takes_too_long_is_a_timeout(house: House) -> None:
    slow = {"kids/child.yaml": "workflow: [{step: a, tool: {kind: shell, command: sleep 30}}]"}
    rules = (
        "spec: {policy: {rules: [{when: \"{{ output.error.kind == 'timeout' }}\", then: {do: continue, "
        "set: {ctx.late: true}}}]}}"
    )
    seen = house.play(parent(f"return_result: true, timeout: 0.3, {rules}"), files=slow)
    assert (seen.status, seen.ctx) == ("completed", {"late": True})


def test_a_playbook_may_start_itself(house: House) -> None:
    text = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: self, path: some/self}
workload: {n: 3}
workflow:
  - {step: start, next: {arcs: [{step: down, when: "{{ n > 0 }}"}, {step: end}]}}
  - {step: down, tool: {kind: playbook, path: some/self, return_result: true, input: {n: "{{ n - 1 }}"}}}
  - {step: end, tool: {kind: noop, result: bottom}}
"""
    assert house.play(text).result == "bottom"


def test_waiting_for_a_child_holds_no_worker(house: House) -> None:
    """More nested children than there are slots."""
    text = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: self, path: self}
workload: {n: 40}
workflow:
  - {step: start, next: {arcs: [{step: down, when: "{{ n > 0 }}"}, {step: end}]}}
  - {step: down, tool: {kind: playbook, path: self, return_step: end, input: {n: "{{ n - 1 }}"}}}
  - {step: end, tool: {kind: noop, result: "{{ n }}"}}
"""
    assert house.play(text).status == "completed"


def test_a_path_is_that_of_a_file_or_of_a_catalog_in_which_the_parent_has_its_own() -> None:
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: tests/all/p}\n"
    call = "workflow: [{step: p, tool: {kind: playbook, path: tests/all/kids/child}}]"
    assert errors(head + call, {"child.yaml": CHILD}) == []
    assert errors(head + call, {"../../tests/all/kids/child.yaml": CHILD}) == []
    assert [code for code, _ in errors(head + call, {})] == ["unreadable-child"]


def test_a_path_that_is_computed_is_refused() -> None:
    text = 'workflow: [{step: p, tool: {kind: playbook, path: "{{ x }}"}}]'
    assert [code for code, _ in errors(text)] == ["unsupported"]


def test_hints_of_a_child_are_warned_about() -> None:
    found = warnings(parent("return_result: true, version: 2, poll_interval: 5, task: x"), FILES)
    assert [code for code, _ in found] == ["no-effect", "no-effect", "unknown-key"]
