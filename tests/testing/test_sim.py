"""`refold sim`: a workflow of the user under many seeds of faults keeps its promises, or the seed is told."""

import random
from pathlib import Path
from typing import Any

import pytest

from refold import Context, flow, testing
from refold.core.commands import Command
from refold.core.facts import StepSettled
from refold.errors import InvalidValue, ToolFailed
from refold.schemas import misfits
from refold.stores.memory import Queued
from refold.testing import SimFailed, SimulationOptions, sim
from refold.testing.simulator.faults import Rates
from refold.testing.simulator.invented_results import invented_result
from refold.testing.simulator.trials import subject_of
from refold.testing.simulator.user_workflow import Memo, WorkflowSimulation
from tests.cli.program import refold
from tests.testing import flows
from tests.testing.flows import LIST, ORDER, ROWS, Calling, Crawl, Endless, Patient, Plain, Racing, playbook

FEW = SimulationOptions(seeds=12)


def test_a_python_workflow_ends_alike_in_every_seed() -> None:
    simulated = sim(Crawl, asked=FEW, pages=2)
    assert (simulated.seeds, simulated.undisturbed, simulated.broken) == (12, "completed with [0, 1]", None)
    assert simulated.compared + simulated.excused == 12
    assert simulated.compared >= 8
    assert simulated.faults["cut"] >= 6
    assert simulated.faults["crash"] > 0


def test_waits_questions_and_signals_are_answered_and_weeks_are_passed_over() -> None:
    simulated = sim(Patient, asked=SimulationOptions(seeds=6, signals={"word": 5}, answer="no"))
    assert simulated.undisturbed == "completed with ['no', 5]"


def charge(order: str, id: str) -> str:
    return id


@flow
async def chancy(ctx: Context) -> str:
    await ctx.call(charge, "o1", str(random.random()))
    await ctx.sleep(1)
    return "paid"


@flow
async def moody(ctx: Context) -> str:
    if len(MOODS) % 2 == 0:
        await ctx.call(charge, "o1", "x")
    MOODS.append("another")
    await ctx.sleep(1)
    return "paid"


MOODS: list[str] = []


@flow
async def steady(ctx: Context) -> str:
    await ctx.call(charge, "o1", str(await ctx.random()))
    await ctx.sleep(random.random())
    return "paid"


def test_a_body_that_diverges_breaks_a_promise() -> None:
    with pytest.raises(SimFailed, match=r"S15: .* diverged: this body started over"):
        sim(chancy, asked=FEW)


def test_a_body_that_does_not_ask_for_its_recorded_calls_breaks_a_promise() -> None:
    with pytest.raises(SimFailed, match="did not ask for calls that it has recorded: call/1/"):
        sim(moody, asked=SimulationOptions(seeds=100))


def test_recorded_chance_and_sleeps_of_chance_keep_every_promise() -> None:
    assert sim(steady, asked=FEW).undisturbed == "completed with 'paid'"


def test_a_playbook_with_a_gate_and_a_declared_result_is_simulated(tmp_path: Path) -> None:
    simulated = sim(playbook(tmp_path, ORDER), asked=SimulationOptions(seeds=8))
    assert simulated.undisturbed.startswith("completed with ")
    assert simulated.undisturbed.endswith(" by approve'")
    assert simulated.made_up == ("fetch",)


def test_loops_and_lists_of_tools_are_simulated(tmp_path: Path) -> None:
    simulated = sim(playbook(tmp_path, LIST), asked=SimulationOptions(seeds=6))
    assert "'second': {'n': 2}" in simulated.undisturbed
    assert simulated.made_up == ("both", "send")


def test_recordings_say_what_tools_give(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    with testing.engine() as t:
        t.fake("http", {"data": {"total": 50}})
        run = t.start(playbook(tmp_path, ORDER))
        t.record(run, kept)
    simulated = sim(playbook(tmp_path, ORDER), asked=SimulationOptions(seeds=3, replay=[kept]))
    assert simulated.undisturbed == "completed with '100 by approve'"
    assert simulated.made_up == ()


def test_steps_without_async_run_too_and_what_they_cannot_do_is_told() -> None:
    assert sim(Plain, asked=SimulationOptions(seeds=6), n=1).undisturbed == "completed with 2"
    with pytest.raises(SimFailed, match=r"calls ctx\.call, .*: write `async def`"):
        sim(Calling, asked=SimulationOptions(seeds=1))


def test_a_result_that_depends_on_order_is_told_with_its_seed() -> None:
    with pytest.raises(
        SimFailed, match=r"it ended as completed with \[.*undisturbed it ends as .*\[0, 1, 2, 3\]"
    ) as broken:
        sim(Racing, asked=SimulationOptions(seeds=40))
    seed = broken.value.simulated.broken
    assert seed is not None
    assert any("join/1 succeeded" in line for line in seed.history)
    with pytest.raises(SimFailed) as again:
        sim(Racing, asked=SimulationOptions(seeds=1, seed=seed.seed))
    assert again.value.simulated.broken == seed
    assert sim(Racing, asked=SimulationOptions(seeds=10, any_result=True)).compared == 0


def test_a_run_that_never_ends_is_told_before_any_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.testing.simulator.user_workflow.STEPS", 5_000)
    with pytest.raises(SimFailed, match="even undisturbed, the run does not end"):
        sim(Endless, asked=FEW)


POLL = """workflow:
  - step: build
    tool: {kind: poll, check: {kind: http, url: "http://ci.example"}, until: "{{ output.data.data == 3 }}", every: 1h}
"""


def test_a_poll_that_no_made_up_result_ends_is_no_broken_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.testing.simulator.user_workflow.STEPS", 5_000)
    with pytest.raises(InvalidValue, match=r"^the poll build: it looks again and again, .*--replay"):
        sim(playbook(tmp_path, POLL), asked=FEW)
    kept = tmp_path / "kept.json"
    with testing.engine() as t:
        t.fake("http", {"data": 3})
        t.record(t.start(playbook(tmp_path, POLL)), kept)
    assert sim(playbook(tmp_path, POLL), asked=SimulationOptions(seeds=3, replay=[kept])).broken is None


def test_a_finished_step_that_runs_again_is_found() -> None:
    """The check itself: a store that forgets a completion would be caught."""
    stand = WorkflowSimulation(subject_of(Crawl, {"pages": 2}, FEW), Memo(), 1, Rates())
    stand.trial(nodes=1)
    command = Command("fetch/1", "fetch", 1, 1)
    stand.store.commands[stand.run_id, "fetch/1"] = Queued(stand.run_id, command, b"", "", 1, worker="w")
    stand.oracles.began(stand.run_id, "fetch/1", 1)
    assert "fetch/1 ran again after it had succeeded" in str(stand.watching.found[0])
    stand.loop.close()


@pytest.mark.parametrize("cut", range(2, 6))
def test_a_process_dies_at_the_commit_that_was_chosen(cut: int) -> None:
    stand = WorkflowSimulation(subject_of(Crawl, {"pages": 2}, FEW), Memo(), 1, Rates(), cut)
    stand.trial(nodes=1)
    assert stand.faults.seen["cut"] == 1
    facts = [fact for _, _, fact in stand.store.facts(stand.run_id)]
    settled = [(fact.step, fact.visit) for fact in facts if isinstance(fact, StepSettled)]
    assert len(settled) == len(set(settled)) == 4
    stand.loop.close()


def test_inputs_are_held_against_the_workflow_first(tmp_path: Path) -> None:
    file = playbook(tmp_path, "inputs: {city: {type: string, required: true}}\n" + ORDER)
    with pytest.raises(InvalidValue, match="city"):
        sim(file, asked=FEW)


def test_python_code_of_a_playbook_is_run_once_for_an_input(tmp_path: Path) -> None:
    code = f"with open({str(tmp_path / 'ran')!r}, 'a') as file: file.write('x')\\nreturn 1"
    file = playbook(tmp_path, f'workflow:\n  - step: a\n    tool: {{kind: python, code: "{code}"}}\n')
    assert sim(file, asked=SimulationOptions(seeds=5)).undisturbed == "completed with 1"
    assert (tmp_path / "ran").read_text() == "x"
    faked = sim(file, asked=SimulationOptions(seeds=2, fake=("python",)))
    assert (tmp_path / "ran").read_text() == "x"
    assert faked.made_up == ("a",)


def test_the_program_prints_a_summary(tmp_path: Path) -> None:
    file = playbook(tmp_path, ORDER)
    done = refold(tmp_path, "sim", file, "-n", "3", "-i", "id=4")
    assert done.code == 0, done.err
    assert done.out.startswith("play: 3 seeds, 3 processes killed at a commit")
    assert "every promise was kept" in done.out
    data = refold(tmp_path, "sim", file, "-n", "2", "-o", "json").data
    assert (data["seeds"], data["broken"]) == (2, None)


def test_the_program_prints_the_seed_and_how_to_repeat_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(Path(flows.__file__).read_text())
    done = refold(tmp_path, "sim", "shop:Moody", "-n", "9", "--seed", "5", "-i", "a=b c")
    assert done.code == 1
    assert "seed 5 broke a promise: it ended as completed with 1; undisturbed it ends as completed with 0" in done.out
    assert "only/1 succeeded" in done.out
    assert "again: refold sim shop:Moody -n 1 --seed 5 -i 'a=b c'" in done.out
    assert refold(tmp_path, "sim", "shop:Moody", "-n", "4", "--any-result").code == 0
    assert refold(tmp_path, "sim", "nowhere.yaml").code == 3
    assert refold(tmp_path, "sim", "shop:Crawl", "-n", "0").code == 2


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "integer", "exclusiveMinimum": 3}}},
    {"type": "array", "minItems": 2, "maxItems": 2, "items": {"enum": ["x", "y"]}},
    {"type": "number", "minimum": 0.5, "exclusiveMaximum": 0.6},
    {"type": ["null", "boolean"]},
    {"anyOf": [{"const": 4}, {"type": "string", "minLength": 20}]},
    {"type": "integer", "maximum": -5},
    {"type": "string", "maxLength": 2},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_results_are_made_up_to_fit_their_schema(schema: dict[str, Any]) -> None:
    for seed in range(20):
        assert misfits(schema, invented_result("a", "http", schema, random.Random(seed))) == []


def test_a_schema_that_is_too_clever_is_told() -> None:
    with pytest.raises(ToolFailed, match=r"no result could be made up for step 'a': .*; give a recording"):
        invented_result("a", "http", {"type": "string", "pattern": "^[0-9]{8}$"}, random.Random(1))


def test_items_may_come_from_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    file, kept = playbook(tmp_path, ROWS), tmp_path / "kept.json"
    with testing.engine() as t:
        run = t.start(file)
        run.result()
        assert run.steps()["each"]["result"] == [2, 4]
        t.record(run, kept)
    assert sim(file, asked=SimulationOptions(seeds=4)).undisturbed.startswith("completed")
    (tmp_path / "rows.jsonl").unlink()
    with testing.engine() as t:
        t.replay(kept)
        run = t.start(file)
        run.result()
        assert run.steps()["each"]["result"] == [2, 4]
        assert t.unrecorded == []
