"""The names that expressions of a run can read, looked up when they are read: the cost does not grow with the state."""

from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from refold.core.expressions import Aliased, CannotEvaluate, Missing, Path, TemplateScope, step_into, unaliased
from refold.core.facts import ChildEnded, Fact, ItemsSettled, Planned
from refold.core.faults import error_value
from refold.core.fold import fanout
from refold.core.graph import Graph
from refold.core.outcomes import Fault, Instant, Outcome, Succeeded, fault_of_outcome
from refold.core.read.budget import over_budget, over_budget_text
from refold.core.read.loaded import Loaded, item_value, key_of
from refold.core.state import (
    CANCELLED,
    FAILED,
    ITEM_COMPLETED,
    ITEM_FAILED,
    ITEM_RUNNING,
    ITEM_SKIPPED,
    ITEM_STOPPED,
    FanOut,
    RunState,
    shown_life,
)
from refold.core.times import stamp

ALIASES = "$aliases"  # among captured values: names for parts of other ones
LISTED = 100_000  # a loop with more items has as its result the counts of outcomes, and not a list


class RunScope:
    """The scope of an expression. Names are looked up in: extra names, reserved names, context, steps, input, and at
    last the names of times, because anything else may have them too."""

    def __init__(
        self, graph: Graph, state: RunState, loaded: Loaded, extra: Mapping[str, Any], now: Instant = 0
    ) -> None:
        self.graph, self.state, self.loaded, self.extra = graph, state, loaded, extra
        self.now = max(now, state.at)  # the time of the turn
        self.ctx: Mapping[str, Any] = state.ctx

    def __getitem__(self, name: str) -> Any:
        if name in self.extra:
            return self.extra[name]
        if name in _RESERVED:
            return _RESERVED[name](self)
        if name in self.ctx:
            return self.ctx[name]
        s = self.graph.index.get(name)
        if s is not None and self.has_result(s):
            return step_value(self.state, self.loaded, s)
        if name in self.state.input:
            return self.state.input[name]
        if name in _TIMES:
            return _TIMES[name](self)
        raise CannotEvaluate(f"{name!r} is not defined")

    def has_result(self, s: int) -> bool:
        return self.state.steps[s].done_at > 0


class _Steps(Mapping[str, Any]):
    def __init__(self, view: RunScope) -> None:
        self._view = view

    def __getitem__(self, name: str) -> Any:
        s = self._view.graph.index[name]
        if not self._view.has_result(s):
            raise KeyError(name)
        return step_value(self._view.state, self._view.loaded, s)

    def __iter__(self) -> Iterator[str]:
        return (name for name, s in self._view.graph.index.items() if self._view.has_result(s))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RunInfo(Mapping[str, Any]):
    """The name `run`: id, name and start of the run, the number of its steps per state, and its failures."""

    def __init__(self, view: RunScope) -> None:
        self._view = view

    def __getitem__(self, name: str) -> Any:
        return _RUN_INFO[name](self._view)

    def __iter__(self) -> Iterator[str]:
        return iter(_RUN_INFO)

    def __len__(self) -> int:
        return len(_RUN_INFO)


def _counts(view: RunScope) -> dict[str, int]:
    return {"total": len(view.state.steps), **Counter(map(shown_life, view.state.steps))}


def _failures(view: RunScope) -> list[dict[str, Any]]:
    steps = ((name, view.state.steps[s]) for name, s in view.graph.index.items())
    return [{"step": name, "error": error_value(s.fault)} for name, s in steps if shown_life(s) == FAILED]


def _error(view: RunScope) -> dict[str, Any] | None:
    """Return why the run ends, for its finalizers: kind and message, and the step if it is the failure of one. None:
    the run is not ending, or it completes."""
    state, why = view.state, view.state.error
    if why is not None and why.fault is not None:
        return {"message": "", **error_value(why.fault), "step": why.step}
    if why is not None:
        kind = "timeout" if state.exceeded is not None and not why.step else "failed"
        return {"kind": kind, "message": why.why, "step": why.step}
    if state.outcome == CANCELLED:
        return {"kind": "cancelled", "message": state.cancel_reason or "the run was cancelled", "step": ""}
    exceeded = over_budget(state) if state.outcome else None
    return None if exceeded is None else {"kind": "budget", "message": over_budget_text(*exceeded), "step": ""}


_RUN_INFO: dict[str, Callable[[RunScope], Any]] = {
    "id": lambda view: view.state.run,
    "name": lambda view: view.state.name,
    "started_at": lambda view: stamp(view.state.started_at),
    "counts": _counts,
    "failures": _failures,
    "error": _error,
    "folder": lambda view: view.state.folder,
}

_RESERVED: dict[str, Callable[[RunScope], Any]] = {
    "input": lambda view: view.state.input,
    "workload": lambda view: view.state.input,
    "ctx": lambda view: view.ctx,
    "steps": _Steps,
    "run": lambda view: RunInfo(view),
}


def schedule_value(planned: Planned | None) -> dict[str, Any]:
    """Return the name `schedule`: its parts are empty if no schedule has started the run."""
    if planned is None:
        return {"id": "", "planned": None, "previous": None, "backfill": ""}
    previous = None if planned.previous is None else stamp(planned.previous)
    return {"id": planned.id, "planned": stamp(planned.planned), "previous": previous, "backfill": planned.backfill}


_TIMES: dict[str, Callable[[RunScope], Any]] = {
    "now": lambda view: stamp(view.now),
    "schedule": lambda view: schedule_value(view.state.schedule),
}


def step_value(state: RunState, loaded: Loaded, s: int) -> Any:
    """Return the value of a finished step for expressions: its result, or results and states of the items of a loop."""
    step = state.steps[s]
    if step.shown is not None:
        return LoopResult(step.shown, loaded)
    return loaded.blob(step.blob) if step.blob is not None else step.result


class LoopResult(Mapping[str, Any]):
    """The outcomes of the items of a loop, computed when they are read, because there may be many."""

    def __init__(self, fan: FanOut, loaded: Loaded) -> None:
        self._fan, self._loaded = fan, loaded

    def __getitem__(self, name: str) -> Any:
        return _ITEM_NAMES[name](self._fan, self._loaded)

    def __iter__(self) -> Iterator[str]:
        return iter(_WHOLE)

    def __len__(self) -> int:
        return len(_WHOLE)


def _stats(fan: FanOut, loaded: Loaded) -> dict[str, int]:
    counts = {"total": fan.count, "success": fan.done, "failed": fan.failed}
    others = {"skipped": fan.skipped, "cancelled": fan.cancelled + fan.status.count(ITEM_STOPPED)}
    return counts | {name: number for name, number in others.items() if number}


def _failed(fan: FanOut, loaded: Loaded) -> list[dict[str, Any]]:
    """Return the failed items with their errors."""
    failed = fanout.failed_items(fan)
    outcomes = outcomes_of(fan, loaded, failed)
    return [
        {"item": item, "key": key_of(fan, loaded, item), **_item(outcomes[item], loaded, ITEM_FAILED)}
        for item in failed
    ]


_ITEM_NAMES: dict[str, Callable[[FanOut, Loaded], Any]] = {
    "results": lambda fan, loaded: [_result(outcome, loaded) for outcome in item_outcomes(fan, loaded)],
    "items": lambda fan, loaded: [
        _item(outcome, loaded, fan.status[item]) for item, outcome in enumerate(item_outcomes(fan, loaded))
    ],
    "keys": lambda fan, loaded: [key_of(fan, loaded, item) for item in range(fan.count)],
    "stats": _stats,
    "failed": _failed,
}
_WHOLE = ("results", "items", "stats")  # the other names only select from these


def run_result(graph: Graph, state: RunState, loaded: Loaded) -> Any:
    """Return the result of the visit that completed last; of a fan-out, the list of results in item order.

    The parent of the run may have asked for the result of one of its steps instead.
    """
    if state.stopped is not None:
        return None  # the stop event has the result
    if state.parent is not None and state.parent.want:
        s = graph.index.get(state.parent.want)
        value = None if s is None or not state.steps[s].done_at else step_value(state, loaded, s)
        return dict(value) if isinstance(value, LoopResult) else value
    latest = state.latest
    if latest is None:
        return None
    if latest.fan is not None:
        loop = graph.step(latest.step).loop
        value = LoopResult(latest.fan, loaded)
        if loop is not None and loop.loose:
            return dict(value)
        return value["results"] if latest.fan.count <= LISTED else {"stats": value["stats"]}
    return loaded.blob(latest.blob) if latest.blob is not None else latest.result


def item_outcomes(fan: FanOut, loaded: Loaded) -> list[Outcome | None]:
    """Return the outcomes of all items, in their order."""
    outcomes = outcomes_of(fan, loaded, range(fan.count))
    return [outcomes[item] for item in range(fan.count)]


def outcomes_of(fan: FanOut, loaded: Loaded, items: Sequence[int]) -> dict[int, Outcome | None]:
    """Return the outcomes of these items; None: the item has not ended."""
    numbers = fanout.report_facts_of(fan, items)
    missing = numbers.keys() - loaded.facts.keys()
    if missing:
        raise Missing(facts=missing)
    by_fact = {number: _reports(loaded.facts[number]) for number in numbers}
    ended = {
        item
        for item in items
        if fan.report_facts[item] and fan.status[item] in (ITEM_COMPLETED, ITEM_FAILED, ITEM_RUNNING)
    }
    return {item: by_fact[fan.report_facts[item]].get(item) if item in ended else None for item in items}


def _reports(fact: Fact) -> dict[int, Outcome]:
    match fact:
        case ItemsSettled(reports=reports):
            return {report.item: report.outcome for report in reports if report.item is not None}
        case ChildEnded(command=command, outcome=outcome):
            return {int(command.rsplit("/", 1)[1]): outcome}
        case _:
            return {}


def _result(outcome: Outcome | None, loaded: Loaded) -> Any:
    if not isinstance(outcome, Succeeded):
        return None
    return loaded.blob(outcome.blob) if outcome.blob is not None else outcome.result


def _item(outcome: Outcome | None, loaded: Loaded, life: int) -> dict[str, Any]:
    if outcome is None:
        return {"status": "skipped" if life == ITEM_SKIPPED else "cancelled", "result": None, "error": None}
    if isinstance(outcome, Succeeded):
        return {"status": "completed", "result": _result(outcome, loaded), "error": None}
    return {"status": "failed", "result": None, "error": error_value(fault_of_outcome(outcome))}


class _Output(Mapping[str, Any]):
    """The name `output` on an arc: status, data and error of the visit that has just ended."""

    def __init__(self, view: RunScope, s: int, fault: Fault | None) -> None:
        self._view, self.s, self.fault = view, s, fault

    def __getitem__(self, name: str) -> Any:
        if name == "status":
            return "ok" if self.fault is None else "error"
        if name == "error":
            return error_value(self.fault)
        if name == "data":
            view = self._view
            return None if self.fault else step_value(view.state, view.loaded, self.s)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(("status", "data", "error"))

    def __len__(self) -> int:
        return 3


def with_sets(view: RunScope, sets: dict[str, Any]) -> RunScope:
    """Return the scope with these values set in the context."""
    if not sets:
        return view
    later = RunScope(view.graph, view.state, view.loaded, view.extra, view.now)
    later.ctx = ChainMap(sets, view.state.ctx)
    return later


def with_output(view: RunScope, s: int, fault: Fault | None) -> RunScope:
    extra = {**view.extra, "output": _Output(view, s, fault), "error": error_value(fault)}
    return RunScope(view.graph, view.state, view.loaded, extra, view.now)


def capture(view: TemplateScope, paths: Sequence[Path], own: frozenset[str]) -> dict[str, Any]:
    """Return the values of all paths, except those that the item itself has, as nested plain data.

    `with_aliases` adds the aliases of values that are kept whole.
    """
    captured: dict[str, Any] = {}
    whole: set[Path] = set()  # paths whose whole value is kept
    for path in sorted(set(paths), key=lambda path: (len(path), path)):
        if path[0] not in own:
            with suppress(CannotEvaluate, KeyError):  # the expression decides later whether that is an error
                if not any(path[:length] in whole for length in range(1, len(path))):
                    whole.add(_keep(captured, view, path))
                elif path[:1] in whole:
                    _keep_alias(captured, view, path[0], path[1])
    return captured


def with_aliases(captured: Mapping[str, Any]) -> dict[str, Any]:
    """Return captured values by their names, those with aliases as `Aliased`."""
    names = {name: value for name, value in captured.items() if name != ALIASES}
    for name, aliases in captured.get(ALIASES, {}).items():
        names[name] = Aliased(
            names[name], {alias: found[0] if found else names[name] for alias, found in aliases.items()}
        )
    return names


def _keep_alias(captured: dict[str, Any], view: TemplateScope, name: str, alias: str) -> None:
    """Keep what an alias of a whole value names, as a list of one value; an empty list is the value itself."""
    value = view[name]
    data = unaliased(value)
    if not isinstance(value, Aliased) or is_sealed(data) or (isinstance(data, Mapping) and alias in data):
        return
    found = unaliased(step_into(value, alias))
    captured.setdefault(ALIASES, {}).setdefault(name, {})[alias] = [] if found is data else [_plain(found)]


def is_sealed(value: Any) -> bool:
    """Whether a value is an encrypted result, whose content can be read only where it is decrypted."""
    return type(value) is dict and value.keys() == {"$sealed"}


def _keep(captured: dict[str, Any], view: TemplateScope, path: Path) -> Path:
    """Keep the value at the end of a path, or the last value on it that has no names inside; return the kept path."""
    value, here = view[path[0]], captured
    for length, name in enumerate(path, 1):
        if length == len(path) or not isinstance(value, (Mapping, Aliased)) or is_sealed(unaliased(value)):
            here[name] = _plain(unaliased(value))
            return path[:length]
        here = here.setdefault(name, {})
        value = step_into(value, path[length])
    return path


def _plain(value: Any) -> Any:
    """Return a value that is looked up, such as the results of a loop, as plain data; data itself is not copied."""
    if not isinstance(value, Mapping):
        return value
    looked_up = (Mapping, Aliased)
    return {
        name: _plain(unaliased(each)) if isinstance(each, looked_up) and type(each) is not dict else each
        for name, each in value.items()
    }


def item_scope(fan: FanOut, loaded: Loaded, name: str, item: int, visit: int) -> dict[str, Any]:
    """Return the names of an item: the captured values, the item, and its position."""
    value, place = item_value(fan, loaded, item), {"index": item, "count": fan.count}
    own = Aliased({name: value, **place}, _Position(item, fan.count, value))
    loop = Aliased(place, own.aliases)
    return {**with_aliases(fan.capture), name: value, "iter": own, "visit": visit, "loop": loop, "loop_index": item}


class _Position(Mapping[str, Any]):
    """Further names for the position of an item, as NoETL calls them."""

    def __init__(self, item: int, count: int, value: Any) -> None:
        self.item, self.count, self.value = item, count, value

    def __getitem__(self, name: str) -> Any:
        return _POSITION_NAMES[name](self)

    def __iter__(self) -> Iterator[str]:
        return iter(_POSITION_NAMES)

    def __len__(self) -> int:
        return len(_POSITION_NAMES)


_POSITION_NAMES: dict[str, Callable[[_Position], Any]] = {
    "item": lambda position: position.value,
    "_index": lambda position: position.item,
    "_total": lambda position: position.count,
    "_first": lambda position: position.item == 0,
    "_last": lambda position: position.item == position.count - 1,
    "length": lambda position: position.count,
    "first": lambda position: position.item == 0,
    "last": lambda position: position.item == position.count - 1,
    "done": lambda position: False,
}
