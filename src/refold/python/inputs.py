"""The inputs that a Python workflow declares, and how the arguments of a call become inputs of a run."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.errors import InvalidPlan, InvalidValue
from refold.names import a, did_you_mean
from refold.python.annotations import hints_of
from refold.python.field_types import declared, fitted, needed

Kind = inspect.Parameter


class Inputs(Struct, frozen=True):
    """The inputs that a workflow declares."""

    names: tuple[str, ...] = ()
    needed: frozenset[str] = frozenset()
    others: bool = True  # whether any other is taken too
    places: tuple[str, ...] | None = None  # of a flow: those that can be given by place
    hints: dict[str, Any] = {}  # annotations

    def checked(self, workflow: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs as the workflow declares them.

        Raises InvalidValue with the first input that the workflow does not have, that is missing, or that is of
        another type.
        """
        for name in given:
            if not self.others and name not in self.names:
                hint = did_you_mean(name, self.names)
                raise InvalidValue(f"input `{name}`", f"`{workflow}` has no such input; {hint}")
        for name in self.names:
            if name in self.needed and name not in given:
                raise InvalidValue(f"input `{name}`", f"`{workflow}` needs it, and it is not given")
        return self.fitted(given)

    def fitted(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs with plain JSON replaced by what the annotations declare. Raises InvalidValue."""
        if not self.hints:
            return dict(given)
        return {name: fitted(each, self.hints.get(name, Any), f"input `{name}`") for name, each in given.items()}

    def merged(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs of a run, from the arguments of a call.

        A flow takes them as its function does, by place or by name. Any other workflow takes at most one without a
        name: a map, or the event that the run begins with. Raises InvalidValue.
        """
        if self.places is None:
            if len(inputs) > 1:
                raise InvalidValue("input", f"inputs are one map, or keywords, and these are {len(inputs)} values")
            return {**self._as_map(inputs[0] if inputs else None), **named}
        if len(inputs) > len(self.places):
            takes = ", ".join(self.places) or "none"
            raise InvalidValue("input", f"{len(inputs)} inputs are given by place, and these can be: {takes}")
        placed = dict(zip(self.places, inputs, strict=False))
        twice = next((name for name in placed if name in named), None)
        if twice is not None:
            raise InvalidValue(f"input `{twice}`", "it is given twice, by place and by name")
        return {**placed, **named}

    def _as_map(self, input: Any) -> dict[str, Any]:
        """Return inputs that are given as a map, or as a start event, as a map."""
        if input is None or isinstance(input, Mapping):
            return dict(input or {})
        if hasattr(input, "__dict__") and not callable(input):
            return dict(vars(input))
        name = next(iter(self.names), "name")
        why = f"inputs are a map or a start event, and this is {a(type(input).__name__)}"
        raise InvalidValue("input", f"{why}: give them by name, as in {name}=…, or as {{{name!r}: …}}")


def inputs_of_event(cls: type) -> Inputs:
    """Return the inputs that a start event declares. If it declares some, it takes no others."""
    hints = declared(cls)
    return Inputs(tuple(hints), needed(cls), not hints, hints=hints)


def inputs_of_function(function: Callable[..., Any]) -> Inputs:
    """Return the inputs of a flow: its parameters after `ctx`. Raises InvalidPlan."""
    name = getattr(function, "__name__", repr(function))
    bare = inspect.unwrap(function)
    if inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare):
        raise InvalidPlan([f"@flow: {name!r} is a generator; what it returns is the result of the run"])
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD):
        raise InvalidPlan([f"@flow: {name!r} must take `ctx` first, and then its inputs"])
    _, *rest = parameters
    unnamed = [each.name for each in rest if each.kind is Kind.POSITIONAL_ONLY]
    if unnamed:
        raise InvalidPlan([f"@flow: {name!r} takes {', '.join(unnamed)} by place only; inputs have names"])
    named = [each for each in rest if each.kind in (Kind.POSITIONAL_OR_KEYWORD, Kind.KEYWORD_ONLY)]
    hints = hints_of(function)
    return Inputs(
        tuple(each.name for each in named),
        frozenset(each.name for each in named if each.default is Kind.empty),
        any(each.kind is Kind.VAR_KEYWORD for each in rest),
        tuple(each.name for each in rest if each.kind is Kind.POSITIONAL_OR_KEYWORD),
        {each.name: hints[each.name] for each in named if each.name in hints},
    )
