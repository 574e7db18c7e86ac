"""`append` on steps and arcs: elements are added to a list in the context, and the fact has only the new ones."""

from refold.core.facts import Entered, Routed, Took
from refold.core.plan import Arc, Step
from refold.core.read.fact_text import fact_text
from refold.testing.core import failed, issued, succeeded
from tests.core.acts import plan, start, step


def at(*path: str) -> dict[str, object]:
    return {"path": list(path)}


def test_a_step_adds_to_a_list_and_its_fact_has_only_what_was_added() -> None:
    then = start(plan(step("a", "b", append={"seen": [1]}), step("b", append={"ctx.seen": [2, 3]}))).when(
        succeeded("a")
    )
    assert then.facts[0] == Routed((Took("a", 1, (0,), appends={"seen": [1]}), Entered("b", 1)))
    assert then.state.ctx == {"seen": [1]}


def test_the_elements_of_several_visits_stand_in_their_order() -> None:
    run = start(plan(step("a", "b", append={"seen": [at("output", "data")]}), step("b", append={"seen": [2, 3]})))
    run.when(succeeded("a", 1))
    assert run.when(succeeded("b")).state.ctx == {"seen": [1, 2, 3]}


def test_the_arc_that_is_taken_adds_behind_its_step_and_other_arcs_add_nothing() -> None:
    taken, other = Arc(to="b", when=True, append={"seen": [2]}), Arc(to="b", append={"seen": [9]})
    then = start(plan(step("a", taken, other, append={"seen": [1]}), step("b"))).when(succeeded("a"))
    assert then.state.ctx == {"seen": [1, 2]}


def test_a_failed_visit_adds_nothing_but_the_arc_that_handles_it_does() -> None:
    handled = plan(step("a", Arc(to="b", on="failure", append={"seen": [2]}), append={"seen": [1]}), step("b"))
    assert start(handled).when(failed("a")).state.ctx == {"seen": [2]}


def test_a_value_that_is_no_list_fails_the_visit() -> None:
    then = start(plan(Step(name="a", append={"seen": "text"}))).when(succeeded("a"))
    assert then.state.life == "failed"
    assert then.state.failures[0].fault is not None
    assert "append.seen" in then.state.failures[0].fault.message


def test_what_is_not_a_list_in_the_context_is_replaced() -> None:
    then = start(plan(step("a", "b", set={"seen": 5}, append={"seen": [1]}), step("b"))).when(succeeded("a"))
    assert then.state.ctx == {"seen": [1]}
    assert then.facts[-1] == issued("b")


def test_people_see_what_was_added() -> None:
    then = start(plan(step("a", append={"seen": [1]}))).when(succeeded("a"))
    assert "added [1] to seen" in fact_text(then.facts[0])
