"""What the tests of templates look at: a view of plain data, and one that tells what was looked up in it."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import json

from refold.core.expressions import CannotEvaluate
from refold.templates import Templates

STRICT, CHAINABLE = Templates("strict"), Templates("chainable")


def world() -> dict[str, Any]:
    """Made anew for each who asks, so that nobody can spoil it for others."""
    return {
        "n": 3,
        "f": 1.5,
        "whole": 2.0,
        "yes": True,
        "nothing": None,
        "text": "hello",
        "digits": "42",
        "list": [3, 1, 2],
        "empty": [],
        "map": {"a": 1, "items": "data", "b": {"c": [10, 20]}},
        "rows": [{"id": id, "ok": id != 2, "tag": tag} for id, tag in ((1, "x"), (2, "y"), (3, "x"))],
        "steps": {"fetch": {"rows": [1, 2], "status": 200}, "fetch-page": {"n": 7}},
        "input": {"who": "ann"},
        "template": "{{ 7 * 7 }}",
    }


class Seen(Mapping[str, Any]):
    """A map that notes which keys were read of it, and that nobody may read as a whole."""

    def __init__(self, noted: list[str], name: str = "", **values: Any) -> None:
        self._noted, self._name, self._values = noted, name, values

    def __getitem__(self, key: str) -> Any:
        self._noted.append(f"{self._name}{key}")
        if key not in self._values and not self._name:
            raise CannotEvaluate(f"{key!r} is not defined")
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("read as a whole")

    def __len__(self) -> int:
        return len(self._values)


def digest(value: Any) -> str:
    return hashlib.sha256(json.encode(value, order="sorted")).hexdigest()


def value(template: Any, undefined: Literal["strict", "chainable"] = "strict", **more: Any) -> Any:
    """What a template is in the world; that the world is not changed is checked each time."""
    view = world() | more
    before = digest(view)
    result = (STRICT if undefined == "strict" else CHAINABLE).value(template, view)
    assert digest(view) == before
    return result
