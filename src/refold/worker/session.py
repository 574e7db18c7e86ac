"""Live objects of a run: connections, files, locks. They live in this process, as long as the run; none is stored."""

from collections.abc import Callable, Iterator
from typing import Any

from refold.errors import Conflict, LiveObjectLost

MOST = 10_000  # objects of one run


class Session:
    """`ctx.session`: a map of live objects; the same object comes back as long as this process has it."""

    def __init__(self, factories: dict[str, Callable[[], Any]]) -> None:
        self._objects: dict[str, Any] = {}
        self._factories = factories

    def __getitem__(self, key: str) -> Any:
        if key not in self._objects:
            if key not in self._factories:
                raise LiveObjectLost(key)
            self[key] = self._factories[key]()
        return self._objects[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._objects and len(self._objects) >= MOST:
            raise Conflict(f"the run has {MOST} live objects; remove some before {key!r}")
        self._objects[key] = value

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._objects))

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._objects or key in self._factories else default

    def remove(self, key: str) -> Any:
        """Returns what was there, or None."""
        return self._objects.pop(key, None)
