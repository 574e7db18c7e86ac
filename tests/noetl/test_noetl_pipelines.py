"""Lists of tools in NoETL files: order, labels, scope, and the result of the step."""

from pathlib import Path

import pytest

from tests.noetl.house import House, errors


def test_tasks_run_in_order_as_one_command(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool:
      - {name: one, kind: noop, result: {x: 1}}
      - {name: two, kind: python, input: {x: "{{ one.x }}"}, code: "result = {'y': x + 1}"}
      - {name: three, kind: noop, result: {z: "{{ two.y + one.x }}"}}
"""
    seen = house.play(text)
    assert seen.result == {"x": 1, "y": 2, "z": 3, "one": {"x": 1}, "two": {"y": 2}, "three": {"z": 3}}
    assert seen.history.count("a/1 issued") == 1


def test_a_task_without_a_name_is_called_by_its_number(house: House) -> None:
    text = 'workflow: [{step: a, tool: [{kind: noop, result: 5}, {kind: noop, result: "{{ task_0 + 1 }}"}]}]'
    assert house.play(text).result == {"task_0": 5, "task_1": 6}


def test_a_single_tool_is_a_pipeline_of_one_task_named_after_the_step(house: House) -> None:
    text = (
        'workflow: [{step: a, tool: {kind: noop, result: 1, set: {ctx.me: "{{ _task }}", '
        'ctx.n: "{{ a_task + _attempt }}"}}}]'
    )
    assert house.play(text).ctx == {"me": "a_task", "n": 2}


def test_labels_are_unique_in_a_step_and_may_repeat_in_another() -> None:
    assert [
        code for code, _ in errors("workflow: [{step: a, tool: [{name: x, kind: noop}, {name: x, kind: noop}]}]")
    ] == ["duplicate-task"]
    both = (
        "workflow: [{step: a, tool: [{name: x, kind: noop}], next: {arcs: [{step: b}]}}, {step: b, "
        "tool: [{name: x, kind: noop}]}]"
    )
    assert errors(both) == []


def test_a_task_reads_its_scope(house: House) -> None:
    text = """\
workload: {w: 1}
workflow:
  - {step: before, tool: {kind: noop, result: {b: 2}}, set: {ctx.c: 3}, next: {arcs: [{step: a}]}}
  - step: a
    input: {i: 4}
    tool:
      - {name: one, kind: noop, result: {o: 5}, set: {v: 6, iter.t: 7, step.s: 8}}
      - name: two
        kind: noop
        result: ["{{ w }}", "{{ before.b }}", "{{ before.data.b }}", "{{ ctx.c }}", "{{ c }}", "{{ i }}",
            "{{ input.i }}",
          "{{ one.o }}", "{{ one.data.o }}", "{{ results.one.o }}", "{{ _prev.o }}", "{{ _prev.data.o }}",
          "{{ _task }}",
          "{{ _attempt }}", "{{ v }}", "{{ iter.t }}", "{{ step.s }}"]
"""
    found = house.play(text).result["two"]
    assert found == [1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5, "two", 1, 6, 7, 8]


def test_a_task_reads_its_ids(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: noop, result: {e: "{{ execution_id }}", j: "{{ job.uuid }}", c: "{{ command_id }}",
        w: "{{ worker_id }}", p: "{{ path }}"}}
"""
    head = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: a, path: reports/a}\n"
    seen = house.play(head + text)
    assert seen.result["e"] == seen.result["j"] == seen.id and seen.result["p"] == "reports/a"
    assert seen.result["c"] == f"{seen.id}/a/1" and isinstance(seen.result["w"], str)


def test_a_label_never_loses_to_a_merged_field(house: House) -> None:
    text = "workflow: [{step: a, tool: [{name: x, kind: noop, result: {n: 1}}, {name: y, kind: noop, result: {x: 2}}]}]"
    assert house.play(text).result == {"n": 1, "x": {"n": 1}, "y": {"x": 2}}


def test_later_tasks_win_where_fields_are_merged(house: House) -> None:
    text = "workflow: [{step: a, tool: [{name: x, kind: noop, result: {n: 1}}, {name: y, kind: noop, result: {n: 2}}]}]"
    assert house.play(text).result["n"] == 2


def test_fields_are_merged_only_if_every_value_is_a_map(house: House) -> None:
    text = "workflow: [{step: a, tool: [{name: x, kind: noop, result: {n: 1}}, {name: y, kind: noop, result: [2]}]}]"
    assert house.play(text).result == {"x": {"n": 1}, "y": [2]}


def test_published_files_read_labels_under_results_too(house: House) -> None:
    text = """\
workflow:
  - {step: a, tool: [{name: x, kind: noop, result: {n: 1}}], next: {arcs: [{step: b,
      when: "{{ a.results.x.n == 1 }}"}]}}
  - {step: b, tool: {kind: noop, result: "{{ a.results.x.n }}"}}
"""
    assert house.play(text).result == 1


def test_a_failing_task_fails_the_step_and_the_rest_does_not_run(house: House) -> None:
    text = (
        "workflow: [{step: a, tool: [{name: x, kind: shell, command: exit 3}, {name: y, kind: noop, set: {ctx.y: 1}}]}]"
    )
    seen = house.play(text)
    assert seen.status == "failed" and seen.fault.kind == "exit" and seen.ctx == {}


def test_what_a_failed_pipeline_has_set_leaves_nothing(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool: [{name: x, kind: noop, set: {ctx.x: 1}}, {name: y, kind: shell, command: exit 3}]
    next: {arcs: [{step: b, when: "{{ output.status == 'error' }}"}]}
  - {step: b, tool: {kind: noop, result: "{{ ctx.x }}"}}
"""
    assert house.play(text).result is None


def test_each_task_has_an_idempotency_key_of_its_own_that_is_stable_over_tries(house: House, tmp_path: Path) -> None:
    text = """\
workflow:
  - step: a
    tool:
      - {name: one, kind: shell, command: "printf %s $REFOLD_IDEMPOTENCY_KEY"}
      - name: two
        kind: shell
        command: 'printf "%s " $REFOLD_IDEMPOTENCY_KEY >> {{ file }}; test $(wc -w < {{ file }}) -ge 2'
        spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 3, delay: 0}}]}}
"""
    file = tmp_path / "keys"
    file.touch()
    seen = house.play("workload: {file: x}\n" + text, {"file": str(file)})
    keys = file.read_text().split()
    one = seen.result["one"]["stdout"]
    assert len(keys) == 2 and len(set(keys)) == 1 and keys[0] != one
    assert one == f"{seen.id}/a/1/one" and keys[0] == f"{seen.id}/a/1/two"


def test_the_entry_of_a_label_is_overwritten_when_the_task_runs_again(house: House, tmp_path: Path) -> None:
    text = """\
workload: {f: x}
workflow:
  - step: a
    tool:
      - name: once
        kind: shell
        command: "echo x >> {{ f }}; test $(wc -l < {{ f }}) -lt 2"
        spec: {policy: {rules: [{else: {do: continue}}]}}
      - name: back
        kind: noop
        result: {n: "{{ (n | default(0)) + 1 }}"}
        set: {n: "{{ output.n }}"}
        spec: {policy: {rules: [{when: "{{ output.data.n < 2 }}", then: {do: jump, to: once}}]}}
"""
    assert "once" not in house.play(text, {"f": str(tmp_path / "n")}).result  # the second time, it failed


def test_the_kind_of_a_tool_is_needed() -> None:
    assert errors("workflow: [{step: a, tool: {code: x}}]") == [("missing-key", "a tool needs the key `kind`")]


@pytest.mark.parametrize("kind", ["postgres", "duckdb", "sqlite"])
def test_an_sql_task_needs_its_statement(kind: str) -> None:
    found = errors(f"workflow: [{{step: a, tool: {{kind: {kind}}}}}]")
    assert found[0][0] == "missing-key" and "command" in found[0][1]


def test_an_empty_list_of_tools_is_refused() -> None:
    assert errors("workflow: [{step: a, tool: []}]") == [("wrong-type", "the list of tools is empty")]
