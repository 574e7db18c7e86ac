"""The tool that does nothing: its result is its input."""

from typing import Any

from refold.ports import Call


async def noop(call: Call) -> Any:
    """In a playbook, `result` or what belongs to `message` instead, if one of them is given."""
    match call.input:
        case {"input": dict() as bound, "config": dict() as config, **more} if not more:
            keys = {**call.settings, **config}
            message = keys.get("message")
            if message is not None and call.say is not None:
                call.say("stdout", str(message))
            told = bound if message is None else {"status": "ok", "message": message}
            return keys.get("result", told)
        case _:
            return call.input
