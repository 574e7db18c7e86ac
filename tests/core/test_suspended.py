"""Suspended: a body that waits for durable calls; each result wakes it, and no call is ever made twice."""

from refold.core.commands import LetterCancel, LetterStart, child_id
from refold.core.facts import CallSettled, ChildEnded, Fact, ItemsSettled, Parent, SignalReceived, SignalTaken
from refold.core.outcomes import (
    SECOND,
    WITHDRAWN,
    Awaited,
    Cancelled,
    Failed,
    Fault,
    Report,
    Succeeded,
    Suspended,
    TimedOut,
)
from refold.core.plan import Loop, Retry
from refold.testing.core import NOON, failed, issued, reported, succeeded
from tests.core.acts import Given, chain, plan, start, step

BOSS = chain("a", "b")
KID = child_id("run", "a/1#kid")


def suspended(*calls: Awaited) -> Fact:
    return reported("a", Suspended(calls))


def waiting(*calls: Awaited) -> Given:
    run = start(plan(step("a", "b", retry=Retry(attempts=2, delay=9.0)), step("b")))
    run.when(suspended(*calls))
    return run


def nap(key: str = "nap", after: int = 60) -> Awaited:
    return Awaited(key, until=NOON + after * SECOND)


def rang(key: str = "nap") -> CallSettled:
    return CallSettled("a/1", key, Succeeded({"by": "timer"}))


def kid_ended(result: object = None) -> ChildEnded:
    return ChildEnded(KID, "a/1", Succeeded(result), call="kid")


def test_a_suspended_body_is_held_and_its_calls_stand_in_the_log() -> None:
    then = start(BOSS).when(suspended(nap(), Awaited("go", signal="go")))
    assert (then.facts, then.held, then.commands) == ((), ("a/1",), ())
    assert then.timers == {"a/1#nap": NOON + 60 * SECOND}
    assert then.state.waiting == {"go": ["a/1#go"]}


def test_each_result_wakes_the_body_in_the_same_try_with_all_it_has_so_far() -> None:
    run = waiting(nap("one"), nap("two"))
    first = run.when(rang("one"))
    assert first.facts == ()
    assert (first.commands[0].attempt, set(first.commands[0].recorded)) == (1, {"one"})
    run.when(suspended(nap("one"), nap("two")))
    second = run.when(rang("two"))
    assert (second.commands[0].attempt, set(second.commands[0].recorded)) == (1, {"one", "two"})


def test_a_body_that_suspends_on_what_it_has_is_woken_at_once() -> None:
    run = waiting(nap("one"), nap("two"))
    run.when(rang("one"))
    run.when(rang("two"))
    then = run.when(suspended(nap("two")))
    assert (then.held, then.commands[0].attempt) == ((), 1)


def test_a_signal_goes_to_the_call_that_waits_for_it_and_its_timer_goes() -> None:
    run = waiting(Awaited("go", until=NOON + 60 * SECOND, signal="go"))
    then = run.when(SignalReceived("go", 4))
    assert then.facts == (SignalTaken("go", "a/1#go"),)
    assert then.commands[0].recorded == {"go": Succeeded(4)}
    assert then.timers == {"a/1#go": None}


def test_a_call_whose_time_is_up_no_longer_waits_for_its_signal() -> None:
    run = waiting(Awaited("go", until=NOON + 60 * SECOND, signal="go"))
    run.when(rang("go"))
    assert run.when(SignalReceived("go", 4)).facts == ()


def test_a_withdrawn_call_gives_back_the_signal_that_its_body_has_not_got() -> None:
    run = waiting(Awaited("go", signal="go"))
    run.when(SignalReceived("go", 4))
    run.when(SignalReceived("go", 5))
    withdrawn = Cancelled(WITHDRAWN, "go")
    then = run.when(CallSettled("a/1", "go", withdrawn))
    assert then.state.signals == {"go": [4, 5]}
    assert then.state.open["a/1"].recorded == {"go": withdrawn}
    assert run.when(suspended(Awaited("again", signal="go"))).facts == (SignalTaken("go", "a/1#again"),)
    assert then.state.open["a/1"].recorded == {"go": withdrawn, "again": Succeeded(4)}


def test_a_withdrawn_call_whose_time_was_up_gives_nothing_back() -> None:
    run = waiting(Awaited("go", until=NOON + 60 * SECOND, signal="go"))
    run.when(CallSettled("a/1", "go", TimedOut()))
    assert run.when(CallSettled("a/1", "go", Cancelled(WITHDRAWN, "go"))).state.signals == {}


def test_a_child_call_starts_one_child_whose_id_follows_from_the_call() -> None:
    kid = Awaited("kid", child="plan of the kid", input={"n": 1})
    run = start(BOSS)
    letter = run.when(suspended(kid)).letters[0]
    assert (letter.to, letter.key) == (KID, f"{KID}/start")
    assert letter.body == LetterStart(
        "plan of the kid", Parent("run", "a/1", "kid"), {"n": 1}, depth=1, name="run.a.kid"
    )
    assert run.when(suspended(kid)).letters == ()


def test_the_end_of_a_called_child_is_the_result_of_the_call() -> None:
    run = waiting(Awaited("kid", child="p"))
    then = run.when(kid_ended(9))
    assert then.commands[0].recorded == {"kid": Succeeded(9)}
    assert then.state.children == {}


def test_a_called_child_that_failed_is_recorded_and_is_for_the_body_to_judge() -> None:
    run = waiting(Awaited("kid", child="p"))
    then = run.when(ChildEnded(KID, "a/1", Failed(Fault("child_failed")), call="kid"))
    assert then.facts == ()
    assert then.commands[0].recorded == {"kid": Failed(Fault("child_failed"))}


def test_a_child_that_nobody_waited_for_longer_than_its_timer_becomes_an_orphan() -> None:
    run = waiting(Awaited("kid", until=NOON + 60 * SECOND, child="p"))
    then = run.when(rang("kid"))
    assert [(letter.to, letter.body) for letter in then.letters] == [
        (KID, LetterCancel("its parent no longer waits for it"))
    ]
    assert (then.state.children, then.state.orphans) == ({}, {KID: None})
    assert run.when(kid_ended()).state.open["a/1"].recorded == {"kid": Succeeded({"by": "timer"})}


def test_a_body_that_succeeds_without_its_child_leaves_an_orphan_that_must_end_first() -> None:
    run = waiting(Awaited("kid", child="p"), nap())
    run.when(rang())
    then = run.when(succeeded("a"))
    assert [letter.to for letter in then.letters] == [KID]
    assert run.when(succeeded("b")).facts == ()
    assert run.when(kid_ended()).state.life == "completed"


def test_a_body_that_fails_for_good_leaves_an_orphan_too() -> None:
    run = start(chain("a"))
    run.when(suspended(Awaited("kid", child="p"), nap()))
    run.when(rang())
    then = run.when(failed("a"))
    assert ([letter.to for letter in then.letters], then.state.life) == ([KID], "ending")
    assert run.when(kid_ended()).state.life == "failed"


def test_what_was_recorded_is_kept_for_the_next_try() -> None:
    run = waiting(nap("one"), Awaited("go", signal="go"))
    run.when(rang("one"))
    then = run.when(failed("a"))
    assert then.facts == (issued("a", attempt=2, not_before=NOON + 9 * SECOND),)
    assert set(then.commands[0].recorded) == {"one"}


def test_a_result_does_not_bring_a_failed_body_back_before_its_time() -> None:
    run = waiting(nap("one"), nap("two"))
    run.when(rang("one"))
    run.when(failed("a"))
    command = run.when(rang("two")).commands[0]
    assert (command.attempt, command.not_before, set(command.recorded)) == (2, NOON + 9 * SECOND, {"one", "two"})


def test_a_result_in_the_turn_of_a_failure_does_not_undo_the_failure() -> None:
    run = waiting(nap("one"), nap("two"))
    run.when(rang("one"))
    assert run.when(failed("a"), rang("two")).facts == (issued("a", attempt=2, not_before=NOON + 9 * SECOND),)


def test_a_body_at_work_is_not_handed_out_again_when_a_result_comes() -> None:
    run = waiting(nap("one"), nap("two"))
    run.when(rang("one"))
    run.claimed = frozenset({"a/1"})
    assert run.when(rang("two")).commands == ()


def test_the_end_of_the_body_takes_its_timers_with_it() -> None:
    run = waiting(nap("one"), nap("two"))
    run.when(rang("one"))
    assert run.when(succeeded("a")).timers == {"a/1#two": None}


def test_a_suspended_body_is_no_try_and_its_result_is_that_of_the_last_report() -> None:
    run = waiting(nap())
    run.when(rang())
    assert run.when(succeeded("a", 3)).state.steps[0].attempts == 1


def test_items_suspend_each_for_itself() -> None:
    run = start(plan(step("a", loop=Loop(items=[0, 1]))))
    kids = tuple(Report(1, Suspended((Awaited("kid", child="p", input={"n": n}),)), n) for n in (0, 1))
    letters = run.when(ItemsSettled("a", 1, kids)).letters
    assert [letter.to for letter in letters] == [child_id("run", f"a/1/{n}#kid") for n in (0, 1)]
    then = run.when(ChildEnded(child_id("run", "a/1/1#kid"), "a/1/1", Succeeded(5), call="kid"))
    assert [(command.id, command.recorded) for command in then.commands] == [("a/1/1", {"kid": Succeeded(5)})]
