"""Items of a run that has ended are run again: alone, so that nothing else changes, or with what follows from them."""

from refold.core.facts import CancelAsked, FanOutEntered, ItemsIssued, RunEnded, RunReopened
from refold.core.fold.reopen import reopening
from refold.core.plan import Arc, Loop, Plan
from refold.testing.core import failed, issued, succeeded
from tests.core.acts import Given, plan, start, step

TOLERANT = Loop(items=["x", "y", "z"], max_in_flight=3, tolerate=2)


def told(**more: object) -> Plan:
    """A loop that tolerates failures, and a step behind it."""
    return plan(step("each", "tell", loop=TOLERANT), step("tell"), **more)


def ended(plan: Plan, failing: tuple[int, ...] = (1,)) -> Given:
    run = start(plan)
    for item in range(3):
        run.when(failed("each", item=item) if item in failing else succeeded("each", item, item=item))
    run.when(succeeded("tell", {"failed": len(failing)}))
    assert run.state.life == "completed"
    return run


def alone(run: Given, *items: int) -> RunReopened:
    return RunReopened(("each",), by="ada", items={"each": items}, alone=True)


def test_items_that_run_again_alone_leave_the_result_of_the_run_as_it_was() -> None:
    run = ended(told())
    result = run.state.result
    then = run.when(alone(run, 1))
    assert then.facts == (FanOutEntered("each", 2, 3, redo=True, only=(1,)), ItemsIssued("each", 2, 1, 1, None, (1,)))
    assert then.state.life == "running"
    then = run.when(succeeded("each", "Y", visit=2, item=1))
    assert then.facts == (RunEnded("completed", {"failed": 1}),)
    assert (then.state.result, [each.visits for each in then.state.steps]) == (result, [2, 1])
    assert then.state.steps[0].fan is not None and then.state.steps[0].fan.done == 3


def test_an_item_that_fails_once_more_alone_changes_nothing() -> None:
    run = ended(told())
    run.when(alone(run, 1))
    then = run.when(failed("each", visit=2, item=1))
    assert then.facts[-1] == RunEnded("completed", {"failed": 1})
    assert then.state.steps[0].fan is not None and then.state.steps[0].fan.failed == 1


def test_alone_no_other_arc_of_the_loop_is_taken_and_no_step_that_failed_is_tried_again() -> None:
    """The gate behind the loop had failed the run; an arc that would be taken now is not."""
    mended = Arc(to="mended", when={"script": [False, True]})
    run = start(plan(step("each", mended, Arc(to="gate"), loop=TOLERANT), step("mended"), step("gate")))
    for item in range(3):
        run.when(failed("each", item=item) if item == 1 else succeeded("each", item=item))
    then = run.when(failed("gate"))
    before = (then.state.error, then.state.failures, [each.visits for each in then.state.steps])
    run.when(alone(run, 1))
    then = run.when(succeeded("each", visit=2, item=1))
    assert then.state.life == "failed"
    assert (then.state.error, then.state.failures) == before[:2]
    assert [each.visits for each in then.state.steps] == [2, *before[2][1:]]
    assert reopening(run.graph, run.state).again == ("gate",), "it can still be retried"


def test_alone_the_context_is_not_set_once_more() -> None:
    run = ended(plan(step("each", "tell", loop=TOLERANT, set={"seen": {"script": [1, 2]}}), step("tell")))
    run.when(alone(run, 1))
    assert run.when(succeeded("each", visit=2, item=1)).state.ctx == {"seen": 1}


def test_finalizers_do_not_run_again_for_items_alone() -> None:
    run = start(plan(step("each", loop=TOLERANT), step("last"), step("tidy"), final_step="last", always=("tidy",)))
    for item in range(3):
        run.when(failed("each", item=item) if item == 1 else succeeded("each", item=item))
    run.when(succeeded("last"))
    assert run.when(succeeded("tidy")).state.life == "completed"
    run.when(alone(run, 1))
    then = run.when(succeeded("each", visit=2, item=1))
    assert (then.state.life, [each.visits for each in then.state.steps]) == ("completed", [2, 1, 1])


def test_a_cancellation_while_items_run_alone_leaves_the_run_as_it_had_ended() -> None:
    run = ended(told())
    run.when(alone(run, 1))
    then = run.when(CancelAsked("enough"))
    assert (then.state.life, then.state.result) == ("completed", {"failed": 1})
    run.when(alone(run, 1))
    assert run.when(succeeded("each", visit=3, item=1)).state.result == {"failed": 1}


def test_what_was_ready_or_cut_when_the_run_failed_is_there_after_items_ran_alone() -> None:
    run = start(plan(step("s", "each", "a", "b", mode="inclusive"), step("each", loop=TOLERANT), step("a"), step("b")))
    run.when(succeeded("s"))
    for item in range(3):
        run.when(failed("each", item=item) if item == 1 else succeeded("each", item=item))
    run.when(failed("a"))
    assert (run.state.life, run.state.cut) == ("failed", {3: None})
    run.when(alone(run, 1))
    run.when(succeeded("each", visit=2, item=1))
    assert (run.state.life, run.state.cut) == ("failed", {3: None})
    assert run.when(reopening(run.graph, run.state)).facts == (issued("a", 2), issued("b", 2))


def test_to_follow_visits_the_steps_behind_the_loop_again_with_the_new_values() -> None:
    run = ended(told())
    then = run.when(reopening(run.graph, run.state, by="ada", loops=("each",), follow=True))
    assert run.log[-3][2] == RunReopened(("each",), ("tell",), "ada", follows=True)
    assert then.facts[-1] == ItemsIssued("each", 2, 1, 1, None, (1,))
    assert run.when(succeeded("each", "Y", visit=2, item=1)).facts == (issued("tell", 2),)
    then = run.when(succeeded("tell", {"failed": 0}, visit=2))
    assert then.facts == (RunEnded("completed", {"failed": 0}),)


def test_to_follow_does_not_enter_the_steps_behind_before_the_items_have_ended() -> None:
    run = ended(told(), failing=(0, 2))
    run.when(reopening(run.graph, run.state, loops=("each",), follow=True))
    assert run.when(succeeded("each", visit=2, item=0)).facts == ()
    assert run.when(failed("each", visit=2, item=2)).facts[-1] == issued("tell", 2)


def test_a_completed_run_continues_from_a_step() -> None:
    run = ended(told())
    assert run.when(reopening(run.graph, run.state, "tell")).facts == (issued("tell", 2),)
    assert run.when(succeeded("tell", "new", visit=2)).facts == (RunEnded("completed", "new"),)
