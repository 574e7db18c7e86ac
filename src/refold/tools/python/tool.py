"""The tool `python`: runs code of a playbook, a script or a function, in another process or in this one."""

import os
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import structs

from refold.core.outcomes import Succeeded
from refold.ports import Cluster, Done, Executor, ToolCall
from refold.tool_api import Arguments, Keys, folder_of, refused, text_of
from refold.tools.artifact.tool import safe_join
from refold.tools.python.body import RESULT, USAGE, CodeCall, may_share_a_loop
from refold.tools.python.info import PYTHON
from refold.tools.python.noetl import Overheard
from refold.tools.shared_keys import cluster_needs
from refold.tools.simple import may_call

BODY = "refold.tools.python.body"
SCRIPTS = ("", "scripts")  # where a script may be, in the present folder and in that of its playbook


class PythonTool:
    """Runs Python code; `allowed` are modules and functions that `entry` may name, None means any."""

    def __init__(
        self,
        executors: Mapping[str, Executor],
        allowed: Collection[str] | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.executors, self.allowed, self.cluster = executors, allowed, cluster
        self._keys = Keys(PYTHON)

    async def __call__(self, call: ToolCall) -> Any:
        given = self._keys.read(call)
        order = self._order(call, given)
        if given.keys.get("isolation") == "ray":
            return await self._on_cluster(call, given, order)
        if given.keys.get("isolation", "process") == "process":
            order.cwd = folder_of(call, order.cwd)
            told = {name: value for name, value in structs.asdict(order).items() if value is not None}
            return _done(await self.executors["process"].run(f"{BODY}:run_alone", told, call.say))
        if order.cwd is not None or order.env:
            raise refused("`cwd` and `env` need a process of their own, and `isolation: inline` has none")
        order.input, order.scope, order.say = _copied(order.input), _copied(order.scope), call.say
        if order.scope is not None:
            order.overheard, order.say = Overheard(), call.say or _nobody
        body = "run_async" if may_share_a_loop(order) else "run"
        return _done(await self.executors["inline"].run(f"{BODY}:{body}", order, call.say))

    async def _on_cluster(self, call: ToolCall, given: Arguments, order: CodeCall) -> Any:
        if self.cluster is None:
            raise refused("this process has no cluster for steps on Ray")
        if order.cwd is not None:
            raise refused("`cwd` means nothing on another machine: use `runtime_env: {working_dir: ...}`")
        if order.script is not None:
            with open(order.script, encoding="utf-8") as file:
                order.code, order.script = file.read(), None
        told = {name: value for name, value in structs.asdict(order).items() if value is not None}
        return _done(await self.cluster.run(f"{BODY}:run_alone", told, cluster_needs(given.keys), call.say))

    def _order(self, call: ToolCall, given: Arguments) -> CodeCall:
        keys = given.keys
        if sum(name in keys for name in ("code", "script", "entry")) != 1:
            raise refused("python needs exactly one of `code`, `script` and `entry`")
        return CodeCall(
            step=call.command.step,
            input=given.input,
            context=_context(call),
            code=keys.get("code"),
            script=_script(keys["script"], call.settings.get("folder"), call.command.folder or ".")
            if "script" in keys
            else None,
            entry=self._entry(keys["entry"]) if "entry" in keys else None,
            takes=keys.get("takes", "names"),
            libs=keys.get("libs"),
            cwd=keys.get("cwd"),
            env={name: text_of(value, f"`env.{name}`") for name, value in keys.get("env", {}).items()},
            scope=_scope(call) if call.settings.get("dialect") == "noetl" else None,
        )

    def _entry(self, name: str) -> str:
        module, _, function = name.partition(":")
        if not module or not function:
            raise refused(f"`entry`: {name!r} does not name a function: write 'package.module:function'")
        if not may_call(name, self.allowed):
            raise refused(f"{name!r} is not among the functions that may be called", "not_allowed")
        return name


def _nobody(stream: str, line: str) -> None:
    pass


def _script(name: str, playbook: str | None, present: str) -> str:
    """Return the path of a script: as written, then next to the playbook. None may be outside of these folders."""
    folders = [os.path.join(root, each) for root in (present, playbook) if root is not None for each in SCRIPTS]
    for folder in folders:
        path = safe_join(folder, name)
        if path is not None and os.path.isfile(path):
            return path
    where = ", ".join(dict.fromkeys(map(os.path.abspath, folders)))
    raise refused(f"there is no script {name!r} in {where}", "no_script")


def _scope(call: ToolCall) -> dict[str, Any]:
    """Return what templates can read at this step, in a NoETL file."""
    given = call.input.get("context") if isinstance(call.input, dict) else None
    return given if isinstance(given, dict) else {}


def _done(value: Any) -> Any:
    """Return the result with the usage that the code has reported."""
    return Done(Succeeded(value[RESULT]), usage=value[USAGE]) if value[USAGE] else value[RESULT]


def _context(call: ToolCall) -> dict[str, Any]:
    command = call.command
    return {
        "run": call.run,
        "step": command.step,
        "visit": command.visit,
        "attempt": command.attempt,
        "last_error": command.last_error or None,
        "item": command.item,
        "idempotency_key": call.idempotency_key,
        "usage": {},
    }


def _copied(value: Any) -> Any:
    """Return a copy, because the code may change its input."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
