"""Makes a request from the keys of a step."""

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from refold.ports import ToolCall
from refold.tool_api import refused, text_of
from refold.tools.http.info import AUTH
from refold.tools.http.wire import address

TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
DEFAULTS = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "refold"}


def request_of(call: ToolCall, keys: Mapping[str, Any]) -> httpx2.Request:
    """Return the request. Raises ToolFailed for keys that do not fit together."""
    body = {name: keys[name] for name in ("json", "data", "body") if name in keys}
    if len(body) > 1:
        raise refused(f"a request has one body, and not {' and '.join(f'`{name}`' for name in body)}")
    if isinstance(body.get("json"), Mapping) and _says_form(keys.get("headers", {})):
        body = {"data": body["json"]}
    url = address(None, keys["url"])
    method = _method(keys.get("method", "POST" if body else "GET"))
    try:
        return httpx2.Request(
            method,
            url.copy_merge_params(_params(keys.get("params", {}))) if keys.get("params") else url,
            headers=_headers(call, keys),
            json=body.get("json"),
            data=_form(body["data"]) if "data" in body else None,
            content=body.get("body"),
        )
    except (UnicodeError, ValueError, TypeError) as error:
        raise refused(f"this request cannot be made: {error}") from None


def _method(given: str) -> str:
    if not TOKEN.fullmatch(given):
        raise refused(f"`method` is a word such as GET or PATCH, not {given!r}", "invalid_request")
    return given.upper()


def _params(given: Mapping[str, Any]) -> dict[str, Any]:
    return _fields(given, "params")


def _says_form(headers: Mapping[str, Any]) -> bool:
    """Whether the author's own headers say that the body is a form."""
    kinds = (value for name, value in headers.items() if name.lower() == "content-type")
    return any(isinstance(kind, str) and kind.lower().startswith("application/x-www-form-urlencoded") for kind in kinds)


def _form(given: Mapping[str, Any]) -> dict[str, Any]:
    return _fields(given, "data")


def _fields(given: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return texts by name; each element of a list is a field of that name, and null is none."""
    return {
        name: [text_of(each, f"`{key}.{name}`") for each in (value if isinstance(value, list) else [value])]
        for name, value in given.items()
        if value is not None
    }


def _headers(call: ToolCall, keys: Mapping[str, Any]) -> httpx2.Headers:
    headers = httpx2.Headers(DEFAULTS)
    key = keys.get("idempotency_key", True)
    if key is True:
        key = call.idempotency_key
    if key is not False:
        headers["idempotency-key"] = quote(text_of(key, "`idempotency_key`"), safe="/:@!$&'()*+,;= ")
    for name, value in _authorization(keys.get("auth")).items():
        headers[name] = value
    for name, value in keys.get("headers", {}).items():
        if value is not None:
            headers[name] = text_of(value, f"`headers.{name}`")
    return headers


def _authorization(auth: Mapping[str, Any] | None) -> dict[str, str]:
    match auth:
        case None:
            return {}
        case {"bearer": token} if len(auth) == 1:
            return {"authorization": f"Bearer {text_of(token, '`auth.bearer`')}"}
        case {"basic": {"username": username, "password": password}} if len(auth) == 1:
            pair = f"{text_of(username, '`auth.basic.username`')}:{text_of(password, '`auth.basic.password`')}"
            return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        case {"api_key": {"header": str(header), "value": value}} if len(auth) == 1:
            return {header: text_of(value, "`auth.api_key.value`")}
        case _:
            raise refused(f"`auth` must be {' or '.join(AUTH.values())}")
