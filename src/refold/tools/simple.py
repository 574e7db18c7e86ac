"""Small tools: `noop`, `assert`, `emit`, and `function`, which calls user code by its name."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Cluster, Executor, ToolCall
from refold.tool_api import Keys, ToolInfo, ToolKey, ToolProblem, refused
from refold.tools.shared_keys import cluster_needs

NOOP = ToolInfo(
    kind="noop",
    about="Does nothing.",
    keys=(
        ToolKey(name="result", type="any", about="the result of the step"),
        ToolKey(name="message", type="text", about="a line for the run's log"),
    ),
    result="`result`; without it `{status, message}`, if there is a message; otherwise the input",
    example="""\
tool:
  kind: noop
  result: "{{ ctx.total }}"
""",
)


async def noop(call: ToolCall) -> Any:
    """Return the input; in a playbook, `result` or the message instead, if there is one of them."""
    match call.input:
        case {"input": dict() as bound, "config": dict() as config, **more} if more.keys() <= {"context"}:
            keys = {**call.settings, **config}
            message = keys.get("message")
            if message is not None and call.say is not None:
                call.say("stdout", str(message))
            told = bound if message is None else {"status": "ok", "message": message}
            return keys.get("result", told)
        case _:
            return call.input


FALSE_TEXTS = frozenset(
    {"", "false", "0", "no", "none", "null", "off", "{}", "[]"}
)  # texts that count as false, as on an arc

ASSERT = ToolInfo(
    kind="assert",
    about="Fails the step unless a condition is true, with a message of your own. It is not tried again.",
    keys=(
        ToolKey(name="that", type="any", required=True, about="the condition, as one {{ expression }}"),
        ToolKey(name="message", type="text", about="the message if it is not true"),
        ToolKey(name="error", type="text", static=True, about="the kind of the failure (`assert`)"),
        ToolKey(name="result", type="any", about="the result of the step if it is true"),
        ToolKey(name="data", type="any", about="the `data` of the error if it is not true"),
    ),
    result="`result`, or null",
    example="""\
tool:
  kind: assert
  that: "{{ ctx.total > 0 }}"
  message: "there is nothing to report: {{ ctx.total }}"
""",
)

_ASSERT_KEYS = Keys(ASSERT)


async def assert_that(call: ToolCall) -> Any:
    keys = _ASSERT_KEYS.read(call).keys
    if holds(keys.get("that")):
        return keys.get("result")
    message = keys.get("message", "the condition is not true")
    raise ToolFailed(Fault(keys.get("error", "assert"), message, retryable=False, data=keys.get("data")))


def holds(value: Any) -> bool:
    return value.strip().lower() not in FALSE_TEXTS if isinstance(value, str) else bool(value)


NAME = re.compile(r"\S{1,200}")  # of an event
STREAM = "event"


def check_emit(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    event = keys.get("event")
    if (event is None) == (keys.get("message") is None):
        return [ToolProblem("", "exactly one of `event` and `message` is needed", "write `event: paid`")]
    if isinstance(event, str) and "{{" not in event and not NAME.fullmatch(event):
        return [ToolProblem("event", "the name of an event has no spaces", "write `event: order.paid`")]
    return []


EMIT = ToolInfo(
    kind="emit",
    about="Writes a line to the run's log immediately; `refold runs logs -f` shows it to those who follow the run."
    " Another try of the step writes it again.",
    keys=(
        ToolKey(name="event", type="text", about="the name of the event, without spaces (`message`)"),
        ToolKey(name="data", type="any", about="data of the event, shown as JSON"),
        ToolKey(name="message", type="text", about="a line of text, in place of `event` and `data`"),
    ),
    result="`{event, data}`; the data of a message is its text",
    result_keys=("event", "data"),
    check=check_emit,
    example="""\
tool:
  kind: emit
  event: order.paid
  data: {id: "{{ ctx.order.id }}"}
""",
)

_EMIT_KEYS = Keys(EMIT)


async def emit(call: ToolCall) -> Any:
    keys = _EMIT_KEYS.read(call).keys
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


def _say(call: ToolCall, text: str) -> None:
    """Write each line of a text to the run's log."""
    if call.say is not None:
        for line in text.splitlines():
            call.say(STREAM, line)


class FunctionTool:
    """`isolation` names the executor, `inline` if it is not given.

    The function gets the input of the step as its only argument, or none if it has no parameter; it may be async.
    `allowed` are modules and functions (`package`, `package.module:function`) that may be called; None: any, for
    workflows that are written by whoever runs them.
    """

    def __init__(
        self,
        executors: Mapping[str, Executor],
        allowed: Collection[str] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.executors, self.allowed, self.cluster = executors, allowed, cluster

    async def __call__(self, call: ToolCall) -> Any:
        function, isolation = call.settings.get("call"), call.settings.get("isolation", "inline")
        if not isinstance(function, str):
            raise _refused("invalid_settings", "`call` must be 'module:function'")
        is_remote = isolation == "ray" and self.cluster is not None
        if not is_remote and (not isinstance(isolation, str) or isolation not in self.executors):
            known = ", ".join(map(repr, self.executors))
            raise _refused("invalid_settings", f"`isolation` must be one of {known}, not {isolation!r}")
        if not may_call(function, self.allowed):
            raise _refused("not_allowed", f"{function!r} is not among the functions that may be called")
        if is_remote and self.cluster is not None:
            return await self.cluster.run(function, call.input, cluster_needs(call.settings), call.say)
        return await self.executors[isolation].run(function, call.input, call.say)


def may_call(function: str, allowed: Collection[str] | None) -> bool:
    if allowed is None:
        return True
    module = function.partition(":")[0]
    return function in allowed or any(f"{module}.".startswith(f"{each}.") for each in allowed)


def _refused(kind: str, why: str) -> ToolFailed:
    return ToolFailed(Fault(kind, why, retryable=False))
