"""Parked: a command that comes back at a time or on a signal, with its progress, and without using up a try."""

from refold.core.facts import ItemsSettled, SignalReceived, SignalTaken
from refold.core.outcomes import SECOND, Failed, Fault, Instant, Parked, Report, Succeeded
from refold.core.plan import Loop, Retry
from refold.core.read.why import briefly
from refold.testing.core import NOON, failed, issued, reported, succeeded
from tests.core.acts import Given, Then, chain, plan, start, step

LATER: Instant = NOON + 60 * SECOND


def parked(
    until: Instant | None = None, signal: str = "", progress: object = None, reason: str = ""
) -> tuple[Given, Then]:
    run = start(plan(step("a", retry=Retry(attempts=2))))
    return run, run.when(reported("a", Parked(until, signal, progress, reason)))


def test_a_command_parked_until_a_time_is_the_same_try_and_may_not_start_before() -> None:
    _, then = parked(until=LATER, progress={"page": 3})
    assert then.facts == ()
    command = then.commands[0]
    assert (command.id, command.attempt, command.not_before, command.progress) == ("a/1", 1, LATER, {"page": 3})


def test_a_command_parked_on_a_signal_is_held_until_it_comes() -> None:
    run, then = parked(signal="done", progress=7)
    assert (then.held, then.commands) == (("a/1",), ())
    then = run.when(SignalReceived("done", {"ok": True}))
    assert then.facts == (SignalTaken("done", "a/1"),)
    command = then.commands[0]
    assert (command.attempt, command.progress, command.not_before) == (1, 7, 0)
    assert command.recorded == {"done": Succeeded({"ok": True})}


def test_a_command_parked_on_both_comes_back_by_whichever_is_first() -> None:
    run, then = parked(until=LATER, signal="done")
    assert then.commands[0].not_before == LATER
    assert run.when(SignalReceived("done")).commands[0].not_before == 0


def test_a_signal_that_came_early_brings_a_command_back_at_once() -> None:
    run = start(chain("a"))
    run.when(SignalReceived("done", 5))
    then = run.when(reported("a", Parked(signal="done")))
    assert then.facts == (SignalTaken("done", "a/1"),)
    assert then.commands[0].recorded == {"done": Succeeded(5)}


def test_a_command_that_came_back_by_time_no_longer_waits_for_the_signal() -> None:
    run, _ = parked(until=LATER, signal="done")
    run.when(reported("a", Parked(until=LATER + 1)))
    assert run.state.waiting == {}
    assert run.when(SignalReceived("done", 1)).facts == ()
    assert run.state.signals == {"done": [1]}


def test_a_command_that_a_worker_is_at_again_does_not_take_the_signal_it_was_parked_on() -> None:
    run, _ = parked(until=LATER, signal="done")
    run.claimed = frozenset({"a/1"})
    assert run.when(SignalReceived("done", 1), after=61).facts == ()
    run.claimed = frozenset()
    assert run.when(reported("a", Parked(signal="done"))).facts == (SignalTaken("done", "a/1"),)


def test_parking_again_replaces_progress_and_what_is_waited_for() -> None:
    run, _ = parked(signal="one", progress=1)
    run.when(SignalReceived("one"))
    run.when(reported("a", Parked(signal="two", progress=2)))
    assert run.state.waiting == {"two": ["a/1"]}
    assert run.when(SignalReceived("two")).commands[0].progress == 2


def test_parking_is_no_try_so_all_tries_are_left_and_the_progress_with_them() -> None:
    run, _ = parked(until=LATER, progress=1)
    run.when(reported("a", Parked(until=LATER, progress=2)))
    then = run.when(failed("a"))
    assert then.facts == (issued("a", attempt=2),)
    assert then.commands[0].progress == 2
    assert run.when(succeeded("a", attempt=2)).state.steps[0].attempts == 2


def test_why_a_command_is_parked_is_shown() -> None:
    run, _ = parked(signal="done", reason="the batch runs")
    assert briefly(run.graph, run.state) == {"a/1": "parked until signal 'done': the batch runs"}
    run, _ = parked(until=LATER, reason="polling")
    assert briefly(run.graph, run.state) == {"a/1": f"try 1, not before {LATER}: polling"}


def test_the_reason_goes_when_the_command_comes_back() -> None:
    run, _ = parked(signal="done", reason="the batch runs")
    run.when(SignalReceived("done"))
    assert briefly(run.graph, run.state) == {"a/1": "try 1 is with the workers"}
    run, _ = parked(until=LATER, reason="polling")
    run.when(failed("a", retry_after=1.0))
    assert briefly(run.graph, run.state) == {"a/1": f"try 2, not before {NOON + SECOND}"}


def test_items_park_like_any_other_command_and_keep_their_place_in_the_window() -> None:
    run = start(plan(step("a", loop=Loop(items=[0, 1], max_in_flight=1))))
    then = run.when(reported("a", Parked(signal="done", progress=1), item=0))
    assert (then.facts, then.held) == ((), ("a/1/0",))
    then = run.when(SignalReceived("done"))
    assert [(command.id, command.progress) for command in then.commands] == [("a/1/0", 1)]


def test_a_failure_in_the_turn_of_the_signal_is_not_forgotten() -> None:
    run, _ = parked(until=LATER, signal="done")
    then = run.when(SignalReceived("done"), reported("a", Failed(Fault("error"))), after=61)
    assert then.facts == (issued("a", attempt=2),)


def test_an_item_that_parked_and_then_succeeded_has_its_result_in_its_place() -> None:
    run = start(plan(step("a", loop=Loop(items=[0, 1]))))
    run.when(ItemsSettled("a", 1, (Report(1, Parked(until=LATER), 0), Report(1, Succeeded("b"), 1))))
    assert run.when(succeeded("a", "a", item=0)).state.result == ["a", "b"]
