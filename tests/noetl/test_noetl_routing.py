"""Arcs of NoETL files: conditions, names of events, failures, and what happens when nothing matches."""

import pytest

from tests.noetl.house import House, errors

FORK = """\
workflow:
  - step: start
    tool: {kind: noop, result: {score: 7}}
    next:
      spec: {mode: MODE}
      arcs:
        - {step: none, when: "{{ start.score < 5 }}"}
        - {step: high, when: "{{ start.score > 5 }}", set: {ctx.path: high}}
        - {step: rest}
  - {step: none}
  - {step: high, tool: {kind: noop, result: 1}}
  - {step: rest, tool: {kind: noop, result: 2}}
"""


def test_exclusive_takes_the_first_match_in_the_order_of_the_file(house: House) -> None:
    seen = house.play(FORK.replace("MODE", "exclusive"))
    assert seen.lives == {"start": "completed", "none": "skipped", "high": "completed", "rest": "skipped"}
    assert seen.ctx == {"path": "high"}
    assert house.play(FORK.replace("      spec: {mode: MODE}\n", "")).lives["rest"] == "skipped"


def test_inclusive_takes_every_match(house: House) -> None:
    seen = house.play(FORK.replace("MODE", "inclusive"))
    assert seen.lives == {"start": "completed", "none": "skipped", "high": "completed", "rest": "completed"}


@pytest.mark.parametrize("text", ["", "false", "False", " 0 ", "no", "None", "null", "OFF", "{}", "[]"])
def test_a_condition_that_is_text_is_false_if_it_says_so(house: House, text: str) -> None:
    play = 'workflow: [{step: a, next: {arcs: [{step: b, when: "x{{ word }}"}, {step: c}]}}, {step: b}, {step: c}]'
    play = play.replace('"x{{ word }}"', "\"{{ word }}{{ '' }}\"")
    assert house.play("workload: {word: x}\n" + play, {"word": text}).lives["b"] == "skipped"
    assert house.play("workload: {word: x}\n" + play, {"word": "yes"}).lives["b"] == "completed"


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (0, False),
        ([], False),
        ({}, False),
        (None, False),
        (0.0, False),
        ([0], True),
        (1, True),
        ("a", True),
        ("0", False),
    ],
)
def test_a_condition_that_is_one_expression_goes_by_its_value(house: House, value: object, taken: bool) -> None:
    play = 'workload: {v: 1}\nworkflow: [{step: a, next: {arcs: [{step: b, when: "{{ v }}"}]}}, {step: b}]'
    assert house.play(play, {"v": value}).lives["b"] == ("completed" if taken else "skipped")


def test_a_condition_may_be_a_yaml_boolean(house: House) -> None:
    play = "workflow: [{step: a, next: {arcs: [{step: b, when: false}, {step: c, when: true}]}}, {step: b}, {step: c}]"
    assert house.play(play).lives == {"a": "completed", "b": "skipped", "c": "completed"}


def test_a_condition_that_raises_fails_the_step(house: House) -> None:
    play = 'workload: {n: 0}\nworkflow: [{step: a, next: {arcs: [{step: b, when: "{{ 1 / n }}"}]}}, {step: b}]'
    seen = house.play(play)
    assert seen.status == "failed" and seen.fault.kind == "expression" and seen.lives["a"] == "failed"


def test_a_target_that_does_not_exist_is_an_error_with_the_nearest_name() -> None:
    found = errors("workflow: [{step: a, next: {arcs: [{step: bb}]}}, {step: b}]")
    assert ("unknown-step", "there is no step `bb`") in found


def test_arcs_read_event_workload_ctx_input_output_results_and_ids(house: House) -> None:
    text = """\
workload: {w: 1}
workflow:
  - step: a
    input: {i: 2}
    tool: {kind: noop, result: {r: 3}}
    set: {ctx.c: 4}
    next:
      arcs:
        - step: b
          when: "{{ event.name == 'step.done' and event.step == 'a' and workload.w == 1 and w == 1 and ctx.c == 4
            and c == 4
            and input.i == 2 and output.r == 3 and output.data.r == 3 and output.status == 'ok' and a.r == 3
            and a.data.r == 3 and steps.a.data.r == 3 and execution_id | length > 5 and not output.error }}"
  - {step: b, tool: {kind: noop, result: all}}
"""
    assert house.play(text).result == "all"


@pytest.mark.parametrize("name", ["step.done", "call.done"])
def test_both_spellings_of_a_steps_end_match(house: House, name: str) -> None:
    play = "workflow: [{step: a, next: {arcs: [{step: b, when: \"{{ event.name == 'NAME' }}\"}]}}, {step: b}]"
    assert house.play(play.replace("NAME", name)).lives["b"] == "completed"


@pytest.mark.parametrize("name", ["step.failed", "call.error"])
def test_both_spellings_of_a_failure_match(house: House, name: str) -> None:
    play = """\
workflow:
  - step: a
    tool: {kind: python, code: "raise ValueError('no')"}
    next: {arcs: [{step: b, when: "{{ event.name == 'NAME' }}"}]}
  - {step: b}
"""
    seen = house.play(play.replace("NAME", name))
    assert (seen.status, seen.lives) == ("completed", {"a": "failed", "b": "completed"})


@pytest.mark.parametrize("name", ["loop.done", "step.done", "call.done"])
def test_all_spellings_of_a_loops_end_match(house: House, name: str) -> None:
    play = """\
workflow:
  - step: a
    loop: {in: [1, 2], iterator: n}
    tool: {kind: noop}
    next: {arcs: [{step: b, when: "{{ event.name in ['NAME'] }}"}]}
  - {step: b}
"""
    assert house.play(play.replace("NAME", name)).lives["b"] == "completed"


def test_an_events_name_can_be_compared_wherever_it_is_written(house: House) -> None:
    """Also from the other side, and in a list."""
    play = """\
workflow:
  - step: a
    next: {arcs: [{step: b,
        when: "{{ 'call.done' == event.name and event.name in ['call.done', 'x'] and event.name != 'call.error' }}"}]}
  - {step: b}
"""
    assert house.play(play).lives["b"] == "completed"


FAILING = """\
workflow:
  - step: a
    tool: {kind: python, code: "raise KeyError('gone')"}
    next: {arcs: [ARCS]}
  - {step: good}
  - {step: bad, tool: {kind: noop, result: "{{ a.error.exception_type }}"}}
"""


def test_an_unconditional_arc_does_not_fire_on_a_failed_step(house: House) -> None:
    seen = house.play(FAILING.replace("ARCS", "{step: good}"))
    assert seen.status == "failed" and "good/1" not in seen.history
    assert seen.fault.type == "KeyError" and "gone" in seen.fault.message and "Traceback" in seen.fault.traceback


@pytest.mark.parametrize(
    "when",
    [
        "{{ event.name == 'step.failed' }}",
        "{{ output.status == 'error' }}",
        "{{ output.error.kind is defined and output.error.kind }}",
    ],
)
def test_an_error_arc_handles_the_failure_and_the_run_may_complete(house: House, when: str) -> None:
    seen = house.play(FAILING.replace("ARCS", f'{{step: good}}, {{step: bad, when: "{when}"}}'))
    assert (seen.status, seen.result) == ("completed", "KeyError")
    assert seen.lives == {"a": "failed", "good": "skipped", "bad": "completed"}


def test_an_arc_that_reads_no_outcome_is_no_error_arc(house: House) -> None:
    seen = house.play(FAILING.replace("ARCS", '{step: good, when: "{{ ctx.x is not defined }}"}'))
    assert seen.status == "failed"


def test_an_error_arc_that_is_false_handles_nothing(house: House) -> None:
    seen = house.play(FAILING.replace("ARCS", "{step: bad, when: \"{{ output.error.kind == 'timeout' }}\"}"))
    assert seen.status == "failed" and seen.error is not None and seen.error.step == "a"


def test_after_an_unhandled_failure_running_siblings_finish_and_nothing_new_is_started(house: House) -> None:
    text = """\
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: bad}, {step: slow}]}}
  - {step: bad, tool: {kind: python, code: "raise ValueError('no')"}}
  - {step: slow, tool: {kind: shell, command: sleep 0.5}, next: {arcs: [{step: after}]}}
  - {step: after, tool: {kind: noop}}
"""
    seen = house.play(text)
    assert seen.status == "failed" and seen.lives["slow"] == "completed"
    assert "after/1" not in seen.history and "bad/1 failed" in seen.history


def test_the_run_names_all_steps_that_failed(house: House) -> None:
    text = """\
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: bad}, {step: worse}]}}
  - {step: bad, tool: {kind: shell, command: "exit 3"}}
  - {step: worse, tool: {kind: shell, command: "sleep 0.5; exit 4"}}
"""
    seen = house.play(text)
    assert seen.status == "failed" and seen.error is not None and seen.error.step == "bad"
    assert seen.lives["worse"] == "failed" and "worse" in seen.history


def test_when_no_arc_matches_the_branch_ends_and_so_does_the_run(house: House) -> None:
    text = (
        'workflow: [{step: a, tool: {kind: noop, result: 1}, next: {arcs: [{step: b, when: "{{ false }}"}]}}, '
        "{step: b}]"
    )
    seen = house.play(text)
    assert (seen.status, seen.result, seen.lives["b"]) == ("completed", 1, "skipped")


def test_the_notice_about_no_match_is_suppressed_by_quiet(house: House) -> None:
    text = 'workflow: [{step: a, next: {SPECarcs: [{step: b, when: "{{ false }}"}]}}, {step: b}]'
    loud = house.play(text.replace("SPEC", ""))
    quiet = house.play(text.replace("SPEC", "spec: {on_no_match: quiet}, "))
    assert "a/1 took no arc" in loud.history
    assert "took no arc" not in quiet.history and quiet.status == "completed"
    assert "took no arc" not in house.play("workflow: [{step: a}]").history


def test_arc_set_is_durable_and_visible_to_every_later_step(house: House) -> None:
    text = """\
workflow:
  - {step: a, next: {arcs: [{step: b, set: {ctx.why: "limit"}}]}}
  - {step: b, loop: {in: [1, 2, 3], iterator: n}, tool: {kind: noop, result: "{{ ctx.why }}{{ n }}"},
      next: {arcs: [{step: c}]}}
  - {step: c, tool: {kind: noop, result: ["{{ why }}", "{{ b.results }}"]}}
"""
    assert house.play(text).result == ["limit", ["limit1", "limit2", "limit3"]]


def test_arc_inputs_are_for_one_visit_only(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool: {kind: noop, result: "{{ word }}"}
    set: {ctx.said: "{{ (ctx.said | default([])) + [a] }}"}
    next:
      arcs:
        - {step: a, when: "{{ ctx.said | length == 1 }}", input: {word: again}}
        - {step: b, when: "{{ ctx.said | length == 2 }}"}
        - {step: end}
  - {step: b, next: {arcs: [{step: a}]}}
  - {step: end, tool: {kind: noop, result: "{{ ctx.said }}"}}
"""
    assert house.play(text).result == [None, "again", None]


def test_arc_inputs_reach_the_visit_they_lead_to(house: House) -> None:
    text = """\
workflow:
  - {step: a, next: {arcs: [{step: b, input: {page: 2, word: "{{ 'x' * 2 }}"}}]}}
  - {step: b, input: {page: 1, size: 5}, tool: {kind: python, code: "result = [page, size, word]"},
      next: {arcs: [{step: c}]}}
  - {step: c, tool: {kind: noop, result: ["{{ page }}", "{{ b }}"]}}
"""
    assert house.play(text).result == [None, [2, 5, "xx"]]
