"""Retry from here: a run that failed or was cancelled goes on, and nothing that was finished is done again."""

from msgspec import structs

from refold.core.commands import child_id
from refold.core.decide.decision import RUN_TIMER
from refold.core.facts import (
    CancelAsked,
    ChildEnded,
    Fact,
    FanOutEntered,
    ItemsIssued,
    RunEnded,
    RunReopened,
    RunTimedOut,
    StepSettled,
)
from refold.core.fold.reopen import reopening
from refold.core.outcomes import SECOND, Failed, Fault, Succeeded
from refold.core.plan import Arc, Child, Loop, Plan
from refold.core.read.fact_text import fact_text
from refold.core.state import TERMINAL
from refold.testing.core import NOON, failed, issued, reported, succeeded
from tests.core.acts import Given, Then, chain, plan, start, step
from tests.core.driving import Driven, expected, workflows


def retried(run: Given, step: str = "", after: float = 0.0) -> Then:
    return run.when(reopening(run.graph, run.state, step, "ada"), after=after)


def fork(**more: object) -> Plan:
    return plan(step("s", "a", "b", mode="inclusive"), step("a", "c"), step("b", "c"), step("c"), **more)


def test_a_failed_step_gets_another_visit_and_what_was_done_is_not_repeated() -> None:
    run = start(fork())
    run.when(succeeded("s"))
    run.claimed = frozenset({"a/1", "b/1"})
    run.when(failed("a"))
    assert run.when(succeeded("b", 2)).state.life == "failed"
    run.claimed = frozenset()
    then = retried(run)
    assert run.log[-2][2] == RunReopened(("a",), (), "ada")
    assert then.facts == (issued("a", 2),) and [each.id for each in then.commands] == ["a/2"]
    assert (then.state.life, then.state.error, then.state.ended_at) == ("running", None, 0)
    assert run.when(succeeded("a", 1, visit=2)).facts == (issued("c"),)
    assert run.when(succeeded("c", 3)).facts == (RunEnded("completed", 3),)


def test_what_was_stopped_when_the_run_ended_gets_another_visit() -> None:
    for end in (CancelAsked(), RunTimedOut(9.0)):
        run = start(fork(timeout=9.0))
        run.when(succeeded("s"))
        run.when(succeeded("a"))
        assert run.when(end).state.life in TERMINAL
        then = retried(run, after=60)
        assert then.facts == (issued("b", 2),)
        assert then.timers == {RUN_TIMER: NOON + 69 * SECOND}, "it has its whole time again"


def test_what_a_drained_failure_led_to_is_entered_when_the_run_goes_on() -> None:
    handled = plan(step("s", "a", "b", mode="inclusive"), step("a"), step("b", Arc(to="c", on="failure")), step("c"))
    run = start(handled)
    run.when(succeeded("s"))
    run.claimed = frozenset({"a/1", "b/1"})
    run.when(failed("a"))
    run.when(failed("b"))
    assert run.state.life == "failed" and run.state.steps[3].visits == 0
    assert {fact.step for fact in retried(run).facts if hasattr(fact, "step")} == {"a", "c"}


def test_only_the_items_that_were_not_done_run_again() -> None:
    run = start(plan(step("a", "b", loop=Loop(items=["x", "y", "z"], max_in_flight=2)), step("b")))
    run.when(succeeded("a", "X", item=0))
    run.when(failed("a", item=1))
    run.when(failed("a", item=2))
    assert run.state.life == "failed"
    then = retried(run)
    assert then.facts == (FanOutEntered("a", 2, 3, redo=True), ItemsIssued("a", 2, 1, 2, None, (1, 2)))
    assert [(each.id, each.input) for each in then.commands] == [("a/2/1", "y"), ("a/2/2", "z")]
    run.when(succeeded("a", "Z", visit=2, item=2))
    assert run.when(succeeded("a", "Y", visit=2, item=1)).facts == (issued("b"),)
    assert run.when(succeeded("b", {"path": ["a"]})).state.life == "completed"
    assert run.state.steps[0].visits == 2


def test_the_results_of_all_visits_of_a_loop_stand_in_the_order_of_the_items() -> None:
    run = start(plan(step("a", loop=Loop(items=[1, 2, 3]))))
    for item in (0, 2):
        run.when(succeeded("a", f"first {item}", item=item))
    run.when(failed("a", item=1))
    retried(run)
    assert run.when(succeeded("a", "second 1", visit=2, item=1)).facts == (
        RunEnded("completed", ["first 0", "second 1", "first 2"]),
    )


def test_items_that_were_never_issued_run_too_and_the_window_holds() -> None:
    run = start(plan(step("a", loop=Loop(items=[1, 2, 3, 4], max_in_flight=1))))
    run.when(succeeded("a", item=0))
    run.when(CancelAsked())
    assert retried(run).facts[-1] == ItemsIssued("a", 2, 1, 1, None, (1,))
    assert run.when(succeeded("a", visit=2, item=1)).facts == (ItemsIssued("a", 2, 2, 1, None, (2,)),)
    run.when(succeeded("a", visit=2, item=2))
    assert run.when(succeeded("a", visit=2, item=3)).state.life == "completed"


def test_a_loop_that_fails_again_can_be_reopened_again() -> None:
    run = start(plan(step("a", loop=Loop(items=[1, 2]))))
    run.when(succeeded("a", item=0))
    run.when(failed("a", item=1))
    for visit in (2, 3):
        assert retried(run).facts[-1] == ItemsIssued("a", visit, 1, 1, None, (1,))
        run.when(failed("a", visit=visit, item=1))
    retried(run)
    assert run.when(succeeded("a", "b", visit=4, item=1)).state.result == [None, "b"]


def test_from_a_step_that_step_and_what_follows_from_it_are_visited_anew() -> None:
    run = start(plan(step("a", "b", "x", mode="inclusive"), step("b", "c"), step("c", "d"), step("d"), step("x")))
    run.when(succeeded("a", 1))
    run.when(succeeded("x", 9))
    run.when(succeeded("b", 2))
    run.when(succeeded("c", 3))
    run.when(failed("d"))
    then = retried(run, "b")
    assert run.log[-2][2] == RunReopened((), ("b", "c", "d"), "ada")
    assert then.facts == (issued("b", 2),)
    for name, visit in (("b", 2), ("c", 2), ("d", 2)):
        run.when(succeeded(name, f"{name} again", visit=visit))
    assert (run.state.life, run.state.result) == ("completed", "d again")
    assert [each.visits for each in run.state.steps] == [1, 2, 2, 2, 1]


def test_from_a_step_a_list_loop_runs_all_its_items_again() -> None:
    run = start(plan(step("a", "b", loop=Loop(items=[1, 2])), step("b")))
    run.when(succeeded("a", item=0))
    run.when(succeeded("a", item=1))
    run.when(failed("b"))
    assert retried(run, "a").facts[:2] == (FanOutEntered("a", 2, 2, [1, 2]), ItemsIssued("a", 2, 0, 2))


def test_from_a_step_what_failed_elsewhere_is_tried_again_too() -> None:
    run = start(fork())
    run.when(succeeded("s"))
    run.claimed = frozenset({"a/1", "b/1"})
    run.when(failed("a"))
    run.when(succeeded("b", 2))
    run.claimed = frozenset()
    assert reopening(run.graph, run.state, "b") == RunReopened(("a",), ("b", "c"))
    assert retried(run, "b").facts == (issued("a", 2), issued("b", 2))


def test_from_a_step_of_a_finished_loop_the_loop_goes_on_and_is_left_once_more() -> None:
    looped = plan(
        step("a", "b"), step("b", Arc(to="a", when={"script": [True, False]}), Arc(to="c")), step("c", "d"), step("d")
    )
    run = start(looped)
    for name, visit in (("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1)):
        run.when(succeeded(name, visit=visit))
    run.when(failed("d"))
    assert retried(run, "b").facts == (issued("b", 3),)
    assert run.when(succeeded("b", visit=3)).facts[-1] == issued("c", 2)
    run.when(succeeded("c", visit=2))
    assert run.when(succeeded("d", "done", visit=2)).facts == (RunEnded("completed", "done"),)


def test_a_result_that_no_longer_counts_is_not_the_result_of_the_run() -> None:
    cases = plan(
        step("a", Arc(to="b", when={"script": [True, False]}), "e"),
        step("b", "z"),
        step("e"),
        step("z", "f"),
        step("f"),
    )
    run = start(cases)
    run.when(succeeded("a", "A"))
    run.when(succeeded("b", "B"))
    run.when(succeeded("z", "Z"))
    run.when(failed("f"))
    assert run.state.latest is not None and run.state.latest.result == "Z"
    retried(run, "a")
    assert run.state.latest is None
    run.when(succeeded("a", "A2", visit=2))
    assert run.when(succeeded("e", "E")).state.result == "E"


def test_finalizers_run_again_at_the_next_end() -> None:
    run = start(plan(step("a"), step("tidy"), always=("tidy",)))
    run.when(failed("a"))
    assert run.when(succeeded("tidy")).state.life == "failed"
    retried(run)
    assert run.when(succeeded("a", 5, visit=2)).facts[-1] == issued("tidy", 2)
    assert run.when(succeeded("tidy", visit=2)).facts == (RunEnded("completed", 5),)


def test_where_only_the_final_step_had_failed_only_it_runs_again() -> None:
    run = start(plan(step("a"), step("last"), final_step="last"))
    run.when(succeeded("a", 5))
    assert run.when(failed("last")).state.life == "failed"
    assert retried(run).facts[-1] == issued("last", 2)
    assert run.when(succeeded("last", visit=2)).facts == (RunEnded("completed", 5),)


def test_a_failed_child_is_another_run_in_the_next_visit() -> None:
    run = start(plan(step("a", work=Child(plan="kid"))))
    run.when(ChildEnded(child_id("run", "a/1"), "a/1", Failed(Fault("child_failed")), usage={"tokens": 1}))
    then = retried(run)
    assert [letter.to for letter in then.letters] == [child_id("run", "a/2")]
    done = ChildEnded(child_id("run", "a/2"), "a/2", Succeeded(1), usage={"tokens": 2})
    assert run.when(done).state.usage == {"tokens": 3}


def test_a_run_that_was_reopened_can_be_cancelled_as_before() -> None:
    run = start(plan(step("a"), step("tidy"), always=("tidy",)))
    run.when(CancelAsked())
    run.when(CancelAsked())
    retried(run)
    assert run.when(CancelAsked()).facts[-1] == issued("tidy", 2)


def test_the_log_tells_it() -> None:
    assert fact_text(RunReopened(("a", "b"), (), "ada")) == "run reopened by ada: again a, b"
    assert fact_text(RunReopened((), ("a", "b"))) == "run reopened: again from a"
    assert fact_text(ItemsIssued("a", 2, 1, 2, None, (1, 4))) == "a/2 items 1, 4 issued again"


def test_programs_cancelled_after_any_report_and_retried_end_as_if_nothing_had_happened() -> None:
    for workflow in workflows(15):
        whole = Driven(workflow)
        assert whole.go_on() and whole.ended() == expected(workflow)
        for turns in range(whole.turns):
            run = Driven(workflow, seed=turns)
            run.go_on(turns)
            if run.run.state.life in TERMINAL:
                continue
            assert run.cancel().state.life == "cancelled" and not run.run.state.open
            run.reopen()
            assert run.go_on() and run.ended() == expected(workflow)
            assert run.run.replayed() == run.run.state


def broken(fact: Fact) -> Fact:
    """The same report, as a failure for good."""
    bad = Failed(Fault("broken", retryable=False))
    if isinstance(fact, StepSettled):
        return structs.replace(fact, report=structs.replace(fact.report, outcome=bad))
    reports = tuple(structs.replace(each, outcome=bad) for each in fact.reports)  # type: ignore[union-attr]
    return structs.replace(fact, reports=reports)


def test_programs_that_fail_at_any_report_and_are_retried_end_as_if_nothing_had_happened() -> None:
    reopened = 0
    for workflow in workflows(20):
        for policy in ("drain", "cancel"):
            whole = Driven(workflow, on_failure=policy)
            whole.go_on()
            for turns in range(whole.turns):
                reopened += fail_and_retry(Driven(workflow, seed=turns, on_failure=policy), turns)
    assert reopened > 200


def fail_and_retry(run: Driven, turns: int) -> bool:
    if run.go_on(turns):
        return False
    fact = run.next_report()
    step = run.run.graph.step(run.run.graph.index[fact.step])  # type: ignore[union-attr]
    if any(arc.on != "success" for arc in step.arcs):
        return False  # it would be handled
    run.run.claimed = frozenset(run.run.state.open)
    run.take(broken(fact))
    while run.run.state.life not in TERMINAL:
        run.run.claimed = frozenset(run.run.state.open)
        run.take(run.next_report())
    run.run.claimed = frozenset()
    assert run.run.state.life == "failed"
    run.reopen()
    assert run.go_on() and run.ended() == expected(run.workflow)
    assert run.run.replayed() == run.run.state
    return True


def test_nothing_is_chosen_where_nothing_failed() -> None:
    run = start(chain("a"))
    run.when(reported("a", Succeeded()))
    assert reopening(run.graph, run.state) == RunReopened()


def test_what_was_ready_when_the_run_began_to_end_is_entered_when_it_goes_on() -> None:
    run = start(plan(step("s", "a", "b", mode="inclusive"), step("a"), step("b", "c"), step("c")))
    run.when(succeeded("s"))
    assert run.when(succeeded("b"), failed("a")).state.life == "failed"
    assert retried(run).facts == (issued("a", 2), issued("c"))
