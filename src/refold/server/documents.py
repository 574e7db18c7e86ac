"""The documents of the store as the server uses them: read on any thread, written on the thread of turns."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from refold.core.outcomes import Instant
from refold.ports import Advance, Document, Store, Views

PAGE = 500  # documents read at once

Read = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function that reads, on a thread for readers."""


class Documents(Protocol):
    """The four verbs, and what is built from them."""

    async def get(self, kind: str, id: str) -> Document | None: ...

    async def all(self, kind: str) -> Sequence[Document]: ...

    async def put(self, kind: str, id: str, data: bytes, version: int = 0, due: Instant | None = None) -> int:
        """Raises Conflict if the document has another version; 0: it must not exist."""

    async def delete(self, kind: str, id: str, version: int) -> None:
        """Raises Conflict."""


class StoredDocuments:
    """Those of a store."""

    def __init__(self, views: Views, read: Read, store: Store, advance: Advance) -> None:
        self._views, self._read, self._store, self._advance = views, read, store, advance

    async def get(self, kind: str, id: str) -> Document | None:
        found: Document | None = await self._read(lambda: self._views.document(kind, id))
        return found

    async def all(self, kind: str) -> Sequence[Document]:
        found: Sequence[Document] = await self._read(lambda: every_document(self._views, kind))
        return found

    async def put(self, kind: str, id: str, data: bytes, version: int = 0, due: Instant | None = None) -> int:
        def write() -> int:
            with self._store.turn(()) as turn:
                return turn.put_document(kind, id, data, version, due)

        new: int = await self._advance(write)
        return new

    async def delete(self, kind: str, id: str, version: int) -> None:
        def write() -> None:
            with self._store.turn(()) as turn:
                turn.delete_document(kind, id, version)

        await self._advance(write)


class LocalDocuments:
    """In memory, for a server that must not write: it ends with the process."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Document] = {}
        self._last = 0

    async def get(self, kind: str, id: str) -> Document | None:
        return self._kept.get((kind, id))

    async def all(self, kind: str) -> Sequence[Document]:
        return [each for each in self._kept.values() if each.kind == kind]

    async def put(self, kind: str, id: str, data: bytes, version: int = 0, due: Instant | None = None) -> int:
        self._check(kind, id, version)
        self._last += 1
        self._kept[kind, id] = Document(kind, id, self._last, data, due)
        return self._last

    async def delete(self, kind: str, id: str, version: int) -> None:
        self._check(kind, id, version)
        del self._kept[kind, id]

    def _check(self, kind: str, id: str, version: int) -> None:
        from refold.errors import Conflict

        known = self._kept.get((kind, id))
        if (known.version if known is not None else 0) != version:
            raise Conflict(f"the {kind} has changed meanwhile")


def every_document(views: Views, kind: str) -> Sequence[Document]:
    """All of a kind. Call it on a thread for readers."""
    found: list[Document] = []
    while part := views.documents(kind, found[-1].id if found else "", PAGE):
        found += part
        if len(part) < PAGE:
            break
    return found
