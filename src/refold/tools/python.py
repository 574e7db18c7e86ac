"""The tool `python`: code of a playbook, a script or a function, in a warm process or in this one."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import structs

from refold.core.facts import Succeeded
from refold.ports import Call, Done, Executor
from refold.tools.catalog import PYTHON
from refold.tools.function import may_call
from refold.tools.keys import Given, Keys, refused, text_of
from refold.tools.python_body import RESULT, USAGE, Order, is_async

BODY = "refold.tools.python_body"
FOLDERS = (".", "scripts")


class PythonTool:
    """`folders` are where scripts are looked for. `allowed` are modules and functions that `entry` may name, as for the
    tool `function`; None: any."""

    def __init__(
        self,
        executors: Mapping[str, Executor],
        allowed: Collection[str] | None = None,
        folders: Sequence[str] = FOLDERS,
    ) -> None:
        self.executors, self.allowed, self.folders = executors, allowed, folders
        self._keys = Keys(PYTHON)

    async def __call__(self, call: Call) -> Any:
        given = self._keys.read(call)
        order = self._order(call, given)
        if given.keys.get("isolation", "process") == "process":
            told = {name: value for name, value in structs.asdict(order).items() if value is not None}
            return _done(await self.executors["process"].run(f"{BODY}:run_alone", told, call.say))
        if order.cwd is not None or order.env:
            raise refused("`cwd` and `env` need a process of their own, and `isolation: inline` has none")
        order.input, order.say = _copied(order.input), call.say
        body = "run_async" if is_async(order) else "run"
        return _done(await self.executors["inline"].run(f"{BODY}:{body}", order, call.say))

    def _order(self, call: Call, given: Given) -> Order:
        keys = given.keys
        if sum(name in keys for name in ("code", "script", "entry")) != 1:
            raise refused("python needs exactly one of `code`, `script` and `entry`")
        return Order(
            step=call.command.step,
            input=given.input,
            context=_context(call),
            code=keys.get("code"),
            script=self._script(keys["script"]) if "script" in keys else None,
            entry=self._entry(keys["entry"]) if "entry" in keys else None,
            libs=keys.get("libs"),
            cwd=keys.get("cwd"),
            env={name: text_of(value, f"`env.{name}`") for name, value in keys.get("env", {}).items()},
        )

    def _script(self, name: str) -> str:
        for folder in self.folders:
            path = os.path.abspath(os.path.join(folder, name))
            if os.path.isfile(path):
                return path
        where = ", ".join(map(os.path.abspath, self.folders))
        raise refused(f"there is no script {name!r} in {where}", "no_script")

    def _entry(self, name: str) -> str:
        module, _, function = name.partition(":")
        if not module or not function:
            raise refused(f"`entry`: {name!r} does not name a function: write 'package.module:function'")
        if not may_call(name, self.allowed):
            raise refused(f"{name!r} is not among the functions that may be called", "not_allowed")
        return name


def _done(value: Any) -> Any:
    """What the code says it has used up stands beside its result."""
    if isinstance(value, dict) and value.keys() == {USAGE, RESULT}:
        return Done(Succeeded(value[RESULT]), usage=value[USAGE])
    return value


def _context(call: Call) -> dict[str, Any]:
    command = call.command
    return {
        "run": call.run,
        "step": command.step,
        "visit": command.visit,
        "attempt": command.attempt,
        "item": command.item,
        "idempotency_key": call.idempotency_key,
        "usage": {},
    }


def _copied(value: Any) -> Any:
    """What the code changes is its own affair."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
