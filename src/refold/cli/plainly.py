"""Values of Python workflows for people: what is stored exactly is shown as plain data."""

from typing import Any

MARK = "$refold"  # see `authoring/workflows/exact.py`
GROUPS = ("tuple", "set", "frozenset")


def plainly(value: Any) -> Any:
    """Objects by their fields, groups as lists, other values by the text they are stored as."""
    if isinstance(value, list):
        return [plainly(each) for each in value]
    if not isinstance(value, dict):
        return value
    marked = value.get(MARK)
    if len(value) != 1 or not isinstance(marked, list) or len(marked) < 2:
        return {key: plainly(each) for key, each in value.items()}
    kind, *rest = marked
    if kind == "object":
        return plainly(rest[-1])
    if kind == "map":
        return {str(plainly(key)): plainly(each) for key, each in rest[0]}
    return plainly(rest[0]) if kind in GROUPS else rest[0]
