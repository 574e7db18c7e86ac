"""What the tool `http` is for its authors: its keys, its result, an example, and its checks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem
from refold.tools.shared_keys import listed


def check_http(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_body(keys), *_scheme(keys), *_auth(keys), *_pages(keys)]


def _body(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    given = [name for name in ("json", "data", "body") if keys.get(name) is not None]
    for name in given[1:]:
        yield ToolProblem(name, f"`{name}` and `{given[0]}` exclude each other", "a request has one body")


def _scheme(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    url = keys.get("url")
    found = re.search(r"\$\{[A-Z_][A-Z0-9_]*\}", url) if isinstance(url, str) else None
    if found is not None:
        name = found.group().strip("${}").lower()
        hint = f"write {{{{ workload.{name} }}}}, or {{{{ secrets.{name} }}}}, which is REFOLD_SECRET_{name.upper()}"
        yield ToolProblem(
            "url", f"`{found.group()}` is plain text here: variables of the environment are not read", hint
        )
    if isinstance(url, str) and not re.match(r"https?://|\{\{", url, re.I):
        yield ToolProblem("url", "an address starts with http:// or https://")


AUTH = {
    "bearer": "auth: {bearer: TOKEN}",
    "basic": "auth: {basic: {username: NAME, password: PASSWORD}}",
    "api_key": "auth: {api_key: {header: NAME, value: KEY}}",
}


def _auth(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    auth = keys.get("auth")
    if isinstance(auth, Mapping) and (len(auth) != 1 or not set(auth) <= set(AUTH)):
        yield ToolProblem("auth", f"`auth` has exactly one of {listed(list(AUTH))}", " or ".join(AUTH.values()))


PAGES = {
    "next": "where a response names the next page: a path such as `data.next`, or `link` for the header of that name",
    "items": "where the items of a page are, such as `data.results`; without it, the data of a page is its items",
    "param": "the parameter that takes the value at `next`; without it, that value is an address",
    "most": "the largest number of pages (100); more are a failure",
}


def _pages(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    pages = keys.get("pages")
    if not isinstance(pages, Mapping):
        return
    for name in pages:
        if name not in PAGES:
            yield ToolProblem("pages", f"`pages` has no {name!r}", f"it has {listed(list(PAGES))}")
    if not isinstance(pages.get("next"), str):
        yield ToolProblem("pages", "`pages` needs `next`", PAGES["next"])


HTTP = ToolInfo(
    kind="http",
    about="Sends a request. Its header `Idempotency-Key` is the same in every try. Private and local addresses and"
    " those of cloud metadata are refused unless the setting `private_addresses` is on. `refold run` turns it on,"
    " because it runs on your own machine; `REFOLD_PRIVATE_ADDRESSES=false` turns it off again.",
    keys=(
        ToolKey(name="url", type="text", required=True, about="the address, http or https"),
        ToolKey(name="method", type="text", about="such as `PUT` (GET, or POST if there is a body)"),
        ToolKey(name="params", type="map", about="parameters of the query; a list repeats its name, null is not sent"),
        ToolKey(name="headers", type="map", about="headers by name; null is not sent"),
        ToolKey(name="json", type="any", about="a body that is sent as JSON"),
        ToolKey(name="data", type="map", about="a body that is sent as a form"),
        ToolKey(name="body", type="text", about="a body that is sent as it is"),
        ToolKey(
            name="auth",
            type="map",
            about="`{bearer: TOKEN}`, `{basic: {username, password}}` or `{api_key: {header, value}}`; it is not sent"
            " to another host",
        ),
        ToolKey(name="timeout", type="duration", about="for the whole request, including redirects (30s)"),
        ToolKey(name="follow_redirects", type="bool", about="whether redirects are followed, up to 10 (true)"),
        ToolKey(name="expect", type="list", about="statuses that are not a failure (all below 400)"),
        ToolKey(
            name="response",
            type="text",
            static=True,
            choices=("auto", "json", "text", "base64"),
            about="how to read the body: `auto` uses its content type, `json` fails if it is not JSON",
        ),
        ToolKey(name="max_bytes", type="integer", about="the largest body that is read, all pages together (10 MiB)"),
        ToolKey(name="verify", type="bool", static=True, about="whether certificates are checked (true)"),
        ToolKey(name="idempotency_key", type="any", about="another idempotency key, or false for none"),
        ToolKey(
            name="pages",
            type="map",
            about="reads all pages: " + "; ".join(f"`{name}`: {about}" for name, about in PAGES.items()),
        ),
    ),
    result="`{status_code, headers, data, text, url, elapsed}`: `data` is the decoded JSON, `text` any other body;"
    " `url` is the address of the response, without its query. With `pages`, `data` is the list of all items, and"
    " `pages` their number. A failure has `{status_code, headers, data, text}` under `error.data`. Its message leaves"
    " the query out, because a query often holds a key; the item or the page of the source says which request it was",
    result_keys=("status_code", "headers", "data", "text", "url", "elapsed", "pages"),
    check=check_http,
    example="""\
tool:
  kind: http
  url: https://api.example.com/orders
  params: {since: "{{ ctx.day }}"}
  auth: {bearer: "{{ ctx.token }}"}
  pages: {next: data.next, items: data.orders}
""",
)
