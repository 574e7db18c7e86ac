"""The tool `emit`: says something to those who follow the run."""

import json
from typing import Any

from refold.ports import Call
from refold.tools.keys import Keys, refused
from refold.tools.outward_catalog import EMIT
from refold.tools.outward_checks import NAME

STREAM = "event"
_KEYS = Keys(EMIT)


async def emit(call: Call) -> Any:
    keys = _KEYS.read(call).keys
    message, event = keys.get("message"), keys.get("event")
    if (message is None) == (event is None):
        raise refused("emit needs exactly one of `event` and `message`")
    if message is not None:
        _say(call, message)
        return {"event": "message", "data": message}
    if not NAME.fullmatch(event or ""):
        raise refused(f"the name of an event has no spaces, unlike {event!r}")
    data = keys.get("data")
    _say(call, f"{event} {json.dumps(data, ensure_ascii=False)}" if "data" in keys else str(event))
    return {"event": event, "data": data}


def _say(call: Call, text: str) -> None:
    """A line for each of its lines."""
    if call.say is not None:
        for line in text.splitlines():
            call.say(STREAM, line)
