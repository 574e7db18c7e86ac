"""Times in the templates of a playbook: `now`, `schedule`, `run.started_at`, the same wherever a run continues."""

import asyncio
from pathlib import Path
from typing import Any

from refold import open_engine
from refold.core.codec import decode_fact, encode_fact
from refold.core.facts import StepIssued
from refold.core.state import RunState
from refold.core.times import instant
from refold.playbooks.playbook import Playbook, read
from refold.ports import ToolCall
from refold.queries.reading import replayed
from refold.tools.catalog import installed_tools
from tests.schedules.house import until

TEXT = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: times}
workflow:
  - step: first
    tool: {kind: noop, result: "{{ now }}"}
    set: {ctx.then: "{{ now }}"}
    next: second
  - step: second
    input: {at: "{{ now }}", started: "{{ run.started_at }}", planned: "{{ schedule.planned }}", then: "{{ then }}"}
    retry: {attempts: 3, delay: 0}
    tool: {kind: shell, command: [slow]}
"""


def playbook(text: str = TEXT) -> Playbook:
    return read(text.encode(), "times.yaml", installed_tools())


class Slow:
    """A tool that fails once, then waits."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.go = asyncio.Event()

    async def __call__(self, call: ToolCall) -> Any:
        self.inputs.append(call.input["input"])
        if call.command.attempt == 1:
            raise RuntimeError("not yet")
        await self.go.wait()
        return call.input["input"]


async def test_a_time_is_recorded_when_it_is_rendered_and_the_same_after_a_restart(tmp_path: Path) -> None:
    slow, db = Slow(), tmp_path / "refold.db"
    async with open_engine(db=db, tools={"shell": slow}) as engine:
        handle = await engine.start(playbook())
        await until(lambda: len(slow.inputs) == 2)
    again = Slow()
    again.go.set()
    async with open_engine(db=db, tools={"shell": again}) as engine:
        report = await engine.wait(handle.id)
        facts = [(number, at, decode_fact(encode_fact(fact))) for number, at, fact in await engine.history(handle.id)]
        state = RunState(run=handle.id)
        replayed(engine.mailroom.turns.graph, facts, state)
    inputs = [*slow.inputs, *again.inputs]
    assert len(inputs) >= 3 and all(each == inputs[0] for each in inputs), "each try and each process gets the same"
    given = inputs[0]
    issued = next(at for _, at, fact in facts if isinstance(fact, StepIssued) and fact.step == "second")
    assert instant(given["at"]) == issued and given["planned"] is None
    assert instant(given["started"]) == report.state.started_at <= instant(given["then"]) <= issued
    assert report.result == given and state.result == report.state.result
    assert state.ctx == report.state.ctx and report.steps["first"]["result"] <= given["then"]


def test_validate_knows_the_names_of_times() -> None:
    wrong = TEXT.replace("schedule.planned", "schedule.planed")
    try:
        playbook(wrong)
    except Exception as error:
        assert "there is no `schedule.planed`" in str(error) and "did you mean `schedule.planned`" in str(error)
    else:
        raise AssertionError("it is not refused")
    assert playbook().warnings == ()


def test_what_a_playbook_calls_now_or_schedule_comes_first() -> None:
    own = TEXT.replace("workflow:\n", "workload: {now: mine, schedule: {planed: 7}}\nworkflow:\n", 1)
    assert playbook(own.replace("schedule.planned", "schedule.planed")).warnings == ()
