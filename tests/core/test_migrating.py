"""A run of arcs on another plan: what it has come to must be there by name, what lies ahead may be anything."""

import random
from typing import Any

import pytest
from msgspec import structs

from refold.core import codec
from refold.core.decide.migrate import Refusal, migrated, refusals, replay
from refold.core.facts import RunMigrated, RunPaused, RunStarted
from refold.core.fold.apply import fold
from refold.core.graph import analyse
from refold.core.outcomes import SECOND
from refold.core.plan import Arc, Call, Child, Gate, Input, Loop, Plan, Poll, Quality, Retry, Wait
from refold.core.state import RunState
from refold.errors import Corrupt
from refold.testing.core import Given, failed, started, succeeded
from tests.core.acts import chain, plan, step
from tests.core.driving import Driven, expected, workflows

NEW = RunMigrated("new", "ann")


def moved(run: Given, new: Plan) -> Given:
    """The run on the new plan, and what follows from that."""
    graph = analyse(new)
    assert refusals(run.graph, graph, run.state) == []
    migrated(run.graph, graph, run.state, run.state.at, NEW)
    run.log.append((run.state.seq, run.state.at, NEW))
    run.plan, run.graph = new, graph
    run.when()
    return run


def copied(state: RunState) -> RunState:
    found = codec.decode_snapshot(codec.encode_snapshot(state))
    assert found is not None
    return found


def policies(made: Plan) -> Plan:
    return structs.replace(made, steps=tuple(structs.replace(each, priority=7) for each in made.steps))


def shuffled(made: Plan, seed: int) -> Plan:
    steps = list(made.steps)
    random.Random(seed).shuffle(steps)
    return structs.replace(made, entry=made.entry or made.steps[0].name, steps=tuple(steps))


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_on_the_same_graph_nothing_changes_at_any_moment(first: int) -> None:
    for number, workflow in enumerate(workflows(20, first * 7)):
        run = Driven(workflow, seed=number)
        new = analyse(policies(run.plan))
        while run.run.state.life == "running":
            before, after = copied(run.run.state), copied(run.run.state)
            assert refusals(run.run.graph, new, after) == []
            migrated(run.run.graph, new, after, after.at, NEW)
            after.seq, after.plan = before.seq, before.plan
            for s, need in enumerate(new.need):
                if not need:  # then nobody asks how many sources are possible
                    after.steps[s].possible = before.steps[s].possible
            assert after == before
            run.go_on(1)


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_the_order_of_the_steps_in_the_plan_does_not_matter(first: int) -> None:
    for number, workflow in enumerate(workflows(20, first * 11)):
        run = Driven(workflow, seed=number)
        for turn in range(number % 5 + 1):
            run.go_on(1)
            if run.run.state.life != "running":
                break
            moved(run.run, shuffled(run.plan, number + turn))
        run.go_on()
        assert run.ended() == expected(workflow)


def going(made: Plan, *facts: Any) -> Given:
    run = Given(made)
    run.when(started(made))
    for fact in facts:
        run.when(fact)
    return run


def test_what_lies_ahead_may_be_anything() -> None:
    run = going(chain("a", "b", "c"), succeeded("a"))
    moved(run, plan(step("a", "b"), step("b", "x", "y", mode="inclusive"), step("x", "z"), step("y", "z"), step("z")))
    run.when(succeeded("b"))
    assert sorted(run.state.open) == ["x/1", "y/1"]
    run.when(succeeded("x"), succeeded("y"))
    assert sorted(run.state.open) == ["z/1"]
    run.when(succeeded("z", 5))
    assert (run.state.life, run.state.result) == ("completed", 5)


def test_a_join_that_waits_for_less_now_may_start_at_once() -> None:
    fork = step("a", "b", "c", mode="inclusive")
    run = going(plan(fork, step("b", "d"), step("c", "e"), step("e", "d"), step("d")), succeeded("a"), succeeded("b"))
    assert sorted(run.state.open) == ["c/1"]
    moved(run, plan(fork, step("b", "d"), step("c", "e"), step("e"), step("d")))
    assert sorted(run.state.open) == ["c/1", "d/1"]


def test_a_step_that_nothing_leads_to_any_more_is_skipped_and_one_that_is_reached_now_is_not() -> None:
    run = going(plan(step("a", "b"), step("b", "c"), step("c"), step("d")), succeeded("a"))
    assert run.state.steps[3].life == "skipped"
    moved(run, plan(step("a", "b"), step("b", "d"), step("c"), step("d")))
    assert [each.life for each in run.state.steps] == ["completed", "issued", "skipped", "pending"]
    run.when(succeeded("b"))
    assert sorted(run.state.open) == ["d/1"]


def why(made: Plan, new: Plan, *facts: Any) -> dict[str, str]:
    run = going(made, *facts)
    return {each.step: each.why for each in refusals(run.graph, analyse(new), run.state)}


LOOP = (step("a", "b"), step("b", Arc(to="a", when=True), "c"), step("c"))


def second(*to: str | Arc, **more: Any) -> Plan:
    """Another second step."""
    return plan(step("a", "b"), step("b", *(to or ("c",)), **more), step("c"))


OTHERS: list[tuple[Plan, dict[str, str]]] = [
    (plan(step("a", "c"), step("c")), {"b": "b/1 is open, and the new plan has no such step", "a": "arcs would be"}),
    (plan(step("b", "c"), step("c")), {"a": "the new plan begins with b", "b": "nothing instead of a"}),
    (plan(step("a", "x"), step("x", "b"), step("b", "c"), step("c")), {"a": "would be others", "b": "x instead of a"}),
    (plan(step("a", "c"), step("b"), step("c")), {"a": "arcs would be others", "b": "no arc leads to it"}),
    (second(work=Child(plan="p")), {"b": "it was a call of noop and would be a child run"}),
    (second(work=Call(tool="http")), {"b": "would be a call of http"}),
    (second(input=3), {"b": "its input would differ from the input that it was issued with"}),
    (second(loop=Loop(items=[1])), {"b": "would be a call of noop for each item"}),
    (second(poll=Poll(until=True)), {"b": "would be a call of noop that is repeated"}),
    (second(work=Gate()), {"b": "would be a gate"}),
    (second(work=Wait(signal="x")), {"b": "would be a wait"}),
    (second(work=Quality(source=1, threshold=1)), {"b": "would be a quality check"}),
    (second("c", Arc(to="a", when=True)), {"a": "steps that were visited would be in a loop"}),
    (structs.replace(second(), language="noetl"), {"": "written in another language"}),
    (structs.replace(second(), computed=True, defaults={"x": 1}), {"": "computed when it starts: x"}),
]


@pytest.mark.parametrize(("new", "refused"), OTHERS)
def test_what_stands_in_the_way_is_named_by_its_step(new: Plan, refused: dict[str, str]) -> None:
    found = why(chain("a", "b", "c"), new, succeeded("a"))
    assert found.keys() == refused.keys()
    assert [found[name] for name in refused if refused[name] not in found[name]] == []


def test_a_loop_that_has_begun_must_be_the_same() -> None:
    made = plan(*LOOP)
    assert why(made, plan(*LOOP), succeeded("a")) == {}
    longer = plan(step("a", "b"), step("b", "x"), step("x", Arc(to="a", when=True), "c"), step("c"))
    found = why(made, longer, succeeded("a"))
    assert "its loop has begun, and would be of other steps" in found.values() or "b" in found
    assert set(found) == {"a", "b"}
    ahead = plan(LOOP[0], LOOP[1], step("c", "d"), step("d"))
    assert why(made, ahead, succeeded("a")) == {}


def test_a_list_loop_that_is_going_on_keeps_what_its_items_are_made_of() -> None:
    def looped(**loop: Any) -> Plan:
        return plan(step("a", loop=Loop(items=[1, 2, 3], **loop)))

    assert why(looped(), looped(max_in_flight=2, on_item_error="stop")) == {}
    assert why(looped(), looped(sequential=True))["a"].endswith("its loop is running, and would become another loop")
    assert why(looped(), looped(iterator="other"))["a"].endswith("would become another loop")


def test_a_wider_window_counts_from_the_next_item_on() -> None:
    run = going(plan(step("a", loop=Loop(items=[1, 2, 3, 4], max_in_flight=1))))
    assert len(run.state.open) == 1
    moved(run, plan(step("a", loop=Loop(items=[1, 2, 3, 4], max_in_flight=3))))
    run.when(succeeded("a", item=0))
    assert len(run.state.open) == 3


def test_a_failed_try_is_judged_by_the_policy_of_the_new_plan() -> None:
    run = going(chain("a", "b"))
    moved(run, plan(step("a", "b", retry=Retry(attempts=2)), step("b")))
    run.when(failed("a"))
    assert run.state.open["a/1"].attempt == 2


def test_limits_of_the_new_plan_count_from_now_on() -> None:
    run = going(plan(step("a"), timeout=10.0, budget={"tokens": 5, "euros": 1}))
    start = run.state.started_at
    run.state.budget["euros"] = 9  # somebody has raised it
    moved(run, plan(step("a"), timeout=60.0, budget={"tokens": 7, "euros": 1}))
    assert run.state.deadline == start + 60 * SECOND
    assert run.state.budget == {"tokens": 7, "euros": 9}
    moved(run, plan(step("a")))
    assert {"deadline": run.state.deadline, "budget": run.state.budget} == {"deadline": None, "budget": {}}
    moved(run, plan(step("a"), timeout=3.0))
    assert run.state.deadline == run.state.at + 3 * SECOND


def test_a_limit_that_comes_while_the_run_is_paused_does_not_count_the_pause() -> None:
    run = going(plan(step("a")))
    run.when(RunPaused(), after=5.0)
    moved(run, plan(step("a"), timeout=3.0))
    assert run.state.deadline == run.state.paused_at + 3 * SECOND


def test_inputs_that_are_new_have_their_defaults() -> None:
    run = going(plan(step("a"), defaults={"x": 1}))
    moved(run, plan(step("a"), defaults={"x": 2, "y": 3}, inputs=(Input(name="y"),)))
    assert run.state.input == {"x": 1, "y": 3}


def test_a_race_knows_who_is_still_in_it() -> None:
    made = plan(
        step("a", "b", "c", mode="inclusive"), step("b", "d"), step("c", "d"), step("d", join="race"), step("z")
    )
    run = going(made, succeeded("a"))
    moved(run, shuffled(made, 3))
    run.when(succeeded("b"))
    assert sorted(run.state.open) == ["d/1"]


def test_the_log_alone_gives_the_state_through_all_plans() -> None:
    first, second = chain("a", "b", "c"), plan(step("a", "b"), step("b", "x"), step("x"))
    graphs = {"p": analyse(first), "new": analyse(second)}
    run = Given(first)
    run.when(RunStarted("p"))
    run.when(succeeded("a"))
    log = [*run.log, (len(run.log) + 1, run.state.at, NEW)]
    state = RunState(run=run.state.run)
    assert replay(graphs.__getitem__, log, state) is graphs["new"]
    assert (state.seq, state.plan, list(state.open)) == (len(log), "new", ["b/1"])
    in_parts = RunState(run=run.state.run)
    for record in log:
        graph = replay(graphs.__getitem__, [record], in_parts)
    assert (in_parts, graph) == (state, graphs["new"])


def test_a_log_that_cannot_be_is_refused() -> None:
    run = going(chain("a", "b"))
    graphs = {run.state.plan: run.graph, "new": run.graph}
    with pytest.raises(Corrupt, match="begins with"):
        replay(graphs.__getitem__, [(1, 0, NEW)], RunState(run="r"))
    with pytest.raises(Corrupt, match="fact 9 follows"):
        replay(graphs.__getitem__, [*run.log, (9, 0, NEW)], RunState(run="r"))
    with pytest.raises(Corrupt, match="later facts belong to another graph"):
        fold(run.graph, [(run.state.seq + 1, 0, NEW)], copied(run.state))
    run.when(succeeded("a"))
    run.when(succeeded("b"))
    with pytest.raises(Corrupt, match="RunMigrated of the run, which is completed"):
        replay(graphs.__getitem__, [(run.state.seq + 1, 0, NEW)], run.state)


def test_one_reason_for_each_step_is_enough() -> None:
    run = going(plan(step("a", loop=Loop(items=[1, 2, 3]))))
    assert refusals(run.graph, analyse(plan(step("b"))), run.state) == [
        Refusal("a", "a/1/0 is open, and the new plan has no such step")
    ]
