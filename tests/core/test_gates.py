"""Gates: what is asked, how many must answer, what a timeout means, and numbers that are held against a threshold."""

from typing import Any

import pytest

from refold.core.facts import GateDecided, StepIssued, StepSettled
from refold.core.fold.waits import outcome_of_timer
from refold.core.graph import analyse
from refold.core.outcomes import SECOND, Failed, Fault, Succeeded
from refold.core.plan import Arc, Call, Gate, Loop, Plan, Poll, Quality, Step, Wait, canonical, read_plan
from refold.core.read.gates import how_gate_ended, open_gates
from refold.core.read.summary import summarize
from refold.core.read.why import Reason, reasons
from refold.errors import InvalidPlan
from refold.testing.core import NOON, Given, issued, reported, started, succeeded
from tests.core.acts import plan, start, step

AT_NOON = "2027-01-15T08:00:00.000000Z"
GOTO = Gate(timeout=30.0, on_timeout="goto")


def vote(by: str, option: str = "approve", feedback: Any = None) -> dict[str, Any]:
    return {"by": by, "option": option, "at": AT_NOON, "feedback": feedback}


def undecided(run: Given, after: float = 30.0) -> StepSettled:
    """What the timer of the gate `g` says."""
    opened = run.state.open["g/1"]
    outcome = outcome_of_timer(run.graph.step(opened.step), opened, NOON + round(after * SECOND))
    assert outcome is not None
    fact = reported("g", outcome)
    assert isinstance(fact, StepSettled)
    return fact


def test_what_is_asked_stands_in_the_log_with_who_is_asked_and_until_when() -> None:
    gated = plan(
        step("g", work=Gate(prompt={"path": ["input", "what"]}, assignee={"path": ["input", "who"]}, timeout=60.0))
    )
    run = Given(gated, evaluate=start(gated, what="?", who="x").evaluate)
    then = run.when(started(gated, what="ship?", who="ann"))
    assert then.facts == (issued("g", input="ship?", until=NOON + 60 * SECOND, assignee="ann"),)
    [gate] = open_gates(run.graph, run.state)
    assert (gate.prompt, gate.assignee, gate.deadline) == ("ship?", "ann", NOON + 60 * SECOND)
    assert (gate.options, gate.refuse, gate.type) == (
        {"approve": "approve", "reject": "reject"},
        ("reject",),
        "approval",
    )
    [reason] = reasons(run.graph, run.state, NOON)
    assert reason == Reason("g", "gate", 1, attempt=1, until=NOON + 60 * SECOND, assignee="ann", note="ship?")


def test_several_must_choose_the_same_before_it_is_decided() -> None:
    run = start(plan(step("g", "b", work=Gate(min_approvals=2)), step("b")))
    assert run.when(GateDecided("g", 1, "approve", "ann", "fine")).facts == ()
    assert [gate.approvals for gate in open_gates(run.graph, run.state)] == [[vote("ann", feedback="fine")]]
    assert [reason.count for reason in reasons(run.graph, run.state, NOON) if reason.kind == "gate"] == [1]
    assert run.when(GateDecided("g", 1, "approve", "bob")).facts == (issued("b"),)
    both = [vote("ann", feedback="fine"), vote("bob")]
    assert run.state.steps[0].result == {**vote("bob"), "approvals": both}


CHOOSE = Gate(choices={"path": ["input", "what"]})


@pytest.mark.parametrize(
    ("value", "choices"),
    [(["red", "blue"], {"red": "red", "blue": "blue"}), ({"r": "Red", "b": 3}, {"r": "Red", "b": "b"})],
)
def test_choices_are_computed_when_the_gate_is_entered_and_several_can_be_taken(value: Any, choices: Any) -> None:
    gated = plan(step("g", "b", work=CHOOSE), step("b"))
    run = Given(gated, evaluate=start(gated, what=value).evaluate)
    then = run.when(started(gated, what=value))
    assert then.facts == (issued("g", input="", choices=choices),)
    assert open_gates(run.graph, run.state)[0].choices == choices
    first, second = choices
    run.when(GateDecided("g", 1, "approve", "ann", choices=(second, first)))
    result = run.state.steps[0].result
    assert result["choices"] == [second, first] and result["approvals"][0]["choices"] == [second, first]


@pytest.mark.parametrize("value", [[], {}, None, "red", [1]])
def test_a_gate_whose_choices_lead_nowhere_fails_before_it_waits(value: Any) -> None:
    gated = plan(step("g", work=CHOOSE))
    run = Given(gated, evaluate=start(gated, what=value).evaluate)
    run.when(started(gated, what=value))
    assert run.state.life == "failed" and not open_gates(run.graph, run.state)


def test_the_choices_of_all_who_approve_are_in_the_result_each_once() -> None:
    gated = plan(step("g", work=Gate(choices={"path": ["input", "what"]}, min_approvals=2)))
    run = Given(gated, evaluate=start(gated, what=["a", "b", "c"]).evaluate)
    run.when(started(gated, what=["a", "b", "c"]))
    run.when(GateDecided("g", 1, "approve", "ann", choices=("b",)))
    run.when(GateDecided("g", 1, "approve", "bob", choices=("a", "b")))
    assert run.state.steps[0].result["choices"] == ["b", "a"]


def test_votes_for_different_options_do_not_add_up() -> None:
    run = start(plan(step("g", "b", work=Gate(options=("x", "y"), refuse=(), min_approvals=2)), step("b")))
    assert run.when(GateDecided("g", 1, "x", "ann"), GateDecided("g", 1, "y", "bob")).facts == ()
    assert [reason.count for reason in reasons(run.graph, run.state, NOON) if reason.kind == "gate"] == [1]
    then = run.when(GateDecided("g", 1, "x", "eve"))
    assert then.facts == (issued("b"),) and then.state.steps[0].result["option"] == "x"


def test_one_who_refuses_decides_alone() -> None:
    run = start(plan(step("g", Arc(to="b", on="failure"), work=Gate(min_approvals=3)), step("b")))
    run.when(GateDecided("g", 1, "approve", "ann"))
    then = run.when(GateDecided("g", 1, "reject", "bob", "too early"))
    assert then.facts[-1] == issued("b")
    fault = then.state.steps[0].fault
    assert fault is not None and (fault.kind, fault.message) == ("rejected", "reject by bob: too early")
    assert fault.data["approvals"] == [vote("ann")]


def test_a_gate_in_a_loop_asks_anew_in_every_pass() -> None:
    back = {"path": ["output", "data", "feedback"]}
    run = start(plan(step("g", Arc(to="g", when=back), work=Gate(min_approvals=2, refuse=()))))
    run.when(GateDecided("g", 1, "approve", "ann"), GateDecided("g", 1, "approve", "bob", "again"))
    assert [(gate.visit, list(gate.approvals)) for gate in open_gates(run.graph, run.state)] == [(2, [])]
    assert run.when(GateDecided("g", 2, "approve", "ann")).facts == ()


def test_a_list_of_runs_knows_which_of_them_wait_at_gates() -> None:
    run = start(plan(step("s", "g", "w", mode="inclusive"), step("g", work=Gate()), step("w", work=Wait(signal="x"))))
    assert summarize(run.graph, run.state).gates == ()
    run.when(succeeded("s"))
    assert summarize(run.graph, run.state).gates == ("g/1",)
    run.when(GateDecided("g", 1, "approve"))
    assert summarize(run.graph, run.state).gates == ()


def test_a_timeout_that_is_no_failure_says_that_nobody_decided() -> None:
    run = start(plan(step("g", "b", work=Gate(timeout=30.0, on_timeout="continue", min_approvals=2)), step("b")))
    run.when(GateDecided("g", 1, "approve", "ann"))
    then = run.when(undecided(run), after=30)
    assert then.facts == (issued("b"),)
    late = {"by": "timeout", "option": None, "at": "2027-01-15T08:00:30.000000Z", "feedback": None}
    assert then.state.steps[0].result == {**late, "approvals": [vote("ann")]}


@pytest.mark.parametrize("mode", ["exclusive", "inclusive"])
def test_a_timeout_may_lead_to_another_step_and_to_that_alone(mode: str) -> None:
    arcs = ("b", Arc(to="c", on="both"), Arc(to="late", on="timeout"))
    gated = plan(step("g", *arcs, work=GOTO, mode=mode), step("b"), step("c"), step("late"))
    run = start(gated)
    then = run.when(undecided(run), after=30)
    assert [fact.step for fact in then.facts if isinstance(fact, StepIssued)] == ["late"]
    assert [each.life for each in then.state.steps] == ["completed", "skipped", "skipped", "issued"]
    assert then.state.steps[0].result["by"] == "timeout"


def test_a_decision_does_not_take_the_way_of_the_timeout() -> None:
    run = start(plan(step("g", Arc(to="late", on="timeout"), "b", work=GOTO), step("b"), step("late")))
    then = run.when(GateDecided("g", 1, "approve", "timeout"))
    assert [fact.step for fact in then.facts if isinstance(fact, StepIssued)] == ["b"]


def test_a_gate_that_is_bypassed_does_not_go_where_its_last_timeout_led() -> None:
    gated = plan(
        step("s", "g"),
        step("g", Arc(to="late", on="timeout"), "b", work=GOTO, when={"script": [True, False]}),
        step("b"),
        step("late", Arc(to="s", when={"script": [True]})),
    )
    run = start(gated)
    run.when(succeeded("s"))
    run.when(undecided(run), after=30)
    run.when(succeeded("late"))
    then = run.when(succeeded("s", visit=2))
    assert then.state.steps[1].life == "bypassed" and [each.step for each in then.commands] == ["b"]


def test_the_timeout_of_the_step_fails_a_gate_whatever_its_own_would_do() -> None:
    run = start(plan(step("g", "b", work=Gate(timeout=50.0, on_timeout="continue"), timeout=30.0), step("b")))
    opened = run.state.open["g/1"]
    assert outcome_of_timer(run.graph.step(0), opened, NOON + 29 * SECOND) is None
    fault = Fault("timeout", "no end after 30 s", retryable=False)
    assert undecided(run).report.outcome == Failed(fault)


def test_who_was_first_is_in_the_log() -> None:
    gate = Gate(min_approvals=2)
    log: list[Any] = [(NOON, GateDecided("g", 1, "approve", "ann"))]
    assert how_gate_ended(gate, "g", 1, log) == ""
    log.append((NOON + SECOND, GateDecided("g", 1, "approve", "bob")))
    assert how_gate_ended(gate, "g", 1, log) == "was decided by bob at 2027-01-15T08:00:01.000000Z: approve"
    assert how_gate_ended(gate, "g", 2, log) == ""
    assert how_gate_ended(Gate(), "g", 1, [(NOON, GateDecided("g", 1, "reject"))]) == (
        f"was decided by somebody at {AT_NOON}: reject"
    )
    assert (
        how_gate_ended(gate, "h", 1, [(NOON, reported("h", Succeeded()))]) == f"ended at {AT_NOON} without a decision"
    )


def judged(source: Any, threshold: Any = 80, **more: Any) -> Given:
    return start(plan(step("q", "b", work=Quality(source=source, threshold=threshold, **more)), step("b")), score=81)


def test_a_number_that_is_high_enough_goes_on_at_once_and_costs_one_fact() -> None:
    run = judged({"path": ["input", "score"]})
    told = {"score": 81, "threshold": 80, "passed": True}
    assert [fact for _, _, fact in run.log[1:]] == [issued("q", input=told), issued("b")]
    assert run.state.steps[0].result == told


@pytest.mark.parametrize(
    "source, score, why",
    [
        (79.5, 79.5, ""),
        ("90", 0, "a str is not a number"),
        (True, 0, "a bool is not a number"),
        (None, 0, "a NoneType is not a number"),
    ],
)
def test_a_lower_number_and_what_is_none_fail_the_step(source: Any, score: float, why: str) -> None:
    run = judged(source)
    fault = run.state.steps[0].fault
    assert fault is not None and fault.kind == "quality"
    assert fault.message == f"{score:g} is below 80" + (f": {why}" if why else "")
    assert fault.data["score"] == score and fault.data["passed"] is False
    assert run.state.life == "failed"


def test_a_source_that_never_ran_counts_as_nothing() -> None:
    run = judged({"path": ["steps", "nobody"]}, on_fail="continue")
    assert run.state.steps[0].result["score"] == 0 and "nobody" in run.state.steps[0].result["why"]
    assert run.state.steps[1].life == "issued"


def test_a_low_number_may_only_be_told() -> None:
    run = judged(10, on_fail="continue")
    assert run.state.steps[0].result == {"score": 10, "threshold": 80, "passed": False}
    assert run.state.steps[1].life == "issued"


def test_what_is_no_threshold_fails_the_step() -> None:
    fault = judged(10, threshold="high").state.steps[0].fault
    assert fault is not None and (fault.kind, fault.message) == ("expression", "'high' is not a number to compare with")


def test_judgements_beside_each_other_are_replayed_as_they_were_made() -> None:
    low = Quality(source=1, threshold=2)
    both = plan(
        step("s", "p", "q", mode="inclusive"),
        step("p", "e", work=Quality(source=3, threshold=2)),
        step("q", Arc(to="e", on="failure"), work=low),
        step("e"),
    )
    run = start(both)
    then = run.when(succeeded("s"))
    assert [each.life for each in then.state.steps] == ["completed", "completed", "failed", "issued"]


def test_what_is_entered_beside_a_judgement_was_entered_before_it_is_over() -> None:
    fork = plan(
        step("s", "p", "q", mode="inclusive"),
        step("p", "q", work=Quality(source=3, threshold=2)),
        step("q", join="any"),
    )
    run = start(fork)
    then = run.when(succeeded("s"))
    assert [each.visits for each in then.state.steps] == [1, 1, 1], "what comes of the judgement is absorbed"


UNFIT = {
    "has no options": step("g", work=Gate(options=(), refuse=())),
    "has no option 'no'": step("g", work=Gate(refuse=("no",))),
    "has no option 'x'": step("g", work=Gate(labels={"x": "X"})),
    "wants 0 approvals": step("g", work=Gate(min_approvals=0)),
    "has arcs for that": step("g", work=GOTO),
    "and no other step": step("g", Arc(to="g", on="timeout"), work=Gate()),
    "every 0 s": step("g", poll=Poll(until=True, every=0.0)),
    "loops over a poll": step("g", poll=Poll(until=True), loop=Loop(items=[1])),
    "only a call": step("g", poll=Poll(until=True), work=Wait(seconds=1)),
    "loops over a quality": step("g", work=Quality(source=1, threshold=1), loop=Loop(items=[1])),
    "the poll of step 'g' is -1 s": step("g", poll=Poll(until=True, timeout=-1.0)),
}


@pytest.mark.parametrize("why", UNFIT)
def test_an_unfit_gate_is_refused_with_the_reason(why: str) -> None:
    with pytest.raises(InvalidPlan) as said:
        analyse(plan(UNFIT[why]))
    assert why in str(said.value)


def test_all_of_it_is_part_of_the_plan_that_is_hashed() -> None:
    rich = Plan(
        name="p",
        steps=(
            Step(name="g", work=Gate(labels={"approve": "Yes"}, form={"type": "object"}, min_approvals=2)),
            Step(name="q", work=Quality(source=1, threshold=2)),
            Step(name="c", work=Call(), poll=Poll(until="x", every=5.0, timeout=9.0)),
        ),
    )
    assert read_plan(canonical(rich)) == rich
