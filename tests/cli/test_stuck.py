"""Runs that a defect keeps from going on, and steps that do what none should: what the program says, and its codes."""

import time
from pathlib import Path

from refold.core.decide.decision import Decision
from refold.core.expressions import Values
from refold.core.facts import Fact, StepSettled
from refold.core.graph import prepare
from refold.core.outcomes import Succeeded
from refold.core.plan import Call, Plan, Step
from refold.ports import Abilities, Done
from refold.runtime.mail import Settle, Start
from refold.runtime.turn import Delivery, Turns
from refold.stores.sqlite.store import SqliteStore
from tests.cli.program import noop, playbook, refold


def stuck_run(folder: Path) -> None:
    """A run whose first report could not be decided, because of a defect."""

    class Broken(Decision):
        def record_fact(self, fact: Fact) -> None:
            if isinstance(fact, StepSettled):
                raise KeyError("step")
            super().record_fact(fact)

    plan = Plan(name="p", steps=(Step(name="a", work=Call(tool="noop")),))
    store = SqliteStore(folder / "refold.db", lambda: time.time_ns() // 1000)
    turns = Turns(store, Values(), lambda: 0.5, lambda: "turn")
    turns.decision = Broken
    turns.commit([Delivery("r" * 32, Start(prepare(plan), name="mine"))])
    with store.turn([]) as turn:
        [lease] = turn.claim(Abilities("w"), 30, 1)
    turns.commit([Delivery("r" * 32, Settle(lease, Done(Succeeded(7))))])
    store.close()


def test_a_run_that_is_stuck_says_so_and_goes_on_where_the_defect_is_gone(tmp_path: Path) -> None:
    stuck_run(tmp_path)
    text = "stuck: internal error: KeyError: 'step' (in record_fact, "
    assert text in refold(tmp_path, "runs", "why", "mine").out
    assert text in refold(tmp_path, "runs", "show", "mine").out
    assert refold(tmp_path, "runs", "why", "mine", "-o", "json").data["reasons"][0]["kind"] == "stuck"
    found = refold(tmp_path, "doctor")
    assert found.code == 1
    assert "mine is stuck: internal error: KeyError: 'step'" in found.out
    done = refold(tmp_path, "runs", "resume", "mine")
    assert (done.code, done.data) == (0, 7)
    assert refold(tmp_path, "doctor").code == 0


def test_an_input_whose_schema_refers_to_itself_is_refused_and_no_crash(tmp_path: Path) -> None:
    cycle = "{$defs: {a: {$ref: '#/$defs/a'}}, $ref: '#/$defs/a'}"
    file = playbook(tmp_path, noop("one"), more=f"inputs: {{n: {cycle}}}\n")
    done = refold(tmp_path, "run", file, "-i", "n=1")
    assert done.code == 2, done.err
    assert "leads back to itself" in done.err


def test_an_expression_of_the_first_step_that_cannot_be_evaluated_fails_the_run(tmp_path: Path) -> None:
    step = "step: one\ninput: {y: '{{ {workload.x: 1} }}'}\ntool: {kind: noop}"
    file = playbook(tmp_path, step, more="workload: {x: {}}\n")
    done = refold(tmp_path, "run", file)
    assert done.code == 1, done.err
    assert "a map is not a key" in done.err


def test_a_step_that_stops_the_event_loop_fails_and_the_program_ends_as_usual(tmp_path: Path) -> None:
    code = "import asyncio; asyncio.get_running_loop().stop(); await asyncio.sleep(0)"
    file = playbook(tmp_path, f"step: one\ntool: {{kind: python, isolation: inline, code: '{code}'}}")
    done = refold(tmp_path, "run", file)
    assert done.code == 1, done.err
    assert "must not stop the event loop" in done.err
