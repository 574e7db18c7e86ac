"""What the templates of a pipeline can read: its own values, what was bound, and what was captured with its issue."""

from collections import ChainMap
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from refold.core.expressions import Aliased, CannotEvaluate
from refold.core.pipeline import TaskPipeline
from refold.core.read.template_scope import with_aliases
from refold.templates.json_paths import Selected
from refold.templates.noetl_names import with_statements


class TaskProgress(Struct):
    """The progress of a pipeline, which is stored while it waits."""

    of: int = 0  # which try of the step
    at: int = 0  # the task
    attempt: int = 1  # of it
    runs: int = 0  # of all tasks
    times: dict[str, int] = {}  # how often each task was begun
    labels: dict[str, Any] = {}  # what has come of each
    prev: Any = None
    ctx: dict[str, Any] = {}
    iter: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    since: int = 0  # when it was begun
    waiting: bool = False  # it was put aside in the midst of a try
    inner: Any = None  # the progress of the tool itself
    asked_since: int = 0  # when a busy service first asked the task to wait
    error: str = ""  # why the try before this one failed
    before: str = ""  # why the last try of the step failed
    sealed: Any = None  # all values among these, where the result is secret


class TaskScope:
    """A read-only view. Precedence: names of the engine, bound values, values of the pipeline, captured values."""

    def __init__(
        self, pipeline: TaskPipeline, progress: TaskProgress, ids: Mapping[str, Any], given: Mapping[str, Any]
    ) -> None:
        self.pipeline, self.progress, self.ids = pipeline, progress, ids
        self.given: Mapping[str, Any] = given.get("input") or {}
        self.captured: Mapping[str, Any] = with_aliases(given.get("scope") or {})
        self.bound = self.given  # to the task that is being rendered
        self.now: Mapping[str, Any] = ids  # and names of this moment: `output`, `keychain`

    def __getitem__(self, name: str) -> Any:
        if name in self.now:
            return self.now[name]
        if name in _FIRST:
            return _FIRST[name](self)
        if name in self.bound:
            return self.bound[name]
        if name == "args" and self.pipeline.language == "noetl":
            return ChainMap(dict(self.bound), self.captured.get("args") or {})  # as older files call it
        return _OWN[name](self) if name in _OWN else self._made_or_captured(name)

    def _made_or_captured(self, name: str) -> Any:
        made = self.progress
        for names in (made.vars, made.labels, made.ctx, self.captured):
            if name in names:
                is_result = names is made.labels or (names is self.captured and name in self.pipeline.results)
                return _result(names[name], self._selects(name)) if is_result else names[name]
        if name == "job" and "execution_id" in self.ids:
            return {"uuid": self.ids["execution_id"]}  # whoever calls something of his own so means that
        raise CannotEvaluate(f"{name!r} is not defined")

    def _selects(self, name: str) -> Mapping[str, str]:
        return next((task.select for task in self.pipeline.tasks if task.name == name), {})

    def at_this_moment(self, **names: Any) -> None:
        self.now = {**self.ids, **names}

    def set(self, values: Mapping[str, Any]) -> None:
        """Set values in their scope: the run's, the iteration's, or the pipeline's own."""
        made = self.progress
        for key, value in values.items():
            scope, dot, rest = key.partition(".")
            if dot and scope in ("ctx", "step"):
                made.ctx[rest] = value
            elif dot and scope == "iter":
                made.iter[rest] = value
            else:
                made.vars[key] = value

    def _over(self, name: str, made: dict[str, Any]) -> Mapping[str, Any] | Aliased:
        captured = self.captured.get(name)
        if isinstance(captured, Aliased) and isinstance(captured.data, dict):
            return Aliased(ChainMap(made, captured.data), captured.aliases)
        return ChainMap(made, captured) if isinstance(captured, dict) else made


def _result(value: Any, select: Mapping[str, str] = MappingProxyType({})) -> Any:
    """A result also answers to `data`; that of a list of tools has its labels under `results` too."""
    captured: Mapping[str, Any] = {}
    if isinstance(value, Aliased):
        captured, value = {name: each for name, each in value.aliases.items() if each is not value.data}, value.data
    named = with_statements(value)
    own = {"data": named, "results": value, "status": "ok", "error": {}, **captured}
    return Aliased(Aliased(named, Selected(value, select)) if select else named, own)


def _step(scope: TaskScope) -> dict[str, Any]:
    own = (key.removeprefix("step.") for key in scope.pipeline.own)
    return {key: scope.progress.ctx[key] for key in own if key in scope.progress.ctx}


_FIRST: dict[str, Callable[[TaskScope], Any]] = {
    "ctx": lambda scope: scope._over("ctx", scope.progress.ctx),
    "iter": lambda scope: scope._over("iter", scope.progress.iter),
    "input": lambda scope: ChainMap(dict(scope.bound), scope.captured.get("input") or {}),
}
_OWN: dict[str, Callable[[TaskScope], Any]] = {
    "step": _step,
    "results": lambda scope: scope.progress.labels,
    "_prev": lambda scope: _result(scope.progress.prev),
    "_task": lambda scope: scope.pipeline.tasks[scope.progress.at].name,
    "_attempt": lambda scope: scope.progress.attempt,
    "_last_error": lambda scope: scope.progress.error,
}
