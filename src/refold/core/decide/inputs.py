"""Inputs of a run whose plan has computed defaults: rendered once, at the start, and merged with the given inputs."""

from collections.abc import Iterator, Mapping
from typing import Any

from refold.core.expressions import CannotEvaluate, Evaluate
from refold.core.plan import Plan


def started_with(plan: Plan, run: str, given: dict[str, Any], evaluate: Evaluate) -> dict[str, Any]:
    """Return the inputs of a run. Given inputs are data and never rendered. Raises CannotEvaluate, with the key."""
    if not plan.computed:
        return given
    inputs = _Inputs(plan.defaults, run, given, evaluate)
    values = dict(inputs)
    if inputs.circle:
        raise CannotEvaluate(inputs.circle)  # even if the expression that read it tolerates missing names
    return values


def merged(under: Any, over: Any) -> Any:
    """Merge maps key by key; otherwise return the value of `over`."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    both = {key: merged(under[key], value) if key in under else value for key, value in over.items()}
    return {**under, **both}


class InputScope:
    """The scope of the templates of inputs: the other inputs. A language may add names of its own for the run."""

    def __init__(self, run: str, names: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        self.run = run
        self._names, self._inputs = names, inputs

    def __getitem__(self, name: str) -> Any:
        return self._names[name] if name in self._names else self._inputs[name]


class _Inputs(Mapping[str, Any]):
    """The inputs by name, each computed when it is first read."""

    def __init__(self, defaults: dict[str, Any], run: str, given: dict[str, Any], evaluate: Evaluate) -> None:
        self._defaults, self._given, self._evaluate = defaults, given, evaluate
        self._scope = InputScope(run, {"input": given, "workload": self}, self)
        self._done: dict[str, Any] = {}
        self._under_way: list[str] = []
        self.circle = ""

    def __getitem__(self, name: str) -> Any:
        if name in self._done:
            return self._done[name]
        if name not in self._defaults and name not in self._given:
            raise KeyError(name)
        if self._under_way[-1:] == [name]:  # `{{ u }}` as the default of `u`: the value comes from who starts the run
            raise KeyError(name)
        if name in self._under_way:
            self.circle = f"workload.{name} needs itself: {' -> '.join([*self._under_way, name])}"
            raise CannotEvaluate(self.circle)
        self._under_way.append(name)
        try:
            self._done[name] = self._computed(name)
        finally:
            self._under_way.pop()
        return self._done[name]

    def _computed(self, name: str) -> Any:
        given = name in self._given
        if name not in self._defaults or (given and not isinstance(self._given[name], dict)):
            return self._given[name]
        try:
            default = self._evaluate.value(self._defaults[name], self._scope)
        except CannotEvaluate as error:
            message = str(error)
            raise CannotEvaluate(
                message if message.startswith("workload.") else f"workload.{name}: {message}"
            ) from None
        return merged(default, self._given[name]) if given else default

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._defaults, *self._given]))

    def __len__(self) -> int:
        return len({*self._defaults, *self._given})
