"""The side of the source `python` that runs in a process of its own, and keeps an iterator between pages."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from importlib import import_module
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import ToolFailed

END = object()


class LiveIterator:
    """An iterator, plain or async, and how many of its items were taken."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.given = 0
        self.last: tuple[int, int, dict[str, Any]] | None = None  # a cursor, how many were wanted, what was given
        self._plain = _named(order["plain"])
        self._runner: Any = None
        found = _named(order["make"])(order["body"], self._wait)
        if hasattr(found, "__aiter__"):
            self._async: AsyncIterator[Any] | None = aiter(found)
        elif hasattr(found, "__iter__") and not isinstance(found, (str, bytes)):
            self._async, self._iterator = None, iter(found)
        else:
            why = f"the code gave a {type(found).__name__}, and nothing to go through: an iterator, a list, a generator"
            raise ToolFailed(Fault("no_items", why, retryable=False))

    _iterator: Iterator[Any]

    def take(self) -> Any:
        """Return the next item as JSON data, or END."""
        value = self._next()
        if value is END:
            return END
        self.given += 1
        return self._plain(value, f"item {self.given}")

    def pass_over(self, count: int) -> None:
        while self.given < count and self._next() is not END:
            self.given += 1

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()

    def _next(self) -> Any:
        if self._async is None:
            return next(self._iterator, END)
        return self._wait(self._next_async(self._async))

    async def _next_async(self, iterator: AsyncIterator[Any]) -> Any:
        return await anext(iterator, END)

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on one event loop for all pages. asyncio is loaded only for code that needs it."""
        if self._runner is None:
            import asyncio

            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)


_live: dict[str, LiveIterator] = {}  # by owner; a process has one


def page_of(order: dict[str, Any]) -> dict[str, Any]:
    """Return the next page. After a ToolFailed the next call starts again."""
    owner, cursor, most = order["owner"], order["cursor"], order["most"]
    live = _live.pop(owner, None)
    if live is not None and live.last is not None and live.last[:2] == (cursor, most):
        _live[owner] = live
        return live.last[2]
    if live is not None and live.given != cursor:
        live.close()
        live = None
    with _named(order["telling"])(order["body"]):
        if live is None:
            live = LiveIterator(order)
            live.pass_over(cursor)
        page = _page(live, most)
    live.last = cursor, most, page
    _live[owner] = live
    return page


def _page(live: LiveIterator, most: int) -> dict[str, Any]:
    items: list[Any] = []
    while len(items) < most:
        item = live.take()
        if item is END:
            return {"items": items, "cursor": None}
        items.append(item)
    return {"items": items, "cursor": live.given}


def _named(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
