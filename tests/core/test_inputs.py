"""What a step is given: rendered once, fixed at issue, and an expression without a value fails its visit."""

from refold.core.facts import Entered, Routed, StepFault, Took
from refold.core.outcomes import Fault, SetKey, Succeeded
from refold.core.plan import Arc, Retry
from refold.testing.core import failed, issued, reported, started, succeeded
from tests.core.acts import Given, plan, start, step

ERROR = {"script": ["error"]}
SAID_SO = Fault("expression", "the script says so", retryable=False)


def at(*path: str) -> dict[str, object]:
    return {"path": list(path)}


def test_the_input_is_rendered_at_issue_and_stands_in_the_fact_and_in_the_command() -> None:
    greet = plan(step("a", input={"to": at("name"), "n": 1}))
    then = Given(greet).when(started(greet, name="Ada"))
    assert then.facts == (issued("a", input={"to": "Ada", "n": 1}),)
    assert then.commands[0].input == {"to": "Ada", "n": 1}


def test_a_later_try_gets_the_input_of_the_first_whatever_the_context_says_now() -> None:
    fork = plan(
        step("s", "a", "b", mode="inclusive"),
        step("a", input=at("n"), retry=Retry(attempts=2)),
        step("b"),
    )
    run = start(fork, n=1)
    run.when(succeeded("s"))
    run.when(reported("b", Succeeded(), writes=(SetKey("n", 2),)))
    then = run.when(failed("a"))
    assert then.facts == (issued("a", attempt=2),)  # told once, in the fact of the first try
    assert then.commands[0].input == 1


def test_defaults_of_the_plan_are_inputs_that_a_run_did_not_give() -> None:
    greet = plan(step("a", input=[at("x"), at("y")]), defaults={"x": 1, "y": 2})
    assert Given(greet).when(started(greet, y=3)).commands[0].input == [1, 3]


def test_an_input_without_a_value_fails_the_visit_and_the_run() -> None:
    broken = plan(step("a", input=ERROR))
    then = Given(broken).when(started(broken))
    assert then.facts[0] == Routed((Entered("a", 1), Took("a", 1, (), {}, SAID_SO)))
    assert then.state.error == StepFault("a", 1, "unhandled failure", SAID_SO)
    assert then.commands == ()


def test_an_input_without_a_value_may_be_handled_by_an_error_arc() -> None:
    handled = plan(step("a", Arc(to="b", on="failure"), input=ERROR), step("b", input=at("nothing_like_it")))
    then = Given(plan(handled.steps[0], step("b"))).when(started(handled))
    assert then.facts[-1] == issued("b")
    assert then.state.failures == []


def test_an_undefined_name_is_told_by_its_path() -> None:
    broken = plan(step("a", input=at("ctx", "nope")))
    then = Given(broken).when(started(broken))
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.message == "'ctx.nope' is not defined"


def test_one_step_without_input_does_not_keep_its_siblings_back() -> None:
    fork = plan(
        step("s", "a", "b", mode="inclusive"), step("a", Arc(to="c", on="failure"), input=ERROR), step("b"), step("c")
    )
    then = start(fork).when(succeeded("s"))
    assert [command.id for command in then.commands] == ["b/1", "c/1"]


def test_an_expression_is_not_tried_again_whatever_the_policy() -> None:
    broken = plan(step("a", input=ERROR, retry=Retry(attempts=5)))
    assert Given(broken).when(started(broken)).state.life == "failed"


def test_a_guard_that_cannot_be_evaluated_is_a_visit_that_failed() -> None:
    guarded = plan(step("a", Arc(to="b", on="failure"), when=ERROR), step("b"))
    then = Given(guarded).when(started(guarded))
    assert then.facts == (Routed((Entered("a", 1), Took("a", 1, (0,), {}, SAID_SO), Entered("b", 1))), issued("b"))


def test_a_condition_that_cannot_be_evaluated_turns_success_into_failure() -> None:
    judged = plan(step("a", Arc(to="b", when=ERROR), Arc(to="c", on="failure")), step("b"), step("c"))
    then = start(judged).when(succeeded("a"))
    assert then.state.steps[0].last == "failed"
    assert then.facts[0] == Routed((Took("a", 1, (1,), {}, SAID_SO), *then.facts[0].moves[1:]))  # type: ignore[union-attr]
    assert then.facts[-1] == issued("c")


def test_a_second_error_is_unhandled_and_the_first_one_is_told() -> None:
    other = {"path": ["nobody"]}
    judged = plan(step("a", Arc(to="b", when=ERROR), Arc(to="b", on="failure", when=other)), step("b"))
    then = start(judged).when(succeeded("a"))
    assert then.state.life == "failed"
    assert then.state.error == StepFault("a", 1, "unhandled failure", SAID_SO)


def test_an_error_arc_that_cannot_be_evaluated_leaves_the_reported_failure_unhandled() -> None:
    judged = plan(step("a", Arc(to="b", on="failure", when=ERROR)), step("b"))
    then = start(judged).when(failed("a", "oops"))
    assert then.state.error == StepFault("a", 1, "unhandled failure", Fault("oops"))


def test_templates_can_read_the_number_of_the_visit() -> None:
    again = plan(step("a", Arc(to="a", when={"script": [True, False]}), input={"n": at("visit")}))
    run = start(again)
    assert run.when(succeeded("a")).commands[0].input == {"n": 2}


def test_arcs_can_read_output_and_error_of_the_visit_that_ended() -> None:
    told = plan(
        step(
            "a",
            Arc(to="b", set={"got": at("output", "data", "x"), "state": at("output", "status")}),
            Arc(to="b", on="failure", set={"got": at("error", "kind"), "state": at("output", "status")}),
        ),
        step("b"),
    )
    assert start(told).when(succeeded("a", {"x": 7})).state.ctx == {"got": 7, "state": "ok"}
    assert start(told).when(failed("a", "oops")).state.ctx == {"got": "oops", "state": "error"}
