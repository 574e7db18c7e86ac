"""The tool that insists: what must hold is held against what is, and a failure says what was wanted."""

from typing import Any

from refold.core.outcomes import Fault
from refold.descriptions import ToolInfo, ToolKey
from refold.errors import ToolFailed
from refold.ports import Call
from refold.tools.keys import Keys

NO = frozenset({"", "false", "0", "no", "none", "null", "off", "{}", "[]"})  # texts that say no, as on an arc

ASSERT = ToolInfo(
    kind="assert",
    about="Fails the step unless something holds, in words of your own. It is not tried again.",
    keys=(
        ToolKey(name="that", type="any", required=True, about="what must hold, as one {{ expression }}"),
        ToolKey(name="message", type="text", about="what to say if it does not"),
        ToolKey(name="error", type="text", static=True, about="the kind of the failure (`assert`)"),
        ToolKey(name="result", type="any", about="what comes of the step if it holds"),
        ToolKey(name="data", type="any", about="what the error has under `data` if it does not"),
    ),
    result="`result`, or null",
)

_KEYS = Keys(ASSERT)


async def assert_that(call: Call) -> Any:
    keys = _KEYS.read(call).keys
    if holds(keys.get("that")):
        return keys.get("result")
    message = keys.get("message", "what must hold does not")
    raise ToolFailed(Fault(keys.get("error", "assert"), message, retryable=False, data=keys.get("data")))


def holds(value: Any) -> bool:
    return value.strip().lower() not in NO if isinstance(value, str) else bool(value)
