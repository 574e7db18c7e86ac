"""A large `.wf` program in a real process that is killed at a commit, and finished by another one."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import refold.stores.sqlite.file as file
from refold.core.facts import GateDecided, StepIssued
from refold.core.state import TERMINAL
from refold.errors import Conflict, NotFound, Unavailable
from refold.playbooks.playbook import Playbook
from refold.ports import ToolCall
from refold.runtime.engine import Engine
from refold.templates.output_blocks import read_answer
from refold.wiring import open_process
from tests.crash.evidence import Evidence, read
from tests.crash.interrupted import CHECKPOINT_AT, TRUNCATE_AT, Figures, copied, endings, live
from tests.crash.processes import emptied
from tests.crash.reference import QUICK
from tests.wf.programs import Program
from tests.wf.programs import read as read_program

LARGE = Program(
    text="""
workflow large {
  inputs { who default = "Ada"  fast boolean }
  call plan { retries = 1 }
  do {
    max_iterations = 4
    call implement
    call review { output = "verdict" }
    if review.open { call fix }
    parallel {
      fail_fast = false  min_success = 2
      call lint { if = "review.open" }
      call test { retries = 1 }
      call docs { on_fail = continue }
    }
  } while review.open
  gate human_review { prompt = "ship it, {{who}}?"  timeout = 3h }
  gate quality_gate { source = review  threshold = 50 }
  unless fast { call workflow release { inputs { version = "{{gate_feedback}}" } } }
  foreach each { over = things  max_parallel = 2  ordered = true  workflow = notify  inputs = { to = "{{item.id}}" } }
  while notify_all.open { max_iterations = 2  call never }
  script count { run = "count.sh {{who}}" env = { LAST = "{{prior_context}}" } }
  call implement
  always {
    if review.late { call implement }
    script bye { run = "bye.sh" env = { HOW = "{{workflow_status}}" } }
  }
}
""".replace("  while notify_all.open { max_iterations = 2  call never }\n", ""),
    others=(
        """
workflow release {
  inputs { version required }
  call build
  gate human_approval { prompt = "release {{version}}?" }
  call publish
  always { script tidy { run = "tidy.sh" } }
}
""",
        'workflow notify { inputs { to required } script send { run = "send.sh {{to}}" } }',
    ),
    schemas={
        "verdict": {
            "fields": {"level": "enum(low, high)", "confidence": "number"},
            "markers": {"open": "level == high", "late": "confidence > 80"},
        }
    },
    items={"things": [{"id": "a"}, {"id": "b", "after": ["a"]}, {"id": "c"}]},
)
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "review": [
        {"level": "high", "confidence": 10},
        {"level": "high", "confidence": 20},
        {"level": "low", "confidence": 90},
    ],
    "plan": [{"context": "the plan", "branch": "b1"}],
    "implement": [{"markers": ["done"]}, {"markers": []}],
}


class Tools:
    """Agents and scripts that note each call, by its run, command and try."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def agent(self, call: ToolCall) -> Any:
        return self._done(call, call.command.input["config"]["agent"])

    async def script(self, call: ToolCall) -> Any:
        return self._done(call, call.command.step)

    def _done(self, call: ToolCall, name: str) -> Any:
        command = call.command
        with open(self.folder / "calls", "a") as calls:
            calls.write(f"{call.run}\t{command.id}\t{command.attempt}\n")
        if name == "docs" or (name == "test" and command.attempt == 1):
            raise RuntimeError("as written")
        answers = ANSWERS.get(name, [{}])
        rules = call.settings.get("rules")
        return read_answer(answers[min(command.visit, len(answers)) - 1], rules).result()


def calls_in(folder: Path) -> list[tuple[tuple[str, str], int]]:
    """Return the calls that were begun: run and command, and the try."""
    path = folder / "calls"
    text = path.read_text() if path.exists() else ""
    lines = [line.split("\t") for line in text[: text.rfind("\n") + 1].splitlines()]
    return [((run, command), int(attempt)) for run, command, attempt in lines]


async def drive(engine: Engine, playbook: Playbook) -> None:
    run = (await engine.options(key="large").start(playbook)).id
    deciding = asyncio.create_task(_decide_all(engine))
    try:
        shown = await engine.wait(run)
        assert shown.status == "completed", shown
    finally:
        deciding.cancel()


async def _decide_all(engine: Engine) -> None:
    """Decide each gate that waits, once it has waited for a while."""
    while True:
        for row in await engine.runs():
            facts = [] if row.status in TERMINAL else [fact for _, _, fact in await engine.history(row.run)]
            asked = {f.step for f in facts if isinstance(f, StepIssued) and f.step.startswith("human_")}
            for step in asked - {fact.step for fact in facts if isinstance(fact, GateDecided)}:
                try:
                    await engine.decide(row.run, step, "approve", by="ann", feedback="1.0")
                except (Conflict, NotFound, Unavailable):
                    continue  # somebody or something else was faster
        await asyncio.sleep(0.02)


def life(folder: Path, playbook: Playbook, arm: Callable[[], object] = lambda: None) -> Callable[[], None]:
    async def live_on() -> None:
        tools = Tools(folder)
        made = {"agent": tools.agent, "shell": tools.script}
        async with open_process(made, db=folder / "refold.db", settings=QUICK) as process:
            await drive(process.engine, playbook)

    def run() -> None:
        file.CHECKPOINT_AT, file.TRUNCATE_AT = CHECKPOINT_AT, TRUNCATE_AT
        arm()
        asyncio.run(live_on())

    return run


def uninterrupted(folder: Path, playbook: Playbook) -> dict[str, Any]:
    emptied(folder)
    live(folder, life(folder, playbook), 0)
    found = read(folder / "refold.db")
    found.check()
    return endings(found)


def interrupt(
    folder: Path, playbook: Playbook, arm: Callable[[], object], expected: dict[str, Any], figures: Figures
) -> bool:
    """Return False if the program had ended before the process was killed."""
    emptied(folder)
    if live(folder, life(folder, playbook, arm), -signal.SIGKILL, 0) == 0:
        return False
    figures.kills += 1
    before = copied(folder)
    before.check()
    done, began = before.successes(), calls_in(folder)
    live(folder, life(folder, playbook), 0)
    after = read(folder / "refold.db")
    after.check()
    for run, log in before.logs.items():
        assert after.logs[run][: len(log)] == log, f"the log of {run} was changed"
    assert endings(after) == expected
    again = calls_in(folder)[len(began) :]
    repeated = [command for command, _ in again if command in done]
    assert not repeated, f"calls that had completed were made again: {repeated}"
    first = set(began)
    figures.bodies_repeated += sum(call in first for call in again)
    assert gates_asked(after) == dict.fromkeys(gates_asked(after), 1), "a gate was asked twice"
    return True


def gates_asked(found: Evidence) -> dict[tuple[str, str, int], int]:
    """Return how often each visit of a gate was asked; its deadline stands in that one fact."""
    asked: Counter[tuple[str, str, int]] = Counter()
    for run, log in found.logs.items():
        for fact in log:
            told = fact.told()
            if told.get("type") == "step_issued" and told["step"].startswith("human_"):
                asked[run, told["step"], told["visit"]] += 1
    return dict(asked)


def large(folder: Path) -> Playbook:
    return read_program(LARGE, folder)


__all__ = ["interrupt", "large", "os", "uninterrupted"]
