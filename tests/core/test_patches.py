"""Patches of the context by results, failures without a worker, and what a completed run returns."""

from refold.core.facts import Entered, GateDecided, Routed, RunEnded, StepFault, Took
from refold.core.fold.waits import outcome_of_timer
from refold.core.graph import analyse
from refold.core.outcomes import SECOND, Failed, Fault
from refold.core.plan import Fail, Gate, Plan, Step, canonical, plan_hash, read_plan
from refold.testing.core import NOON, Given, Scripted, issued, started, succeeded
from tests.core.acts import plan, start, step

PATCH = {"path": ["output", "data"]}


def test_the_keys_of_a_patch_are_those_of_the_result_and_are_in_the_context() -> None:
    run = start(plan(step("a", "b", patch=PATCH), step("b")))
    then = run.when(succeeded("a", {"x": 1, "y": [2]}))
    assert then.facts == (Routed((Took("a", 1, (0,), {"x": 1, "y": [2]}), Entered("b", 1))), issued("b"))
    assert run.state.ctx == {"x": 1, "y": [2]}
    assert run.replayed().ctx == run.state.ctx


def test_set_is_written_over_the_patch() -> None:
    run = start(plan(step("a", patch=PATCH, set={"ctx.x": "set"})))
    run.when(succeeded("a", {"x": 1, "y": 2}))
    assert run.state.ctx == {"x": "set", "y": 2}


def test_a_patch_that_is_no_map_fails_its_step() -> None:
    run = start(plan(step("a", patch=PATCH)))
    run.when(succeeded("a", [1]))
    fault = Fault("expression", "a patch is a map, not a list", retryable=False)
    assert run.state.error == StepFault("a", 1, "unhandled failure", fault)


def test_a_step_that_was_bypassed_patches_nothing() -> None:
    run = start(plan(step("a", when={"script": [False]}, patch={"x": 1})))
    assert run.state.ctx == {}


def test_a_step_that_fails_immediately_has_its_kind_and_message_and_needs_no_worker() -> None:
    told = plan(step("f", work=Fail("policy", {"path": ["input", "why"]}, {"rule": "blocked"})))
    run = Given(told, evaluate=Scripted())
    then = run.when(started(told, why="it is blocked"))
    fault = Fault("policy", "it is blocked", retryable=False, data={"rule": "blocked"})
    assert then.commands == ()
    assert run.state.life == "failed" and run.state.error == StepFault("f", 1, "unhandled failure", fault)
    assert Entered("f", 1) in [move for fact in then.facts if isinstance(fact, Routed) for move in fact.moves]


def test_a_run_returns_what_its_plan_says() -> None:
    told = Plan(name="p", steps=(Step(name="a"), Step(name="b")), result={"a": {"path": ["steps", "a"]}})
    run = Given(told, started(told), issued("a"), evaluate=Scripted())
    then = run.when(succeeded("a", 7))
    assert then.facts[-1] == RunEnded("completed", {"a": 7})
    assert run.state.result == {"a": 7}


def test_a_result_without_a_value_fails_the_run() -> None:
    told = Plan(name="p", steps=(Step(name="a"),), result={"path": ["steps", "b"]})
    run = Given(told, started(told), issued("a"), evaluate=Scripted())
    run.when(succeeded("a", 7))
    assert run.state.life == "failed"
    assert run.state.error is not None and run.state.error.why == "result"


def test_a_gate_that_counts_silence_as_a_refusal_fails_as_if_somebody_had_refused() -> None:
    gate = Gate(timeout=30.0, on_timeout="refuse")
    run = start(plan(step("g", work=gate)))
    outcome = outcome_of_timer(run.graph.step(0), run.state.open["g/1"], NOON + 30 * SECOND)
    assert isinstance(outcome, Failed) and outcome.fault.kind == "rejected"
    decided = start(plan(step("g", work=gate)))
    decided.when(GateDecided("g", 1, "reject", "ann"))
    assert decided.state.error is not None and decided.state.error.fault is not None
    assert decided.state.error.fault.kind == "rejected"


def test_plans_without_these_keep_their_bytes() -> None:
    old = b'{"name":"p","steps":[{"name":"a"}]}'
    assert canonical(read_plan(old)) == old
    new = Plan(name="p", steps=(Step(name="a", patch={"x": 1}, work=Fail("k")),), result=1)
    assert plan_hash(read_plan(canonical(new))) == plan_hash(new)
    assert analyse(new).arcs_without_conditions == (None,)
