"""Children: started, ended, cancelled and paused by letters; each side's log tells its half once."""

from typing import Any

from refold.core.commands import Letter, LetterCancel, LetterEnded, LetterStart, child_id
from refold.core.facts import (
    CancelAsked,
    ChildEnded,
    Fact,
    ItemsRetried,
    Parent,
    RunEnded,
    RunEnding,
    RunPaused,
    RunStarted,
    StepFault,
)
from refold.core.outcomes import SECOND, Awaited, Cancelled, Failed, Fault, Outcome, Succeeded, Suspended, TimedOut
from refold.core.plan import Arc, Child, Loop, Plan, Retry
from refold.core.read.why import briefly, reasons
from refold.testing.core import NOON, failed, issued, reported, succeeded
from tests.core.acts import Given, chain, plan, start, step

KID = child_id("run", "a/1")
PARENT = Parent("boss", "a/1", "call")


def family(*to: str | Arc, **a: Any) -> Plan:
    return plan(
        step("a", *to, work=Child(plan="plan of the kid"), **a), *(step(each) for each in to if isinstance(each, str))
    )


def kid_ended(outcome: Outcome, child: str = KID, **usage: float) -> ChildEnded:
    return ChildEnded(child, "a/1", outcome, usage=usage)


def letters_of_a_child(*facts: Fact) -> tuple[Letter, ...]:
    """What a child sends when it ends like this."""
    run = Given(chain("a"), run="kid")
    run.when(RunStarted("hash", parent=PARENT, depth=3))
    return run.when(*facts).letters


def test_a_child_step_is_a_letter_and_not_a_command() -> None:
    born = family(input={"n": 1})
    run = Given(born)
    then = run.when(RunStarted("hash", depth=2))
    assert then.facts == (issued("a", input={"n": 1}, child=KID),)
    assert then.commands == ()
    body = LetterStart("plan of the kid", Parent("run", "a/1"), {"n": 1}, depth=3, name="run.a")
    assert then.letters == (Letter(f"{KID}/start", "run", KID, body),)


def test_the_id_of_a_child_follows_from_run_command_and_attempt() -> None:
    assert KID == child_id("run", "a/1") != child_id("run", "a/2")
    assert len({KID, child_id("run", "a/1", 2), child_id("other", "a/1"), child_id("run", "a/1#k")}) == 4


def test_an_input_that_is_no_object_is_given_to_the_child_as_a_value() -> None:
    for value, given in ((None, {}), ([1], {"value": [1]}), (0, {"value": 0})):
        run = Given(family(input=value))
        body = run.when(RunStarted("hash")).letters[0].body
        assert isinstance(body, LetterStart) and body.input == given


def test_the_result_of_a_child_is_the_result_of_its_step() -> None:
    then = start(family("b")).when(kid_ended(Succeeded({"x": 1})))
    assert (then.facts, then.state.steps[0].result, then.state.children) == ((issued("b"),), {"x": 1}, {})


def test_a_child_that_failed_or_was_cancelled_is_a_failure_that_may_be_handled() -> None:
    for outcome, kind in ((Failed(Fault("child_failed", "b: oops")), "child_failed"), (Cancelled("x"), "cancelled")):
        then = start(plan(*family(Arc(to="b", on="failure")).steps, step("b"))).when(kid_ended(outcome))
        assert then.facts[-1] == issued("b")
        assert then.state.steps[0].fault is not None and then.state.steps[0].fault.kind == kind


def test_a_child_that_failed_is_tried_again_as_another_run_with_the_same_input() -> None:
    run = start(family(input={"n": 1}, retry=Retry(attempts=2)))
    then = run.when(kid_ended(Failed(Fault("child_failed"))))
    again = child_id("run", "a/1", 2)
    assert then.facts == (issued("a", attempt=2, child=again),)
    assert [(letter.to, letter.body.input) for letter in then.letters] == [(again, {"n": 1})]  # type: ignore[union-attr]
    assert run.when(kid_ended(Succeeded(5), again)).state.result == 5


def test_a_child_tells_its_parent_how_it_ended_whatever_the_end() -> None:
    used = reported("a", Succeeded({"x": 1}), usage={"tokens": 4})
    assert letters_of_a_child(used) == (
        Letter("kid/ended", "kid", "boss", LetterEnded(PARENT, Succeeded({"x": 1}), {"tokens": 4})),
    )
    told = Failed(Fault("child_failed", "a: too much", data={"step": "a", "why": "unhandled failure"}))
    assert [each.body for each in letters_of_a_child(failed("a", message="too much"))] == [LetterEnded(PARENT, told)]
    assert [each.body for each in letters_of_a_child(CancelAsked())] == [
        LetterEnded(PARENT, Cancelled("the child run was cancelled"))
    ]


def test_a_run_without_a_parent_tells_nobody() -> None:
    assert start(chain("a")).when(succeeded("a")).letters == ()


def test_what_a_child_used_up_is_rolled_up_into_its_parent() -> None:
    assert start(family()).when(kid_ended(Succeeded(), tokens=9)).state.usage == {"tokens": 9}


def test_cancelling_a_run_cancels_its_child_and_waits_for_its_end() -> None:
    run = start(family())
    then = run.when(CancelAsked())
    assert then.facts == (RunEnding("cancelled", withdrawn=("a/1",)),)
    assert then.letters == (Letter(f"{KID}/cancel", "run", KID, LetterCancel("its parent no longer waits for it")),)
    then = run.when(kid_ended(Cancelled(), tokens=3))
    assert then.facts == (RunEnded("cancelled"),)  # withdrawn, and no failure
    assert then.state.usage == {"tokens": 3}


def fork(on_failure: str) -> Given:
    run = start(plan(step("s", "a", "b", mode="inclusive"), *family().steps, step("b"), on_failure=on_failure))
    run.when(succeeded("s"))
    return run


def test_a_draining_run_lets_its_child_finish() -> None:
    run = fork("drain")
    then = run.when(failed("b"))
    assert (then.letters, then.state.life) == ((), "ending")
    then = run.when(kid_ended(Succeeded(1)))
    assert then.state.steps[1].life == "completed" and then.state.life == "failed"


def test_a_child_that_fails_while_its_parent_drains_is_listed_and_not_tried_again() -> None:
    run = start(plan(step("s", "a", "b", mode="inclusive"), *family(retry=Retry(attempts=9)).steps, step("b")))
    run.when(succeeded("s"))
    run.when(failed("b"))
    assert run.when(kid_ended(Failed(Fault("child_failed")))).state.also_failed == (
        StepFault("a", 1, "unhandled failure", Fault("child_failed")),
    )


def test_where_a_failure_cancels_the_child_is_cancelled_too() -> None:
    run = fork("cancel")
    then = run.when(failed("b"))
    assert [letter.to for letter in then.letters] == [KID]
    assert run.when(kid_ended(Cancelled())).state.also_failed == ()


def test_cancelling_a_draining_run_cancels_the_child_it_waits_for() -> None:
    run = fork("drain")
    run.when(failed("b"))
    assert [letter.to for letter in run.when(CancelAsked()).letters] == [KID]
    assert run.when(kid_ended(Cancelled())).state.life == "failed"


def test_the_child_of_a_step_that_lost_a_race_is_an_orphan_that_must_end_before_the_run() -> None:
    child = step("a", "j", work=Child(plan="plan of the kid"))
    run = start(plan(step("s", "a", "b", mode="inclusive"), child, step("b", "j"), step("j", join="race")))
    run.when(succeeded("s"))
    then = run.when(succeeded("b"))
    assert [letter.body for letter in then.letters] == [LetterCancel("its parent no longer waits for it")]
    assert run.when(succeeded("j", "won")).facts == ()
    assert run.state.orphans == {KID: None}
    assert run.when(kid_ended(Succeeded("too late"), tokens=1)).facts == (RunEnded("completed", "won"),)
    assert run.state.usage == {"tokens": 1}


def test_an_orphan_is_told_once() -> None:
    run = fork("cancel")
    assert len(run.when(failed("b")).letters) == 1
    assert run.when_decided(after=1).letters == ()


def test_a_letter_from_a_child_that_nobody_knows_only_adds_its_usage() -> None:
    run = start(family())
    then = run.when(kid_ended(Succeeded(), "stranger", tokens=2))
    assert (then.facts, then.state.usage, then.state.children) == ((), {"tokens": 2}, {"a/1": KID})


def test_a_child_that_is_to_be_tried_again_starts_when_its_delay_is_over() -> None:
    run = start(family(input={"n": 1}, retry=Retry(attempts=2, delay=5.0)))
    then = run.when(kid_ended(Failed(Fault("child_failed"))))
    due = NOON + 5 * SECOND
    assert then.facts == (issued("a", attempt=2, not_before=due),)
    assert (then.letters, then.timers, then.state.children) == ((), {"a/1": due}, {})
    then = run.when_due("a/1", after=5)
    again = child_id("run", "a/1", 2)
    assert then.facts == (issued("a", attempt=2, child=again),)
    assert ([letter.to for letter in then.letters], then.timers) == ([again], {"a/1": None})
    assert run.when(kid_ended(Succeeded(5), again)).state.result == 5


def test_a_child_of_an_item_that_is_to_be_tried_again_starts_when_its_delay_is_over() -> None:
    run = start(family(loop=Loop(items=[7, 8]), retry=Retry(attempts=2, delay=5.0)))
    first, again = child_id("run", "a/1/0"), child_id("run", "a/1/0", 2)
    then = run.when(ChildEnded(first, "a/1/0", Failed(Fault("child_failed"))))
    assert (then.letters, then.timers) == ((), {"a/1/0": NOON + 5 * SECOND})
    then = run.when_due("a/1/0", after=5)
    assert then.facts == (ItemsRetried("a", 1, ((0, 2, 0),)),)
    assert [(letter.to, letter.body.input) for letter in then.letters] == [(again, {"value": 7})]  # type: ignore[union-attr]
    run.when(ChildEnded(again, "a/1/0", Succeeded("x")))
    assert run.when(ChildEnded(child_id("run", "a/1/1"), "a/1/1", Succeeded("y"))).state.result == ["x", "y"]


def test_a_child_that_waits_for_its_next_try_says_so_and_is_withdrawn_when_the_run_ends() -> None:
    run = start(family(retry=Retry(attempts=2, delay=5.0)))
    run.when(kid_ended(Failed(Fault("child_failed"))))
    assert [(each.kind, each.until) for each in reasons(run.graph, run.state, NOON)] == [("backoff", NOON + 5 * SECOND)]
    assert briefly(run.graph, run.state) == {"a/1": f"try 2, not before {NOON + 5 * SECOND}"}
    then = run.when(CancelAsked())
    assert (then.facts[-1], then.letters, then.timers) == (RunEnded("cancelled"), (), {"a/1": None})


def test_a_draining_run_withdraws_a_child_that_has_not_started_again() -> None:
    run = start(
        plan(step("s", "a", "b", mode="inclusive"), *family(retry=Retry(attempts=9, delay=5.0)).steps, step("b"))
    )
    run.when(succeeded("s"))
    run.when(kid_ended(Failed(Fault("child_failed"))))
    assert run.when(failed("b")).state.life == "failed"


def test_a_child_that_cannot_be_started_fails_its_step() -> None:
    deep = Fault("too_deep", "no deeper", retryable=False)
    run = Given(family(Arc(to="b", on="failure"), "b", retry=Retry(attempts=9)))
    run.refuses = lambda plan: deep if plan == "plan of the kid" else None
    then = run.when(RunStarted("hash"))
    assert then.letters == () and then.state.steps[0].fault == deep and then.facts[-1] == issued("b")


def test_items_whose_children_cannot_be_started_fail() -> None:
    run = Given(family(loop=Loop(items=[1, 2])))
    run.refuses = lambda plan: Fault("too_deep", retryable=False)
    then = run.when(RunStarted("hash"))
    assert (then.letters, then.state.life, then.state.children) == ((), "failed", {})


def test_a_call_of_a_child_that_cannot_be_started_has_failed() -> None:
    run = start(chain("a"))
    gone = Fault("no_workflow", "there is no workflow x", retryable=False)
    run.refuses = lambda plan: gone
    then = run.when(reported("a", Suspended((Awaited("kid", child="x"),))))
    assert then.facts == (ChildEnded(child_id("run", "a/1#kid"), "a/1", Failed(gone), "kid"),)
    assert then.letters == () and then.commands[0].recorded == {"kid": Failed(gone)}
    assert run.when(succeeded("a")).state.life == "completed"


def test_a_workflow_may_start_itself() -> None:
    run = Given(plan(step("a", work=Child())))
    then = run.when(RunStarted("hash"))
    assert [letter.body.plan for letter in then.letters] == ["hash"]  # type: ignore[union-attr]


def test_a_child_whose_command_an_operator_cancelled_is_cancelled_and_the_run_goes_on() -> None:
    run = start(plan(*family(Arc(to="b", on="failure")).steps, step("b")))
    then = run.when(reported("a", Cancelled("enough")))
    assert [letter.body for letter in then.letters] == [LetterCancel("its parent no longer waits for it")]
    assert then.facts[-1] == issued("b") and then.state.orphans == {KID: None}


def test_an_item_whose_command_an_operator_cancelled_has_its_child_cancelled() -> None:
    run = start(family(loop=Loop(items=[1, 2])))
    then = run.when(reported("a", Cancelled("enough"), item=0))
    assert [letter.to for letter in then.letters] == [child_id("run", "a/1/0")]


def test_a_child_that_is_not_waited_for_any_longer_is_cancelled_before_the_next_try() -> None:
    run = start(family(retry=Retry(attempts=2)))
    then = run.when(reported("a", TimedOut(3.0)))
    assert [letter.to for letter in then.letters] == [child_id("run", "a/1", 2), KID]
    assert then.state.orphans == {KID: None}


def test_a_child_that_somebody_paused_is_not_his_parents_to_resume() -> None:
    run = Given(chain("a"), run="kid")
    run.when(RunStarted("hash", parent=PARENT, depth=3), RunPaused("boss"))
    run.when(RunPaused("ada"), after=3)
    assert (run.state.paused_by, run.state.paused_at) == ("ada", NOON)
