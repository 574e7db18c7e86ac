"""`set` on steps and arcs: rendered when the visit ends, durable, and seen by what comes after."""

import pytest

from refold.core.facts import Entered, Routed, StepFault, Took
from refold.core.plan import Arc, Step
from refold.testing.core import failed, issued, succeeded
from tests.core.acts import Given, plan, start, step


def at(*path: str) -> dict[str, object]:
    return {"path": list(path)}


def test_what_a_step_sets_stands_in_the_log_and_in_the_context_under_its_bare_key() -> None:
    then = start(plan(step("a", set={"ctx.x": 1, "iter.y": 2, "step.z": 3, "w.v": 4}))).when(succeeded("a"))
    assert then.facts[0] == Routed((Took("a", 1, (), {"x": 1, "y": 2, "z": 3, "w.v": 4}),))
    assert then.state.ctx == {"x": 1, "y": 2, "z": 3, "w.v": 4}


def test_what_was_set_is_read_by_the_steps_after_it() -> None:
    then = start(plan(step("a", "b", set={"x": at("output", "data")}), step("b", input=at("x")))).when(
        succeeded("a", 5)
    )
    assert then.commands[0].input == 5


def test_all_values_of_one_set_are_rendered_before_the_first_is_written() -> None:
    swap = plan(step("a", set={"x": at("y"), "y": at("x")}))
    assert start(swap, x=1, y=2).when(succeeded("a")).state.ctx == {"x": 2, "y": 1}


def test_an_arc_sees_what_its_step_set_in_its_condition_and_in_its_own_set() -> None:
    arc = Arc(to="b", when=at("x"), set={"y": at("ctx", "x")})
    then = start(plan(step("a", arc, set={"x": 3}), step("b"))).when(succeeded("a"))
    assert then.facts == (Routed((Took("a", 1, (0,), {"x": 3, "y": 3}), Entered("b", 1))), issued("b"))


def test_arcs_set_in_file_order_and_the_later_wins() -> None:
    one, two = Arc(to="b", set={"x": 1, "y": 1}), Arc(to="b", set={"x": 2, "z": at("y")})
    fork = plan(step("a", one, two, mode="inclusive", set={"y": 0}), step("b"))
    assert start(fork).when(succeeded("a")).state.ctx == {"x": 2, "y": 1, "z": 1}


def test_an_arc_that_is_not_taken_sets_nothing() -> None:
    choice = plan(step("a", "b", Arc(to="b", set={"x": 1})), step("b"))
    assert start(choice).when(succeeded("a")).state.ctx == {}


def test_a_failed_visit_sets_nothing_but_the_arc_that_handles_it_does() -> None:
    handled = plan(step("a", Arc(to="b", on="failure", set={"y": 2}), set={"x": 1}), step("b"))
    assert start(handled).when(failed("a")).state.ctx == {"y": 2}


def test_a_bypassed_visit_sets_nothing_but_the_arc_it_takes_does() -> None:
    guarded = plan(step("s", "a"), step("a", Arc(to="b", set={"y": 2}), when=False, set={"x": 1}), step("b"))
    assert start(guarded).when(succeeded("s")).state.ctx == {"y": 2}


def test_a_held_arc_sets_when_it_is_taken_and_not_when_the_loop_is_left() -> None:
    loop = plan(
        step("a", Arc(to="a", when={"script": [True, False]}), Arc(to="b", set={"n": at("visit")}), mode="inclusive"),
        step("b"),
    )
    run = start(loop)
    assert run.when(succeeded("a")).state.ctx == {"n": 1}
    assert run.when(succeeded("a", visit=2)).facts[-1] == issued("b")


@pytest.mark.parametrize("name", ["input", "workload", "ctx", "steps", "run", "visit", "output", "error"])
def test_a_key_named_like_what_the_moment_tells_does_not_hide_it(name: str) -> None:
    arc = Arc(to="b", when={"equal": [at(name), "mine"]})
    then = start(plan(step("a", arc, set={name: "mine"}), step("b"))).when(succeeded("a"))
    assert then.state.steps[1].life == "skipped"
    assert then.state.ctx == {name: "mine"}


def test_a_set_without_a_value_fails_the_visit_and_sets_nothing() -> None:
    broken = Step(name="a", set={"x": 1, "y": {"script": ["error"]}}, arcs=(Arc(to="b", on="failure", set={"z": 1}),))
    then = start(plan(broken, step("b"))).when(succeeded("a"))
    assert then.state.ctx == {"z": 1}
    assert then.facts[-1] == issued("b")


def test_a_set_without_a_value_on_the_arc_that_was_taken_fails_the_visit_too() -> None:
    then = start(plan(step("a", Arc(to="b", set={"y": at("nobody")})), step("b"))).when(succeeded("a"))
    assert isinstance(then.state.error, StepFault)
    assert (then.state.error.step, then.state.life, then.state.ctx) == ("a", "failed", {})


def test_each_write_to_a_key_is_a_new_version() -> None:
    again = plan(step("a", Arc(to="a", when={"script": [True, False]}), set={"n": at("visit")}))
    run: Given = start(again)
    run.when(succeeded("a"))
    assert run.when(succeeded("a", visit=2)).state.versions == {"n": 2}
