"""Blocks run as the block program would: random programs, on the engine and by an interpreter that shares no code."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

import pytest

from refold.errors import RunFailed
from refold.playbooks.playbook import read
from refold.ports import ToolCall
from refold.templates import Templates
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine
from tests.playbooks.block_programs import Interpreter, Maker, Program

BATCHES, BATCH = 12, 25


class Stage:
    def __init__(self, program: Program) -> None:
        self.program, self.trace = program, list[str]()

    async def shell(self, call: ToolCall) -> None:
        name, visit = call.command.id.split("/")
        self.trace.append(name)
        if int(visit) in self.program.fails.get(name, ()):
            raise ValueError(f"{name} does not like visit {visit}")


def by_region(program: Program, trace: Iterable[str]) -> dict[int, list[str]]:
    """Branches run side by side; within each, the order is fixed."""
    found = defaultdict(list)
    for name in trace:
        found[program.region[name]].append(name)
    return dict(found)


async def carried_out(program: Program) -> tuple[str, dict[int, list[str]]]:
    stage = Stage(program)
    plan = read(program.text(), "program.yaml", CATALOG).plan
    async with open_engine({"shell": stage.shell}, evaluate=Templates()) as engine:
        try:
            await asyncio.wait_for(engine.run(plan, {}), 60)
        except RunFailed as failed:
            return failed.error.step, by_region(program, stage.trace)
    return "", by_region(program, stage.trace)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_blocks_run_as_the_block_program_would(batch: int) -> None:
    async def all_of_them() -> None:
        for seed in range(batch * BATCH, (batch + 1) * BATCH):
            program = Maker(seed).make()
            interpreter = Interpreter(program)
            expected = interpreter.outcome()
            assert (seed, *await carried_out(program)) == (seed, expected, by_region(program, interpreter.trace))

    asyncio.run(all_of_them())


def begins_with(whole: list[str], part: list[str]) -> bool:
    return whole[: len(part)] == part


def test_a_branch_that_is_stopped_has_done_what_it_would_have_done_until_then() -> None:
    """With `fail_fast` the block fails if it would have failed without, and each branch has come some of its way."""

    async def all_of_them() -> None:
        stopped = 0
        for seed in range(1000, 1100):
            maker = Maker(seed)
            block = maker.parallel("all", 2, [], 0)
            program = maker.program
            program.items = [{**block, "fail_fast": bool(block.get("min_success", 1))}]
            interpreter = Interpreter(program)
            expected = interpreter.outcome()
            outcome, traces = await carried_out(program)
            assert (seed, outcome) == (seed, expected)
            whole = by_region(program, interpreter.trace)
            inner = {region for region in whole if begins_with(whole[region], traces.get(region, []))}
            assert inner == set(whole), seed
            assert expected or traces == whole, seed
            stopped += traces != whole
        assert stopped > 3

    asyncio.run(all_of_them())


def test_the_programs_have_all_that_blocks_can_do() -> None:
    """Else the comparison says nothing: loops that go round, branches that fail, failures that are handled."""
    outcomes, texts, longest = [], "", 0
    for seed in range(BATCHES * BATCH):
        program = Maker(seed).make()
        interpreter = Interpreter(program)
        outcomes.append(interpreter.outcome())
        texts += program.text()
        longest = max(longest, max(interpreter.visits.values(), default=0))
    assert longest > 10
    assert sum(not each for each in outcomes) > 100
    assert all(any(each.endswith(end) for each in outcomes) for end in (".limit", ".stuck"))
    assert any(each.startswith("block_") and "." not in each for each in outcomes)
    assert all(
        f'"{word}":' in texts for word in ("while", "until", "if", "elif", "else", "parallel", "min_success", "on")
    )
