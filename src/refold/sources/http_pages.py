"""The source `http`: items from the pages of a server, fetched by the tool `http` with its guards.

A cursor is the place of the next page, an address, a number or a token, and how many of its items were read.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import httpx2
from msgspec import Struct

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Page, Pull
from refold.sources.services import Ask, Secret
from refold.tool_api import refused, type_name

PASSED_ON = ("timeout", "max_bytes", "verify")
KEPT = 16  # loops whose last answer is kept, if it held more than they have asked for
EMPTY = 100  # pages without an item, one after the other


class PageAnswer(Struct, frozen=True):
    """One page of the server."""

    at: Any
    items: list[Any]
    following: Any  # None: it is the last


class HttpSource:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._kept: OrderedDict[str, PageAnswer] = OrderedDict()

    async def __call__(self, pull: Pull) -> Page:
        at, skip = _place(pull)
        answer = await self._answer(pull, at)
        for _ in range(EMPTY):
            if answer.items or answer.following is None:
                break
            answer = await self._answer(pull, answer.following)
        end = skip + pull.most
        items = answer.items[skip:end]
        if end < len(answer.items):
            self._keep(pull.owner, answer)
            return Page(items, {"at": answer.at, "skip": end})
        return Page(items, None if answer.following is None else {"at": answer.following, "skip": 0})

    def _keep(self, owner: str, answer: PageAnswer) -> None:
        self._kept[owner] = answer
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    async def _answer(self, pull: Pull, at: Any) -> PageAnswer:
        kept = self._kept.pop(pull.owner, None)
        if kept is not None and kept.at == at:
            return kept
        keys = pull.settings
        told = await self._ask("http", _request(keys, at))
        items = at_path(told["data"], keys.get("items", ""))
        if not isinstance(items, list):
            where = f"at `{keys['items']}` of the answer" if keys.get("items") else "in the answer"
            why = f"there is no list {where} of {told['url']}, but {type_name(items)}; `items` says where it stands"
            raise ToolFailed(Fault("parse", why, retryable=False))
        following = _following(keys, told, at, items)
        if following is not None and following == at:
            why = f"the page after {following!r} would be the same once more; `next` does not lead on"
            raise ToolFailed(Fault("parse", why, retryable=False))
        return PageAnswer(at, items, following)


def _place(pull: Pull) -> tuple[Any, int]:
    if pull.cursor is None:
        way = pull.settings.get("next", {})
        return (int(way.get("start", 1)) if "page" in way else None), 0
    if not isinstance(pull.cursor, Mapping) or not {"at", "skip"} <= pull.cursor.keys():
        raise refused(f"{pull.cursor!r} is not a cursor of this source", "bad_cursor")
    return pull.cursor["at"], int(pull.cursor["skip"])


def _request(keys: Mapping[str, Any], at: Any) -> dict[str, Any]:
    """Return the keys for the tool. Another host gets nothing that was meant for the first one."""
    way, params = keys.get("next", {}), dict(keys.get("params", {}))
    found: dict[str, Any] = {"url": keys["url"], "idempotency_key": False, "response": "json"}
    found |= {name: keys[name] for name in PASSED_ON if name in keys}
    if at is not None and ("link" in way or "path" in way):
        found["url"] = at
        if not same_host(keys["url"], at):
            return found
        params = {name: value for name, value in params.items() if isinstance(value, Secret)}
    elif at is not None:
        params[way["page"] if "page" in way else way["param"]] = at
    auth = keys.get("auth")
    more = {
        "params": params,
        "headers": keys.get("headers"),
        "auth": {"bearer": auth} if isinstance(auth, str) else auth,
    }
    return found | {name: value for name, value in more.items() if value}


def _following(keys: Mapping[str, Any], told: Mapping[str, Any], at: Any, items: list[Any]) -> Any:
    way = keys.get("next", {})
    if "page" in way:
        return at + 1 if items else None
    if "cursor" in way:
        return at_path(told["data"], way["cursor"]) or None
    if way.get("link"):
        found = httpx2.Response(200, headers={"link": told["headers"].get("link", "")}).links.get("next", {}).get("url")
    elif "path" in way:
        found = at_path(told["data"], way["path"])
    else:
        return None
    if not found:
        return None
    if not isinstance(found, str):
        why = f"`next.path`: there is {type_name(found)} in the answer, and no address"
        raise ToolFailed(Fault("parse", why, retryable=False))
    return _without_secrets(urljoin(told["url"], found), keys.get("params", {}))


def _without_secrets(address: str, params: Mapping[str, Any]) -> str:
    """A server may repeat what it was asked with: the cursor is stored, and must not hold that."""
    secret = {name for name, value in params.items() if isinstance(value, Secret)}
    parts = urlsplit(address)
    if not secret or not parts.query:
        return address
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in secret]
    return urlunsplit(parts._replace(query=urlencode(kept)))


def same_host(one: str, other: str) -> bool:
    """Whether both addresses are of one host; a change from http:// to https:// keeps it."""
    first, second = urlsplit(one), urlsplit(other)
    if first.hostname != second.hostname:
        return False
    ends = [(each.scheme, each.port) for each in (first, second)]
    return ends[0] == ends[1] or ends == [("http", None), ("https", None)]


def at_path(value: Any, path: str) -> Any:
    """Return the value at a path, or None; the whole value, if the path is empty."""
    for part in path.split(".") if path else ():
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
