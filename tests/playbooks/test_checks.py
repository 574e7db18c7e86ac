"""What is known of a playbook before it runs: warnings, and what is not a problem at all."""

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.playbooks.checks.templates import SIMPLE
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.templates import problem_of, uses_of
from refold.tools.catalog import CATALOG

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: checked}\n"


def checked(text: str) -> Playbook:
    return read(HEAD + text, "play.yaml", CATALOG)


def problems(text: str) -> tuple[Problem, ...]:
    try:
        return checked(text).warnings
    except InvalidPlaybook as refused:
        return refused.problems


def told(text: str) -> list[tuple[str, int, int]]:
    return [(f"{each.severity} {each.code}", *each.place) for each in problems(text)]


FORK = "{step: a, next: [b, c]}, {step: b, next: d}, {step: c, next: d}"

WARNED = {
    "an inclusive step in a loop leads out of it": (
        'workflow: [{step: a, next: {spec: {mode: inclusive}, arcs: [{step: a, when: "{{ visit < 3 }}"},\n'
        "  {step: b}]}}, {step: b}]",
        [("warning late-exit", 5, 10)],
    ),
    "a loop entered beside its head": (
        "workflow: [{step: s, next: [a, b]}, {step: a, next: b},\n"
        '  {step: b, next: {arcs: [{step: a, when: "{{ visit < 3 }}"}, {step: c}]}}, {step: c}]',
        [("warning side-entry", 4, 32)],
    ),
    "an arc behind one that is always taken": (
        "workflow: [{step: a, next: {arcs: [{step: b}, {step: c}, {step: c, on: failure}]}, tool: {kind: wait,"
        " seconds: 1}}, {step: b}, {step: c}]",
        [("warning dead-arc", 4, 54)],
    ),
    "max_in_flight one by one": (
        "workflow: [{step: a, loop: {in: [1], spec: {max_in_flight: 3}}}]",
        [("warning no-effect", 4, 60)],
    ),
    "each_pass where there is no loop": (
        "workflow: [{step: a, next: {arcs: [{step: b, each_pass: true}]}}, {step: b}]",
        [("warning no-effect", 4, 57)],
    ),
    "a join of the entry": ("workflow: [{step: a, join: any}]", [("warning no-effect", 4, 28)]),
    "a join of a finalizer": (
        "always: [z]\nworkflow: [{step: a}, {step: z, join: any}]",
        [("warning no-effect", 5, 39)],
    ),
    "a step that is called like an input": (
        "workload: {a: 1}\nworkflow: [{step: a}]",
        [("warning shadowed-name", 5, 19)],
    ),
    "an unknown name with a default": (
        'workflow: [{step: a, when: "{{ nosuch | default(1) }}"}]',
        [("warning unknown-name", 4, 32)],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WARNED.values(), ids=WARNED)
def test_what_may_surprise_is_a_warning_with_its_place(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert told(text) == expected
    assert all(each.hint for each in problems(text))


def test_a_late_exit_names_the_loop_it_waits_for() -> None:
    warned = problems(WARNED["an inclusive step in a loop leads out of it"][0])
    assert warned[0].message == "`b` runs once, after the loop a -> a"


def test_a_side_entry_with_any_inside_says_that_timing_decides() -> None:
    text = (
        "workflow: [{step: s, next: [a, b]}, {step: a, next: b},\n"
        '  {step: b, join: any, next: {arcs: [{step: a, when: "{{ visit < 3 }}"}]}}]'
    )
    assert [each.message for each in problems(text)] == [
        "this enters the loop of `a` beside its head; with `any` or `at_least` inside, timing decides in which pass it"
        " counts"
    ]


GOOD = {
    "a loop that ends because its way on has a condition": (
        'workflow: [{step: a, next: {arcs: [{step: b, when: "{{ visit < 3 }}"}]}}, {step: b, next: a}]'
    ),
    "a loop that goes back on failure": (
        "workflow: [{step: a, tool: {kind: wait, seconds: 1}, next: {arcs: [{step: a, on: failure}]}}]"
    ),
    "a loop that a failure leaves": (
        "workflow: [{step: a, tool: {kind: wait, seconds: 1}, next: {arcs: [{step: a}, {step: b, on: failure}]}},"
        " {step: b}]"
    ),
    "a join of two that both come": f"workflow: [{FORK}, {{step: d, join: {{at_least: 2}}}}]",
    "a join in a loop, of alternatives that come in different passes": (
        'workflow: [{step: s, next: a}, {step: a, next: {arcs: [{step: b, when: "{{ visit > 1 }}"}, {step: c}]}},\n'
        '  {step: b, next: {spec: {mode: inclusive}, arcs: [{step: a, when: "{{ visit < 2 }}"}]}}, {step: c, next: a}]'
    ),
    "a finalizer that nothing leads to": "always: [z]\nworkflow: [{step: a}, {step: z}]",
    "names of every kind": (
        'workload: {n: 1, rows: [1]}\nworkflow: [{step: a, when: "{{ n and workload.n and input.n and visit }}",\n'
        '  input: {x: "{{ run.id }} {{ run.name }}"},\n'
        '  tool: {kind: noop, result: "{{ x }} {{ input.x }} {{ input.n }}"},\n'
        '  set: {ctx.k: "{{ output.data.y }} {{ output.status }} {{ error }}"},\n'
        '  next: {arcs: [{step: b, when: "{{ output.error.kind and a and k and ctx.k }}"}]}},\n'
        '  {step: b, loop: {in: "{{ rows + [ctx.k] }}", iterator: row}, input: {y: "{{ row.z }} {{ iter.row }}"},\n'
        '  tool: {kind: noop, result: "{{ row }} {{ iter.index }} {{ loop.count }} {{ y }} {{ loop_index }}"}}]'
    ),
    "an input that is not declared, if none is": 'workflow: [{step: a, input: {x: "{{ input.y }} {{ workload.z }}"}}]',
    "names that the template makes itself": (
        "workload: {rows: [1]}\nworkflow: [{step: a, input: {x: \"{{ rows | map(attribute='id') | list }}\"}}]"
    ),
    "a function of the language": 'workflow: [{step: a, loop: {in: "{{ range(3) }}"}}]',
    "braces in Python code": "workflow: [{step: a, tool: {kind: python, code: \"return f'{{x}}'\"}}]",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_what_is_right_is_left_alone(text: str) -> None:
    assert [f"{each.message}: {each.hint}" for each in problems(text)] == []


STARVED = {
    "a choice right before": "next: {arcs: [{step: b, when: '{{ visit }}'}, {step: c}]}",
    "one on success, one on failure": (
        "tool: {kind: wait, seconds: 1}, next: {arcs: [{step: b}, {step: c, on: failure}]}"
    ),
}


@pytest.mark.parametrize("choice", STARVED.values(), ids=STARVED)
def test_a_join_of_alternatives_never_fires(choice: str) -> None:
    rest = "{step: b, next: x}, {step: x, next: d}, {step: c, next: d}, {step: d, join: {at_least: 2}}"
    assert [code for code, _, _ in told(f"workflow: [{{step: a, {choice}}}, {rest}]")] == ["error join-never"]


def test_a_join_can_fire_if_enough_of_its_sources_do_not_exclude_each_other() -> None:
    steps = (
        "{step: s, next: [a, e]}, {step: a, next: {arcs: [{step: b, when: '{{ visit }}'}, {step: c}]}},"
        " {step: b, next: d}, {step: c, next: d}, {step: e, next: d}"
    )
    assert told(f"workflow: [{steps}, {{step: d, join: {{at_least: 2}}}}]") == []
    assert [code for code, _, _ in told(f"workflow: [{steps}, {{step: d, join: {{at_least: 3}}}}]")] == [
        "error join-never"
    ]


def test_an_endless_loop_of_several_steps_is_told_at_the_arc_that_goes_back() -> None:
    steps = "{step: a, next: b}, {step: b, next: [c, d]}, {step: c, next: e}, {step: d, next: e}"
    assert told(f"workflow: [{steps},\n  {{step: e, next: a}}]") == [("error endless-loop", 5, 19)]


def test_what_the_analysis_of_the_plan_finds_has_a_place_too() -> None:
    assert told(f"workflow: [{FORK},\n  {{step: d, join: {{at_least: 3}}}}]") == [("error join-too-large", 5, 19)]


def test_the_engines_own_form_of_an_input_cannot_be_written() -> None:
    text = 'workflow: [{step: a, input: {x: {"$let": {}, "$in": {}}}}]'
    assert told(text) == [("error reserved-form", 4, 33)]
    assert told('workflow: [{step: a, input: {x: {"$let": {}, "$in": {}, "$ref": 1}}}]') == []


def test_a_name_is_found_in_the_middle_of_a_folded_text() -> None:
    folded = "        first\n        and {{ visit }} or\n        {{ nosuch }}\n"
    assert told(f"workflow:\n  - step: a\n    input:\n      x: >-\n{folded}") == [("error unknown-name", 10, 12)]


@for_all(st.text("{} .ab_1#%'-\n", max_size=30))
def test_the_short_way_to_see_that_a_template_is_good_agrees_with_the_long_one(text: str) -> None:
    paths = SIMPLE.findall(text)
    if text.count("{") == 2 * len(paths):
        assert problem_of(text) is None
        assert [".".join(use.path) for use in uses_of(text)] == paths


def test_a_template_with_a_simple_and_a_broken_part_is_broken() -> None:
    assert told('workflow: [{step: a, input: {x: "{{ visit }} {{ visit + }}"}}]') == [("error template-syntax", 4, 57)]
    assert told('workflow: [{step: a, input: {x: "{{ visit }} {{ not }}"}}]') == [("error template-syntax", 4, 53)]


def test_a_join_in_a_loop_may_be_fed_by_alternatives_of_different_passes() -> None:
    text = (
        "workflow: [{step: a, next: {arcs: [{step: b, when: '{{ visit > 1 }}'}, {step: c}]}},\n"
        "  {step: b, next: {arcs: [{step: a, when: '{{ visit < 3 }}'}, {step: d}]}},\n"
        "  {step: c, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: d}]}}, {step: d, join: {at_least: 2}}]"
    )
    assert [code for code, _, _ in told(text)] == ["warning late-exit"]
