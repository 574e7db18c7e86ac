"""Live objects of a run: connections, files, locks.

They exist in this process for as long as the run, and are not stored.
"""

import asyncio
import inspect
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from refold.errors import Conflict, LiveObjectLost
from refold.logs import WARNING, event, logger
from refold.names import a

log = logger("worker")

Until = Literal["used", "run", "parent", "export", "never"]
"""When a live object is let go: when the events that carry it were handled, when the run ends (that of the parent, if
the run is a child's), at the next export, or only by `remove`."""

NAME = "refold.Live"  # under which references are stored


@dataclass(frozen=True)
class Live:
    """Made by `ctx.session.refer`; `ctx.session[live]` is the object, as long as this process has it."""

    key: str


def live_keys(raw: Any, mark: str) -> set[str]:
    """Return the keys of all references to live objects in a stored value."""
    found: set[str] = set()
    todo = [raw]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, dict):
            marked = value.get(mark)
            if isinstance(marked, list) and marked[:2] == ["object", NAME]:
                found.add(marked[2]["key"])
            else:
                todo += value.values()
    return found


MOST_OBJECTS = 10_000  # objects of one run
SAVE, LOAD = "__refold_serialize__", "__refold_deserialize__"
SAVES, LOADS = (SAVE, "__blazen_serialize__"), (LOAD, "__blazen_deserialize__")

Saved = tuple[str, str]
"""The name of a class, and the object in the form that its own method has written."""

LEFT_OUT: Saved = ("", "")


class LiveObject(Struct):
    value: Any
    until: Until
    uses: int = 0  # events that carry it and were not handled


class Session:
    """`ctx.session`: a map of live objects; the same object comes back as long as this process has it.

    A child run shares that of its parent.
    """

    def __init__(
        self, factories: Mapping[str, Callable[[], Any]], saved: Mapping[str, Saved], classes: Mapping[str, type]
    ) -> None:
        self._held: dict[str, LiveObject] = {}
        self._factories, self._saved, self._classes = dict(factories), dict(saved), classes
        self._opening: dict[str, asyncio.Task[Any]] = {}
        self._opened = AsyncExitStack()  # closes the resources
        self.has_resources = False  # that have to be closed

    def offer(self, factories: Mapping[str, Callable[[], Any]]) -> None:
        """Add the resources of another workflow that shares this session; those that are known stay."""
        self._factories = {**factories, **self._factories}

    def __getitem__(self, key: str | Live) -> Any:
        name = key.key if isinstance(key, Live) else key
        if name not in self._held:
            self[name] = self._made(name)
        return self._held[name].value

    def _made(self, name: str) -> Any:
        if name in self._saved:
            return _revived(name, self._saved[name], self._classes)
        if name not in self._factories:
            raise LiveObjectLost(name)
        make = self._factories[name]
        if _is_async(make):
            raise Conflict(f"resource {name!r} is made with `async`: write `await ctx.resource({name!r})`")
        if not inspect.isgeneratorfunction(make):
            return make()
        self.has_resources = True
        return self._opened.enter_context(contextmanager(make)())

    async def open(self, name: str) -> Any:
        """Return a live object; a resource that is not there is opened, once for all who ask at the same time."""
        if name in self._held or name in self._saved or not _is_async(self._factories.get(name)):
            return self[name]
        if name not in self._opening:
            self._opening[name] = asyncio.create_task(self._open(name))
        return await asyncio.shield(self._opening[name])  # a body that is cancelled leaves it to the others

    async def _open(self, name: str) -> Any:
        make = self._factories[name]
        self.has_resources = True
        try:
            if inspect.isasyncgenfunction(make):
                value = await self._opened.enter_async_context(asynccontextmanager(make)())
            else:
                value = await make()
            self[name] = value
            return value
        finally:
            del self._opening[name]

    async def close(self) -> None:
        """Close the resources that were opened, the last one first. What they raise is logged."""
        if self._opening:
            await asyncio.wait(self._opening.values())
        opened, self._opened = self._opened, AsyncExitStack()
        try:
            await opened.aclose()
        except Exception as error:
            event(log, WARNING, "a resource of a run could not be closed", error=error)

    def __setitem__(self, key: str, value: Any) -> None:
        self.put(key, value)

    def __contains__(self, key: str | Live) -> bool:
        return (key.key if isinstance(key, Live) else key) in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._held))

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: str, default: Any = None) -> Any:
        """Return an object or the default. Raises LiveObjectLost for an object that an export has left out."""
        return self[key] if key in self._held or key in self._saved or key in self._factories else default

    def put(self, key: str, value: Any, until: Until = "run") -> None:
        if key not in self._held and len(self._held) >= MOST_OBJECTS:
            raise Conflict(f"the run has {MOST_OBJECTS} live objects; remove some before {key!r}")
        self._held[key] = LiveObject(value, until)

    def refer(self, value: Any, until: Until = "used") -> Live:
        """Return a reference that events can carry; with `used`, the object is dropped when all steps that get it have
        completed.
        """
        live = Live(f"live-{os.urandom(8).hex()}")
        self.put(live.key, value, until)
        return live

    def remove(self, key: str | Live) -> Any:
        """Remove an object and return it, or None if there is none."""
        name = key.key if isinstance(key, Live) else key
        self._saved.pop(name, None)
        held = self._held.pop(name, None)
        return None if held is None else held.value

    def sent(self, keys: Iterable[str], takers: int) -> None:
        """Count references that events carry to this many steps."""
        for key in keys:
            if key in self._held:
                self._held[key].uses += takers

    def handled(self, keys: Iterable[str]) -> None:
        for key in keys:
            held = self._held.get(key)
            if held is not None and held.until == "used":
                held.uses -= 1
                if held.uses <= 0:
                    del self._held[key]

    def end(self) -> bool:
        """Drop the objects of a run that has ended, except those that are kept until `remove`; return whether any is
        left.
        """
        self._held = {key: held for key, held in self._held.items() if held.until == "never"}
        return bool(self._held)

    def saved(self, policy: str, names: Mapping[type, str]) -> dict[str, Saved]:
        """Return the objects for an export, also those of an earlier export that were not used since.

        Raises Conflict.
        """
        self._held = {key: held for key, held in self._held.items() if held.until != "export"}
        if policy == "refuse" and self._held:
            raise Conflict(f"the run has live objects that cannot be exported: {', '.join(self._held)}")
        held = {key: held.value for key, held in self._held.items() if key not in self._factories}
        if policy != "keep":
            return dict.fromkeys([*self._saved, *held], LEFT_OUT)
        return {**self._saved, **{key: _saved(key, value, names) for key, value in held.items()}}


def _is_async(make: Any) -> bool:
    return inspect.iscoroutinefunction(make) or inspect.isasyncgenfunction(make)


def _saved(key: str, value: Any, names: Mapping[type, str]) -> Saved:
    save = next((getattr(value, name) for name in SAVES if hasattr(value, name)), None)
    if save is None or type(value) not in names:
        raise Conflict(f"the live object {key!r}, {a(type(value).__name__)}, lacks {SAVE}, or `types` does not name it")
    return names[type(value)], b64encode(save()).decode()


def _revived(key: str, saved: Saved, classes: Mapping[str, type]) -> Any:
    name, text = saved
    load = next((getattr(classes[name], each) for each in LOADS if hasattr(classes.get(name), each)), None)
    if load is None:
        raise LiveObjectLost(key)
    return load(b64decode(text))
