"""Fan-in and completion in NoETL files."""

from tests.noetl.house import House


def entered(history: str, step: str) -> int:
    return sum(f"{step}/{visit} issued" in history or f"{step}/{visit} entered" in history for visit in range(1, 6))


DIAMOND = """\
workload: {right: true}
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b, when: "{{ right }}"}]}}
  - {step: a, tool: {kind: shell, command: sleep 0.3}, next: {arcs: [{step: end}]}}
  - {step: b, tool: {kind: noop, result: b}, next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: noop, result: ["{{ a.exit_code }}", "{{ b }}"]}}
"""


def test_two_branches_into_one_step_run_it_once_after_both(house: House) -> None:
    seen = house.play(DIAMOND)
    assert seen.result == [0, "b"] and seen.steps["end"]["visits"] == 1


def test_a_step_that_a_skipped_and_a_live_branch_share_still_runs(house: House) -> None:
    seen = house.play(DIAMOND, {"right": False})
    assert seen.result == [0, None] and seen.lives["b"] == "skipped" and seen.steps["end"]["visits"] == 1


def test_a_skip_travels_down_a_chain_and_the_join_behind_it_is_not_held_up(house: House) -> None:
    text = """\
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b, when: "{{ false }}"}]}}
  - {step: a, next: {arcs: [{step: end}]}}
  - {step: b, next: {arcs: [{step: c}]}}
  - {step: c, next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: noop, result: done}}
"""
    seen = house.play(text)
    assert seen.result == "done"
    assert seen.lives == {"start": "completed", "a": "completed", "b": "skipped", "c": "skipped", "end": "completed"}


def test_a_handled_failure_counts_as_ended_for_a_join(house: House) -> None:
    text = """\
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
  - {step: a, next: {arcs: [{step: end}]}}
  - {step: b, tool: {kind: shell, command: exit 2}, next: {arcs: [{step: end, when: "{{ output.status == 'error' }}"}]}}
  - {step: end, tool: {kind: noop, result: "{{ b.error.kind }}"}}
"""
    seen = house.play(text)
    assert (seen.status, seen.result, seen.steps["end"]["visits"]) == ("completed", "exit", 1)


def test_a_branch_without_next_never_ends_the_run_while_another_is_alive(house: House) -> None:
    text = """\
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: leaf}, {step: long}]}}
  - {step: leaf, tool: {kind: noop, result: leaf}}
  - {step: long, tool: {kind: shell, command: sleep 0.3}, next: {arcs: [{step: last}]}}
  - {step: last, tool: {kind: noop, result: last}}
"""
    seen = house.play(text)
    assert seen.result == "last" and set(seen.lives.values()) == {"completed"}


def test_a_step_called_end_is_like_any_other(house: House) -> None:
    text = (
        "workflow: [{step: end, tool: {kind: noop, result: 1}, next: {arcs: [{step: after}]}}, {step: after, "
        "tool: {kind: noop, result: 2}}]"
    )
    assert house.play(text).result == 2
    lonely = "workflow: [{step: start, tool: {kind: noop, result: 1}}, {step: end, tool: {kind: noop, result: 2}}]"
    seen = house.play(lonely)
    assert seen.result == 1 and seen.lives["end"] == "skipped"


def test_an_upstream_that_the_entry_cannot_reach_does_not_block(house: House) -> None:
    text = """\
workflow:
  - {step: start, next: {arcs: [{step: end}]}}
  - {step: lost, next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: noop, result: done}}
"""
    assert house.play(text).result == "done"


def test_the_result_of_a_run_is_that_of_the_step_that_completed_last(house: House) -> None:
    text = """\
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: slow}, {step: fast}]}}
  - {step: slow, tool: {kind: python, code: "import time; time.sleep(0.3); result = 'slow'"}}
  - {step: fast, tool: {kind: noop, result: fast}}
"""
    assert house.play(text).result == "slow"


def test_an_inclusive_fork_runs_its_branches_at_the_same_time(house: House, tmp_path: object) -> None:
    text = """\
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
  - {step: a, tool: {kind: shell, command: "touch {{ folder }}/a; until test -e {{ folder }}/b; do sleep 0.02; done"}}
  - {step: b, tool: {kind: shell, command: "touch {{ folder }}/b; until test -e {{ folder }}/a; do sleep 0.02; done"}}
"""
    assert house.play("workload: {folder: x}\n" + text, {"folder": str(tmp_path)}).status == "completed"
