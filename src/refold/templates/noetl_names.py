"""The names that templates of NoETL playbooks can read, and the aliases of values there."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from refold.core.decide.inputs import InputScope
from refold.core.expressions import Aliased, CannotEvaluate, TemplateScope
from refold.core.fold.routing import ARC_INPUTS
from refold.core.outcomes import Fault
from refold.core.pipeline import TaskPipeline
from refold.core.plan import bare_key
from refold.core.read.template_scope import RunInfo, RunScope, step_value
from refold.core.state import FAILED, shown_life
from refold.templates.json_paths import Selected
from refold.templates.sql_results import STATEMENTS, is_sql_result

RETRYABLE = frozenset(
    [
        "connection",
        "timeout",
        "rate_limit",
        "server_error",
        "db_connection",
        "db_deadlock",
        "db_timeout",
        "missing_reference",
        "lost",
    ]
)
"""Kinds of errors after which another try may help."""


class NoetlNames:
    """Precedence: names of the engine, inputs from arcs, the context, results of steps, the workload."""

    def __init__(self, view: RunScope) -> None:
        self.view = view

    def __getitem__(self, name: str) -> Any:
        if name in RESERVED:
            return RESERVED[name](self.view)
        view = self.view
        given = view.extra.get(ARC_INPUTS, {})
        if name in given:
            return given[name]
        if name in view.ctx:
            return view.ctx[name]
        s = view.graph.index.get(name)
        if s is not None and (view.has_result(s) or view.state.steps[s].fault is not None):
            return result_of(view, s)
        for where in (view.state.input, view.graph.plan.constants, view.extra, {"job": {"uuid": view.state.run}}):
            if name in where:
                return where[name]
        if name == "args":
            return _input(view)  # the name in older files
        raise CannotEvaluate(f"{name!r} is not defined")


def named(view: TemplateScope) -> TemplateScope:
    """Return a view with NoETL's names of a run; any other view has its names already."""
    if isinstance(view, InputScope):
        return _InputNames(view)
    return NoetlNames(view) if isinstance(view, RunScope) else view


class _InputNames:
    """The names for the defaults of inputs: the id of the run, and the inputs."""

    def __init__(self, view: InputScope) -> None:
        self._view = view

    def __getitem__(self, name: str) -> Any:
        if name == "execution_id":
            return self._view.run
        return {"uuid": self._view.run} if name == "job" else self._view[name]


def result_of(view: RunScope, s: int) -> Any:
    """Return the result of a step, with aliases such as `data`; a large result also has a reference to where it is."""
    state = view.state.steps[s]
    if state.fault is not None and state.last == FAILED:
        value = step_value(view.state, view.loaded, s) if state.shown is not None else None
        return Aliased(value, {"status": "error", "error": error_of(state.fault), "data": value})
    value = step_value(view.state, view.loaded, s)
    named = _selected(view, s, value)
    return Aliased(named, {"status": "ok", "error": {}, "data": named, "results": value, **_reference(view, s)})


def _selected(view: RunScope, s: int, value: Any) -> Any:
    """Return a result with the names that its step gives to fields of it."""
    work = view.graph.step(s).work
    if not isinstance(work, TaskPipeline):
        return value
    named = with_statements(value)
    return Aliased(named, Selected(value, work.select)) if work.select else named


def with_statements(value: Any) -> Any:
    """Return the result of SQL with NoETL's names for it; the same for the results of a list of tools."""
    if type(value) is not dict:
        return value
    if is_sql_result(value):
        return Aliased(value, dict.fromkeys(STATEMENTS, value))
    found = {label: with_statements(each) for label, each in value.items() if is_sql_result(each)}
    return {**value, **found} if found else value


def _reference(view: RunScope, s: int) -> dict[str, Any]:
    blob = view.state.steps[s].blob
    if blob is None:
        return {}
    ref = f"noetl://execution/{view.state.run}/result/{view.graph.name(s)}/{blob.hash}"
    stored = {"kind": "result_ref", "ref": ref, "store": "engine", "scope": "execution", "meta": {"bytes": blob.size}}
    return {"_ref": stored, "_store": "engine", "_uri": ref, "_preview": None}


def error_of(fault: Fault | None) -> dict[str, Any]:
    """Return an error as rules and arcs read it; an empty map if there is none."""
    if fault is None:
        return {}
    data = fault.data if isinstance(fault.data, Mapping) else {}
    status = data.get("status_code")
    return {
        "kind": fault.kind,
        "retryable": fault.retryable if fault.retryable is not None else fault.kind in RETRYABLE,
        "code": fault.code,
        "message": fault.message,
        "source": data.get("source"),
        "status_code": status,
        "status": status,
        "http_status": status,
        "retry_after": fault.retry_after,
        "pg_code": data.get("sqlstate"),
        "exception_type": fault.type or None,
        "traceback": fault.traceback or None,
        "details": fault.data,
    }


class _Steps(Mapping[str, Any]):
    """Each step that has ended, with status, data and error."""

    def __init__(self, view: RunScope) -> None:
        self._view = view

    def __getitem__(self, name: str) -> Any:
        s = self._view.graph.index[name]
        state = self._view.state.steps[s]
        if not self._has_ended(s):
            raise KeyError(name)
        value = step_value(self._view.state, self._view.loaded, s)
        return {"status": shown_life(state), "data": value, "error": error_of(state.fault)}

    def _has_ended(self, s: int) -> bool:
        return self._view.has_result(s) or self._view.state.steps[s].fault is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name, s in self._view.graph.index.items() if self._has_ended(s))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _context(view: RunScope) -> dict[str, Any]:
    """Return `context` for Python code: it holds everything, so it is created only for code that names it."""
    steps = {name: step_value(view.state, view.loaded, s) for name, s in view.graph.index.items() if view.has_result(s)}
    ids = {name: _engine(name)(view) for name in ("execution_id", "catalog_id", "path", "version")}
    own = {"workload": view.state.input, "ctx": dict(view.ctx), "steps": sorted(steps), **ids}
    constants = {name: each for name, each in view.graph.plan.constants.items() if not name.startswith("$")}
    return {**constants, **view.state.input, **steps, **view.ctx, **own}


def _output(view: RunScope) -> Any:
    """Return the data of the visit that has just ended, with the aliases `data`, `status` and `error`."""
    if "output" not in view.extra:
        raise CannotEvaluate("'output' is not defined here: no step has just ended")
    told = view.extra["output"]
    data = told["data"]
    named = _selected(view, told.s, data)
    return Aliased(named, {"data": named, "status": told["status"], "error": error_of(told.fault)})


def _event(view: RunScope) -> dict[str, Any]:
    if "output" not in view.extra:
        raise CannotEvaluate("'event' is not defined here: no step has just ended")
    told = view.extra["output"]
    step = view.graph.step(told.s)
    well = "loop.done" if step.loop is not None else "step.done"
    return {"name": well if told.fault is None else "step.failed", "step": step.name}


def _input(view: RunScope) -> dict[str, Any]:
    """Return the input of the run, with the input of the visit, if there is one, merged over it."""
    told = view.extra.get("output")
    kept = view.state.steps[told.s].kept_input if told is not None else None
    bound = kept["input"] if kept is not None else {}
    return {**view.state.input, **bound, **view.extra.get(ARC_INPUTS, {})}


def _own(view: RunScope) -> dict[str, Any]:
    """Return what the step that has just ended sets for itself; it is in the context like every value that is set."""
    told = view.extra.get("output")
    if told is None:
        return {}
    step = view.graph.step(told.s)
    inside = step.work.own if isinstance(step.work, TaskPipeline) else ()
    keys = [*step.set, *inside, *(key for arc in step.arcs for key in arc.set)]
    own = [bare_key(key) for key in keys if key.startswith("step.")]
    return {key: view.ctx[key] for key in own if key in view.ctx}


def _engine(name: str) -> Callable[[RunScope], Any]:
    def find(view: RunScope) -> Any:
        about = view.graph.plan.constants.get("$playbook", {})
        return {"execution_id": view.state.run, "catalog_id": view.state.plan, **about}.get(name)

    return find


def _summary(view: RunScope) -> dict[str, Any]:
    told = RunInfo(view)
    return {"execution_id": told["id"], "counts": told["counts"], "failures": told["failures"]}


RESERVED: dict[str, Callable[[RunScope], Any]] = {
    "workload": lambda view: view.state.input,
    "ctx": lambda view: view.ctx,
    "input": _input,
    "steps": _Steps,
    "step": _own,
    "output": _output,
    "event": _event,
    "summary__": _summary,
    "context": _context,
    "execution_id": _engine("execution_id"),
    "catalog_id": _engine("catalog_id"),
    "path": _engine("path"),
    "version": _engine("version"),
    "server_url": lambda view: None,
}
