"""The tool `http`: sends one request, or one for each page."""

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import httpcore2
import httpx2
from msgspec import Struct

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import ToolCall
from refold.tool_api import Keys, refused
from refold.tools.http.answer import fault_of_error, fault_of_status, read, result
from refold.tools.http.info import HTTP, PAGES
from refold.tools.http.request import request_of
from refold.tools.http.wire import Checked, Wire, onward

TIMEOUT = 30.0
MAX_BYTES = 10 * 1024 * 1024
MOST_PAGES = 100
NETWORK_ERRORS = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
    OSError,
)


class Pages(Struct, frozen=True, forbid_unknown_fields=True):
    next: str
    items: str = "data"
    param: str = ""
    most: int = MOST_PAGES


class HttpTool:
    """Sends requests; `private` allows addresses that are not public."""

    def __init__(self, private: bool = False, wire: Wire | None = None) -> None:
        self._wire = wire if wire is not None else Wire(Checked(private))
        self._keys = Keys(HTTP)

    async def __call__(self, call: ToolCall) -> Any:
        keys = self._keys.read(call).keys
        request = request_of(call, keys)
        try:
            async with asyncio.timeout(keys.get("timeout", TIMEOUT)):
                pages = _pages(keys.get("pages"))
                return await (self._one(request, keys) if pages is None else self._all(request, keys, pages))
        except NETWORK_ERRORS as error:
            raise ToolFailed(fault_of_error(error, request)) from None

    async def close(self) -> None:
        await self._wire.close()

    async def _one(self, request: httpx2.Request, keys: Mapping[str, Any]) -> dict[str, Any]:
        return (await self._answer(request, keys, keys.get("max_bytes", MAX_BYTES)))[1]

    async def _answer(
        self, request: httpx2.Request, keys: Mapping[str, Any], most: int
    ) -> tuple[httpx2.Response, dict[str, Any], int]:
        """Return the response, the result, and the size of the body."""
        form, began = keys.get("response", "auto"), perf_counter()
        response = await self._wire.exchange(
            request, follow=keys.get("follow_redirects", True), verify=keys.get("verify", True)
        )
        body = await read(response, most)
        if not _is_expected(response.status_code, keys.get("expect")):
            raise ToolFailed(fault_of_status(response, body))
        return response, result(response, body, form, round(perf_counter() - began, 6)), len(body)

    async def _all(self, request: httpx2.Request, keys: Mapping[str, Any], pages: Pages) -> dict[str, Any]:
        items: list[Any] = []
        room, elapsed = keys.get("max_bytes", MAX_BYTES), 0.0
        key = request.headers.get("idempotency-key")
        for number in range(1, pages.most + 1):
            response, page, size = await self._answer(request, keys, room)
            items += _items(page, pages.items)
            room, elapsed = room - size, elapsed + page["elapsed"]
            following = _next_page(response, page, pages)
            if following in (None, "", False):
                return {**page, "data": items, "text": None, "pages": number, "elapsed": round(elapsed, 6)}
            request = _request_of_page(response.request, following, pages)
            if key is not None:
                request.headers["idempotency-key"] = f"{key}/{number + 1}"  # another page is another request
        why = f"there are more than {pages.most} pages; `pages.most` says how many to read"
        raise ToolFailed(Fault("too_many_pages", why, retryable=False))


def _is_expected(status: int, expect: Any) -> bool:
    return status < 400 if expect is None else status in expect


def _pages(given: Mapping[str, Any] | None) -> Pages | None:
    if given is None:
        return None
    if not set(given) <= set(PAGES) or not isinstance(given.get("next"), str):
        raise refused(f"`pages` needs `next`, and may have {', '.join(PAGES)}")
    pages = Pages(**given)
    if not isinstance(pages.most, int) or pages.most < 1:
        raise refused("`pages.most` must be a number of pages")
    return pages


def _items(page: Mapping[str, Any], path: str) -> list[Any]:
    found = _at(page, path)
    if not isinstance(found, list):
        raise ToolFailed(Fault("parse", f"`pages.items`: there is no list at {path} of the answer", retryable=False))
    return found


def _next_page(response: httpx2.Response, page: Mapping[str, Any], pages: Pages) -> Any:
    if pages.next == "link":
        return response.links.get("next", {}).get("url")
    return _at(page, pages.next)


def _at(value: Any, path: str) -> Any:
    """Return the value at a path such as `data.next`, or None."""
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.lstrip("-").isdecimal() and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _request_of_page(request: httpx2.Request, following: Any, pages: Pages) -> httpx2.Request:
    if pages.param:
        url = request.url.copy_set_param(pages.param, following)
        return httpx2.Request(request.method, url, headers=request.headers, content=request.content or None)
    if not isinstance(following, str):
        raise ToolFailed(Fault("parse", f"`pages.next`: {following!r} is not an address", retryable=False))
    return onward(request, following, request.method, request.content)
