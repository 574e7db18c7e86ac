"""JamJet's contract about the graph: arcs with conditions, joins, loops, failures, and no run that hangs."""

from typing import Any

import pytest

from refold import Retry
from refold.core.decide.decision import Decision
from refold.core.decide.rules import decide
from refold.core.facts import (
    Dropped,
    Fact,
    FanOutEntered,
    ItemsIssued,
    ItemsSettled,
    LoopLeft,
    PassBegan,
    RunEnded,
    RunEnding,
    RunStarted,
    Skipped,
    StepIssued,
    StepSettled,
    Took,
)
from refold.core.graph import analyse
from refold.core.outcomes import Parked
from refold.core.state import RunState
from refold.errors import InvalidPlan
from refold.plan import Arc, Call, Gate, Loop, Plan, Step, Wait
from refold.ports import ToolCall
from refold.testing.core import Scripted
from tests.compat.stage import NOON, Stage, chain, names, plan, step, work

BOOM = {"kind": "boom", "message": "it broke"}


def on_failure(to: str, **more: Any) -> Arc:
    return Arc(to=to, on="failure", **more)


def test_a_cycle_is_a_loop_with_passes_and_an_end(stage: Stage) -> None:
    shape = plan(
        step("a", "b"),
        step("b", Arc(to="a", when={"script": [True, True, False]}), Arc(to="after")),
        step("after"),
    )
    shown = stage.run(shape)
    assert shown.status == "completed"
    assert names(stage.calls()) == ["a", "b", "a", "b", "a", "b", "after"]
    assert [move.head for move in stage.moves(shown.id, PassBegan)] == ["a", "a"]
    assert [move.head for move in stage.moves(shown.id, LoopLeft)] == ["a"]


def test_a_cycle_without_an_exit_ends_by_its_visit_limit_and_by_name(stage: Stage) -> None:
    shown = stage.run(plan(step("a", "b", visit_limit=5), step("b", "a")))
    assert shown.status == "failed"
    assert shown.error is not None
    assert (shown.error.step, shown.error.visit, shown.error.why) == ("a", 6, "visit limit")
    assert names(stage.calls()) == ["a", "b"] * 5


def test_a_run_with_a_step_that_was_neither_reached_nor_skipped_never_completes() -> None:
    graph = analyse(chain(3))
    state = RunState("r")
    d = Decision(graph, state, NOON, Scripted(), lambda: 0.0)
    d.record_fact(RunStarted("hash"))
    state.ready.clear()  # what no log can do: the entry is forgotten
    decide(d)
    ended = [fact for fact in d.facts if isinstance(fact, RunEnded)]
    assert [(fact.status, fact.error and fact.error.step, fact.error and fact.error.why) for fact in ended] == [
        ("failed", "s0", "unreached")
    ]


def test_arcs_with_unknown_ends_are_refused_by_name_and_nothing_is_stored(stage: Stage) -> None:
    shape = plan(step("a", "nowhere", "b"), step("b", "elsewhere"), always=("nobody",), entry="void")
    with pytest.raises(InvalidPlan) as refused:
        stage.start(shape)
    for name in ("nowhere", "elsewhere", "nobody", "void"):
        assert name in str(refused.value), "all that is wrong is said at once"
    assert not stage.store.rows and not stage.store.plans and not any(stage.store.logs.values())


@pytest.mark.parametrize("x, ran, skipped", [(1, "b", "c"), (2, "c", "b")])
def test_conditions_on_arcs_choose_and_the_other_is_skipped(stage: Stage, x: int, ran: str, skipped: str) -> None:
    is_one = {"equal": [{"path": ["ctx", "x"]}, 1]}
    shape = plan(
        step("a", Arc(to="b", when=is_one), Arc(to="c", when={"equal": [is_one, False]}), work=work(set={"x": x})),
        step("b"),
        step("c"),
    )
    shown = stage.run(shape)
    assert names(stage.calls()) == ["a", ran]
    assert [move.steps for move in stage.moves(shown.id, Skipped)] == [(skipped,)]
    [took] = stage.moves(shown.id, Took)
    assert took.arcs == ((0,) if x == 1 else (1,)), "the choice is in the log, so it is never made again"


def test_an_unconditional_sibling_is_the_default_of_an_exclusive_step(stage: Stage) -> None:
    for hit, ran in ((True, "b"), (False, "c")):
        stage.began.clear()
        stage.run(plan(step("a", Arc(to="b", when=hit), "c"), step("b"), step("c")))
        assert names(stage.calls()) == ["a", ran]


def test_an_inclusive_step_also_takes_its_unconditional_arcs(stage: Stage) -> None:
    shape = plan(
        step("a", Arc(to="b", when=True), Arc(to="c", when=False), "d", mode="inclusive"),
        step("b"),
        step("c"),
        step("d"),
    )
    shown = stage.run(shape)
    assert names(stage.calls()) == ["a", "b", "d"]
    assert shown.steps["c"]["status"] == "skipped"


def test_a_condition_that_cannot_be_evaluated_fails_its_step_by_name(stage: Stage) -> None:
    shown = stage.run(plan(step("a", Arc(to="b", when={"path": ["ctx", "nothing"]})), step("b")))
    assert shown.status == "failed" and shown.error is not None and shown.error.fault is not None
    assert (shown.error.step, shown.error.fault.kind) == ("a", "expression")
    assert "ctx.nothing" in shown.error.fault.message


def gathered(join: Any, *branches: Step, beside: tuple[Step, ...] = ()) -> Plan:
    """A fork into these branches and a join that takes in what they gave."""
    return plan(
        step("fork", *(each.name for each in branches), mode="inclusive"),
        *branches,
        *beside,
        step("join", join=join, input={"path": ["steps"]}, work=Call(tool="collect")),
    )


async def collect(call: ToolCall) -> Any:
    """What the branches gave, in the order in which they stand in the plan."""
    return [call.input[name] for name in sorted(call.input) if name != "fork"]


def test_a_join_collects_what_its_branches_gave_in_declared_order(stage: Stage) -> None:
    stage.tools["collect"] = collect
    branches = [step(f"b{i}", "join", work=work(takes=3 - i, gives=i)) for i in range(3)]
    shown = stage.run(gathered("all", *branches))
    assert shown.result == [0, 1, 2]
    assert shown.steps["join"]["visits"] == 1


def test_a_join_may_take_the_first_and_absorb_the_rest(stage: Stage) -> None:
    stage.tools["collect"] = collect
    branches = [step(f"b{i}", "join", work=work(takes=3 - i, gives=i)) for i in range(3)]
    shown = stage.run(gathered("any", *branches))
    joined = [each for each in stage.began if each.command == "join/1"]
    assert [each.at for each in joined] == [1.0], "entered once, when the fastest was through"
    assert shown.steps["join"]["result"] == [2]
    assert shown.status == "completed" and stage.loop.time() == 3.0, "`any` lets the losers run on"


def test_a_race_takes_the_first_and_stops_the_rest(stage: Stage) -> None:
    stage.tools["collect"] = collect
    branches = [step(f"b{i}", "join", work=work(takes=100 - 40 * i, gives=i)) for i in range(3)]
    shown = stage.run(gathered("race", *branches))
    assert (shown.status, shown.result) == ("completed", [2])
    assert [set(move.steps) for move in stage.moves(shown.id, Dropped)] == [{"b0", "b1"}]
    assert stage.loop.time() == 20.0
    assert stage.store.commands == {}


def test_a_join_continues_when_one_branch_fails_on_an_arc_or_is_skipped(stage: Stage) -> None:
    stage.tools["collect"] = collect
    shown = stage.run(
        gathered(
            "all",
            step("b0", "join", work=work(gives=0)),
            step("b1", "join", on_failure("join"), work=work(faults=[BOOM])),
            step("b2", Arc(to="b3", when=False), work=work(gives=2)),
            beside=(step("b3", "join"),),
        )
    )
    assert (shown.status, shown.result) == ("completed", [0, 2])
    assert shown.steps["b1"]["status"] == "failed" and shown.steps["b3"]["status"] == "skipped"


def test_a_shared_join_runs_when_one_of_its_branches_is_taken_and_the_other_is_skipped(stage: Stage) -> None:
    shape = plan(
        step("pick", Arc(to="left", when=False), "right"),
        step("left", "deep"),
        step("deep", "join"),
        step("right", "join"),
        step("join", "after"),
        step("after"),
    )
    shown = stage.run(shape)
    assert names(stage.calls()) == ["pick", "right", "join", "after"]
    assert {name for move in stage.moves(shown.id, Skipped) for name in move.steps} == {"left", "deep"}


def test_a_join_all_of_whose_arcs_are_dead_is_skipped_and_so_is_what_follows(stage: Stage) -> None:
    shape = plan(
        step("fork", "a", "b", mode="inclusive"),
        step("a", Arc(to="join", when=False)),
        step("b", Arc(to="join", when=False)),
        step("join", "after"),
        step("after"),
    )
    shown = stage.run(shape)
    assert shown.status == "completed"
    assert names(stage.calls()) == ["fork", "a", "b"]
    assert {name: shown.steps[name]["status"] for name in ("join", "after")} == {"join": "skipped", "after": "skipped"}


def failing(rule: str) -> Plan:
    """One branch fails after a second while others run, wait, and back off."""
    branches = {
        "bad": work(takes=1, faults=[BOOM]),
        "running": work(takes=5),
        "backing_off": work(faults=[BOOM]),
        "wait": Wait(seconds=50),
        "gate": Gate(),
    }
    steps = [
        step(name, f"after_{name}", work=each, retry=Retry(attempts=2 if name == "backing_off" else 1, delay=30.0))
        for name, each in branches.items()
    ]
    after = [step(f"after_{name}") for name in branches]
    final = [step("say_sorry"), step("clean"), step("celebrate")]
    return plan(
        step("fork", *branches, mode="inclusive"),
        *steps,
        *after,
        *final,
        on_failure=rule,
        on_fail=("say_sorry",),
        always=("clean",),
        final_step="celebrate",
    )


@pytest.mark.parametrize("rule, seconds", [("drain", 5.0), ("cancel", 1.0)])
def test_a_terminal_failure_drains_or_cancels_and_then_runs_the_finalizers(
    stage: Stage, rule: str, seconds: float
) -> None:
    shown = stage.run(failing(rule))
    assert shown.status == "failed" and shown.error is not None and shown.error.step == "bad"
    began = names(stage.calls())
    assert began[-2:] == ["say_sorry", "clean"], "then the finalizers, in order"
    assert not [name for name in began if name.startswith("after_")], "nothing was entered after the failure"
    assert stage.began[-1].at == pytest.approx(seconds)
    running = shown.steps["running"]["status"]
    assert running == ("completed" if rule == "drain" else "cancelled")
    assert {shown.steps[name]["status"] for name in ("backing_off", "wait", "gate")} == {"cancelled"}
    assert stage.store.commands == {} and not any(stage.store.timers.get(shown.id, {}).values())


def test_unclaimed_commands_are_withdrawn_when_the_run_fails(stage: Stage) -> None:
    stage.house(slots=2)
    shape = plan(
        step("fork", "bad", "running", "queued", mode="inclusive"),
        step("bad", work=work(takes=1, faults=[BOOM])),
        step("running", work=work(takes=5)),
        step("queued"),
    )
    shown = stage.run(shape)
    [ending] = stage.facts(shown.id, RunEnding)
    assert ending.withdrawn == ("queued/1",)
    assert "queued/1" not in stage.calls()
    assert shown.steps["running"]["status"] == "completed"


def test_a_command_that_parks_while_its_run_is_ending_is_withdrawn(stage: Stage) -> None:
    async def park(call: ToolCall) -> Parked:
        await stage.clock.sleep(2)
        return Parked(signal="never comes")

    stage.tools["park"] = park
    shape = plan(
        step("fork", "bad", "parks", "items", mode="inclusive"),
        step("bad", work=work(takes=1, faults=[BOOM])),
        step("parks", work=Call(tool="park")),
        step("items", work=Call(tool="park"), loop=Loop(items=[1, 2])),
        step("clean"),
        always=("clean",),
    )
    shown = stage.run(shape)
    assert shown.status == "failed" and stage.loop.time() == 2.0
    assert {shown.steps[name]["status"] for name in ("parks", "items")} == {"cancelled"}
    assert names(stage.calls())[-1] == "clean"


def test_a_failure_route_is_followed_and_the_run_continues(stage: Stage) -> None:
    seen = {"path": ["output", "error", "message"]}
    shape = plan(
        step("a", "fine", on_failure("mend", set={"why": seen}), work=work(faults=[BOOM])), step("fine"), step("mend")
    )
    shown = stage.run(shape)
    assert (shown.status, names(stage.calls())) == ("completed", ["a", "mend"])
    assert shown.state.ctx == {"why": "it broke"}


def test_each_round_of_a_loop_survives_a_restart(stage: Stage) -> None:
    rounds = 6
    shape = plan(
        step(
            "again",
            Arc(to="again", when={"script": [True] * (rounds - 1) + [False]}),
            "after",
            work=work(takes=10, add={"n": 1}),
        ),
        step("after"),
    )
    run = stage.start(shape)
    for done in range(1, rounds):
        while settled(stage, run) < done:
            stage.pass_time(1)
        stage.first.kill()
        stage.house(lease_for=5.0)
    shown = stage.end(run)
    assert shown.state.ctx == {"n": rounds}
    assert [f"{fact.step}/{fact.visit}" for fact in stage.facts(run, StepSettled)] == [
        *(f"again/{i}" for i in range(1, rounds + 1)),
        "after/1",
    ]


def settled(stage: Stage, run: str) -> int:
    return sum(isinstance(fact, StepSettled) for _, _, fact in stage.store.facts(run))


def test_a_list_is_fanned_out_in_a_window_with_results_in_input_order(stage: Stage) -> None:
    async def slow_first(call: ToolCall) -> Any:
        await stage.clock.sleep(10 - call.input["item"])
        return [call.input["item"], call.input["of"]]

    stage.tools["slow_first"] = slow_first
    shape = plan(
        step("list", "each", work=work(gives=list(range(10)))),
        step(
            "each",
            "after",
            loop=Loop(items={"path": ["list"]}, max_in_flight=4),
            input={"item": {"path": ["item"]}, "of": {"path": ["input", "who"]}},
            work=Call(tool="slow_first"),
        ),
        step("after", input={"path": ["each", "results"]}),
    )
    shown = stage.run(shape, {"who": "ann"})
    assert shown.result == [[i, "ann"] for i in range(10)]
    arrived = [report.item for fact in stage.facts(shown.id, ItemsSettled) for report in fact.reports]
    assert sorted(map(str, arrived)) == sorted(map(str, range(10))) and arrived != list(range(10))
    assert busiest(stage, "each") == 4


def busiest(stage: Stage, name: str) -> int:
    """How many commands of a step were open at most, by the log."""
    [run] = stage.store.rows
    open_now = most = 0
    for fact in stage.history(run):
        match fact:
            case ItemsIssued(step=step, count=count) if step == name:
                open_now += count
            case ItemsSettled(step=step, reports=reports) if step == name:
                open_now -= len(reports)
        most = max(most, open_now)
    return most


def test_a_fan_out_survives_restarts_and_runs_each_finished_item_once(stage: Stage) -> None:
    shape = plan(
        step("each", loop=Loop(items=list(range(20)), max_in_flight=5), work=work(takes=4, append={"seen": 1}))
    )
    run = stage.start(shape)
    for crash in (6, 3, 9):
        stage.pass_time(crash)
        stage.first.kill()
        stage.house(lease_for=2.0)
        stage.pass_time(31)
    shown = stage.end(run)
    assert shown.result == list(range(20))
    reports = [report for fact in stage.facts(run, ItemsSettled) for report in fact.reports]
    assert sorted(str(report.item) for report in reports) == sorted(map(str, range(20)))
    assert shown.state.ctx == {"seen": [1] * 20}
    assert len(stage.began) > 20, "work under way was lost with its process"


def test_an_item_that_fails_lets_the_others_finish_and_then_fails_the_step_by_number(stage: Stage) -> None:
    async def odd(call: ToolCall) -> Any:
        if call.input % 2:
            raise ValueError("odd")
        return call.input

    stage.tools["odd"] = odd
    shape = plan(
        step("each", on_failure("mend"), loop=Loop(items=[0, 1, 2, 3, 4], max_in_flight=2), work=Call(tool="odd")),
        step("mend", input={"path": ["each", "items"]}),
    )
    shown = stage.run(shape)
    assert len(stage.calls("each")) == 5
    assert [item["status"] for item in shown.result] == ["completed", "failed", "completed", "failed", "completed"]
    assert shown.steps["each"]["error"].message == "2 of 5 items failed: 1, 3"


def test_an_empty_list_completes_at_once(stage: Stage) -> None:
    shown = stage.run(plan(step("each", "after", loop=Loop(items=[])), step("after", input={"path": ["each"]})))
    nothing = {"total": 0, "success": 0, "failed": 0}
    assert (shown.status, shown.result) == ("completed", {"results": [], "items": [], "stats": nothing})
    kinds: list[type[Fact]] = [type(fact) for fact in stage.history(shown.id)]
    assert kinds == [RunStarted, FanOutEntered, StepIssued, StepSettled, RunEnded]
