"""The names that NoETL's templates see: results without their envelopes, and which name wins over which."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from refold.core.graph import Graph
from refold.core.plan import bare_key
from refold.core.read.loaded import Loaded
from refold.core.read.template_scope import step_value
from refold.core.state import RunState

RESULT = ("context", "result", "context", "data")  # where a worker puts what the tool returned


def extract_user_data(result: Any) -> Any:
    """What the tool returned, without the envelopes around it; None stays None."""
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
    """Copy the fields of labelled results one level up. Later labels win over earlier ones, labels over fields."""
    if not isinstance(data, Mapping) or not data or not all(isinstance(value, Mapping) for value in data.values()):
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
    """`steps`: the stored result of each finished step, with its envelope; of a fan-out, in the order of items."""

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
    """The names of a NoETL template. Each is looked up when it is read, so no state is copied.

    In order of precedence: the ids of the run, the durable context, `steps`, results of steps, `workload`, its keys.
    """

    def __init__(self, graph: Graph, state: RunState, loaded: Loaded, ids: Mapping[str, str]) -> None:
        self._results = Results(graph, state, loaded)
        self._layers: tuple[tuple[Mapping[str, Any], Callable[[Any], Any]], ...] = (
            (ids, _unchanged),
            (state.ctx, _unchanged),
            ({"steps": self._results}, _unchanged),
            (self._results, lambda result: with_data(extract_user_data(result))),
            ({"workload": state.input}, _unchanged),
            (state.input, _unchanged),
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


def _unchanged(value: Any) -> Any:
    return value
