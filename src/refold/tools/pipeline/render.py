"""Renders in the worker: the keys of a task, its bound values, and the conditions and numbers of its rules."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from refold.core.expressions import CannotEvaluate
from refold.core.pipeline import Task
from refold.templates import Templates
from refold.tool_api import seconds_of
from refold.tools.noetl_text import Quote
from refold.tools.pipeline.scope import TaskScope
from refold.tools.pipeline.secrets import Wallet, as_auth, named_in
from refold.tools.python import noetl_text as python_text
from refold.tools.shell import noetl_text as shell_text
from refold.tools.sql import noetl_text as sql_text

QUOTED: Mapping[str, Quote] = {"shell": shell_text.quote, "sql": sql_text.quote, "python": python_text.quote}


class RenderedTask(Struct):
    """A task that is rendered, so that its tool can be called."""

    input: dict[str, Any]
    keys: dict[str, Any]
    settings: dict[str, Any]
    context: dict[str, Any] | None = None


class Renderer:
    def __init__(self, templates: Templates, scope: TaskScope, wallet: Wallet) -> None:
        self.templates, self.scope, self.wallet = templates, scope, wallet

    async def prepared(self, task: Task) -> RenderedTask:
        """Render a task.

        Raises CannotEvaluate with the key. Only the secrets that the task names are fetched, and only now.
        """
        wanted = named_in([task.keys, task.rendered, task.input])
        if wanted:
            self.scope.at_this_moment(**await self.wallet.names(wanted))
        self.scope.bound = bound = self.bound(task)
        try:
            quoted = self._quoted(task)
            keys = self._rendered(task.keys, quoted)
            settings = {**task.settings, **self._rendered(task.rendered, quoted)}
        finally:
            self.scope.bound = self.scope.given
            self.scope.at_this_moment()
        for path in task.credentials:
            await self._credential(task, keys, path)
        return RenderedTask(bound, keys, settings, self._context())

    async def _credential(self, task: Task, keys: dict[str, Any], path: str) -> None:
        """Put a credential in the place of its name; the path leads into a map, as for `source.auth` of a transfer."""
        holder, _, inner = path.rpartition(".")
        owner = keys.get(holder) if holder else keys
        name = owner.get(inner) if isinstance(owner, dict) else None
        if not isinstance(owner, dict) or not isinstance(name, str):
            return
        auth = as_auth(task.kind, await self.wallet.entry(name))
        if holder:
            keys[holder] = {**owner, inner: auth}
        else:
            keys[inner] = auth

    def _rendered(self, templates: Mapping[str, Any], quoted: Mapping[str, Any]) -> dict[str, Any]:
        plain = {name: template for name, template in templates.items() if name not in quoted}
        return {**self.values(plain, ""), **{name: quoted[name] for name in templates if name in quoted}}

    def _quoted(self, task: Task) -> dict[str, Any]:
        """Return the texts of NoETL files with their values in them."""
        texts = {**task.rendered, **task.keys}
        found: dict[str, Any] = {}
        for name, how in self._ways(task).items():
            if name in texts:
                found |= QUOTED[how](task, name, lambda text: self.templates.pieces(text, self.scope), texts)
        return found

    def _ways(self, task: Task) -> dict[str, str]:
        """Return how values are put into each text of a task. Plans of older versions do not name all of them."""
        ways: dict[str, str] = dict(task.quoted)
        if task.kind == "python" and "code" in task.rendered:
            ways["code"] = "python"
        if task.kind == "shell" and "script" in task.rendered:
            ways["script"] = "shell"
        if task.kind in sql_text.STYLES and isinstance(task.keys.get("commands"), list) and self.templates.lenient:
            ways["commands"] = "sql"
        return ways

    def bound(self, task: Task) -> dict[str, Any]:
        """Return the input of the step, with the task's own merged over it."""
        return {**self.scope.given, **self.values(task.input, "input")}

    def values(self, templates: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Render values. All are rendered before any is set, so that none can read another."""
        found = {}
        for name, template in templates.items():
            try:
                found[name] = self.templates.value(template, self.scope)
            except CannotEvaluate as error:
                where = f"{key}.{name}" if key else name
                raise CannotEvaluate(f"{where}: {error}") from None
        return found

    def holds(self, condition: Any) -> bool:
        return self.templates.truth(condition, self.scope)

    def number(self, template: Any, what: str) -> float:
        value = self.templates.value(template, self.scope)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = -1.0
        if isinstance(value, bool) or not 0 <= number < float("inf"):
            raise CannotEvaluate(f"`{what}`: {value!r} is not a number")
        return number

    def seconds(self, template: Any) -> float | None:
        value = None if template is None else self.templates.value(template, self.scope)
        return None if value is None else seconds_of(value, "`timeout`")

    def _context(self) -> dict[str, Any] | None:
        captured = self.scope.captured.get("context")
        if captured is None:
            return None
        made = self.scope.progress
        return {**captured, **made.ctx, "ctx": {**captured.get("ctx", {}), **made.ctx}, **made.labels, **made.vars}
