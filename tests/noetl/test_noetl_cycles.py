"""Cycles between steps of NoETL files."""

import pytest

from tests.noetl.house import House

PAGES = """\
workload: {last: 3}
workflow:
  - step: get
    tool: {kind: noop, result: {page: "{{ ctx.page | default(1) }}"}}
    next: {arcs: [{step: check}]}
  - step: check
    tool: {kind: python, input: {page: "{{ get.page }}"}, code: "result = {'next': page + 1}"}
    set: {ctx.page: "{{ check.next }}", ctx.seen: "{{ (ctx.seen | default([])) + [get.page] }}"}
    next: {arcs: [{step: get, when: "{{ ctx.page <= last }}"}, {step: done}]}
  - {step: done, tool: {kind: noop, result: "{{ ctx.seen }}"}}
"""


def test_an_arc_back_re_enters_a_step_and_its_name_holds_the_latest_visit(house: House) -> None:
    seen = house.play(PAGES)
    assert seen.result == [1, 2, 3] and seen.results["get"] == {"page": 3}
    assert {name: step["visits"] for name, step in seen.steps.items()} == {"get": 3, "check": 3, "done": 1}


def test_the_exit_of_a_cycle_runs_once_and_is_not_skipped_while_the_cycle_runs(house: House) -> None:
    for last in (0, 1, 5):
        seen = house.play(PAGES, {"last": last})
        assert seen.lives["done"] == "completed" and seen.steps["done"]["visits"] == 1


def test_a_step_may_lead_to_itself(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: noop, result: "{{ (ctx.n | default(0)) + 1 }}"}
    set: {ctx.n: "{{ output }}"}
    next: {arcs: [{step: a, when: "{{ ctx.n < 4 }}"}, {step: end}]}
  - {step: end, tool: {kind: noop, result: "{{ ctx.n }}"}}
"""
    seen = house.play(text)
    assert seen.result == 4 and seen.steps["a"]["visits"] == 4


def test_a_join_inside_a_cycle_waits_in_every_pass(house: House) -> None:
    text = """\
workflow:
  - {step: head, set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"}, next: {spec: {mode: inclusive}, arcs: [{step: a},
      {step: b}]}}
  - {step: a, tool: {kind: noop, result: "a{{ ctx.n }}"}, next: {arcs: [{step: join}]}}
  - {step: b, tool: {kind: python, input: {n: "{{ ctx.n }}"}, code: "result = f'b{n}'"}, next: {arcs: [{step: join}]}}
  - step: join
    tool: {kind: noop, result: ["{{ a }}", "{{ b }}"]}
    set: {ctx.all: "{{ (ctx.all | default([])) + [output] }}"}
    next: {arcs: [{step: head, when: "{{ ctx.n < 3 }}"}, {step: end}]}
  - {step: end, tool: {kind: noop, result: "{{ ctx.all }}"}}
"""
    assert house.play(text).result == [["a1", "b1"], ["a2", "b2"], ["a3", "b3"]]


@pytest.mark.proof
def test_a_cycle_that_never_ends_is_ended_as_a_named_failure(house: House) -> None:
    text = "workflow: [{step: a, next: {arcs: [{step: b}]}}, {step: b, next: {arcs: [{step: a}]}}]"
    seen = house.play(text)
    assert seen.status == "failed" and seen.error is not None
    assert (seen.error.step, seen.error.why) == ("a", "visit limit")
