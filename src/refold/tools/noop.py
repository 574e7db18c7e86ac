"""The tool that does nothing: its result is its input."""

from typing import Any

from refold.ports import Call


async def noop(call: Call) -> Any:
    """In a playbook, `result` instead, if it is given."""
    match call.input:
        case {"input": dict() as bound, "config": dict() as config, **more} if not more:
            return config.get("result", call.settings.get("result", bound))
        case _:
            return call.input
