"""Values that a source binds to a query beside those of its author."""

from collections.abc import Mapping
from typing import Any

from refold.tool_api import refused

PREFIX = "refold_"


class Bound:
    """`params` as the SQL tools take them: a list, for `$1` and `$2`, or a map, for `$name`."""

    def __init__(self, given: Any) -> None:
        if given is not None and not isinstance(given, (list, Mapping)):
            raise refused("`params` must be a list, for $1 and $2, or a map, for $name")
        self.params: list[Any] | dict[str, Any] = list(given) if isinstance(given, list) else dict(given or {})

    def add(self, name: str, value: Any) -> str:
        """The placeholder of another value."""
        if isinstance(self.params, list):
            self.params.append(value)
            return f"${len(self.params)}"
        self.params[PREFIX + name] = value
        return f"${PREFIX}{name}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
