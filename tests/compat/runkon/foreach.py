"""Loops as Runkon's tests have them: items that say what becomes of them, and a step that is told of all."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from refold.core.read.items import STATES
from refold.plan import Arc, Call, Loop, Plan
from refold.ports import ToolCall
from refold.runtime.engine import RunReport
from tests.compat.stage import Refusal, Stage, plan, step

ITEM, KEY, AFTER = {"path": ["item"]}, {"path": ["item", "id"]}, {"path": ["item", "needs"]}


async def do_item(call: ToolCall) -> Any:
    """The tool `item`: the item says how it goes."""
    told = call.input if isinstance(call.input, dict) else {}
    return await _WAYS[told.get("how", "quick")](call, told)


async def _quick(call: ToolCall, told: dict[str, Any]) -> Any:
    return {"of": told.get("id", call.input)}


async def _slow(call: ToolCall, told: dict[str, Any]) -> Any:
    await asyncio.sleep(told.get("takes", 10))
    return {"of": told["id"]}


async def _failing(call: ToolCall, told: dict[str, Any]) -> Any:
    if call.command.attempt <= told.get("tries", 99):
        raise Refusal(kind="boom", message="it broke")
    return {"of": told["id"]}


async def _raising(call: ToolCall, told: dict[str, Any]) -> Any:
    raise ZeroDivisionError("nobody has thought of it")


_WAYS: Mapping[str, Any] = {"quick": _quick, "slow": _slow, "failing": _failing, "raising": _raising}


def item(id: str, *needs: str, how: str = "quick", **more: Any) -> dict[str, Any]:
    return {"id": id, "needs": list(needs), "how": how, **more}


def each(items: Sequence[Any] | None, ordered: bool = True, **loop: Any) -> Plan:
    """A loop over these, then a step that is given all that came of them, whatever came of the loop."""
    more: dict[str, Any] = {name: loop.pop(name) for name in ("retry", "timeout", "work", "input") if name in loop}
    over: dict[str, Any] = {} if items is None else {"items": list(items)}
    over |= {"key": KEY, "after": AFTER} if ordered else {}
    given = {name: {"path": ["each", name]} for name in ("items", "stats", "failed")}
    work: dict[str, Any] = {"work": Call(tool="item"), "input": ITEM, **more}
    return plan(step("each", Arc(to="tell", on="both"), loop=Loop(**over, **loop), **work), step("tell", input=given))


def alone(shape: Plan) -> Plan:
    """The loop is all there is."""
    loop = shape.steps[0]
    return plan(step("each", loop=loop.loop, work=loop.work, input=loop.input))


def states(shown: RunReport) -> list[str]:
    fan = shown.state.steps[0].fan or shown.state.steps[0].shown
    assert fan is not None
    return [STATES[life] for life in fan.status]


def begun(stage: Stage) -> list[int]:
    return [int(command.rsplit("/", 1)[1]) for command in stage.calls("each") if "page" not in command]


def told(stage: Stage) -> dict[str, Any]:
    """What the step after the loop was given."""
    last = stage.began[-1]
    assert last.command == "tell/1"
    given: dict[str, Any] = last.call.input
    return given


def why(shown: RunReport) -> str:
    fault = shown.state.steps[0].fault
    assert fault is not None
    return fault.message


def restarted(stage: Stage) -> None:
    stage.first.kill()
    stage.house()
