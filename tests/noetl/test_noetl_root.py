"""Root keys of NoETL files: the dialect, the workload, the executor, the workbook, and keys that nobody knows."""

from typing import Any

import pytest

from tests.noetl.house import House, errors, problems, reading, warnings

STEPS = "workflow: [{step: start}]\n"


@pytest.mark.parametrize("version", ["noetl.io/v2", "noetl.io/v10"])
def test_both_versions_of_the_language_are_read_and_run(house: House, version: str) -> None:
    seen = house.play(
        f"apiVersion: {version}\nkind: Playbook\nmetadata: {{name: a}}\n"
        "workflow: [{step: start, tool: {kind: noop, result: 1}}]"
    )
    assert (seen.status, seen.result, seen.warnings) == ("completed", 1, ())


def test_another_version_and_another_kind_are_refused() -> None:
    assert errors("apiVersion: noetl.io/v1\nkind: Playbook\nmetadata: {name: a}\n" + STEPS)[0][0] == "unknown-language"
    text = "apiVersion: noetl.io/v2\nkind: Credential\nmetadata: {name: a}\n" + STEPS
    assert [code for code, _ in errors(text)] == ["bad-choice"]


def test_metadata_needs_a_name_and_may_hold_anything_else() -> None:
    text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {path: a}\n" + STEPS
    assert errors(text) == [("missing-key", "metadata needs the key `name`")]
    more = (
        "apiVersion: noetl.io/v2\nkind: Playbook\n"
        "metadata: {name: a, version: '1.0', labels: {a: b}, tags: one, capabilities: [x], agent: true, owner: me,"
        " exposed_in_ui: true, exposes_as_mcp: false, description: d}\n"
    )
    assert warnings(more + STEPS) == [("unknown-key", "metadata has no key `owner`; it has no effect")]


def test_the_workload_is_merged_with_the_input_map_by_map_and_lists_are_replaced(house: House) -> None:
    text = """\
workload: {db: {host: a, port: 1, tags: [x, y]}, names: [1, 2], flat: 0}
workflow: [{step: start, tool: {kind: noop, result: "{{ workload }}"}}]
"""
    given: dict[str, Any] = {"db": {"port": 2, "tags": ["z"]}, "names": [9], "more": {"a": None}}
    assert house.play(text, given).result == {
        "db": {"host": "a", "port": 2, "tags": ["z"]},
        "names": [9],
        "flat": 0,
        "more": {"a": None},
    }


def test_workload_values_are_templates_over_input_siblings_and_ids_rendered_once_at_the_start(house: House) -> None:
    text = """\
workload:
  base: "{{ input.host }}/v1"
  url: "{{ base }}/users"
  job: "{{ job.uuid }}"
  run: "{{ execution_id }}"
  n: "{{ workload.k + 1 }}"
  k: 1
workflow:
  - step: start
    tool: {kind: noop, result: {url: "{{ url }}", n: "{{ n }}",
        same: "{{ workload.job == execution_id and run == execution_id }}"}}
"""
    seen = house.play(text, {"host": "http://h"})
    assert seen.result == {"url": "http://h/v1/users", "n": 2, "same": True}


def test_what_is_given_is_data_and_never_rendered(house: House) -> None:
    text = 'workload: {a: x}\nworkflow: [{step: start, tool: {kind: noop, result: "{{ a }}"}}]'
    assert house.play(text, {"a": "{{ 7*7 }}"}).result == "{{ 7*7 }}"


def test_a_workload_that_needs_itself_fails_with_the_circle(house: House) -> None:
    with pytest.raises(Exception, match=r"workload\.a needs itself"):
        house.play('workload: {a: "{{ b }}", b: "{{ a }}"}\n' + STEPS)


def test_the_workload_never_changes(house: House) -> None:
    text = """\
workload: {n: 1}
workflow:
  - {step: start, tool: {kind: noop}, set: {n: 5}, next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: noop, result: ["{{ n }}", "{{ ctx.n }}", "{{ workload.n }}"]}}
"""
    assert house.play(text).result == [5, 5, 1]


def test_the_first_step_is_the_entry_unless_the_executor_names_another(house: House) -> None:
    steps = "workflow: [{step: b, tool: {kind: noop, result: b}}, {step: start, tool: {kind: noop, result: s}}]"
    assert house.play(steps).result == "b"
    assert house.play("executor: {spec: {entry_step: start}}\n" + steps).result == "s"


def test_entry_and_final_step_must_exist() -> None:
    found = errors("executor: {spec: {entry_step: stert, final_step: done}}\n" + STEPS)
    assert [code for code, _ in found] == ["unknown-step", "unknown-step"]


def test_the_final_step_runs_once_at_the_end_with_a_summary_as_its_input(house: House) -> None:
    text = """\
executor: {spec: {final_step: sum_up}}
workflow:
  - {step: a, tool: {kind: noop, result: 1}, next: {spec: {mode: inclusive}, arcs: [{step: b}, {step: c}]}}
  - {step: b, tool: {kind: noop, result: 2}}
  - step: c
    tool: {kind: python, code: "raise ValueError('no')"}
    next: {arcs: [{step: d, when: "{{ event.name == 'step.failed' }}"}]}
  - {step: d, tool: {kind: noop, result: 4}}
  - step: sum_up
    tool: {kind: python,
        code: "result = {'id': execution_id, 'counts': counts, 'failed': [f['step'] for f in failures]}"}
"""
    seen = house.play(text)
    assert seen.status == "completed" and seen.lives["sum_up"] == "completed"
    told = seen.results["sum_up"]
    assert told["id"] == seen.id and told["failed"] == ["c"]
    assert told["counts"]["completed"] == 3 and told["counts"]["failed"] == 1
    assert seen.history.count("sum_up/1 issued") == 1


def test_a_failing_final_step_fails_the_run(house: House) -> None:
    text = """\
executor: {spec: {final_step: last}}
workflow: [{step: a}, {step: last, tool: {kind: python, code: "raise ValueError('no')"}}]
"""
    seen = house.play(text)
    assert seen.status == "failed" and seen.error is not None and seen.error.step == "last"


def test_no_next_is_error_makes_a_step_fail_whose_arcs_do_not_match(house: House) -> None:
    steps = 'workflow: [{step: a, next: {arcs: [{step: b, when: "{{ 1 > 2 }}"}]}}, {step: b}]'
    assert house.play(steps).status == "completed"
    seen = house.play("executor: {spec: {no_next_is_error: true}}\n" + steps)
    assert seen.status == "failed" and seen.fault.kind == "no_match"
    leaf = "executor: {spec: {no_next_is_error: true}}\nworkflow: [{step: a}]"
    assert house.play(leaf).status == "completed"


def test_requires_names_tools_that_must_be_there() -> None:
    assert errors("executor: {requires: {tools: [http, python], features: [templating]}}\n" + STEPS) == []
    assert errors("executor: {requires: {tools: [htp]}}\n" + STEPS) == [("unknown-tool", "there is no tool `htp`")]


def test_the_profile_is_a_hint_and_a_warning_says_so() -> None:
    assert warnings("executor: {profile: distributed, version: noetl-runtime/1}\n" + STEPS) == [
        ("no-effect", "`profile` has no effect here")
    ]
    assert warnings("executor: {profile: auto}\n" + STEPS) == []


def test_extension_keys_are_kept_and_readable_by_name_with_a_warning(house: House) -> None:
    text = 'limits: {rows: 7}\nworkflow: [{step: a, tool: {kind: noop, result: "{{ limits.rows }}"}}]'
    seen = house.play(text)
    assert seen.result == 7
    assert [(each.code, each.place.line) for each in seen.warnings] == [("extension-key", 4)]


def test_vars_at_the_root_are_rejected_and_the_replacement_is_named() -> None:
    found = problems("vars: {a: 1}\n" + STEPS)
    assert [each.code for each in found] == ["old-key"] and "workload" in found[0].hint


def test_a_workflow_is_a_list_of_steps_with_unique_names() -> None:
    assert errors("workflow: []\n") != []
    assert [code for code, _ in errors("workflow: [{step: a}, {step: a}]\n")] == ["duplicate-step"]
    assert [code for code, _ in errors("workload: {a: 1}\n")] == ["missing-key"]


WORKBOOK = """\
workbook:
  - name: shout
    tool: {kind: python, input: {word: none, times: 1}, code: "result = {'said': word.upper() * times}"}
    assert: {expects: [word], returns: [said]}
"""


def test_a_task_of_the_workbook_is_run_by_name_with_the_calls_input_over_its_own(house: House) -> None:
    call = "workflow: [{step: a, tool: {kind: workbook, name: shout, input: {word: hi}}}]"
    assert house.play(WORKBOOK + call).result == {"said": "HI"}


def test_a_task_of_the_workbook_can_stand_in_a_list(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool:
      - {name: first, kind: noop, result: {word: ho}}
      - {kind: workbook, name: shout, input: {word: "{{ first.word }}", times: 2}}
      - {name: last, kind: noop, result: {heard: "{{ _prev.said }}"}}
"""
    assert house.play(WORKBOOK + text).result["heard"] == "HOHO"


def test_a_task_of_the_workbook_must_return_what_it_asserts(house: House) -> None:
    book = "workbook: [{name: a, tool: {kind: noop, result: {x: 1}}, assert: {returns: [x, y]}}]\n"
    seen = house.play(book + "workflow: [{step: s, tool: {kind: workbook, name: a}}]")
    assert seen.status == "failed" and seen.fault.kind == "schema" and "'y'" in seen.fault.message


def test_an_input_that_a_task_of_the_workbook_expects_must_be_given() -> None:
    book = "workbook: [{name: a, tool: {kind: noop, result: 1}, assert: {expects: [x, y]}}]\n"
    call = "workflow: [{step: s, input: {x: 1}, tool: {kind: workbook, name: a}}]"
    assert errors(book + call) == [("missing-input", "the task `a` of the workbook expects `y`, which is not given")]
    given = "workflow: [{step: s, input: {x: 1}, tool: {kind: workbook, name: a, input: {y: 2}}}]"
    assert errors(book + given) == []


def test_assertions_may_stand_inside_the_tool_too(house: House) -> None:
    book = "workbook: [{name: a, tool: {kind: noop, result: {}, assert: {expects: [x], returns: [z]}}}]\n"
    call = "workflow: [{step: s, tool: {kind: workbook, name: a, input: {x: 1}}}]"
    assert warnings(book + call) == []
    assert house.play(book + call).fault.kind == "schema"
    none = "workflow: [{step: s, tool: {kind: workbook, name: a}}]"
    assert [code for code, _ in errors(book + none)] == ["missing-input"]


def test_an_unknown_task_of_the_workbook_is_an_error_with_the_nearest_name() -> None:
    found = problems(WORKBOOK + "workflow: [{step: a, tool: {kind: workbook, name: shuot}}]")
    assert found[0].code == "unknown-task" and "shout" in found[0].hint


def test_two_tasks_of_the_workbook_cannot_have_one_name() -> None:
    book = "workbook: [{name: a, tool: {kind: noop}}, {name: a, tool: {kind: noop}}]\n"
    assert [code for code, _ in errors(book + STEPS)] == ["duplicate-task"]


def test_everything_that_was_read_is_in_the_plan() -> None:
    plan = reading("workload: {a: 1}\nextra: [1]\n" + STEPS).plan
    assert plan.language == "noetl" and plan.constants["extra"] == [1] and plan.defaults == {"a": 1}
