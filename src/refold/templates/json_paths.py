"""A small part of JSONPath: names, numbers and stars, so that a field of a result can be given a name of its own."""

import re
from collections.abc import Mapping
from typing import Any

Key = str | int | None
"""A name, a position in a list, or None for all elements."""

LONGEST = 10_000  # characters of a path

_STEP = re.compile(
    r"\.(?P<name>[A-Za-z_][\w-]*)|\.\*|\[\*\]|\[(?P<place>-?\d+)\]|\[(?P<quote>['\"])(?P<key>.*?)(?P=quote)\]"
)


def parsed(path: str) -> tuple[Key, ...]:
    """Return the keys of a path. Raises ValueError."""
    text = path.strip()
    if len(text) > LONGEST:
        raise ValueError(f"a path has at most {LONGEST} characters; this one has {len(text)}")
    text = text[1:] if text.startswith("$") else f".{text}" if text[:1] not in (".", "[") else text
    found: list[Key] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError(f"{text[at:]!r} of {path!r} cannot be read: only names, [0], ['name'] and [*] can")
        name, place, key = match["name"], match["place"], match["key"]
        found.append(int(place) if place is not None else name if name is not None else key)
        at = match.end()
    return tuple(found)


def selected(value: Any, keys: tuple[Key, ...]) -> Any:
    """Return the value at the end of the path; with a star, a list of all values. Raises LookupError."""
    for at, key in enumerate(keys):
        if key is None:
            each = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
            return [selected(one, keys[at + 1 :]) for one in each]
        if not isinstance(value, Mapping if isinstance(key, str) else list):
            raise LookupError(key)
        found: Any = value
        value = found[key]
    return value


class Selected(Mapping[str, Any]):
    """Names for fields of a value; each field is looked up when it is read."""

    def __init__(self, value: Any, paths: Mapping[str, str]) -> None:
        self._value, self._paths = value, paths

    def __getitem__(self, name: str) -> Any:
        return selected(self._value, parsed(self._paths[name]))

    def __iter__(self) -> Any:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
