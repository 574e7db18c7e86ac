"""Loops of NoETL files: what they go over, what an item can read, how they fail, and what comes of them."""

from pathlib import Path
from typing import Any

import pytest

from refold.core.facts import ItemsIssued
from tests.noetl.house import House, errors, warnings

EACH = """\
workload: {over: []}
workflow:
  - step: each
    loop: {in: "{{ over }}", iterator: item, spec: {mode: MODE}}
    tool: {kind: noop, result: "{{ item }}"}
    next: {arcs: [{step: after}]}
  - {step: after, tool: {kind: noop, result: "{{ each.results }}"}}
"""


@pytest.mark.parametrize(
    ("over", "items"),
    [
        ([1, "007", None], [1, "007", None]),
        ({"a": 1, "b": [2]}, [{"key": "a", "value": 1}, {"key": "b", "value": [2]}]),
        (3, [0, 1, 2]),
        ("a, b,c\nd", ["a", "b", "c", "d"]),
        ([], []),
        ({}, []),
        (0, []),
    ],
)
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_what_a_loop_can_go_over(house: House, mode: str, over: Any, items: list[Any]) -> None:
    seen = house.play(EACH.replace("MODE", mode), {"over": over})
    assert seen.result == items and seen.status == "completed"
    assert seen.results["each"]["stats"] == {"total": len(items), "success": len(items), "failed": 0}


@pytest.mark.parametrize("over", [None, True, 1.5])
def test_what_is_no_list_fails_the_step_with_its_name(house: House, over: Any) -> None:
    seen = house.play(EACH.replace("MODE", "sequential"), {"over": over})
    assert seen.status == "failed" and seen.error is not None
    assert seen.error.step == "each" and "each" in seen.fault.message and "not a list" in seen.fault.message


def test_an_empty_loop_on_the_entry_step_ends_at_once_with_loop_done(house: House) -> None:
    text = """\
workflow:
  - step: each
    loop: {in: "{{ workload.none | default([]) }}", iterator: n, spec: {mode: parallel}}
    tool: {kind: noop}
    next: {arcs: [{step: after, when: "{{ event.name == 'loop.done' }}"}]}
  - {step: after, tool: {kind: noop, result: "{{ each }}"}}
"""
    assert house.play(text).result["results"] == []


def test_in_is_evaluated_once(house: House) -> None:
    text = """\
workflow:
  - {step: a, set: {ctx.all: [1, 2]}, next: {arcs: [{step: each}]}}
  - {step: each, loop: {in: "{{ ctx.all }}", iterator: n}, tool: {kind: noop, result: "{{ n }}", set: {ctx.all: []}}}
"""
    assert house.play(text).result["results"] == [1, 2]


def test_exactly_one_of_in_and_cursor_and_an_iterator_are_needed() -> None:
    assert [code for code, _ in errors("workflow: [{step: a, loop: {iterator: n}, tool: {kind: noop}}]")] == [
        "bad-loop"
    ]
    assert [code for code, _ in errors("workflow: [{step: a, loop: {in: [1]}, tool: {kind: noop}}]")] == ["missing-key"]
    both = "{in: [1], iterator: n, cursor: {kind: sqlite, claim: x}}"
    assert ("bad-loop", "a loop needs exactly one of `in` and `cursor`") in errors(
        f"workflow: [{{step: a, loop: {both}, tool: {{kind: noop}}}}]"
    )


def test_an_item_reads_itself_and_where_it_stands_under_all_its_names(house: House) -> None:
    places = ["index", "_index", "_total", "_first", "_last"]
    names = ["word", "iter.word", "iter.item", *(f"iter.{place}" for place in places)]
    names += ["loop.index", "loop.length", "loop.first", "loop_index"]
    result = ", ".join(f'"{{{{ {name} }}}}"' for name in names)
    text = f"workflow: [{{step: a, loop: {{in: [x, y], iterator: word}}, tool: {{kind: noop, result: [{result}]}}}}]"
    first = ["x", "x", "x", 0, 0, 2, True, False, 0, 2, True, 0]
    last = ["y", "y", "y", 1, 1, 2, False, True, 1, 2, False, 1]
    assert house.play(text).result["results"] == [first, last]


def test_the_item_and_its_number_are_bound_for_code(house: House) -> None:
    text = 'workflow: [{step: a, loop: {in: [5], iterator: n}, tool: {kind: python, code: "result = [n, loop_index]"}}]'
    assert house.play(text).result["results"] == [[5, 0]]


def test_iter_is_private_to_an_iteration(house: House) -> None:
    text = """\
workflow:
  - step: a
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: sequential}}
    tool:
      - {name: look, kind: noop, result: {before: "{{ iter.mark }}"}, set: {iter.mark: "{{ n }}"}}
      - {name: again, kind: noop, result: {after: "{{ iter.mark }}"}}
"""
    found = house.play(text).result["results"]
    assert [(each["before"], each["after"]) for each in found] == [(None, 1), (None, 2), (None, 3)]


def test_ctx_writes_of_a_sequential_loop_are_visible_to_the_next_item(house: House) -> None:
    text = """\
workflow:
  - step: a
    loop: {in: [1, 2, 3], iterator: n}
    tool: {kind: noop, result: "{{ (ctx.sum | default(0)) + n }}", set: {ctx.sum: "{{ output }}"}}
    next: {arcs: [{step: b}]}
  - {step: b, tool: {kind: noop, result: "{{ ctx.sum }}"}}
"""
    assert house.play(text).result == 6


def test_ctx_writes_of_a_parallel_loop_are_merged_in_item_order_at_its_end(house: House) -> None:
    text = """\
workflow:
  - step: a
    loop: {in: [0.4, 0.2, 0.0], iterator: n, spec: {mode: parallel}}
    tool: {kind: python, code: "import time; time.sleep(n); result = loop_index", set: {ctx.last: "{{ output }}"}}
    next: {arcs: [{step: b}]}
  - {step: b, tool: {kind: noop, result: "{{ ctx.last }}"}}
"""
    assert house.play(text).result == 2


def test_results_stand_in_item_order_whatever_ends_first(house: House) -> None:
    text = """\
workflow:
  - step: a
    loop: {in: [0.3, 0.0, 0.1], iterator: n, spec: {mode: async, max_in_flight: 3}}
    tool: {kind: python, code: "import time; time.sleep(n); result = {'n': n}"}
    next: {arcs: [{step: b}]}
  - {step: b, tool: {kind: noop, result: ["{{ a.results }}", "{{ a.data.results[1].n }}", "{{ a.stats.total }}"]}}
"""
    assert house.play(text).result == [[{"n": 0.3}, {"n": 0.0}, {"n": 0.1}], 0.0, 3]


def test_sequential_items_start_one_after_the_other(house: House) -> None:
    text = "workflow: [{step: a, loop: {in: [1, 2, 3], iterator: n}, tool: {kind: shell, command: 'true'}}]"
    issued = [fact.count for fact in house.play(text).facts if isinstance(fact, ItemsIssued)]
    assert issued == [1, 1, 1]


@pytest.mark.parametrize("width", ["2", '"{{ width }}"', '"2"', '"{{ width | string }}"'])
def test_max_in_flight_bounds_how_many_run_at_once(house: House, tmp_path: Path, width: str) -> None:
    text = f"""\
workload: {{width: 2, folder: x}}
workflow:
  - step: a
    loop: {{in: 6, iterator: n, spec: {{mode: parallel, max_in_flight: {width}}}}}
    tool:
      kind: shell
      command: |
        mkdir -p {{{{ folder }}}}/now; touch {{{{ folder }}}}/now/{{{{ n }}}}
        ls {{{{ folder }}}}/now | wc -l >> {{{{ folder }}}}/most; sleep 0.1; rm {{{{ folder }}}}/now/{{{{ n }}}}
"""
    seen = house.play(text, {"folder": str(tmp_path)})
    most = [int(line) for line in (tmp_path / "most").read_text().split()]
    assert seen.status == "completed" and len(most) == 6 and 1 <= max(most) <= 2


FAILING = """\
workflow:
  - step: a
    SPEC
    loop: {in: [2, 0, 1], iterator: n, spec: {mode: sequential}}
    tool: {kind: python, code: "result = 2 // n"}
    next: {arcs: [{step: good}, {step: bad, when: "{{ event.name == 'step.failed' }}"}]}
  - {step: good, tool: {kind: noop, result: "{{ a }}"}}
  - {step: bad, tool: {kind: noop, result: "{{ a }}"}}
"""


def test_by_default_all_items_run_and_then_the_step_fails(house: House) -> None:
    seen = house.play(FAILING.replace("SPEC", "desc: x"))
    assert seen.lives["bad"] == "completed" and seen.result["results"] == [1, None, 2]
    assert seen.result["stats"] == {"total": 3, "success": 2, "failed": 1}
    assert (
        seen.result["items"][1]["status"] == "failed"
        and seen.result["items"][1]["error"]["type"] == "ZeroDivisionError"
    )


def test_fail_fast_starts_no_item_after_the_first_failure(house: House) -> None:
    seen = house.play(FAILING.replace("SPEC", "spec: {policy: {failure: {mode: fail_fast}}}"))
    assert seen.lives["bad"] == "completed" and seen.result["results"] == [1, None, None]
    assert seen.result["stats"] == {"total": 3, "success": 1, "failed": 1} and "item 2" not in seen.history


def test_best_effort_only_counts_failures_and_the_step_ends_well(house: House) -> None:
    seen = house.play(FAILING.replace("SPEC", "spec: {policy: {failure: {mode: best_effort}}}"))
    assert seen.lives["good"] == "completed" and seen.result["results"] == [1, None, 2]
    assert seen.result["stats"] == {"total": 3, "success": 2, "failed": 1}


def test_a_failed_loop_without_an_error_arc_fails_the_run(house: House) -> None:
    text = 'workflow: [{step: a, loop: {in: [0], iterator: n}, tool: {kind: python, code: "1 // n"}}]'
    seen = house.play(text)
    assert seen.status == "failed" and "1 of 1 items failed" in seen.fault.message


def test_old_forms_of_a_loop_are_read_with_a_warning(house: House) -> None:
    text = (
        "workflow: [{step: a, loop: {in: [1], iterator: n, mode: async, concurrency: 2}, tool: {kind: noop, "
        "result: 1}}]"
    )
    assert [code for code, _ in warnings(text)] == ["old-form", "old-form"]
    assert house.play(text).result["results"] == [1]


def test_two_visits_of_a_loop_share_nothing(house: House) -> None:
    text = """\
workflow:
  - {step: start, set: {ctx.all: [1, 2]}, next: {arcs: [{step: each}]}}
  - step: each
    loop: {in: "{{ ctx.all }}", iterator: n}
    tool: {kind: noop, result: "{{ n }}"}
    next: {arcs: [{step: more, when: "{{ ctx.all | length == 2 }}"}, {step: end}]}
  - {step: more, set: {ctx.all: [3]}, next: {arcs: [{step: each}]}}
  - {step: end, tool: {kind: noop, result: "{{ each.results }}"}}
"""
    assert house.play(text).result == [3]


def test_a_loops_exit_step_runs_once(house: House) -> None:
    text = """\
workflow:
  - {step: each, loop: {in: 5, iterator: n, spec: {mode: parallel}}, tool: {kind: noop}, next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: noop}}
"""
    assert house.play(text).steps["end"]["visits"] == 1


def test_a_pipeline_runs_for_each_item(house: House) -> None:
    text = """\
workflow:
  - step: a
    loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}
    tool:
      - {name: one, kind: noop, result: {m: "{{ n * 10 }}"}}
      - {name: two, kind: python, input: {m: "{{ one.m }}"}, code: "result = {'k': m + 1}"}
"""
    assert [each["k"] for each in house.play(text).result["results"]] == [11, 21]
