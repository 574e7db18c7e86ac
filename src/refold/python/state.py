"""The context of a run as one body sees it: what was there when it was claimed, and its own writes over it.

Writes are gathered per key and handed in with the end of the try; a try that fails leaves none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from msgspec import Struct

from refold.core.commands import Command
from refold.core.outcomes import DeleteKey, PutIf, SetKey, Write
from refold.core.state import RunState
from refold.errors import Conflict, InvalidValue, StaleWrite
from refold.ports import Memory
from refold.python.values import ValueCodec

T = TypeVar("T")
OWN = "refold:"  # keys that begin so are the engine's
SET = "context."  # begins the keys of the progress of a body under which stands what it has set
_MISSING: Any = object()

Change = Callable[[Any], Any]


class Entry(Struct):
    """What a body has done to a key, with values in their stored form."""

    value: Any = None
    gone: bool = False
    changes: list[tuple[Change, Any]] = []  # made to whatever is there, or to the default; empty: it was simply set
    version: int = 0  # that the changes began with
    read: int | None = None  # the version that the body had read before it set the key
    alone: bool = False  # if somebody else has written meanwhile, all that the body did is void


class State:
    """`ctx.state`: a map of the values that belong to the run."""

    def __init__(self, memory: Memory, codec: ValueCodec, progress: Any = None) -> None:
        self._memory, self._exact = memory, codec
        self._own: dict[str, Entry] = {}
        told = progress.items() if isinstance(progress, dict) else ()
        self._told = {name: value for name, value in told if name.startswith(SET)}  # what the run knows of them
        self._read: set[str] = set()  # keys whose stored values the body has read
        self.ended = ""  # the step whose body has returned: from here on nobody hears of what it says

    def _renew(self, memory: Memory) -> None:
        """See what others have written meanwhile; the body's own writes are kept."""
        self._memory = memory

    def check_open(self) -> None:
        """Raises Conflict if the body has returned."""
        if self.ended:
            raise Conflict(f"step {self.ended!r} has ended, and this would be lost; say it before the body returns")

    def __getitem__(self, key: str) -> Any:
        value = self._find(key)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self.check_open()
        read = self._memory.versions.get(key, 0) if key in self._read else None
        self._own[_checked(key)] = Entry(self._exact.put(value, f"context.{key}"), read=read)

    def __contains__(self, key: str) -> bool:
        entry = self._own.get(key)
        return not entry.gone if entry is not None else key in self._memory.ctx

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def get(self, key: str, default: Any = None) -> Any:
        value = self._find(key)
        return default if value is _MISSING else value

    def get_or(self, key: str, default: T) -> T:
        """Return the value if it has the type of the default, else the default."""
        value = self._find(key)
        return value if isinstance(value, type(default)) else default

    def bytes(self, key: str, default: bytes | None = None) -> bytes | None:
        value = self._find(key)
        return bytes(value) if isinstance(value, bytes | bytearray) else default

    def delete(self, key: str) -> None:
        """Nothing happens if it is not there."""
        self.check_open()
        self._own[_checked(key)] = Entry(gone=True)

    def keys(self) -> list[str]:
        names = dict.fromkeys([*self._memory.ctx, *self._own])
        return [name for name in names if name in self and not name.startswith(OWN)]

    def change(self, key: str, change: Change, default: Any = None) -> None:
        self.check_open()
        entry = self._own.get(_checked(key))
        held = self._find(key)
        changed = self._exact.put(change(default if held is _MISSING else held), f"context.{key}")
        if entry is None:
            entry = Entry(changes=[(change, default)], version=self._memory.versions.get(key, 0))
        elif entry.changes:
            entry.changes.append((change, default))
        else:
            entry = Entry()  # what it has set itself, it may simply set again
        entry.value = changed
        self._own[key] = entry

    def take_alone(self, key: str, value: Any) -> None:
        """Write a key of the engine, in its stored form, if no other body has written it meanwhile."""
        self.check_open()
        self._own[key] = Entry(value, version=self._memory.versions.get(key, 0), alone=True)

    def stored(self, key: str) -> Any:
        return self._own[key].value if key in self._own else self._memory.ctx.get(key)

    def keep(self, key: str, value: Any) -> None:
        """Keep a value for the engine itself; bodies do not see it."""
        self._own[f"{OWN}{key}"] = Entry(self._exact.put(value, key))

    def kept(self, key: str, default: Any = None) -> Any:
        return self.get(f"{OWN}{key}", default)

    def writes(self) -> tuple[Write, ...]:
        return tuple(_write(key, entry) for key, entry in self._own.items())

    def news(self, attempt: int) -> dict[str, Any]:
        """What the body has set since its last report. It is shown while the body waits, and is no write."""
        found: dict[str, Any] = {}
        for key, entry in self._own.items():
            told = [attempt] if entry.gone else [attempt, entry.value]
            if not key.startswith(OWN) and self._told.get(f"{SET}{key}") != told:
                found[f"{SET}{key}"] = told
        self._told.update(found)
        return found

    def take_over(self, writes: Iterable[Write]) -> None:
        """Take the writes of a body that ran in another process; changes cannot be repeated here without running the
        body again.
        """
        for write in writes:
            match write:
                case DeleteKey(key=key):
                    self._own[key] = Entry(gone=True)
                case PutIf(key=key, version=version, value=value):
                    self._own[key] = Entry(value, version=version, alone=True)
                case SetKey(key=key, value=value, read=read):
                    self._own[key] = Entry(value, read=read)
                case _:
                    raise AssertionError(write)

    def renewed(self, stale: StaleWrite) -> bool:
        """Apply the changes to a key again to its newest value; return False if the whole body has to run again."""
        entry = self._own[stale.key]
        if entry.alone:
            return False
        value = self._exact.get(stale.current) if stale.is_there else _MISSING
        for change, default in entry.changes:
            value = change(default if value is _MISSING else value)
        entry.value, entry.version = self._exact.put(value, f"context.{stale.key}"), stale.version
        return True

    def _find(self, key: str) -> Any:
        """Return a new copy every time, so that changing it does not change the state."""
        entry = self._own.get(key)
        if entry is not None:
            return _MISSING if entry.gone else self._exact.get(entry.value, f"context.{key}")
        self._read.add(key)
        return self._exact.get(self._memory.ctx[key], f"context.{key}") if key in self._memory.ctx else _MISSING


def set_by_waiting_body(state: RunState, key: str) -> list[Any] | None:
    """Return the stored value of a key that a body which waits has set, in a list; an empty list: the body has deleted
    it. None: no such body has done either."""
    for opened in reversed(state.open.values()):
        told = opened.progress.get(f"{SET}{key}") if isinstance(opened.progress, dict) else None
        if told and told[0] == opened.attempt:
            return list(told[1:])
    return None


def _write(key: str, entry: Entry) -> Write:
    if entry.gone:
        return DeleteKey(key)
    if entry.changes or entry.alone:
        return PutIf(key, entry.version, entry.value)
    return SetKey(key, entry.value, entry.read)


def _checked(key: str) -> str:
    if type(key) is not str or not key or key.startswith(OWN):
        raise InvalidValue("context", f"{key!r} is not a key: it must be a text that does not begin with {OWN!r}")
    return key


Kept = tuple[str, Any]
"""Type and data."""


def collect_events(state: State, command: Command, sent: Kept, n: int, by: str) -> list[Kept] | None:
    """Add an event to those that wait; return n of them, or None if there are fewer.

    If another body wrote meanwhile, this body runs again.
    """
    type, data = sent
    group = data.get(by) if by else ""
    key = f"{OWN}collect:{command.step}:{group!r}"
    waiting = [*(state.stored(key) or []), [command.visit, type, data]]
    waiting.sort(key=lambda each: each[0])
    if len(waiting) < n:
        state.take_alone(key, waiting)
        return None
    state.take_alone(key, waiting[n:])
    return [(type, data) for _, type, data in waiting[:n]]
