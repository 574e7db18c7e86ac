"""What other packages add, by the entry points of a group: tools, sources; each is loaded when it is named.

Most machines have none, and what reads entry points takes longer to load than a small playbook to run: so a glance at
the files of installed packages comes first.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from refold.errors import InvalidValue
from refold.tool_api import ToolInfo

INSTALLED = (".dist-info", ".egg-info")


class Added(Mapping[str, Any]):
    """What the entry points of `refold.tools` or `refold.sources` give, by kind: an object that is one and has `info`,
    or a class of such.

    `own` are the kinds that cannot be taken. Raises InvalidValue for what cannot be loaded.
    """

    def __init__(self, group: str, own: Collection[str]) -> None:
        self._group, self._own = group, own
        self._noun = group.rpartition(".")[2].removesuffix("s")

    def __getitem__(self, kind: str) -> Any:
        entry = self._entries[kind]
        try:
            found = entry.load()
        except Exception as error:
            raise InvalidValue(self._named(entry), f"it cannot be loaded: {type(error).__name__}: {error}") from error
        info = getattr(found, "info", None)
        if not isinstance(info, ToolInfo) or info.kind != kind or not callable(found):
            raise InvalidValue(self._named(entry), f"it is no {self._noun} with an `info` of the kind {kind!r}")
        return found

    def __contains__(self, kind: Any) -> bool:
        return kind in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def makers(self) -> dict[str, Callable[[], Any]]:
        return {kind: partial(self._make, kind) for kind in self}

    def _make(self, kind: str) -> Any:
        found = self[kind]
        return found() if isinstance(found, type) else found

    def _named(self, entry: Any) -> str:
        package = entry.dist.name if entry.dist is not None else "a package"
        return f"{self._noun} {entry.name!r} ({entry.value} of {package})"

    @cached_property
    def _entries(self) -> dict[str, Any]:
        if not any(_mentions(self._group, folder) for folder in sys.path):
            return {}
        from importlib.metadata import entry_points

        found = entry_points(group=self._group)
        return {entry.name: entry for entry in found if entry.name not in self._own}


class Installed(Mapping[str, ToolInfo]):
    """A catalog, with the kinds that packages add; those are looked for when one is not in it, or all are wanted."""

    def __init__(self, own: Mapping[str, ToolInfo], added: Added) -> None:
        self._own, self._added = own, added

    def __getitem__(self, kind: str) -> ToolInfo:
        if kind in self._own:
            return self._own[kind]
        info: ToolInfo = self._added[kind].info
        return info

    def __contains__(self, kind: Any) -> bool:
        return kind in self._own or kind in self._added

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._added

    def __len__(self) -> int:
        return len(self._own) + len(self._added)


def _mentions(group: str, folder: str) -> bool:
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return False  # Python would find nothing there either
    return any(_has(group, os.path.join(folder, name)) for name in names if name.endswith(INSTALLED))


def _has(group: str, package: str) -> bool:
    try:
        with open(os.path.join(package, "entry_points.txt"), "rb") as file:
            return f"[{group}]".encode() in file.read()
    except OSError:
        return False  # a package without entry points
