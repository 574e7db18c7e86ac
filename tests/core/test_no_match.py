"""A visit that went well and takes no arc: its branch ends, or it has failed after all."""

from refold.core.plan import Arc
from refold.testing.core import issued, succeeded
from tests.core.acts import plan, start, step

NEVER = Arc(to="b", when=False)


def test_the_branch_ends() -> None:
    then = start(plan(step("a", NEVER), step("b"))).when(succeeded("a", 1))
    assert (then.state.life, then.state.result) == ("completed", 1)


def test_the_visit_has_failed_if_that_is_an_error() -> None:
    then = start(plan(step("a", NEVER, no_match="fail"), step("b"))).when(succeeded("a"))
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.kind == "no_match" and then.state.error.step == "a"


def test_its_error_arcs_are_asked_then() -> None:
    rescue = Arc(to="c", on="failure")
    then = start(plan(step("a", NEVER, rescue, no_match="fail"), step("b"), step("c"))).when(succeeded("a"))
    assert then.facts[-1] == issued("c") and then.state.life == "running"


def test_a_step_without_arcs_for_success_has_not_failed() -> None:
    for shape in (
        plan(step("a", no_match="fail")),
        plan(step("a", Arc(to="b", on="failure"), no_match="fail"), step("b")),
    ):
        assert start(shape).when(succeeded("a")).state.life == "completed"
