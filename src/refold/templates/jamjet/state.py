"""The state of a JamJet run: one map, which begins with the inputs, and into which each node merges its patch."""

from collections.abc import Iterator, Mapping
from typing import Any

from refold.core.read.template_scope import RunScope
from refold.templates.jamjet.conditions import plain

OWN = "$"  # keys of the context that begin so belong to the engine and are not part of the state
ABOUT = "$jamjet"  # the constant of a plan with what its file says about all nodes
COST_EXCEEDED = "__cost_exceeded__"


def about(view: RunScope) -> Mapping[str, Any]:
    found: Mapping[str, Any] = view.graph.plan.constants.get(ABOUT, {})
    return found


class JamjetState(Mapping[str, Any]):
    """Keys are looked up when they are read. What a patch has deleted is null in the context, and is not here."""

    def __init__(self, view: RunScope) -> None:
        self._view = view

    def __getitem__(self, name: str) -> Any:
        if name == COST_EXCEEDED:
            limit = about(self._view).get("cost_limit")
            return limit is not None and self._view.state.usage.get("usd", 0) > limit
        if name.startswith(OWN):
            raise KeyError(name)
        ctx = self._view.ctx
        if name in ctx:
            value = ctx[name]
            if value is None:
                raise KeyError(name)
            return value
        return self._view.state.input[name]

    def __iter__(self) -> Iterator[str]:
        ctx = self._view.ctx
        yield from (name for name in self._view.state.input if name not in ctx and not name.startswith(OWN))
        yield from (name for name, value in ctx.items() if value is not None and not name.startswith(OWN))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name, self) is not self

    def whole(self) -> dict[str, Any]:
        return {name: plain(self[name]) for name in self}


def merged(target: Any, patch: Any) -> Any:
    """Merge a patch as RFC 7396 says: maps key by key, null deletes, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def keys_of(patch: Mapping[str, Any], state: JamjetState) -> dict[str, Any]:
    """Return a patch as the keys of the context that it changes, each with its whole new value; null: deleted."""
    return {
        key: None if value is None else merged(state.get(key), value)
        for key, value in patch.items()
        if not key.startswith(OWN)
    }
