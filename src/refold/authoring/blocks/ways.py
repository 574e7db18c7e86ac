"""Steps and arcs that nobody wrote: made for blocks, with the place of what they were made for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.authoring.reading import Fields
from refold.authoring.steps import Draft, Value
from refold.authoring.yaml_text import Node
from refold.core.plan import Arc, Call, Step


class Way(Struct, frozen=True):
    """An arc of the plan, beside the fields that say where it stands."""

    fields: Fields
    arc: Arc


def way(at: Node, to: str, when: Any = None, on: Any = "success", set: Mapping[str, Any] | None = None) -> Way:
    node = Node(to, at.start, at.end)
    return Way(Fields(node, {"step": to, "on": on}), Arc(to=to, on=on, when=when, set=dict(set or {})))


def ways_of(draft: Draft) -> list[Way]:
    return [Way(fields, arc) for fields, arc in zip(draft.arcs, draft.step.arcs, strict=True)]


def with_ways(draft: Draft, ways: Iterable[Way], **changes: Any) -> Draft:
    """The same draft with other arcs."""
    every = list(ways)
    draft.step = structs.replace(draft.step, arcs=tuple(each.arc for each in every), **changes)
    draft.arcs = [each.fields for each in every]
    return draft


def router(block: str, name: str, at: Node, ways: Sequence[Way], **more: Any) -> Draft:
    """A step that has nothing to do: it is bypassed, which takes no time and no worker, and its arcs are followed."""
    return _draft(block, Step(name=name, when=False, **more), at, ways)


def insistence(
    block: str,
    name: str,
    at: Node,
    error: str,
    keys: Mapping[str, Any],
    bound: Mapping[str, Any] | None = None,
    **more: Any,
) -> Draft:
    """A step that fails with words of its own unless something holds."""
    work = Call(tool="assert", settings={"error": error})
    return _draft(
        block, Step(name=name, work=work, input={"$let": dict(bound or {}), "$in": dict(keys)}, **more), at, ()
    )


def _draft(block: str, step: Step, at: Node, ways: Sequence[Way]) -> Draft:
    name = Node(step.name, at.start, at.end)
    node = Node({"step": step.name}, at.start, at.end, nodes={"step": name}, keys={"step": at.start})
    draft = Draft(step.name, Fields(node, {"step": step.name}), step, [], frozenset(), "", [], block=block)
    return with_ways(draft, ways)


def otherwise(draft: Draft, on: str, ways: Sequence[Way]) -> list[Way]:
    """Those of the ways that are open after an outcome for which the step takes no arc of its own."""
    own = [arc.when for arc in draft.step.arcs if arc.on in (on, "both")]
    if any(when in (None, True) for when in own):
        return []
    if draft.step.mode == "exclusive":
        return list(ways)
    found = []
    for each in ways:
        found.append(Way(each.fields, structs.replace(each.arc, when=_unless(own, each.arc.when))))
        own.append(each.arc.when)
        if each.arc.when in (None, True):
            break
    return found


def _unless(others: Sequence[Any], when: Any) -> Any:
    parts = [f"not ({expression(each)})" for each in others]
    parts += [f"({expression(when)})"] if when is not None else []
    return f"{{{{ {' and '.join(parts)} }}}}" if parts else None


def expression(condition: Any) -> str:
    """A condition without its braces."""
    if isinstance(condition, bool) or condition is None:
        return "false" if condition is False else "true"
    return str(condition).strip()[2:-2].strip("-").strip()


def values_of(arcs: Iterable[Fields]) -> list[Value]:
    """What may hold templates in arcs as they were written."""
    return [Value(arc.node.nodes[key], "outcome") for arc in arcs for key in ("when", "set") if key in arc.told]
