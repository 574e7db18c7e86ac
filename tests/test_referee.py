"""The referee itself: the routing cases, the extensions, and what follows from the rules over many programs."""

import ast
import copy
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given

from tests.programs import FEATURES, features, programs, random_program
from tests.referee import Run, Workflow, nth, run

HERE = Path(__file__).parent
CASES = json.loads((HERE / "vectors" / "routing.json").read_text(encoding="utf-8"))["cases"]
SEEDS = range(400)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_referee_agrees_with_the_case(case: dict[str, Any]) -> None:
    result = run(case["workflow"])
    del result["result"]
    assert result == case["result"]


def test_there_are_60_cases() -> None:
    assert len({case["name"] for case in CASES}) == 60


def test_the_referee_knows_nothing_of_the_engine_and_is_short() -> None:
    text = (HERE / "referee.py").read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "." for node in imports if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= {"dataclasses", "math", "typing"}
    assert len(text.splitlines()) < 300


def flow(**steps: dict[str, Any]) -> Workflow:
    return {"entry": next(iter(steps)), "steps": steps}


def fork(*names: str) -> dict[str, Any]:
    return {"mode": "inclusive", "arcs": [{"to": name} for name in names]}


def rows(result: dict[str, Any], *names: str) -> list[list[Any]]:
    return [row for row in result["started"] if row[0] in names]


def failure(step: str, visit: int = 1, why: str = "unhandled failure") -> dict[str, Any]:
    return {"step": step, "visit": visit, "why": why}


def test_a_failed_try_is_tried_again_after_its_delay() -> None:
    result = run(flow(a={"retry": {"attempts": 3, "delay": 2}, "outcome": [2]}))
    assert (result["started"], result["result"]) == ([["a", 1, 0, 7, "ok"]], "a.1")


def test_without_a_delay_the_next_try_follows_at_once() -> None:
    result = run(flow(a={"retry": {"attempts": 3}, "outcome": [2], "duration": [2]}))
    assert result["started"] == [["a", 1, 0, 6, "ok"]]


@pytest.mark.parametrize("outcome", ["fail", 3, 4])
def test_a_visit_fails_when_its_tries_are_used_up(outcome: str | int) -> None:
    result = run(flow(a={"retry": {"attempts": 3, "delay": 1}, "outcome": [outcome]}))
    assert (result["started"], result["error"]) == ([["a", 1, 0, 5, "fail"]], failure("a"))


def test_each_visit_has_its_own_tries() -> None:
    loop = {"retry": {"attempts": 2}, "outcome": [1, 0], "arcs": [{"to": "a", "when": [True, False]}]}
    assert run(flow(a=loop))["started"] == [["a", 1, 0, 2, "ok"], ["a", 2, 2, 3, "ok"]]


def test_while_draining_a_running_try_finishes_and_is_the_last() -> None:
    tried = {"retry": {"attempts": 3}, "outcome": ["fail"], "duration": [3]}
    result = run(flow(a=fork("b", "c"), b={"outcome": ["fail"]}, c=tried))
    assert rows(result, "c") == [["c", 1, 1, 4, "fail"]]
    assert (result["error"], result["also_failed"]) == (failure("b"), [failure("c")])


def test_while_draining_a_failure_with_an_error_arc_is_handled_but_nothing_is_entered() -> None:
    caught = {"outcome": ["fail"], "duration": [3], "arcs": [{"to": "d", "on": "failure"}]}
    result = run(flow(a=fork("b", "c"), b={"outcome": ["fail"]}, c=caught, d={}))
    assert (result["also_failed"], result["visits"]["d"], result["skipped"]) == ([], 0, [])


def test_a_visit_that_waits_for_its_next_try_is_withdrawn_when_the_run_fails() -> None:
    tried = {"retry": {"attempts": 2, "delay": 5}, "outcome": [1]}
    result = run(flow(a=fork("b", "c"), b={"outcome": ["fail"], "duration": [2]}, c=tried))
    assert (rows(result, "c"), result["also_failed"]) == ([["c", 1, 1, 3, "cancelled"]], [])


def test_in_the_tick_of_the_failure_no_try_is_followed_by_another_whatever_the_file_order() -> None:
    tried = {"retry": {"attempts": 2}, "outcome": [1]}
    before = run(flow(a=fork("b", "c"), b=tried, c={"outcome": ["fail"]}))
    after = run(flow(a=fork("b", "c"), b={"outcome": ["fail"]}, c=tried))
    assert (rows(before, "b"), before["also_failed"]) == ([["b", 1, 1, 2, "fail"]], [failure("b")])
    assert (rows(after, "c"), after["also_failed"]) == ([["c", 1, 1, 2, "fail"]], [failure("c")])


@pytest.mark.parametrize("policy", ["drain", "cancel"])
def test_what_was_entered_in_the_tick_in_which_the_run_fails_does_not_begin(policy: str) -> None:
    result = run(flow(a=fork("b", "c"), b={"duration": [4]}, c={"guard": ["error"]}) | {"on_failure": policy})
    assert rows(result, "b", "c") == [["b", 1, 1, 1, "cancelled"], ["c", 1, 1, 1, "fail"]]


@pytest.mark.parametrize(
    ("loop", "end"),
    [
        ({"items": [0, 0, "ok"], "window": 2}, 4),
        ({"items": [0, 0, 0], "sequential": True}, 6),
        ({"items": [0, 0, 0], "sequential": True, "window": 3}, 6),
        ({"items": [0, 0, 0]}, 2),
    ],
)
def test_a_list_loop_runs_as_many_items_at_once_as_its_window_has(loop: dict[str, Any], end: int) -> None:
    result = run(flow(a={"loop": loop, "duration": [2]}))
    assert (result["started"], result["result"]) == ([["a", 1, 0, end, "ok"]], ["a.1.0", "a.1.1", "a.1.2"])


def test_an_item_that_waits_for_its_next_try_keeps_its_place_in_the_window() -> None:
    loop = {"items": [1, 0, 0], "window": 2}
    assert run(flow(a={"loop": loop, "retry": {"attempts": 2, "delay": 3}}))["started"] == [["a", 1, 0, 5, "ok"]]
    assert run(flow(a={"loop": {**loop, "window": 1}, "retry": {"attempts": 2, "delay": 3}}))["started"][0][3] == 7


def test_all_items_run_before_a_failed_item_fails_the_visit() -> None:
    loop = {"items": [-1, 0, 0], "sequential": True}
    result = run(flow(a={"loop": loop, "arcs": [{"to": "b", "on": "failure"}]}, b={}))
    assert (result["started"], result["result"]) == ([["a", 1, 0, 3, "fail"], ["b", 1, 3, 4, "ok"]], "b.1")


def test_an_empty_list_takes_no_time_and_counts_as_a_run_visit() -> None:
    result = run(flow(a={"arcs": [{"to": "b"}]}, b={"loop": {"items": []}, "arcs": [{"to": "c"}]}, c={}))
    assert result["started"] == [["a", 1, 0, 1, "ok"], ["b", 1, 1, 1, "ok"], ["c", 1, 1, 2, "ok"]]
    assert run(flow(a={"arcs": [{"to": "b"}]}, b={"loop": {"items": []}}))["result"] == []


@pytest.mark.parametrize(
    ("items", "policy", "row"),
    [
        ([0, 0, 0], "drain", ["c", 1, 1, 4, "cancelled"]),
        ([-1, 0, 0], "drain", ["c", 1, 1, 4, "fail"]),
        ([0], "drain", ["c", 1, 1, 4, "ok"]),
        ([-1, 0, 0], "cancel", ["c", 1, 1, 2, "cancelled"]),
    ],
)
def test_when_the_run_fails_no_further_item_starts(items: list[int], policy: str, row: list[Any]) -> None:
    listed = {"loop": {"items": items, "sequential": True}, "duration": [3]}
    result = run(flow(a=fork("b", "c"), b={"outcome": ["fail"]}, c=listed) | {"on_failure": policy})
    assert rows(result, "c") == [row]
    assert result["also_failed"] == ([failure("c")] if row[4] == "fail" else [])


def test_a_list_loop_of_which_nothing_runs_ends_with_the_run() -> None:
    listed = {"loop": {"items": [-1, 1]}, "retry": {"attempts": 2, "delay": 9}}
    result = run(flow(a=fork("b", "c"), b={"outcome": ["fail"], "duration": [2]}, c=listed))
    assert (rows(result, "c"), result["also_failed"]) == ([["c", 1, 1, 3, "cancelled"]], [])


def test_the_result_is_that_of_the_step_that_completed_last() -> None:
    assert run(flow(a=fork("b", "c"), b={"duration": [2]}, c={}))["result"] == "b.1"
    assert run(flow(a=fork("b", "c"), b={}, c={}))["result"] == "c.1"
    assert run(flow(a={"arcs": [{"to": "b"}]}, b={"guard": [False]}))["result"] == "a.1"
    assert run(flow(a={"guard": [False]}))["result"] is None
    assert run(flow(a=fork("b", "c"), b={"duration": [3]}, c={"outcome": ["fail"]}))["result"] is None


def test_a_guard_that_raises_fails_the_visit_without_taking_time() -> None:
    result = run(flow(a={"arcs": [{"to": "b"}]}, b={"guard": ["error"], "arcs": [{"to": "c"}]}, c={}))
    assert (result["error"], rows(result, "b")) == (failure("b"), [["b", 1, 1, 1, "fail"]])
    assert (result["visits"]["b"], result["visits"]["c"]) == (1, 0)


def test_an_error_arc_handles_a_guard_that_raises() -> None:
    result = run(flow(a={"guard": ["error"], "arcs": [{"to": "b"}, {"to": "c", "on": "failure"}]}, b={}, c={}))
    assert (result["status"], result["skipped"]) == ("completed", ["b"])
    assert result["started"] == [["a", 1, 0, 0, "fail"], ["c", 1, 0, 1, "ok"]]


def test_a_condition_that_raises_fails_a_visit_that_had_succeeded() -> None:
    raising = {"mode": "inclusive", "arcs": [{"to": "c"}, {"to": "c", "when": ["error"]}, {"to": "d", "on": "failure"}]}
    result = run(flow(a={"arcs": [{"to": "b"}]}, b=raising, c={}, d={"guard": [False]}))
    assert (result["status"], result["skipped"], result["result"]) == ("completed", ["c"], "a.1")
    assert rows(result, "b") == [["b", 1, 1, 2, "fail"]]


@pytest.mark.parametrize("on", ["success", "both", "failure"])
def test_a_second_error_is_unhandled(on: str) -> None:
    arcs = [{"to": "b", "when": ["error"]}, {"to": "c", "on": "failure", "when": ["error"]}, {"to": "b", "on": on}]
    assert run(flow(a={"arcs": arcs}, b={}, c={}))["error"] == failure("a")


def test_an_exclusive_step_does_not_ask_behind_the_arc_that_it_takes() -> None:
    result = run(flow(a={"arcs": [{"to": "b"}, {"to": "c", "when": ["error"]}]}, b={}, c={}))
    assert (result["status"], result["result"]) == ("completed", "b.1")


def test_a_bypassed_visit_whose_condition_raises_is_a_failure_and_no_bypass() -> None:
    result = run(flow(a={"guard": [False], "arcs": [{"to": "b", "when": ["error"]}]}, b={}))
    assert (result["bypassed"], result["started"]) == ([], [["a", 1, 0, 0, "fail"]])


RACE: dict[str, dict[str, Any]] = {
    "a": fork("b", "c"),
    "b": {"arcs": [{"to": "r"}]},
    "c": {"duration": [5], "arcs": [{"to": "d"}]},
    "d": {"arcs": [{"to": "r"}]},
    "r": {"join": "race"},
}


def test_a_race_withdraws_what_could_only_lead_into_it() -> None:
    result = run(flow(**RACE))
    assert rows(result, "c", "r") == [["c", 1, 1, 2, "cancelled"], ["r", 1, 2, 3, "ok"]]
    assert (result["status"], result["visits"]["d"], result["skipped"]) == ("completed", 0, [])


def test_a_race_lets_a_step_run_on_that_leads_elsewhere_too() -> None:
    result = run(flow(**RACE | {"d": fork("r", "e"), "e": {}}))
    assert rows(result, "c", "d", "e") == [["c", 1, 1, 6, "ok"], ["d", 1, 6, 7, "ok"], ["e", 1, 7, 8, "ok"]]


def test_a_loop_that_went_back_begins_its_next_pass_although_the_race_is_decided() -> None:
    first = {"duration": [3], "arcs": [{"to": "r"}]}
    back = {"arcs": [{"to": "c", "when": [True, False]}]}
    slow = {"duration": [9], "arcs": [{"to": "c", "when": [False]}, {"to": "r"}]}
    result = run(flow(a=fork("b", "c"), b=first, c=fork("d", "e"), d=back, e=slow, r={"join": "race"}))
    assert rows(result, "e") == [["e", 1, 2, 4, "cancelled"], ["e", 2, 5, 14, "ok"]]
    assert rows(result, "c")[1] == ["c", 2, 4, 5, "ok"]


def test_an_each_pass_arc_makes_its_target_part_of_the_loop() -> None:
    note = {"to": "n", "each_pass": True}
    test = {"mode": "inclusive", "arcs": [{"to": "a", "when": [True, False]}, note, {"to": "z"}]}
    workflow = flow(a={"arcs": [{"to": "t"}]}, t=test, n={"duration": [3]}, z={})
    result = run(workflow)
    assert rows(result, "n", "z") == [["n", 1, 2, 5, "ok"], ["n", 2, 7, 10, "ok"], ["z", 1, 10, 11, "ok"]]
    del note["each_pass"]
    assert rows(run(workflow), "n", "z") == [["n", 1, 4, 7, "ok"], ["z", 1, 4, 5, "ok"]]


def test_an_each_pass_arc_pulls_what_lies_between_into_the_loop() -> None:
    arcs = [{"to": "a", "when": [True, False]}, {"to": "b"}, {"to": "c", "each_pass": True}]
    result = run(flow(a={"mode": "inclusive", "arcs": arcs}, b={"arcs": [{"to": "c"}]}, c={}))
    assert result["visits"] == {"a": 2, "b": 2, "c": 2}


def test_an_each_pass_arc_to_a_step_met_before_the_loop_changes_nothing() -> None:
    arcs = [{"to": "h", "when": [True, False]}, {"to": "n", "each_pass": True}]
    result = run(flow(a=fork("n", "h"), n={}, h={"mode": "inclusive", "arcs": arcs}))
    assert result["started"] == [["a", 1, 0, 1, "ok"], ["h", 1, 1, 2, "ok"], ["h", 2, 2, 3, "ok"], ["n", 1, 3, 4, "ok"]]


def test_an_each_pass_arc_out_of_two_loops_joins_the_inner_one() -> None:
    inner = {"mode": "inclusive", "arcs": [{"to": "b", "when": [True, False]}, {"to": "n", "each_pass": True}]}
    inner["arcs"] = [*inner["arcs"], {"to": "c"}]
    outer = {"arcs": [{"to": "a", "when": [True, False]}]}
    result = run(flow(a={"arcs": [{"to": "b"}]}, b=inner, c=outer, n={}))
    assert result["visits"] == {"a": 2, "b": 3, "c": 2, "n": 3}


def test_an_each_pass_arc_that_cannot_join_the_inner_loop_does_not_join_the_outer_one() -> None:
    inner = {"mode": "inclusive", "arcs": [{"to": "h", "when": [True, False]}, {"to": "n", "each_pass": True}]}
    inner["arcs"] = [*inner["arcs"], {"to": "a", "when": [True, False]}]
    result = run(flow(a=fork("n", "h"), n={}, h=inner))
    assert result["visits"] == {"a": 2, "n": 1, "h": 3}


def test_the_pass_that_was_over_first_is_dealt_with_first() -> None:
    endless = [{"visit_limit": 1, "arcs": [{"to": name}]} for name in ("b", "c")]
    assert run(flow(a=fork("b", "c"), b=endless[0], c=endless[1]))["error"] == failure("b", 2, "visit limit")


def test_a_join_is_looked_at_only_when_one_of_its_arcs_is_resolved() -> None:
    impossible = {"join": {"at_least": 2}, "arcs": [{"to": "e"}]}
    slow = {"duration": [5], "arcs": [{"to": "d"}]}
    orphan = {"arcs": [{"to": "d"}]}
    result = run(flow(a=fork("b", "c"), b=slow, c={"arcs": [{"to": "e"}]}, d=impossible, e={}, orphan=orphan))
    assert (rows(result, "e"), result["skipped"]) == ([["e", 1, 6, 7, "ok"]], ["d", "orphan"])


def test_an_arc_from_outside_does_not_count_in_the_next_pass_even_if_it_was_never_used() -> None:
    head = {"mode": "inclusive", "arcs": [{"to": "m", "when": [False, True]}, {"to": "t"}]}
    test = {"arcs": [{"to": "h", "when": [True, False]}]}
    result = run(flow(a=fork("h", "m"), h=head, m={"join": {"at_least": 2}, "arcs": [{"to": "t"}]}, t=test))
    assert (result["visits"], result["skipped"]) == ({"a": 1, "h": 2, "m": 0, "t": 2}, ["m"])


@given(programs())
def test_every_program_ends_and_its_run_is_the_same_each_time(workflow: Workflow) -> None:
    written = copy.deepcopy(workflow)
    result = run(workflow)
    assert result == run(json.loads(json.dumps(workflow)))
    assert workflow == written
    assert sum(result["visits"].values()) < 500


def test_a_seed_gives_the_same_program_each_time() -> None:
    assert [random_program(seed) for seed in range(20)] == [random_program(seed) for seed in range(20)]


def test_no_generated_join_asks_for_more_sources_than_it_has() -> None:
    for workflow, done in runs():
        joins = {name: step["join"] for name, step in workflow["steps"].items() if isinstance(step.get("join"), dict)}
        for name, join in joins.items():
            assert 1 <= join["at_least"] <= len({source for source, _ in done.shape.into[name]})


def test_every_feature_is_frequent() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1000):
        workflow = random_program(seed)
        seen.update(features(workflow, run(workflow)))
    assert {name: seen[name] for name in FEATURES if seen[name] < 80} == {}


def runs() -> Iterator[tuple[Workflow, Run]]:
    for seed in SEEDS:
        workflow = random_program(seed)
        yield workflow, Run(workflow)


def test_a_step_is_entered_or_skipped_at_most_once_per_pass_and_has_one_open_visit() -> None:
    for _, done in runs():
        dealt: set[str] = set()
        opened: set[str] = set()
        for what, name, *_ in done.trace:
            if what in ("enter", "skip"):
                assert name not in dealt | opened
                dealt.add(name)
            opened |= {name} if what == "enter" else set()
            opened -= {name} if what == "settle" else set()
            dealt -= done.shape.bodies[name] if what == "pass" else set()


def test_a_loops_exit_is_decided_once_when_the_loop_is_finished_and_never_before() -> None:
    for _, done in runs():
        finished: set[str] = set()
        decided: set[Any] = set()
        for what, name, *_ in done.trace:
            if what == "finish":
                finished.add(name)
            elif what == "pass":
                body = done.shape.bodies[name]
                finished -= body
                decided = {arc for arc in decided if done.shape.holder[arc] not in body}
            elif what in ("taken", "dead", "spent") and name in done.shape.holder:
                assert done.shape.holder[name] in finished
                assert name not in decided
                decided.add(name)


def test_every_taken_arc_is_followed_by_an_entry_unless_it_was_absorbed() -> None:
    for workflow, done in runs():
        awaited: set[str] = set()
        settled_by_race: set[str] = set()
        for what, name, *_ in done.trace:
            if what in ("taken", "spent"):
                target = done.shape.target[name]
                join = workflow["steps"][target].get("join", "all")
                awaited |= {target} if what == "taken" and not isinstance(join, dict) else set()
                assert what == "taken" or join != "all" or target in settled_by_race
            elif what in ("enter", "withdraw"):
                awaited.discard(name)
                settled_by_race |= {name} if what == "withdraw" else set()
            elif what == "skip":
                assert name not in awaited
            elif what == "pass":
                assert not awaited & done.shape.bodies[name]
        assert not awaited or done.failures


def test_every_taken_back_arc_is_followed_by_a_new_pass() -> None:
    for _, done in runs():
        due: set[str] = set()
        for what, name, *more in done.trace:
            if what == "settle":
                due |= {done.shape.target[arc] for arc in more[0] if arc in done.shape.back}
            elif what == "pass":
                assert name in due
                due.remove(name)
            assert what != "finish" or name not in due
        assert not due or done.failures


def test_every_step_is_settled_when_a_run_completes_and_every_loop_is_finished() -> None:
    for _, done in runs():
        if not done.failures:
            assert set(done.state.values()) == {"settled"}
            assert done.finished == set(done.shape.bodies)


def test_with_exclusive_arcs_alone_a_run_is_the_walk_of_a_state_machine() -> None:
    lengths = []
    for seed in SEEDS:
        workflow = random_program(seed)
        for step in workflow["steps"].values():
            for key in ("mode", "join", "loop", "retry", "duration"):
                step.pop(key, None)
        done = Run(workflow)
        walked = walk(workflow)
        assert [(name, number) for what, name, *rest in done.trace if what == "enter" for number in rest] == walked
        lengths.append(len(walked))
    assert max(lengths) > 20


def walk(workflow: Workflow) -> list[tuple[str, int]]:
    """The visits of a state machine: one after the other, each chosen by the one before."""
    visits: Counter[str] = Counter()
    path: list[tuple[str, int]] = []
    name: str | None = workflow["entry"]
    while name is not None:
        step = workflow["steps"][name]
        visits[name] += 1
        if visits[name] > step.get("visit_limit", 10_000):
            return path
        path.append((name, visits[name]))
        name = following(step, visits[name])
    return path


def following(step: dict[str, Any], visit: int) -> str | None:
    guard = nth(step.get("guard", [True]), visit)
    works = guard is False or (guard is True and nth(step.get("outcome", ["ok"]), visit) == "ok")
    for outcome in ("success", "failure") if works else ("failure",):
        heard = [arc for arc in step.get("arcs", []) if arc.get("on", "success") in (outcome, "both")]
        matching = [arc for arc in heard if nth(arc.get("when", [True]), visit) is not False]
        if not matching:
            return None
        if nth(matching[0].get("when", [True]), visit) is True:
            return str(matching[0]["to"])
    return None


def test_blocks_run_as_the_block_program_would() -> None:
    most = 0
    for seed in SEEDS:
        book = Book(Random(seed))
        first, ends, perform = book.block(3)
        book.link(ends, "end")
        book.steps["end"] = {}
        result = run({"entry": first, "steps": book.steps})
        perform()
        assert result["status"] == "completed"
        assert {name: count for name, count in result["visits"].items() if count} == book.visits | {"end": 1}
        most = max(most, sum(book.visits.values()))
    assert most > 30


class Book:
    """A block program in two forms: steps and arcs, and a function that performs it and counts the visits."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.steps: dict[str, Any] = {}
        self.visits: Counter[str] = Counter()

    def step(self, **written: Any) -> str:
        name = f"s{len(self.steps)}"
        self.steps[name] = {"duration": [self.random.randint(1, 4)], "arcs": [], **written}
        return name

    def link(self, ends: list[str], target: str, **written: Any) -> None:
        for source in ends:
            self.steps[source]["arcs"].append({"to": target, **written})

    def count(self, name: str) -> int:
        self.visits[name] += 1
        return self.visits[name]

    def truths(self) -> list[bool]:
        return [self.random.random() < 0.6 for _ in range(self.random.randint(1, 4))] + [False]

    def block(self, depth: int) -> Any:
        nested = [self.row, self.row, self.choice, self.fork, self.do_while, self.while_loop, self.breaking]
        return self.random.choice([self.one, self.retry, *(nested if depth else [])])(depth - 1)

    def one(self, _depth: int) -> Any:
        name = self.step()
        return name, [name], lambda: self.count(name)

    def retry(self, _depth: int) -> Any:
        fails = self.random.randint(0, 2)
        name = self.step(outcome=["fail"] * fails + ["ok"])
        self.link([name], name, on="failure")

        def perform() -> None:
            while self.count(name) <= fails:
                pass

        return name, [name], perform

    def row(self, depth: int) -> Any:
        first, ends, before = self.block(depth)
        following, later, after = self.block(depth)
        self.link(ends, following)
        return first, later, lambda: (before(), after())

    def choice(self, depth: int) -> Any:
        name, when = self.step(), self.truths()
        left, left_ends, on_left = self.block(depth)
        right, right_ends, on_right = self.block(depth)
        self.link([name], left, when=when)
        self.link([name], right)
        return name, left_ends + right_ends, lambda: on_left() if nth(when, self.count(name)) else on_right()

    def fork(self, depth: int) -> Any:
        name = self.step(mode="inclusive")
        left, left_ends, on_left = self.block(depth)
        right, right_ends, on_right = self.block(depth)
        self.link([name], left)
        self.link([name], right)
        join = self.step()
        self.link(left_ends + right_ends, join)
        return name, [join], lambda: (self.count(name), on_left(), on_right(), self.count(join))

    def do_while(self, depth: int) -> Any:
        first, ends, body = self.block(depth)
        test, when = self.step(), self.truths()
        self.link(ends, test)
        self.link([test], first, when=when)

        def perform() -> None:
            body()
            while nth(when, self.count(test)):
                body()

        return first, [test], perform

    def while_loop(self, depth: int) -> Any:
        test, when = self.step(), self.truths()
        first, ends, body = self.block(depth)
        self.link([test], first, when=when)
        self.link(ends, test)

        def perform() -> None:
            while nth(when, self.count(test)):
                body()

        return test, [test], perform

    def breaking(self, depth: int) -> Any:
        """A while loop with a break behind its body, and a step that follows either way."""
        test, when, leave = self.step(), self.truths(), self.truths()
        first, ends, body = self.block(depth)
        out, after = self.step(), self.step()
        self.link([test], first, when=when)
        self.link([test], after)
        self.link(ends, out)
        self.link([out], after, when=leave)
        self.link([out], test)

        def perform() -> None:
            while nth(when, self.count(test)):
                body()
                if nth(leave, self.count(out)):
                    break
            self.count(after)

        return test, [after], perform
