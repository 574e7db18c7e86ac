"""How little a run writes: two facts for a plain step, one more where something was evaluated, chosen or skipped."""

from refold.core.facts import (
    Bypassed,
    Entered,
    FanOutEntered,
    ItemsIssued,
    ItemsSettled,
    Routed,
    RunEnded,
    RunStarted,
    Skipped,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.outcomes import Report, Succeeded
from refold.core.plan import Arc, Loop
from refold.testing.core import issued, started, succeeded
from tests.core.acts import Given, chain, plan, start, step


def test_a_plain_step_is_two_facts() -> None:
    run = start(chain("a", "b", "c"))
    for name in "abc":
        run.when(succeeded(name))
    assert [type(fact) for _, _, fact in run.log] == [
        RunStarted,
        *(StepIssued, StepSettled) * 3,
        RunEnded,
    ]


def test_the_end_of_a_step_and_the_issue_of_the_next_are_decided_in_one_turn() -> None:
    assert start(chain("a", "b")).when(succeeded("a")).facts == (issued("b"),)


def test_a_fork_of_plain_steps_needs_no_routed_fact() -> None:
    fork = plan(step("a", "b", "c", mode="inclusive"), step("b", "d"), step("c", "d"), step("d"))
    run = start(fork)
    assert run.when(succeeded("a")).facts == (issued("b"), issued("c"))
    assert run.when(succeeded("b")).facts == ()
    assert run.when(succeeded("c")).facts == (issued("d"),)


def test_a_condition_is_told_with_the_arc_it_took_and_with_the_skips_that_follow() -> None:
    choice = plan(step("a", Arc(to="b", when=False), "c"), step("b"), step("c"))
    then = start(choice).when(succeeded("a"))
    assert then.facts == (Routed((Took("a", 1, (1,)), Skipped(("b",)), Entered("c", 1))), issued("c"))


def test_arcs_that_nobody_has_to_choose_are_not_told_but_the_skips_they_cause_are() -> None:
    then = start(plan(step("a", "c", "b"), step("b"), step("c"))).when(succeeded("a"))
    assert then.facts == (Routed((Skipped(("b",)), Entered("c", 1))), issued("c"))


def test_many_skips_are_one_fact() -> None:
    dead = chain(*(f"d{n}" for n in range(50))).steps
    then = start(plan(step("a", "z", "d0"), *dead, step("z"))).when(succeeded("a"))
    assert then.facts == (Routed((Skipped(tuple(each.name for each in dead)), Entered("z", 1))), issued("z"))


def test_a_turn_has_one_routed_fact_for_all_the_visits_that_ended_in_it() -> None:
    on = Arc(to="d", when=True)
    fork = plan(step("a", "b", "c", mode="inclusive"), step("b", on), step("c", on), step("d"))
    run = start(fork)
    run.when(succeeded("a"))
    then = run.when(succeeded("c"), succeeded("b"))
    assert then.facts == (Routed((Took("c", 1, (0,)), Took("b", 1, (0,)), Entered("d", 1))), issued("d"))


def test_a_bypassed_visit_is_told_in_the_routed_fact_of_its_turn() -> None:
    then = start(plan(step("a", "b"), step("b", "c", when=False), step("c"))).when(succeeded("a"))
    assert then.facts == (Routed((Bypassed("b", 1), Entered("c", 1))), issued("c"))


def test_steps_the_entry_cannot_reach_are_skipped_without_a_fact() -> None:
    then = Given(plan(step("a"), step("far"))).when(started(plan(step("a"))))
    assert then.facts == (issued("a"),)
    assert then.state.steps[1].life == "skipped"


def test_a_fan_out_is_one_fact_to_enter_one_per_window_and_one_per_turn_of_outcomes() -> None:
    run = start(plan(step("a", loop=Loop(items=list(range(100)), max_in_flight=50))))
    reports = tuple(Report(1, Succeeded(n), item=n) for n in range(50))
    more = run.when(ItemsSettled("a", 1, reports))
    assert [type(fact) for _, _, fact in run.log[1:3]] == [FanOutEntered, ItemsIssued]
    assert more.facts == (ItemsIssued("a", 1, 50, 50),)


def test_a_turn_without_news_says_nothing() -> None:
    then = start(chain("a")).when_decided(after=60)
    assert (then.facts, then.commands, then.gone) == ((), (), ())
