"""A JamJet graph in a real process that is killed at a commit, and finished by another one."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import refold.stores.sqlite.file as file
from refold.core.facts import GateDecided, StepIssued
from refold.core.outcomes import Succeeded
from refold.core.state import TERMINAL
from refold.errors import Conflict, NotFound, Unavailable
from refold.playbooks.playbook import Playbook
from refold.ports import Done, ToolCall
from refold.runtime.engine import Engine
from refold.wiring import open_process
from tests.crash.evidence import Evidence, read
from tests.crash.interrupted import CHECKPOINT_AT, TRUNCATE_AT, Figures, copied, endings, live
from tests.crash.processes import emptied
from tests.crash.reference import QUICK
from tests.jamjet.house import read_text

GRAPH = """\
workflow: {id: large, version: 0.1.0, start: fetch}
policy: {require_approval_for: ["publish"]}
nodes:
  fetch: {type: python_fn, module: app, function: fetch, retry: {max_attempts: 3, delay_ms: 5}, next: fork}
  fork: {type: parallel, branches: [left, right]}
  left: {type: tool, tool_ref: left, output_key: left, next: both}
  right: {type: wait, timeout: 0.01, next: both}
  both: {type: join, wait_for: [left, right], merge: collect, next: draft}
  draft: {type: model, model: small, prompt: "Draft {{ state.title }}", output_key: text, next: judge}
  judge:
    type: eval
    scorers: [{type: assertion, check: "len(output.text) >= 5"}]
    on_fail: retry_with_feedback
    max_retries: 3
    next: count
  count: {type: python_fn, module: app, function: count, next: route}
  route: {type: condition, conditions: [{if: "state.counted >= 2", next: ask}], default: draft}
  ask: {type: human_approval, message: "Ship {{ state.text }}?", timeout: 3h, on_approved: publish, on_rejected: end}
  publish: {type: tool, tool_ref: publish, input: {text: "{{ state.text }}"}, next: child}
  child: {type: subgraph, workflow_ref: child, input: {n: "{{ state.counted }}"}, output: {inner: state.inner_done}}
  tidy: {type: finalizer, tool_ref: tidy, run_on: always}
"""
CHILD = """\
workflow: {id: child, version: 0.1.0, start: inner}
nodes:
  inner: {type: python_fn, module: app, function: inner, next: nap}
  nap: {type: wait, timeout: 0.01}
"""
ANSWERS: dict[str, list[Any]] = {
    "fetch": [{"title": "Logs", "user": {"name": "Ada"}}],
    "left": [{"rows": [1, 2]}],
    "draft": ["no", "long enough", "longer still"],
    "count": [{"counted": 1}, {"counted": 2}],
    "inner": [{"inner_done": True}],
}


class Tools:
    """Tools that note each call, by its run, command and try."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def __call__(self, call: ToolCall) -> Any:
        command = call.command
        with open(self.folder / "calls", "a") as calls:
            calls.write(f"{call.run}\t{command.id}\t{command.attempt}\n")
        if command.step == "fetch" and command.attempt < 2:
            raise RuntimeError("as written")
        answers = ANSWERS.get(command.step, [{}])
        answer = answers[min(command.visit, len(answers)) - 1]
        return Done(Succeeded(answer), usage={"usd": 0.25} if command.step == "draft" else {})


def large() -> Playbook:
    def load(file: str) -> bytes:
        if file != "child.yaml":
            raise NotFound(file)
        return CHILD.encode()

    return read_text(GRAPH, load=load)


def calls_in(folder: Path) -> list[tuple[tuple[str, str], int]]:
    path = folder / "calls"
    text = path.read_text() if path.exists() else ""
    lines = [line.split("\t") for line in text[: text.rfind("\n") + 1].splitlines()]
    return [((run, command), int(attempt)) for run, command, attempt in lines]


async def drive(engine: Engine, playbook: Playbook) -> None:
    for child in playbook.children:
        await engine.register(child.plan)
    run = (await engine.options(key="large").start(playbook.plan)).id
    deciding = asyncio.create_task(_decide_all(engine))
    try:
        shown = await engine.wait(run)
        assert shown.status == "completed", shown
    finally:
        deciding.cancel()


GATES = ("ask", "publish.approval")


async def _decide_all(engine: Engine) -> None:
    while True:
        for row in await engine.runs():
            facts = [] if row.status in TERMINAL else [fact for _, _, fact in await engine.history(row.run)]
            asked = {fact.step for fact in facts if isinstance(fact, StepIssued) and fact.step in GATES}
            for step in asked - {fact.step for fact in facts if isinstance(fact, GateDecided)}:
                try:
                    await engine.decide(row.run, step, "approve", by="ann", feedback={"state_patch": {"edited": step}})
                except (Conflict, NotFound, Unavailable):
                    continue  # somebody or something else was faster
        await asyncio.sleep(0.02)


def life(folder: Path, playbook: Playbook, arm: Callable[[], object] = lambda: None) -> Callable[[], None]:
    async def live_on() -> None:
        tools = Tools(folder)
        made = dict.fromkeys(("llm", "python", "noop"), tools)
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
    """Return False if the run had ended before the process was killed."""
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
    asked = gates_asked(after)
    assert asked == dict.fromkeys(asked, 1), "a gate was asked twice"
    assert len(asked) == len(GATES)
    return True


def gates_asked(found: Evidence) -> dict[tuple[str, str, int], int]:
    """Return how often each visit of a gate was asked; its deadline stands in that one fact."""
    asked: Counter[tuple[str, str, int]] = Counter()
    for run, log in found.logs.items():
        for fact in log:
            told = fact.told()
            if told.get("type") == "step_issued" and told["step"] in GATES:
                asked[run, told["step"], told["visit"]] += 1
    return dict(asked)
