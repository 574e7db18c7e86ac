"""Steps of NoETL files: what they are given, when they are admitted, and in which order a visit goes."""

import pytest

from refold.core.facts import Routed, Took
from tests.noetl.house import House, errors, warnings


def test_a_step_without_a_tool_is_a_place_to_branch(house: House) -> None:
    text = """\
workload: {n: 2}
workflow:
  - {step: start, next: {arcs: [{step: low, when: "{{ n < 2 }}"}, {step: high}]}}
  - {step: low, tool: {kind: noop, result: low}}
  - {step: high, tool: {kind: noop, result: high}}
"""
    seen = house.play(text)
    assert seen.result == "high" and seen.lives == {"start": "completed", "low": "skipped", "high": "completed"}


def test_the_steps_input_is_bound_and_the_tasks_lies_over_it_key_by_key(house: House) -> None:
    text = """\
workload: {a: 1}
workflow:
  - step: start
    input: {x: "{{ a }}", y: step, z: {deep: 1}}
    tool: {kind: python, input: {y: task}, code: "result = [x, y, z, args, input_data]"}
"""
    bound = {"x": 1, "y": "task", "z": {"deep": 1}}
    assert house.play(text).result == [1, "task", {"deep": 1}, bound, bound]


def test_bound_values_are_read_by_their_names_and_under_input(house: House) -> None:
    text = """\
workload: {x: outside}
workflow: [{step: start, input: {x: 1, y: 2}, tool: {kind: noop, result: ["{{ x }}", "{{ input.y }}",
    "{{ workload.x }}"]}}]
"""
    assert house.play(text).result == [1, 2, "outside"]


def test_inputs_are_bound_in_a_list_of_tools_too(house: House) -> None:
    text = """\
workflow:
  - step: start
    input: {x: 1, y: 1}
    tool:
      - {name: a, kind: noop, input: {y: 2}, result: {first: ["{{ x }}", "{{ y }}"]}}
      - {name: b, kind: noop, result: {second: ["{{ x }}", "{{ y }}"]}}
"""
    seen = house.play(text).result
    assert seen["first"] == [1, 2] and seen["second"] == [1, 1]


def test_a_denied_step_is_bypassed_and_its_first_matching_arc_is_followed(house: House) -> None:
    text = """\
workload: {on: false}
workflow:
  - step: start
    next: {arcs: [{step: work}]}
  - step: work
    spec: {policy: {admit: {mode: exclusive, rules: [{when: "{{ on }}", then: {allow: true}},
        {else: {then: {allow: false}}}]}}}
    tool: {kind: noop, result: worked}
    set: {ctx.worked: true}
    next: {arcs: [{step: no, when: "{{ 1 > 2 }}"}, {step: end}]}
  - {step: no}
  - {step: end, tool: {kind: noop, result: "{{ ctx.worked }}"}}
"""
    seen = house.play(text)
    assert (seen.status, seen.result, seen.lives["work"]) == ("completed", None, "bypassed")
    seen = house.play(text, {"on": True})
    assert (seen.status, seen.result, seen.lives["work"]) == ("completed", True, "completed")


def test_a_denied_entry_step_ends_the_run(house: House) -> None:
    text = (
        "workflow: [{step: a, spec: {policy: {admit: {rules: [{else: {allow: false}}]}}}, tool: {kind: noop, "
        "result: 1}}]"
    )
    seen = house.play(text)
    assert (seen.status, seen.result, seen.lives) == ("completed", None, {"a": "bypassed"})


@pytest.mark.parametrize(("n", "ran"), [(1, True), (5, False), (9, True)])
def test_the_first_rule_of_admission_that_holds_decides_and_by_default_it_is_yes(
    house: House, n: int, ran: bool
) -> None:
    text = """\
workflow:
  - step: a
    spec:
      policy:
        admit:
          rules:
            - {when: "{{ n > 8 }}", then: {allow: true}}
            - {when: "{{ n > 4 }}", then: {allow: false}}
            - {when: "{{ n > 4 }}", then: {allow: true}}
    tool: {kind: noop, result: ran}
"""
    assert house.play("workload: {n: 0}\n" + text, {"n": n}).result == ("ran" if ran else None)


def test_admission_is_a_policy_of_steps_and_control_actions_are_not() -> None:
    text = "workflow: [{step: a, spec: {policy: {rules: [{else: {do: fail}}]}}, tool: {kind: noop}}]"
    assert [code for code, _ in errors(text)] == ["old-key"]


def test_a_time_limit_of_the_step_stops_its_tool_as_a_timeout(house: House) -> None:
    text = """\
workflow:
  - step: slow
    spec: {timeout: 0.3}
    tool: {kind: python, code: "import time; time.sleep(30)"}
    next: {arcs: [{step: late, when: "{{ output.error.kind == 'timeout' and output.error.retryable }}"}]}
  - {step: late, tool: {kind: noop, result: late}}
"""
    assert house.play(text).result == "late"


@pytest.mark.parametrize(
    "spec", ["{policy: {lifecycle: {timeout_s: 0.3}}}", "{policy: {lifecycle: {deadline_s: 0.3}}}"]
)
def test_a_lifecycle_policy_is_a_time_limit_too(house: House, spec: str) -> None:
    text = f"workflow: [{{step: a, spec: {spec}, tool: {{kind: shell, command: sleep 30}}}}]"
    seen = house.play(text)
    assert seen.status == "failed" and "0.3" in seen.history


def test_policies_of_the_executor_hold_for_steps_that_say_nothing_else(house: House) -> None:
    text = """\
executor: {spec: {policy: {defaults: {lifecycle: {timeout_s: 0.3}, failure: {mode: best_effort}}}}}
workflow:
  - {step: loop, loop: {in: [1, 0], iterator: n}, tool: {kind: python, code: "result = 1 // n"},
      next: {arcs: [{step: slow}]}}
  - {step: slow, tool: {kind: shell, command: sleep 30}}
"""
    seen = house.play(text)
    assert seen.lives == {"loop": "completed", "slow": "failed"}
    own = text.replace("step: slow, tool", "step: slow, spec: {timeout: 60}, tool").replace("sleep 30", "sleep 0.5")
    assert house.play(own).lives["slow"] == "completed"


def test_maps_of_policies_merge_deeply_and_the_inner_wins(house: House) -> None:
    text = """\
executor: {spec: {policy: {defaults: {lifecycle: {timeout_s: 60, deadline_s: 90}}, failure: {mode: fail_fast}}}}
workflow:
  - step: a
    spec: {policy: {lifecycle: {timeout_s: 1.5}, failure: {mode: best_effort}}}
    loop: {in: [0, 1], iterator: n, spec: {policy: {exec: local}}}
    tool: {kind: python, code: "import time; time.sleep(60 * n)"}
"""
    seen = house.play(text)
    assert seen.lives["a"] == "completed" and seen.results["a"]["stats"] == {"total": 2, "success": 1, "failed": 1}
    inner = text.replace("{exec: local}", "{failure: {mode: fail_fast}}")
    assert house.play(inner).lives["a"] == "failed"


def test_a_layer_of_a_policy_adds_to_those_outside_of_it(house: House) -> None:
    """The executor's limit holds beside the one that the step has: maps merge deeply."""
    text = """\
executor: {spec: {policy: {lifecycle: {timeout_s: 0.3}}}}
workflow: [{step: a, spec: {policy: {lifecycle: {deadline_s: 60}}}, tool: {kind: shell, command: sleep 30}}]
"""
    assert house.play(text).lives["a"] == "failed"


def test_one_visit_goes_in_the_documented_order(house: House) -> None:
    """Task set, rules, the rule's set, step set, arc conditions, arc set: each reads what those before it have left."""
    text = """\
workflow:
  - step: a
    tool:
      kind: noop
      result: {n: 1}
      set: {ctx.log: ["task"], ctx.n: "{{ output.n }}"}
      spec: {policy: {rules: [{when: "{{ ctx.log | length == 1 }}", then: {do: continue,
          set: {ctx.log: "{{ ctx.log + ['rule'] }}"}}}]}}
    set: {ctx.log: "{{ ctx.log + ['step'] }}"}
    next: {arcs: [{step: no, when: "{{ ctx.log | length < 3 }}"}, {step: b, set: {ctx.log: "{{ ctx.log + ['arc'] }}"}}]}
  - {step: no}
  - {step: b, tool: {kind: noop, result: "{{ ctx.log + [ctx.n] }}"}}
"""
    assert house.play(text).result == ["task", "rule", "step", "arc", 1]


def test_the_end_of_a_visit_is_one_transition_with_its_sets_arcs_and_targets(house: House) -> None:
    text = """\
workflow:
  - {step: a, tool: {kind: noop, result: 1}, set: {ctx.x: 1}, next: {arcs: [{step: b, set: {ctx.y: 2}}]}}
  - {step: b}
"""
    seen = house.play(text)
    took = [move for fact in seen.facts if isinstance(fact, Routed) for move in fact.moves if isinstance(move, Took)]
    assert took[0].sets == {"x": 1, "y": 2} and took[0].arcs == (0,)


def test_the_steps_set_is_not_done_when_the_step_failed(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: python, code: "raise ValueError('no')"}
    set: {ctx.x: 1}
    next: {arcs: [{step: b, when: "{{ event.name == 'call.error' }}", set: {ctx.y: 2}}]}
  - step: b
"""
    assert house.play(text).ctx == {"y": 2}


def test_a_name_with_a_slash_is_no_name_for_a_step() -> None:
    assert [code for code, _ in errors("workflow: [{step: a/b}]")] == ["bad-name"]
    assert errors("workflow: [{step: 'ein Schritt (1)'}]") == []


def test_an_unreachable_step_is_a_warning(house: House) -> None:
    text = "workflow: [{step: a}, {step: lost, tool: {kind: noop}}]"
    assert [code for code, _ in warnings(text)] == ["unreachable-step"]
    assert house.play(text).lives == {"a": "completed", "lost": "skipped"}
