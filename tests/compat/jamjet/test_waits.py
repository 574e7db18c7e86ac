"""JamJet's contract about people, timers and signals: nothing is decided twice, fires twice, or gets lost."""

import asyncio
from typing import Any

import pytest

from refold.core.facts import CallSettled, GateDecided, SignalReceived, SignalTaken, StepIssued, StepSettled
from refold.core.outcomes import SECOND, Awaited, Suspended
from refold.errors import Conflict, NotFound
from refold.plan import Arc, Call, Gate, Plan, Wait
from refold.ports import ToolCall
from tests.compat.stage import NOON, Stage, names, plan, step, work


def asked(**gate: Any) -> Plan:
    """A gate with a way on, a way out, and a step that sees what was decided."""
    edited = {"draft": {"path": ["output", "data", "feedback"]}}
    return plan(
        step("write", "ask", work=work(set={"draft": "first"})),
        step(
            "ask",
            Arc(to="send", set=edited, when={"path": ["output", "data", "feedback"]}),
            "send",
            Arc(to="drop", on="failure"),
            work=Gate(prompt={"text": {"path": ["ctx", "draft"]}}, **gate),
        ),
        step("send", input={"path": ["ctx", "draft"]}),
        step("drop", input={"path": ["ask_error"]}, when=False),
    )


def waiting_at_gate(stage: Stage, **gate: Any) -> str:
    run = stage.start(asked(**gate))
    stage.settle_down()
    assert stage.status(run) == "waiting"
    assert stage.show(run).waits == {"ask/1": "waits for a decision"}
    return run


def test_a_gate_waits_across_restarts_and_then_continues(stage: Stage) -> None:
    run = waiting_at_gate(stage)
    [issued] = [fact for fact in stage.facts(run, StepIssued) if fact.step == "ask"]
    assert issued.input == {"text": "first"}, "what is to be judged stands in the log"
    for _ in range(3):
        stage.pass_time(300)
        stage.first.kill()
        stage.house()
        stage.settle_down()
        assert stage.status(run) == "waiting"
    stage.do(stage.engine.decide(run, "ask", "approve", by="ann"))
    shown = stage.end(run)
    assert (shown.status, shown.result) == ("completed", "first")
    decided = shown.steps["ask"]["result"]
    assert (decided["by"], decided["option"], decided["feedback"]) == ("ann", "approve", None)
    assert decided["at"].startswith("2027-01-15T08:15:00.")


def test_what_a_person_edits_is_what_later_steps_see(stage: Stage) -> None:
    run = waiting_at_gate(stage)
    stage.do(stage.engine.decide(run, "ask", "approve", by="ann", feedback="second"))
    shown = stage.end(run)
    assert shown.result == "second" and shown.state.ctx == {"draft": "second"}


def test_a_rejection_takes_the_failure_route_and_is_shown_with_its_author(stage: Stage) -> None:
    run = waiting_at_gate(stage)
    stage.do(stage.engine.decide(run, "ask", "reject", by="bob", feedback="no"))
    shown = stage.end(run)
    assert shown.status == "completed" and names(stage.calls()) == ["write"]
    assert shown.steps["drop"]["status"] == "bypassed"
    error = shown.steps["ask"]["error"]
    assert (error.kind, error.message, error.data["feedback"]) == ("rejected", "reject by bob: no", "no")


def test_a_rejection_without_a_route_fails_the_run(stage: Stage) -> None:
    run = stage.start(plan(step("ask", "send", work=Gate()), step("send")))
    stage.do(stage.engine.decide(run, "ask", "reject", by="bob"))
    shown = stage.end(run)
    assert shown.status == "failed" and shown.error is not None and shown.error.fault is not None
    assert (shown.error.step, shown.error.fault.kind) == ("ask", "rejected")


@pytest.mark.parametrize("seed", range(4))
def test_the_first_of_two_decisions_wins_and_the_second_is_a_conflict(seed: int) -> None:
    stage = Stage(seed)
    one, two = stage.house(), stage.house()
    run = stage.start(plan(step("ask", "send", Arc(to="drop", on="failure"), work=Gate()), step("send"), step("drop")))
    answers = [
        stage.ask(house.engine.decide(run, "ask", option, by=option), house)
        for house, option in ((one, "approve"), (two, "reject"), (two, "approve"))
    ]
    assert stage.until(lambda: all(each.done() for each in answers))
    errors = [each.result()[1] for each in answers]
    assert sum(error is None for error in errors) == 1
    assert sum(isinstance(error, Conflict) for error in errors) == 2
    [decided] = stage.facts(run, GateDecided)
    winner = ("approve", "reject", "approve")[errors.index(None)]
    assert decided.option == winner
    stage.end(run)
    assert names(stage.calls()) == ["send" if winner == "approve" else "drop"]
    with pytest.raises(Conflict):
        stage.do(stage.engine.decide(run, "ask", "approve"))
    stage.close()


def test_two_decisions_in_one_turn_count_once(stage: Stage) -> None:
    run = waiting_at_gate(stage)

    async def both() -> list[Any]:
        decisions = (stage.engine.decide(run, "ask", option) for option in ("reject", "approve"))
        return await asyncio.gather(*decisions, return_exceptions=True)

    first, second = stage.do(both())
    assert first is None and isinstance(second, Conflict)
    assert [fact.option for fact in stage.facts(run, GateDecided)] == ["reject"]


def test_a_decision_that_no_gate_knows_is_refused(stage: Stage) -> None:
    run = waiting_at_gate(stage)
    before = stage.history(run)
    with pytest.raises(Conflict, match="approve, reject"):
        stage.do(stage.engine.decide(run, "ask", "perhaps"))
    for step_name in ("write", "nobody"):
        with pytest.raises(NotFound):
            stage.do(stage.engine.decide(run, step_name, "approve"))
    with pytest.raises(NotFound):
        stage.do(stage.engine.decide("no such run", "ask", "approve"))
    assert stage.history(run) == before


def test_a_gate_without_a_decision_goes_to_its_fallback(stage: Stage) -> None:
    shape = plan(
        step("ask", "send", Arc(to="fallback", on="failure"), work=Gate(timeout=600.0)), step("send"), step("fallback")
    )
    run = stage.start(shape)
    shown = stage.end(run)
    assert (shown.status, names(stage.calls())) == ("completed", ["fallback"])
    assert stage.loop.time() == 600.0
    assert shown.steps["ask"]["error"].message == "nobody decided within 600 s"


def test_a_gate_without_a_decision_fails_its_run_with_that_reason(stage: Stage) -> None:
    shown = stage.run(plan(step("ask", "send", work=Gate(timeout=60.0)), step("send")))
    assert shown.status == "failed" and shown.error is not None and shown.error.fault is not None
    assert (shown.error.step, shown.error.fault.kind) == ("ask", "timeout")
    assert "60 s" in shown.error.fault.message


def test_a_gate_may_continue_without_a_decision(stage: Stage) -> None:
    shape = plan(step("ask", "send", work=Gate(timeout=60.0, on_timeout="continue")), step("send"))
    assert stage.run(shape).status == "completed"


def test_a_decision_in_time_takes_the_timer_away(stage: Stage) -> None:
    run = stage.start(plan(step("ask", "long", work=Gate(timeout=60.0)), step("long", work=work(takes=200))))
    stage.pass_time(59)
    stage.do(stage.engine.decide(run, "ask", "approve"))
    assert not any(stage.store.timers[run].values())
    assert stage.end(run).status == "completed"
    assert len(stage.facts(run, StepSettled)) == 1


NAP = plan(step("nap", "after", work=Wait(seconds=100)), step("after"))


def rung(stage: Stage, run: str) -> list[int]:
    """When the wait ended, by the log, in seconds after the beginning."""
    history = stage.do(stage.engine.history(run))
    return [(at - NOON) // SECOND for _, at, fact in history if isinstance(fact, StepSettled) and fact.step == "nap"]


def test_a_timer_fires_on_time(stage: Stage) -> None:
    run = stage.start(NAP)
    assert stage.end(run).steps["nap"]["result"] == {"by": "timer", "value": None}
    assert rung(stage, run) == [100]
    assert not any(stage.store.timers[run].values())


def test_a_timer_fires_after_a_restart(stage: Stage) -> None:
    run = stage.start(NAP)
    stage.pass_time(50)
    stage.first.kill()
    stage.pass_time(20)
    stage.house()
    stage.end(run)
    assert rung(stage, run) == [100]


def test_a_timer_that_came_due_while_no_engine_was_running_fires_once_and_immediately(stage: Stage) -> None:
    run = stage.start(NAP)
    stage.pass_time(50)
    stage.first.kill()
    stage.pass_time(500)
    for _ in range(3):
        stage.house()
    stage.end(run)
    stage.pass_time(100)
    assert rung(stage, run) == [550]
    assert names(stage.calls()) == ["after"]


def test_several_processes_fire_a_timer_once(stage: Stage) -> None:
    for _ in range(4):
        stage.house(sweep_every=0.3)
    runs = [stage.start(NAP) for _ in range(10)]
    for run in runs:
        stage.end(run)
    stage.pass_time(50)
    assert [rung(stage, run) for run in runs] == [[100]] * 10
    assert len(stage.began) == 10


def test_a_moment_in_the_past_ends_a_wait_at_once(stage: Stage) -> None:
    assert stage.run(plan(step("nap", "after", work=Wait(until=NOON - SECOND)), step("after"))).status == "completed"
    assert stage.loop.time() < 1.1


def test_a_durable_sleep_inside_a_body_fires_once_after_a_restart(stage: Stage) -> None:
    async def sleepy(call: ToolCall) -> Any:
        return "awake" if "nap" in call.command.recorded else Suspended((Awaited("nap", until=NOON + 100 * SECOND),))

    stage.tools["sleepy"] = sleepy
    run = stage.start(plan(step("a", work=Call(tool="sleepy"))))
    stage.pass_time(50)
    stage.first.kill()
    stage.pass_time(200)
    stage.house()
    assert stage.end(run).result == "awake"
    assert [fact.key for fact in stage.facts(run, CallSettled)] == ["nap"]
    assert len(stage.began) == 2


def waits_for(signal: str, **more: Any) -> Plan:
    return plan(
        step("first", "wait", work=work(takes=10)),
        step("wait", "after", work=Wait(signal=signal, **more)),
        step("after"),
    )


def test_a_signal_that_comes_before_its_wait_is_kept(stage: Stage) -> None:
    run = stage.start(waits_for("paid"))
    stage.pass_time(1)
    stage.do(stage.engine.signal(run, "paid", {"amount": 7}, sender="bank"))
    stage.do(stage.engine.signal(run, "other", 1))
    stage.first.kill()
    stage.house()
    shown = stage.end(run)
    assert shown.steps["wait"]["result"] == {"by": "signal", "signal": "paid", "value": {"amount": 7}}
    assert [(fact.name, fact.command) for fact in stage.facts(run, SignalTaken)] == [("paid", "wait/1")]
    assert shown.state.signals == {"other": [1]}, "what nobody waited for is still there to be seen"


def test_a_signal_goes_to_one_wait_once_oldest_to_oldest(stage: Stage) -> None:
    shape = plan(
        step("fork", "one", "two", "else", mode="inclusive"),
        step("one", work=Wait(signal="go")),
        step("two", work=Wait(signal="go")),
        step("else", work=Wait(signal="stop")),
    )
    run = stage.start(shape)
    stage.settle_down()
    for value in (1, 2, 3):
        stage.do(stage.engine.signal(run, "go", value))
    shown = stage.show(run)
    assert [shown.steps[name]["result"] and shown.steps[name]["result"]["value"] for name in ("one", "two")] == [1, 2]
    assert shown.status == "waiting" and shown.waits == {"else/1": "waits for signal 'stop'"}
    assert shown.state.signals == {"go": [3]}
    assert len(stage.facts(run, SignalReceived)) == 3 and len(stage.facts(run, SignalTaken)) == 2
    stage.do(stage.engine.signal(run, "stop"))
    assert stage.end(run).status == "completed"


@pytest.mark.parametrize("moment, by", [(5, "signal"), (30, "timer")])
def test_a_wait_for_either_ends_by_whichever_comes_first(stage: Stage, moment: float, by: str) -> None:
    run = stage.start(
        plan(step("wait", "after", work=Wait(seconds=20, signal="go")), step("after", work=work(takes=60)))
    )
    stage.pass_time(moment)
    stage.do(stage.engine.signal(run, "go"))
    shown = stage.end(run)
    assert shown.steps["wait"]["result"]["by"] == by
    assert len(stage.facts(run, StepSettled)) == (1 if by == "signal" else 2)
    assert shown.state.signals == ({} if by == "signal" else {"go": [None]})
    assert not any(stage.store.timers[run].values())


def test_a_signal_to_a_run_that_is_over_or_unknown_is_reported(stage: Stage) -> None:
    run = stage.run(plan(step("a"))).id
    with pytest.raises(Conflict, match="completed"):
        stage.do(stage.engine.signal(run, "late"))
    with pytest.raises(NotFound):
        stage.do(stage.engine.signal("nobody", "hello"))
    assert "nobody" not in stage.store.rows and not stage.store.logs.get("nobody")


def test_the_next_visit_of_a_wait_takes_the_next_signal(stage: Stage) -> None:
    shape = plan(
        step("wait", "use", work=Wait(signal="item")),
        step(
            "use",
            Arc(to="wait", when={"script": [True, True, False]}),
            input={"path": ["wait", "value"]},
            work=work(takes=1),
        ),
    )
    run = stage.start(shape)
    for value in ("a", "b", "c", "d"):
        stage.do(stage.engine.signal(run, "item", value))
    shown = stage.end(run)
    assert [each.call.input for each in stage.began] == ["a", "b", "c"]
    assert shown.state.signals == {"item": ["d"]}
