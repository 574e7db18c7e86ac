"""Tools and sources by name: those that come with Refold, and those that other packages add by entry points.

Both are loaded when they are first used. Most machines have no such packages, and the library that reads entry points
takes longer to load than a small playbook takes to run. So it is loaded only if an installed package names the group.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from refold.errors import InvalidValue
from refold.tool_api import ToolInfo

TOOLS, SOURCES = "refold.tools", "refold.sources"  # groups of entry points
PACKAGE_FOLDERS = (".dist-info", ".egg-info")
T = TypeVar("T")


class LazyRegistry(Mapping[str, T], Generic[T]):
    """Objects by name. Each is made when it is first asked for; those in `ready` are taken before `makers`."""

    def __init__(self, ready: Mapping[str, T], makers: Mapping[str, Callable[[], T]]) -> None:
        self._ready = dict(ready)
        self._makers = {name: make for name, make in makers.items() if name not in ready}
        self._made: list[T] = []

    def __getitem__(self, name: str) -> T:
        value = self._ready.get(name)
        if value is None:
            value = self._makers[name]()
            self._ready[name] = value
            self._made.append(value)
        return value

    def __contains__(self, name: Any) -> bool:
        return name in self._ready or name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter({**self._ready, **self._makers})

    def __len__(self) -> int:
        return len({**self._ready, **self._makers})

    def add(self, name: str, value: T) -> None:
        """Add an object that became known later."""
        self._ready[name] = value

    async def close(self) -> None:
        """Close what was made here. Objects that were ready belong to the caller, and stay open."""
        made, self._made = self._made, []
        for value in made:
            await close(value)


async def close(value: Any) -> None:
    """Close a tool or a source. One that keeps nothing open has no `close`."""
    close_method = getattr(value, "close", None)
    if close_method is not None:
        await close_method()


class EntryPoints(Mapping[str, Any]):
    """The objects that the entry points of a group name, by kind: a tool or source with an `info`, or a class of such.

    `taken` are the kinds that packages cannot replace. Raises InvalidValue for an object that cannot be used.
    """

    def __init__(self, group: str, taken: Collection[str]) -> None:
        self._group, self._taken = group, taken
        self._noun = group.rpartition(".")[2].removesuffix("s")

    def __getitem__(self, kind: str) -> Any:
        entry = self._entries[kind]
        try:
            value = entry.load()
        except Exception as error:
            raise InvalidValue(self._named(entry), f"it cannot be loaded: {type(error).__name__}: {error}") from error
        info = getattr(value, "info", None)
        if not isinstance(info, ToolInfo) or info.kind != kind or not callable(value):
            raise InvalidValue(self._named(entry), f"it is not a {self._noun} with an `info` of the kind {kind!r}")
        return value

    def __contains__(self, kind: Any) -> bool:
        return kind in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def makers(self) -> dict[str, Callable[[], Any]]:
        """Return for each kind a function that makes its object, as LazyRegistry takes them."""
        return {kind: partial(self._make, kind) for kind in self}

    def _make(self, kind: str) -> Any:
        value = self[kind]
        return value() if isinstance(value, type) else value

    def _named(self, entry: Any) -> str:
        package = entry.dist.name if entry.dist is not None else "a package"
        return f"{self._noun} {entry.name!r} ({entry.value} of {package})"

    @cached_property
    def _entries(self) -> dict[str, Any]:
        if not any(_is_named_in(folder, self._group) for folder in sys.path):
            return {}
        from importlib.metadata import entry_points

        entries = entry_points(group=self._group)
        return {entry.name: entry for entry in entries if entry.name not in self._taken}


class Installed(Mapping[str, ToolInfo]):
    """A catalog with the kinds that packages add to it.

    Packages are searched only for a kind that the catalog does not have, or when all kinds are listed.
    """

    def __init__(self, catalog: Mapping[str, ToolInfo], group: str) -> None:
        self._catalog, self._added = catalog, EntryPoints(group, catalog)

    def __getitem__(self, kind: str) -> ToolInfo:
        if kind in self._catalog:
            return self._catalog[kind]
        info: ToolInfo = self._added[kind].info
        return info

    def __contains__(self, kind: Any) -> bool:
        return kind in self._catalog or kind in self._added

    def __iter__(self) -> Iterator[str]:
        yield from self._catalog
        yield from self._added

    def __len__(self) -> int:
        return len(self._catalog) + len(self._added)


def _is_named_in(folder: str, group: str) -> bool:
    """Whether a package that is installed in this folder has entry points of the group."""
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return False  # Python would find nothing there either
    return any(_has_group(os.path.join(folder, name), group) for name in names if name.endswith(PACKAGE_FOLDERS))


def _has_group(package: str, group: str) -> bool:
    try:
        with open(os.path.join(package, "entry_points.txt"), "rb") as file:
            return f"[{group}]".encode() in file.read()
    except OSError:
        return False  # a package without entry points
