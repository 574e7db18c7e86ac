"""Calls of tools as the tests make them: by hand, and through an engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from refold import Engine, RunFailed, open_engine
from refold.core.commands import Command
from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.plan import Call, Plan, Step
from refold.ports import Say, Tool, ToolCall
from refold.settings import Settings

SETTINGS = Settings(processes=1, process_grace=0.2, private_addresses=True)


def call(
    settings: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    input: dict[str, Any] | None = None,
    say: Say | None = None,
) -> ToolCall:
    given = {"input": input or {}, "config": config or {}}
    return ToolCall("run-1", Command(id="a/1", step="a", visit=1, attempt=1, input=given), settings or {}, say)


async def fault_of(tool: Tool, which: ToolCall) -> Fault:
    with pytest.raises(ToolFailed) as caught:
        await tool(which)
    fault = caught.value.fault
    assert isinstance(fault, Fault)
    return fault


def one_step(
    tool: str,
    settings: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    input: dict[str, Any] | None = None,
    **more: Any,
) -> Plan:
    given = {"input": input or {}, "config": config or {}}
    return Plan(name="one", steps=(Step(name="a", work=Call(tool=tool, settings=settings or {}), input=given, **more),))


@asynccontextmanager
async def engine(settings: Settings = SETTINGS) -> AsyncIterator[Engine]:
    async with open_engine(settings=settings) as opened:
        yield opened


async def fault_of_run(opened: Engine, plan: Plan) -> Fault:
    with pytest.raises(RunFailed) as caught:
        await opened.run(plan)
    fault = caught.value.error.fault
    assert isinstance(fault, Fault)
    return fault
