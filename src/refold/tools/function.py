"""The tool `function`: calls user code by its name, `{"call": "package.module:function"}`."""

from collections.abc import Collection, Mapping
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Call, Executor


class FunctionTool:
    """`isolation` names the executor, `inline` if it is not given.

    The function gets the input of the step as its only argument, or none if it has no parameter; it may be async.
    `allowed` are modules and functions (`package`, `package.module:function`) that may be called; None: any, for
    workflows that are written by whoever runs them.
    """

    def __init__(self, executors: Mapping[str, Executor], allowed: Collection[str] | None = None) -> None:
        self.executors, self.allowed = executors, allowed

    async def __call__(self, call: Call) -> Any:
        function, isolation = call.settings.get("call"), call.settings.get("isolation", "inline")
        if not isinstance(function, str):
            raise _refused("invalid_settings", "`call` must be 'module:function'")
        if not isinstance(isolation, str) or isolation not in self.executors:
            known = ", ".join(map(repr, self.executors))
            raise _refused("invalid_settings", f"`isolation` must be one of {known}, not {isolation!r}")
        if not may_call(function, self.allowed):
            raise _refused("not_allowed", f"{function!r} is not among the functions that may be called")
        return await self.executors[isolation].run(function, call.input, call.say)


def may_call(function: str, allowed: Collection[str] | None) -> bool:
    if allowed is None:
        return True
    module = function.partition(":")[0]
    return function in allowed or any(f"{module}.".startswith(f"{each}.") for each in allowed)


def _refused(kind: str, why: str) -> ToolFailed:
    return ToolFailed(Fault(kind, why, retryable=False))
