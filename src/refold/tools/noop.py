"""The tool that does nothing: its result is its input."""

from typing import Any

from refold.ports import Call


async def noop(call: Call) -> Any:
    return call.input
