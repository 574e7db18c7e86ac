"""Scopes and assignment in NoETL files: who reads what, and who may write it."""

import pytest

from refold.core.facts import Routed, StepSettled, Took
from tests.noetl.house import House, errors, warnings


def test_bare_names_go_from_the_workload_up_to_bound_inputs(house: House) -> None:
    """Each layer hides the one below it."""
    steps = """\
workload: {x: workload}
workflow:
  - {step: start, next: {arcs: [{step: X}]}}
  - step: X
    tool: {kind: noop, result: result}
    next: {arcs: [{step: look, SET}]}
  - step: look
    LOOP
    INPUT
    tool:
      - {name: one, kind: noop, result: "{{ x }}"VAR}
      - {name: two, kind: noop, result: "{{ x }}"}
"""

    def x(step: str = "s", set: str = "", var: str = "", loop: str = "desc: a", input: str = "desc2: b") -> str:
        text = steps.replace("step: X", f"step: {step}").replace("SET", set or "when: true").replace("VAR", var)
        text = text.replace("LOOP", loop).replace(
            "    INPUT\n" if input == "desc2: b" else "INPUT", "" if input == "desc2: b" else input
        )
        found = house.play(text).results["look"]
        return str((found["results"][0] if loop != "desc: a" else found)["two"])

    assert x() == "workload"
    assert x("x") == "result"
    assert x("x", "set: {ctx.x: ctx}") == "ctx"
    assert x("x", "set: {ctx.x: ctx}", ", set: {x: var}") == "var"
    assert x("x", "set: {ctx.x: ctx}", ", set: {x: var}", "loop: {in: [item], iterator: x}") == "item"
    assert x("x", "set: {ctx.x: ctx}", ", set: {x: var}", input="input: {x: input}") == "input"


def test_a_label_hides_ctx_and_a_variable_hides_a_label(house: House) -> None:
    text = """\
workflow:
  - {step: start, set: {ctx.x: ctx}, next: {arcs: [{step: look}]}}
  - step: look
    tool:
      - {name: x, kind: noop, result: label}
      - {name: two, kind: noop, result: "{{ x }}", set: {x: var}}
      - {name: three, kind: noop, result: "{{ x }}"}
"""
    found = house.play(text).results["look"]
    assert (found["two"], found["three"]) == ("label", "var")


def test_ids_of_the_engine_cannot_be_hidden(house: House) -> None:
    text = (
        'workflow: [{step: a, input: {execution_id: mine}, tool: {kind: noop, result: ["{{ execution_id }}", '
        '"{{ input.execution_id }}"]}}]'
    )
    seen = house.play(text)
    assert seen.result == [seen.id, "mine"]


def test_prefixes_of_set_choose_the_scope_and_any_other_dot_belongs_to_the_key(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: noop, result: 1, set: {ctx.a: 1, iter.b: 2, step.c: 3, d: 4}}
    set: {ctx.e: 5, step.f: 6, g: 7, other.key: 8}
    next: {arcs: [{step: b, set: {h: 9, ctx.i: "{{ step.f }}{{ step.c }}"}}]}
  - {step: b, tool: {kind: noop, result: ["{{ d }}", "{{ ctx['other.key'] }}"]}}
"""
    seen = house.play(text)
    assert seen.result == [None, 8]  # a bare key of a task is a variable of its pipeline only
    assert seen.ctx == {"a": 1, "c": 3, "e": 5, "f": 6, "g": 7, "other.key": 8, "h": 9, "i": "63"}


def test_all_values_of_one_set_are_rendered_against_the_state_before_it(house: House) -> None:
    text = """\
workflow:
  - {step: a, set: {ctx.x: 1, ctx.y: 2}, next: {arcs: [{step: b}]}}
  - {step: b, set: {ctx.x: "{{ ctx.y }}", ctx.y: "{{ ctx.x }}"}, next: {arcs: [{step: c,
      set: {ctx.x: "{{ ctx.x + 10 }}", ctx.z: "{{ ctx.x }}"}}]}}
  - {step: c}
"""
    assert house.play(text).ctx == {"x": 12, "y": 1, "z": 2}


def test_a_step_has_no_iteration_to_set_something_for() -> None:
    assert [code for code, _ in errors("workflow: [{step: a, set: {iter.x: 1}}]")] == ["bad-set"]


def test_of_several_writers_of_one_key_the_latest_to_end_wins_with_one_record_each(house: House) -> None:
    text = """\
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: slow}, {step: fast}]}}
  - {step: slow, tool: {kind: shell, command: sleep 0.4}, set: {ctx.last: slow}}
  - {step: fast, tool: {kind: noop}, set: {ctx.last: fast}}
"""
    seen = house.play(text)
    took = [move for fact in seen.facts if isinstance(fact, Routed) for move in fact.moves if isinstance(move, Took)]
    assert seen.ctx == {"last": "slow"}
    assert [move.sets for move in took if move.sets] == [{"last": "fast"}, {"last": "slow"}]


def test_writes_of_tasks_are_one_record_with_the_completion(house: House) -> None:
    text = "workflow: [{step: a, tool: [{kind: noop, set: {ctx.a: 1}}, {kind: noop, set: {ctx.b: 2}}]}]"
    settled = [fact for fact in house.play(text).facts if isinstance(fact, StepSettled)]
    assert len(settled) == 1 and [write.key for write in settled[0].report.writes] == ["a", "b"]


def test_x_data_is_x_unless_the_result_has_data_of_its_own(house: House) -> None:
    text = """\
workflow:
  - {step: own, tool: {kind: noop, result: {data: {n: 1}, n: 2}}, next: {arcs: [{step: bare}]}}
  - {step: bare, tool: {kind: noop, result: {n: 3}}, next: {arcs: [{step: list}]}}
  - {step: list, tool: {kind: noop, result: [4]}, next: {arcs: [{step: look}]}}
  - step: look
    tool: {kind: noop, result: ["{{ own.data.n }}", "{{ own.n }}", "{{ bare.data.n }}", "{{ bare.n }}",
        "{{ list.data[0] }}", "{{ list[0] }}", "{{ bare }}"]}
"""
    assert house.play(text).result == [1, 2, 3, 3, 4, 4, {"n": 3}]  # the alias is never stored


def test_output_is_the_raw_data_with_status_and_error_unless_the_data_has_such_keys(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: noop, result: RESULT, set: {ctx.t: ["{{ output.n }}", "{{ output.data.n }}", "{{ output.status }}"]}}
    set: {ctx.s: ["{{ output.n }}", "{{ output.data.n }}", "{{ output.status }}", "{{ output.error }}"]}
"""
    assert house.play(text.replace("RESULT", "{n: 1}")).ctx == {"t": [1, 1, "ok"], "s": [1, 1, "ok", {}]}
    own = house.play(text.replace("RESULT", "{n: 1, status: mine, data: {n: 2}, error: no}"))
    assert own.ctx == {"t": [1, 2, "mine"], "s": [1, 2, "mine", "no"]}


def test_steps_is_the_envelope_of_each_step_that_has_ended(house: House) -> None:
    text = """\
workflow:
  - {step: a, tool: {kind: noop, result: {n: 1}}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: shell, command: exit 3}, next: {arcs: [{step: c, when: "{{ output.status == 'error' }}"}]}}
  - {step: c, tool: {kind: noop, result: ["{{ steps.a.status }}", "{{ steps.a.data.n }}", "{{ steps.b.status }}",
      "{{ steps.b.error.kind }}", "{{ steps.c }}"]}}
"""
    assert house.play(text).result == ["completed", 1, "failed", "exit", None]


def test_step_x_is_of_one_visit_and_is_read_by_the_steps_own_set_and_arcs(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: noop, set: {step.n: 1}}
    set: {ctx.m: "{{ step.n + 1 }}"}
    next: {arcs: [{step: b, when: "{{ step.n == 1 }}"}]}
  - {step: b, tool: {kind: noop, result: ["{{ ctx.m }}", "{{ step.n }}"]}}
"""
    assert house.play(text).result == [2, None]


@pytest.mark.parametrize("name", ["access_token", "auth", "password", "api_key", "secret"])
def test_names_do_not_change_the_data_that_flows(house: House, name: str) -> None:
    text = f"""\
workflow:
  - {{step: a, tool: {{kind: noop, result: {{{name}: value}}}}, next: {{arcs: [{{step: b}}]}}}}
  - {{step: b, tool: {{kind: python, input: {{{name}: "{{{{ a.{name} }}}}"}}, code: "result = {{'got': {name}}}"}}}}
"""
    assert house.play(text).result == {"got": "value"}


def test_a_name_that_a_reference_is_kept_under_should_say_so() -> None:
    text = 'workflow: [{step: a, tool: {kind: noop}, set: {ctx.NAME: "{{ a._ref }}"}}]'
    assert [code for code, _ in warnings(text.replace("NAME", "kept"))] == ["unnamed-reference"]
    assert warnings(text.replace("NAME", "kept_ref")) == []
