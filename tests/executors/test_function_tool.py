"""The tool `function` and its list of what may be called."""

from typing import Any

import pytest

from refold.core.commands import Command
from refold.errors import ToolFailed
from refold.ports import Say, ToolCall
from refold.tools.simple import FunctionTool


class Recorder:
    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any:
        self.ran.append((call, input))
        return "result"


def call(**settings: Any) -> ToolCall:
    return ToolCall("r", Command(id="a/1", step="a", visit=1, attempt=1, input={"n": 1}), settings)


async def test_the_isolation_chooses_the_executor_and_inline_is_the_default() -> None:
    inline, process = Recorder(), Recorder()
    tool = FunctionTool({"inline": inline, "process": process})
    assert await tool(call(call="m:f")) == "result"
    assert await tool(call(call="m:g", isolation="process")) == "result"
    assert (inline.ran, process.ran) == ([("m:f", {"n": 1})], [("m:g", {"n": 1})])


@pytest.mark.parametrize(
    ("allowed", "function", "may"),
    [
        (None, "os:system", True),
        (["shop"], "shop:pay", True),
        (["shop"], "shop.orders:pay", True),
        (["shop"], "shopping:pay", False),
        (["shop"], "os:system", False),
        (["shop.orders:pay"], "shop.orders:pay", True),
        (["shop.orders:pay"], "shop.orders:refund", False),
        (["shop.orders"], "shop:pay", False),
        ([], "shop:pay", False),
    ],
)
async def test_only_what_is_allowed_is_called(allowed: list[str] | None, function: str, may: bool) -> None:
    inline = Recorder()
    tool = FunctionTool({"inline": inline}, allowed)
    if may:
        await tool(call(call=function))
    else:
        with pytest.raises(ToolFailed) as caught:
            await tool(call(call=function))
        assert (caught.value.fault.kind, caught.value.fault.retryable) == ("not_allowed", False)
    assert bool(inline.ran) is may
