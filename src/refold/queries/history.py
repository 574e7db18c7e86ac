"""Facts and printed lines as JSON: every moment in them is a text as of RFC 3339."""

from typing import Any

from msgspec import Struct, to_builtins

from refold.core import times
from refold.core.facts import Fact
from refold.core.outcomes import Instant

MOMENTS = ("not_before", "until", "claimed_at", "started_at", "planned", "previous")  # fields of facts


def fact_data(fact: Fact) -> dict[str, Any]:
    data: dict[str, Any] = to_builtins(fact)
    _stamp(fact, data)
    return data


def _stamp(struct: Struct, data: Any) -> None:
    """Replace the moments of a fact. What users gave is in plain maps and lists, and stays as it is."""
    if not isinstance(data, dict):
        return  # written as a list, which has no moments
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if name not in data:
            continue
        if name in MOMENTS and isinstance(value, int):
            data[name] = times.stamp(value) if value else None
        elif isinstance(value, Struct):
            _stamp(value, data[name])
        elif isinstance(value, tuple):
            for each, shown in zip(value, data[name], strict=True):
                if isinstance(each, Struct):
                    _stamp(each, shown)


def record_object(number: int, at: Instant, fact: Fact) -> dict[str, Any]:
    return {"number": number, "at": times.stamp(at), **fact_data(fact)}


def line_object(line: Any) -> Any:
    """A line of a step; what is no line comes as it is, for a file from somebody else may hold anything."""
    if not isinstance(line, dict) or not isinstance(line.get("at"), int):
        return line
    return {**line, "at": times.stamp(line["at"])}
