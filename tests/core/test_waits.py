"""Steps without a worker: waits for a moment or a signal, and gates that a person decides."""

import pytest

from refold.core.facts import ChildEnded, GateDecided, SignalReceived, SignalTaken, StepFault
from refold.core.fold.waits import outcome_of_timer
from refold.core.outcomes import SECOND, Cancelled, Failed, Fault, Outcome, Succeeded, TimedOut
from refold.core.plan import Arc, Child, Gate, Loop, Plan, Retry, Wait
from refold.testing.core import NOON, issued, reported, started, succeeded
from tests.core.acts import Given, Then, plan, start, step

AT_NOON = "2027-01-15T08:00:00.000000Z"


def at(*path: str) -> dict[str, object]:
    return {"path": list(path)}


def waiting(**wait: object) -> tuple[Given, Then]:
    waits = plan(step("w", "b", work=Wait(**wait)), step("b"))
    run = Given(waits)
    return run, run.when(started(waits), after=10)


def gated(gate: Gate, *arcs: str | Arc) -> Given:
    return start(plan(step("g", *(arcs or ("b",)), work=gate), step("b")))


def test_a_wait_for_seconds_sets_a_timer_and_gives_no_command_to_anybody() -> None:
    _, then = waiting(seconds=2.5)
    assert then.facts == (issued("w", until=NOON + round(12.5 * SECOND)),)
    assert (then.commands, then.timers) == ((), {"w/1": NOON + round(12.5 * SECOND)})


def test_a_wait_ends_when_its_timer_rings() -> None:
    run, _ = waiting(seconds=2)
    then = run.when(reported("w", Succeeded({"by": "timer"})), after=12)
    assert (then.facts, then.timers) == ((issued("b"),), {"w/1": None})


def test_a_wait_until_a_moment_waits_for_that_moment_even_if_it_is_past() -> None:
    assert waiting(until=NOON + 5)[1].facts == (issued("w", until=NOON + 5),)


def test_a_wait_for_a_signal_ends_with_its_value() -> None:
    run, then = waiting(signal="go")
    assert then.facts == (issued("w", signal="go"),)
    then = run.when(SignalReceived("go", {"n": 1}, "ada"))
    assert then.facts == (SignalTaken("go", "w/1"), issued("b"))
    assert then.state.steps[0].result == {"by": "signal", "signal": "go", "value": {"n": 1}}


def test_a_wait_with_several_ends_takes_the_first_that_comes() -> None:
    run, then = waiting(seconds=60, until=NOON + 20 * SECOND, signal="go")
    assert then.facts == (issued("w", until=NOON + 20 * SECOND, signal="go"),)
    assert run.when(SignalReceived("go")).timers == {"w/1": None}
    run, _ = waiting(seconds=60, signal="go")
    run.when(reported("w", Succeeded({"by": "timer"})))
    assert run.when(SignalReceived("go", 1)).facts == ()
    assert run.state.signals == {"go": [1]}


def test_what_is_waited_for_is_rendered() -> None:
    waits = plan(step("w", work=Wait(seconds=at("pause"), signal=at("name"))))
    then = Given(waits).when(started(waits, pause=3, name="go"))
    assert then.facts == (issued("w", until=NOON + 3 * SECOND, signal="go"),)


def test_a_wait_without_anything_to_wait_for_fails() -> None:
    _, then = waiting()
    fault = Fault("expression", "there is nothing to wait for: neither a time nor a signal", retryable=False)
    assert then.state.error == StepFault("w", 1, "unhandled failure", fault)


@pytest.mark.parametrize("wrong", ["soon", True, [1], 1e305, 2**63, float("inf"), float("nan")])
def test_what_is_no_time_is_refused_by_name(wrong: object) -> None:
    _, then = waiting(seconds=wrong)
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.message == f"{wrong!r} is not a time to wait for"


def test_signals_that_come_early_are_kept_and_taken_oldest_first() -> None:
    run = start(plan(step("s", "w"), step("w", "v", work=Wait(signal="go")), step("v", work=Wait(signal="go"))))
    run.when(SignalReceived("go", 1), SignalReceived("other", 0), SignalReceived("go", 2))
    assert run.state.signals == {"go": [1, 2], "other": [0]}
    then = run.when(succeeded("s"))
    assert then.facts == (
        issued("w", signal="go"),
        SignalTaken("go", "w/1"),
        issued("v", signal="go"),
        SignalTaken("go", "v/1"),
        then.facts[-1],
    )
    assert [each.result["value"] for each in then.state.steps[1:]] == [1, 2]
    assert then.state.signals == {"other": [0]}


def test_of_those_who_wait_the_first_is_served_first_and_one_signal_serves_one() -> None:
    both = plan(step("s", "v", "w", mode="inclusive"), *(step(name, work=Wait(signal="go")) for name in "vw"))
    run = start(both)
    run.when(succeeded("s"))
    then = run.when(SignalReceived("go"))
    assert then.facts == (SignalTaken("go", "v/1"),)
    assert run.when(SignalReceived("go")).facts[0] == SignalTaken("go", "w/1")


def test_a_wait_that_an_operator_cancels_fails_and_takes_no_signal_with_it() -> None:
    run, _ = waiting(signal="go")
    then = run.when(SignalReceived("go", 1), reported("w", Cancelled("enough")))
    assert then.state.steps[0].fault == Fault("cancelled", "enough", retryable=False)
    assert then.state.signals == {"go": [1]}


def test_a_gate_waits_for_a_decision_and_goes_on_with_it() -> None:
    run = gated(Gate(prompt={"ask": at("run", "id")}))
    assert run.log[-1][2] == issued("g", input={"ask": "run"})
    then = run.when(GateDecided("g", 1, "approve", "ada", {"note": "fine"}))
    assert then.facts == (issued("b"),)
    vote = {"by": "ada", "option": "approve", "at": AT_NOON, "feedback": {"note": "fine"}}
    assert then.state.steps[0].result == {**vote, "approvals": [vote]}


def test_an_option_that_refuses_fails_the_visit_with_who_and_what() -> None:
    then = gated(Gate(), "b").when(GateDecided("g", 1, "reject", "ada", "no"))
    data = {"by": "ada", "option": "reject", "at": AT_NOON, "feedback": "no", "approvals": []}
    assert then.state.error == StepFault(
        "g", 1, "unhandled failure", Fault("rejected", "reject by ada: no", retryable=False, data=data)
    )


def test_a_refusal_may_be_handled_and_names_somebody_if_nobody_is_known() -> None:
    run = gated(Gate(options=("go", "stop", "halt"), refuse=("stop", "halt")), Arc(to="b", on="failure"))
    then = run.when(GateDecided("g", 1, "halt"))
    assert then.facts[-1] == issued("b")
    assert then.state.steps[0].fault is not None and then.state.steps[0].fault.message == "halt by somebody"


def test_an_option_that_refuses_nothing_is_a_success_whatever_it_is_called() -> None:
    assert gated(Gate(refuse=())).when(GateDecided("g", 1, "reject")).facts == (issued("b"),)


def test_a_gate_with_a_timeout_sets_a_timer_that_its_decision_removes() -> None:
    timed: Plan = plan(step("g", work=Gate(timeout=30.0)))
    run = Given(timed)
    then = run.when(started(timed), after=5)
    assert then.timers == {"g/1": NOON + 35 * SECOND}
    assert run.when(GateDecided("g", 1, "approve")).timers == {"g/1": None}


def test_a_gate_that_times_out_fails_without_a_further_try() -> None:
    nobody = Failed(Fault("timeout", "nobody decided within 30 s", retryable=False))
    then = gated(Gate(timeout=30.0)).when(reported("g", nobody), after=30)
    assert then.state.error == StepFault("g", 1, "unhandled failure", nobody.fault)


def test_a_gate_that_may_go_on_without_a_decision_does() -> None:
    then = gated(Gate(timeout=30.0, on_timeout="continue")).when(reported("g", Succeeded({"by": "timer"})), after=30)
    assert then.facts == (issued("b"),)


def test_a_wait_for_several_signals_takes_the_first_that_comes_and_leaves_the_others() -> None:
    run, then = waiting(signal=["paid", "refused", "paid"])
    assert then.facts == (issued("w", signal="paid", signals=("refused",)),)
    then = run.when(SignalReceived("refused", 1), SignalReceived("paid", 2))
    assert then.facts == (SignalTaken("refused", "w/1"), issued("b"))
    assert then.state.steps[0].result == {"by": "signal", "signal": "refused", "value": 1}
    assert (run.state.signals, run.state.waiting, run.state.deliverable) == ({"paid": [2]}, {}, {})


def test_any_of_several_signals_will_do() -> None:
    run, _ = waiting(signal=["paid", "refused"], seconds=60)
    then = run.when(SignalReceived("refused"))
    assert then.facts == (SignalTaken("refused", "w/1"), issued("b"))
    assert (run.state.waiting, then.timers) == ({}, {"w/1": None})


def test_a_time_that_comes_first_leaves_all_signals_to_others() -> None:
    run, _ = waiting(signal=["paid", "refused"], seconds=60)
    run.when(reported("w", Succeeded({"by": "timer", "value": None})), after=70)
    assert run.state.waiting == {}
    assert run.when(SignalReceived("refused")).facts == ()


@pytest.mark.parametrize(
    "until", ["2027-01-15T09:00:10+01:00", "2027-01-15T08:00:10Z", 1_800_000_010, NOON + 10 * SECOND, 1_800_000_010.0]
)
def test_a_moment_is_an_iso_text_or_a_number_since_1970(until: object) -> None:
    assert waiting(until=until)[1].facts == (issued("w", until=NOON + 10 * SECOND),)


@pytest.mark.parametrize("wrong", ["2027-01-15T08:00:00", "soon", True, [1], 1e30, {}])
def test_what_is_no_moment_is_refused_by_name(wrong: object) -> None:
    _, then = waiting(until=wrong)
    assert then.state.error is not None and then.state.error.fault is not None
    assert then.state.error.fault.message.startswith(f"{wrong!r} is not a time to wait for: ")


def rings(run: Given, after: float, command: str = "w/1") -> Outcome | None:
    opened = run.state.open[command]
    return outcome_of_timer(run.graph.step(opened.step), opened, NOON + round(after * SECOND))


def test_a_timer_rings_when_its_time_has_come_and_not_before() -> None:
    run, _ = waiting(seconds=20)
    assert rings(run, 29) is None
    assert rings(run, 30) == rings(run, 4000) == Succeeded({"by": "timer", "value": None})


def test_the_timeout_of_a_wait_fails_it_and_says_so() -> None:
    run = start(plan(step("w", "b", work=Wait(signal="go"), timeout=5.0), step("b")))
    assert run.state.open["w/1"].deadline == NOON + 5 * SECOND
    outcome = rings(run, 5)
    assert outcome == Failed(Fault("timeout", "no end after 5 s", retryable=False))
    then = run.when(reported("w", outcome), after=5)
    assert then.state.life == "failed" and then.timers == {"w/1": None} and run.state.waiting == {}


def test_of_a_time_and_a_timeout_the_earlier_counts_however_late_it_is_looked_at() -> None:
    early = start(plan(step("w", work=Wait(seconds=5), timeout=6.0)))
    late = start(plan(step("w", work=Wait(seconds=6), timeout=5.0)))
    assert isinstance(rings(early, 9), Succeeded) and isinstance(rings(late, 9), Failed)


def test_the_timer_of_a_timeout_is_set_with_the_wait() -> None:
    timed = plan(step("w", work=Wait(signal="go"), timeout=5.0))
    run = Given(timed)
    assert run.when(started(timed)).timers == {"w/1": NOON + 5 * SECOND}


def test_a_child_that_takes_too_long_is_told_to_end_and_may_be_tried_again() -> None:
    from_child = plan(step("c", work=Child(plan="kid"), timeout=5.0, retry=Retry(attempts=2)))
    run = Given(from_child)
    then = run.when(started(from_child))
    assert then.timers == {"c/1": NOON + 5 * SECOND}
    [first] = run.state.children.values()
    outcome = rings(run, 5, "c/1")
    assert outcome == TimedOut(5.0)
    then = run.when(reported("c", outcome), after=5)
    [second] = run.state.children.values()
    assert second != first and list(run.state.orphans) == [first]
    assert [type(letter.body).__name__ for letter in then.letters if letter.to == first] == ["LetterCancel"]
    assert then.timers == {"c/1": NOON + 10 * SECOND}, "its time begins anew"
    then = run.when(reported("c", TimedOut(5.0), attempt=2), after=10)
    fault = run.state.steps[0].fault
    assert fault is not None and fault.kind == "timeout" and then.state.life == "ending", "it waits for both to end"
    assert set(run.state.orphans) == {first, second}


def test_each_child_of_a_loop_has_its_own_timeout() -> None:
    kids = plan(step("c", work=Child(plan="kid"), timeout=5.0, loop=Loop(items=[1, 2], max_in_flight=1)))
    run = Given(kids)
    assert run.when(started(kids)).timers == {"c/1/0": NOON + 5 * SECOND}
    child = run.state.children["c/1/0"]
    then = run.when(ChildEnded(child, "c/1/0", Succeeded(1)), after=3)
    assert then.timers == {"c/1/0": None, "c/1/1": NOON + 8 * SECOND}
    then = run.when(reported("c", TimedOut(5.0), item=1), after=8)
    assert "c/1/1" not in run.state.open and len(run.state.orphans) == 1
