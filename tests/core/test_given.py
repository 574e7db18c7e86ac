"""Inputs that arcs give to the visit they lead to."""

from refold.core.commands import LetterStart
from refold.core.plan import Arc, Child, Loop
from refold.testing.core import Scripted, failed, succeeded
from tests.core.acts import plan, start, step

TOOL_INPUT = {"input": {"page": 1, "size": 9}, "config": {"url": "x"}}


def test_what_an_arc_gives_is_laid_over_the_input_of_its_target() -> None:
    run = start(plan(step("a", Arc(to="b", input={"page": 2})), step("b", input={"page": 1, "size": 9})))
    assert run.when(succeeded("a")).commands[0].input == {"page": 2, "size": 9}


def test_of_a_tool_it_is_laid_over_what_the_tool_is_bound_to() -> None:
    run = start(plan(step("a", Arc(to="b", input={"page": 2})), step("b", input=TOOL_INPUT)))
    assert run.when(succeeded("a")).commands[0].input == {"input": {"page": 2, "size": 9}, "config": {"url": "x"}}


def test_a_target_without_an_input_gets_what_is_given() -> None:
    run = start(plan(step("a", Arc(to="b", input={"page": 2})), step("b")))
    assert run.when(succeeded("a")).commands[0].input == {"page": 2}


def test_an_arc_that_is_not_taken_gives_nothing() -> None:
    shape = plan(step("a", Arc(to="b", when=False, input={"page": 2}), Arc(to="b")), step("b", input={"page": 1}))
    assert start(shape).when(succeeded("a")).commands[0].input == {"page": 1}


def test_of_several_sources_the_later_in_the_file_counts() -> None:
    shape = plan(
        step("a", "b", "c", mode="inclusive"),
        step("b", Arc(to="d", input={"x": "b", "y": "b"})),
        step("c", Arc(to="d", input={"x": "c"})),
        step("d"),
    )
    run = start(shape)
    run.when(succeeded("a"))
    run.when(succeeded("c"))
    assert run.when(succeeded("b")).commands[0].input == {"x": "c", "y": "b"}


def test_of_one_arc_the_latest_taking_counts() -> None:
    again = Arc(to="b", when={"script": [True, False]}, input={"n": {"path": ["visit"]}})
    run = start(plan(step("a", Arc(to="b", input={"n": 0})), step("b", again)))
    assert run.when(succeeded("a")).commands[0].input == {"n": 0}
    assert run.when(succeeded("b")).commands[0].input == {"n": 1}


def test_every_item_of_a_loop_is_given_it_too() -> None:
    each = step("each", loop=Loop(items=[1, 2]), input={"item": {"path": ["item"]}, "page": 1})
    run = start(plan(step("a", Arc(to="each", input={"page": 7})), each))
    commands = run.when(succeeded("a")).commands
    assert [command.input for command in commands] == [{"item": 1, "page": 7}, {"item": 2, "page": 7}]


def test_a_child_is_given_it_as_its_input() -> None:
    run = start(plan(step("a", Arc(to="kid", input={"page": 7})), step("kid", work=Child())))
    (letter,) = run.when(succeeded("a")).letters
    assert isinstance(letter.body, LetterStart) and letter.body.input == {"page": 7}


def test_an_error_arc_gives_what_it_reads_of_the_error() -> None:
    arc = Arc(to="b", on="failure", input={"why": {"path": ["error", "kind"]}})
    run = start(plan(step("a", arc), step("b")))
    assert run.when(failed("a", "odd")).commands[0].input == {"why": "odd"}


def test_the_language_of_the_test_reads_what_is_given() -> None:
    """A sanity check of the reading above: the arc is evaluated with the state of the visit that takes it."""
    assert Scripted().value({"path": ["visit"]}, {"visit": 3}) == 3
