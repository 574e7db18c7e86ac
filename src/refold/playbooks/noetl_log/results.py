"""What NoETL templates see of a run: results out of their envelopes, and the names in their order of precedence."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from refold.core.graph import Graph
from refold.core.plan import bare_key
from refold.core.read.loaded import Loaded
from refold.core.read.template_scope import step_value
from refold.core.state import RunState

RESULT = ("context", "result", "context", "data")  # where a worker puts what the tool returned


def extract_user_data(result: Any) -> Any:
    """What the tool returned, out of however many envelopes there are around it; None stays None."""
    holder = result
    for name in RESULT[:-1]:
        holder = holder.get(name) if isinstance(holder, Mapping) else None
    if isinstance(holder, Mapping) and RESULT[-1] in holder:
        return flatten_labels(holder[RESULT[-1]])
    if not isinstance(result, Mapping) or "context" not in result:
        return result
    inner = result["context"]
    return flatten_labels(inner["data"]) if isinstance(inner, Mapping) and "data" in inner else inner


def flatten_labels(data: Any) -> Any:
    """Results by label also show their fields one level up, the later label winning; a label never loses to a field."""
    if not isinstance(data, Mapping) or not data or not all(isinstance(each, Mapping) for each in data.values()):
        return data
    fields = {name: value for labelled in data.values() for name, value in labelled.items()}
    return {**fields, **data}


def with_data(value: Any) -> Any:
    """`step.data` is the data of the step, unless that has a `data` of its own."""
    if not isinstance(value, Mapping) or "data" in value:
        return value
    return {**value, "data": value}


def with_sets(variables: Mapping[str, Any], sets: Mapping[str, Any]) -> dict[str, Any]:
    """The variables after a `set` whose values are rendered already."""
    return {**variables, **{bare_key(key): value for key, value in sets.items()}}


class Results(Mapping[str, Any]):
    """`steps`: each finished step's result as it was stored, envelope and all; a fan-out's in item order."""

    def __init__(self, graph: Graph, state: RunState, loaded: Loaded) -> None:
        self._graph, self._state, self._loaded = graph, state, loaded

    def __getitem__(self, name: str) -> Any:
        s = self._graph.index.get(name)
        step = self._state.steps[s] if s is not None and self._state.steps else None
        if s is None or step is None or not step.done_at:
            raise KeyError(name)
        value = step_value(self._state, self._loaded, s)
        result = value if step.shown is None else value["results"]
        if result is None:
            raise KeyError(name)
        return result

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._graph.index if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class NoetlContext(Mapping[str, Any]):
    """The names of a NoETL template, each looked up when it is read: nothing of the state is copied.

    From strong to weak: the run's own ids, the durable context, `steps`, what steps returned, `workload`, its keys.
    """

    def __init__(self, graph: Graph, state: RunState, loaded: Loaded, ids: Mapping[str, str]) -> None:
        self._results = Results(graph, state, loaded)
        self._layers: tuple[tuple[Mapping[str, Any], Callable[[Any], Any]], ...] = (
            (ids, _as_it_is),
            (state.ctx, _as_it_is),
            ({"steps": self._results}, _as_it_is),
            (self._results, lambda result: with_data(extract_user_data(result))),
            ({"workload": state.input}, _as_it_is),
            (state.input, _as_it_is),
        )

    def __getitem__(self, name: str) -> Any:
        for layer, seen_as in self._layers:
            if name in layer:
                return seen_as(layer[name])
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for layer, _ in self._layers for name in layer))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _as_it_is(value: Any) -> Any:
    return value
