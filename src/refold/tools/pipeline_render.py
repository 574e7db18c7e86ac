"""Rendering in the worker: the keys of a task, its bound values, and what its rules compare and count."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from refold.core.expressions import CannotEvaluate
from refold.core.pipelines import Task
from refold.templates import Templates
from refold.tools.keys import seconds_of
from refold.tools.pipeline_quoting import QUOTED
from refold.tools.pipeline_scope import Scope
from refold.tools.pipeline_secrets import Wallet, as_auth, named_in


class Ready(Struct):
    """A task whose tool can be called."""

    input: dict[str, Any]
    keys: dict[str, Any]
    settings: dict[str, Any]
    context: dict[str, Any] | None = None


class Renderer:
    def __init__(self, templates: Templates, scope: Scope, wallet: Wallet) -> None:
        self.templates, self.scope, self.wallet = templates, scope, wallet

    async def prepared(self, task: Task) -> Ready:
        """Raises CannotEvaluate, with the key. Secrets are fetched now, those that the task names and no others."""
        wanted = named_in([task.keys, task.rendered, task.input])
        if wanted:
            self.scope.at_this_moment(**await self.wallet.names(wanted))
        self.scope.bound = bound = self.bound(task)
        try:
            keys = self._keys(task)
            settings = {**task.settings, **self.values(task.rendered, "")}
        finally:
            self.scope.bound = self.scope.given
            self.scope.at_this_moment()
        for name in task.credentials:
            if isinstance(keys.get(name), str):
                keys[name] = as_auth(task.kind, await self.wallet.entry(keys[name]))
        return Ready(bound, keys, settings, self._context())

    def _keys(self, task: Task) -> dict[str, Any]:
        plain = {name: template for name, template in task.keys.items() if name not in task.quoted}
        keys = self.values(plain, "")
        for name, how in task.quoted.items():
            if name in task.keys:
                keys |= QUOTED[how](task, name, lambda text: self.templates.pieces(text, self.scope), keys)
        return keys

    def bound(self, task: Task) -> dict[str, Any]:
        """The step's input, and over it the task's own."""
        return {**self.scope.given, **self.values(task.input, "input")}

    def values(self, templates: Mapping[str, Any], key: str) -> dict[str, Any]:
        """All are rendered before anybody sees one of them."""
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
            raise CannotEvaluate(f"`{what}`: {value!r} is no number")
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
