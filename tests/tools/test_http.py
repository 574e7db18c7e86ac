"""The tool `http` against a web site of this machine: requests, answers, failures, redirects, pages."""

import asyncio
import base64
import gzip
import random
import socket
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import httpx2
import pytest

from refold import Retry
from refold.playbooks.playbook import read
from refold.tools.catalog import CATALOG
from refold.tools.http.answer import result
from refold.tools.http.tool import HttpTool
from tests.growth import grows_linearly
from tests.tools.calls import call, engine, fault_of, fault_of_run, one_step
from tests.tools.web import Answer, Asked, Site, says, sends_to, served


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def at(site: Site) -> Iterator[str]:
    with served(site) as address:
        yield address


class Here(NamedTuple):
    site: Site
    at: str


@pytest.fixture
def here(site: Site, at: str) -> Here:
    return Here(site, at)


@pytest.fixture
async def http() -> AsyncIterator[HttpTool]:
    tool = HttpTool(private=True)
    yield tool
    await tool.close()


def get(url: str, **config: Any) -> Any:
    settings: dict[str, Any] = {name: config.pop(name) for name in ("response", "verify") if name in config}
    return call(settings, {"url": url, **config})


async def test_an_answer_in_json_is_data(http: HttpTool, site: Site, at: str) -> None:
    site["/x"] = says({"a": [1, 2.5, None]}, 200, **{"x-colour": "red"})
    answer = await http(get(f"{at}/x"))
    assert (answer["status_code"], answer["data"], answer["text"]) == (200, {"a": [1, 2.5, None]}, None)
    assert (answer["url"], answer["headers"]["x-colour"]) == (f"{at}/x", "red")
    assert 0 < answer["elapsed"] < 5


@pytest.mark.parametrize(
    ("kind", "body", "response", "read"),
    [
        ("text/html; charset=latin-1", "grün".encode("latin-1"), "auto", (None, "grün")),
        ('text/plain; a=1; Charset="UTF-8"', "grün".encode(), "auto", (None, "grün")),
        ("text/plain; charset=utf-16", "grün".encode("utf-16"), "auto", (None, "grün")),
        ("text/plain; charset=windows-1252", b"\x80", "auto", (None, "€")),
        ("text/plain; charset=Shift_JIS", "日本".encode("shift_jis"), "auto", (None, "日本")),
        ("application/json; charset=punycode", b'{"a": 1}', "auto", ({"a": 1}, None)),
        ("application/problem+json", b'{"a": 1}', "auto", ({"a": 1}, None)),
        ("application/json", b"not json", "auto", (None, "not json")),
        ("application/json", b'{"a": NaN}', "auto", (None, '{"a": NaN}')),
        ("application/json", b"[" * 5000 + b"]" * 5000, "auto", (None, "[" * 5000 + "]" * 5000)),
        ("application/json", b"", "auto", (None, "")),
        ("application/json", b'{"a": 1}', "text", (None, '{"a": 1}')),
        ("text/plain", b'{"a": 1}', "json", ({"a": 1}, None)),
        ("image/png", b"\x89PNG\xff", "base64", (base64.b64encode(b"\x89PNG\xff").decode(), None)),
        ("application/octet-stream", b"\xff", "auto", (None, "\ufffd")),
    ],
)
async def test_a_body_is_read_by_its_type_or_as_is_said(
    http: HttpTool, here: Here, kind: str, body: bytes, response: str, read: tuple[Any, str | None]
) -> None:
    here.site["/x"] = Answer(200, {"content-type": kind}, body)
    answer = await http(get(f"{here.at}/x", response=response))
    assert (answer["data"], answer["text"]) == read


async def test_what_must_be_json_and_is_not_is_a_failure(http: HttpTool, site: Site, at: str) -> None:
    site["/x"] = Answer(200, {"content-type": "application/json"}, b"{")
    assert (await fault_of(http, get(f"{at}/x", response="json"))).kind == "parse"


async def test_a_request_is_what_the_keys_say(http: HttpTool, site: Site, at: str) -> None:
    site["/x"] = says(1)
    params = {"q": "a&b=ü", "many": [1, True], "none": None}
    await http(get(f"{at}/x?kept=1", params=params, headers={"X-One": 1, "X-None": None}))
    await http(get(f"{at}/x", method="put", json={"ü": [1, None]}))
    await http(get(f"{at}/x", data={"a": "x y", "b": 2}))
    await http(get(f"{at}/x", body="as it is", headers={"content-type": "text/csv"}))
    first, second, third, fourth = site.asked
    assert (first.method, first.query) == ("GET", {"kept": ["1"], "q": ["a&b=ü"], "many": ["1", "true"]})
    assert (first.headers["x-one"], "x-none" in first.headers) == ("1", False)
    assert (second.method, second.body) == ("PUT", '{"ü":[1,null]}'.encode())
    assert second.headers["content-type"] == "application/json"
    assert (third.method, third.body) == ("POST", b"a=x+y&b=2")
    assert (fourth.method, fourth.body, fourth.headers["content-type"]) == ("POST", b"as it is", "text/csv")


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"bearer": "t0ken"}, "authorization", "Bearer t0ken"),
        ({"basic": {"username": "ann", "password": "pass:wörd"}}, "authorization", "Basic YW5uOnBhc3M6d8O2cmQ="),
        ({"api_key": {"header": "X-Api-Key", "value": "k3y"}}, "x-api-key", "k3y"),
    ],
)
async def test_credentials_become_a_header(
    http: HttpTool, site: Site, at: str, auth: Any, header: str, value: str
) -> None:
    site["/x"] = says(1)
    await http(get(f"{at}/x", auth=auth))
    assert site.asked[0].headers[header] == value


async def test_every_request_carries_the_idempotency_key_unless_told_otherwise(
    http: HttpTool, site: Site, at: str
) -> None:
    site["/x"] = says(1)
    await http(get(f"{at}/x"))
    await http(get(f"{at}/x", method="POST", idempotency_key="my own, ü"))
    await http(get(f"{at}/x", idempotency_key=False))
    keys = [asked.headers.get("idempotency-key") for asked in site.asked]
    assert keys == ["run-1/a/1", "my own, %C3%BC", None]


async def test_connections_are_kept_and_cookies_are_not(http: HttpTool, site: Site, at: str) -> None:
    site["/x"] = says(1, 200, **{"set-cookie": "session=secret"})
    for _ in range(3):
        await http(get(f"{at}/x"))
    assert site.connections == 1
    assert [asked.headers.get("cookie") for asked in site.asked] == [None] * 3


async def test_the_environment_has_no_say_in_it(
    http: HttpTool, site: Site, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    site["/x"] = says(1)
    assert (await http(get(f"{at}/x")))["data"] == 1


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "client_error", False),
        (401, "auth", False),
        (403, "auth", False),
        (404, "not_found", False),
        (408, "timeout", True),
        (425, "client_error", True),
        (429, "rate_limit", True),
        (500, "server_error", True),
        (503, "server_error", True),
        (599, "server_error", True),
    ],
)
async def test_a_status_that_is_an_error_fails_the_step_by_its_kind(
    http: HttpTool, site: Site, at: str, status: int, kind: str, retryable: bool
) -> None:
    site["/x"] = says({"why": "because"}, status)
    fault = await fault_of(http, get(f"{at}/x?token=secret"))
    assert (fault.kind, fault.retryable, fault.code) == (kind, retryable, f"HTTP_{status}")
    assert fault.message.startswith(f"GET {at}/x answered {status}"), "without the query"
    assert (fault.data["status_code"], fault.data["data"]) == (status, {"why": "because"})
    assert set(fault.data) == {"status_code", "headers", "data", "text"}


async def test_what_is_expected_is_no_failure_and_what_is_not_is_one(http: HttpTool, site: Site, at: str) -> None:
    site["/x"] = says("gone", 404)
    assert (await http(get(f"{at}/x", expect=[200, 404])))["data"] == "gone"
    site["/x"] = says("made")
    fault = await fault_of(http, get(f"{at}/x", expect=[201]))
    assert (fault.kind, fault.retryable) == ("unexpected_status", False)


LATER = "Mon, 16 Nov 2026 12:00:30 GMT"
NOW = "Mon, 16 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": LATER, "date": NOW}, 30.0),
        ({"retry-after": NOW, "date": LATER}, 0.0),
        ({"retry-after": "9" * 40}, 3_600.0),
        ({"retry-after": "86400"}, 3_600.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
async def test_the_server_says_when_to_come_back(
    http: HttpTool, site: Site, at: str, headers: dict[str, str], seconds: float | None
) -> None:
    site["/x"] = Answer(503, headers)
    site.routes["/x"] = lambda _: Answer(503, headers)
    fault = await fault_of(http, get(f"{at}/x"))
    assert fault.retry_after == seconds


async def test_a_rate_limit_delays_the_next_try_of_the_step(site: Site, at: str) -> None:
    tries: list[float] = []

    def limited(_: Asked) -> Answer:
        tries.append(time.monotonic())
        return Answer(429, {"retry-after": "1"}) if len(tries) == 1 else says("in")

    site["/x"] = limited
    async with engine() as opened:
        done = await opened.run(one_step("http", None, {"url": f"{at}/x"}, retry=Retry(attempts=2)))
        assert done["data"] == "in"
    assert tries[1] - tries[0] >= 1.0
    assert len({asked.headers["idempotency-key"] for asked in site.asked}) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_service_that_says_when_to_come_back_uses_up_no_try(site: Site, at: str, status: int) -> None:
    asked: list[int] = []

    def busy(_: Asked) -> Answer:
        asked.append(1)
        return Answer(status, {"retry-after": "0"}) if len(asked) <= 5 else says("in")

    site["/x"] = busy
    async with engine() as opened:
        done = await opened.run(one_step("http", None, {"url": f"{at}/x"}, retry=Retry(attempts=2)))
    assert (done["data"], len(asked)) == ("in", 6)


async def test_a_task_of_a_list_that_a_busy_service_turns_away_begins_again_and_those_before_it_do_not(
    site: Site, at: str
) -> None:
    asked: list[str] = []

    def note(path: str, busy: int) -> Callable[[Asked], Answer]:
        def answer(_: Asked) -> Answer:
            asked.append(path)
            return Answer(429, {"retry-after": "0"}) if asked.count(path) <= busy else says(path)

        return answer

    site["/one"], site["/two"] = note("one", 0), note("two", 3)
    tasks = "".join(f"      - {{name: {each}, kind: http, url: '{at}/{each}'}}\n" for each in ("one", "two"))
    head = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: tasks}\nworkflow:\n"
    plan = read(f"{head}  - step: both\n    tool:\n{tasks}", "tasks.yaml", CATALOG).plan
    async with engine() as opened:
        done = await opened.run(plan)
    assert done["two"]["data"] == "two" and asked == ["one", "two", "two", "two", "two"]


async def test_a_busy_service_that_does_not_say_when_uses_up_tries(site: Site, at: str) -> None:
    site["/x"] = Answer(503)
    async with engine() as opened:
        run = (await opened.start(one_step("http", None, {"url": f"{at}/x"}, retry=Retry(attempts=2)))).id
        assert (await opened.wait(run)).status == "failed"
    assert len(site.asked) == 2


async def test_a_connection_that_is_refused_may_be_tried_again(http: HttpTool) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fault = await fault_of(http, get(f"http://127.0.0.1:{port}/"))
    assert (fault.kind, fault.code, fault.retryable) == ("connection", "CONN_REFUSED", True)


async def test_a_name_that_nobody_knows_may_be_tried_again(http: HttpTool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    guarded = HttpTool()
    for tool in (http, guarded):
        fault = await fault_of(tool, get("http://nowhere.invalid/"))
        assert (fault.kind, fault.code, fault.retryable) == ("connection", "DNS_ERROR", True)
    await guarded.close()


async def test_an_answer_that_breaks_off_may_be_tried_again(http: HttpTool, site: Site, at: str) -> None:
    def cut(_: Asked) -> Answer:
        return Answer(200, {"content-length": "1000", "connection": "close"}, b"only this")

    site["/x"] = cut
    fault = await fault_of(http, get(f"{at}/x"))
    assert (fault.kind, fault.retryable) == ("connection", True)


async def test_a_request_that_takes_too_long_is_a_timeout(http: HttpTool, site: Site, at: str) -> None:
    def slow(_: Asked) -> Answer:
        site.stop.wait(60)
        return says(1)

    site["/x"] = slow
    fault = await asyncio.wait_for(fault_of(http, get(f"{at}/x", timeout="200ms")), 30)  # half of what the server takes
    assert (fault.kind, fault.code, fault.retryable) == ("timeout", "CONN_TIMEOUT", True)


async def test_the_timeout_of_the_step_ends_a_request(site: Site, at: str) -> None:
    def slow(_: Asked) -> Answer:
        site.stop.wait(60)
        return says(1)

    site["/x"] = slow
    async with engine() as opened:
        assert (await fault_of_run(opened, one_step("http", None, {"url": f"{at}/x"}, timeout=0.3))).kind == "timeout"


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "utf-7", "rot13", "base64", "unicode_escape", "klingon", "x" * 900]
)
async def test_a_charset_that_is_not_known_to_be_quick_fails_and_its_bytes_can_be_had(
    http: HttpTool, site: Site, at: str, charset: str
) -> None:
    site["/x"] = Answer(200, {"content-type": f"text/plain; charset={charset}"}, b"a-" * 200_000)
    fault = await fault_of(http, get(f"{at}/x"))
    assert (fault.kind, fault.retryable) == ("parse", False)
    assert "which is not read here; `response: base64` gives its bytes" in fault.message
    assert len((await http(get(f"{at}/x", response="base64")))["data"]) > 400_000
    site["/x"] = Answer(500, {"content-type": f"text/plain; charset={charset}"}, b"sorry")
    assert (await fault_of(http, get(f"{at}/x"))).data["text"] == "sorry"


def test_a_type_of_content_is_read_in_time_that_grows_with_its_header() -> None:
    def charset(size: int) -> None:
        header = {"content-type": 'text/html; a="' + ";" * size}
        result(httpx2.Response(200, headers=header, request=httpx2.Request("GET", "http://a/")), b"a", "auto", 0.0)

    assert grows_linearly(charset, 8_000)


def packings(body: bytes) -> dict[str, bytes]:
    bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return {
        "gzip": gzip.compress(body),
        "x-gzip": gzip.compress(body[:100]) + gzip.compress(body[100:]),
        "deflate": zlib.compress(body),
        " Deflate": bare.compress(body) + bare.flush(),
        "gzip, deflate": zlib.compress(gzip.compress(body)),
        "identity": body,
    }


@pytest.mark.parametrize("encoding", packings(b""))
async def test_a_packed_body_that_ends_too_early_is_a_broken_connection(
    http: HttpTool, site: Site, at: str, encoding: str
) -> None:
    text = "".join(random.Random(7).choices("abcdefgh", k=50_000))
    packed = packings(text.encode())[encoding]
    site["/x"] = Answer(200, {"content-encoding": encoding}, packed)
    assert (await http(get(f"{at}/x")))["text"] == text
    site["/x"] = Answer(200, {"content-encoding": encoding}, packed + b"\0" * 10 if "zip" in encoding else packed)
    assert (await http(get(f"{at}/x")))["text"] == text
    if encoding != "identity":
        for end in (1, 20, len(packed) // 2, len(packed) - 4, len(packed) - 1):
            site["/x"] = Answer(200, {"content-encoding": encoding}, packed[:end])
            fault = await fault_of(http, get(f"{at}/x"))
            assert (fault.kind, fault.code, fault.retryable) == ("connection", "CONN_ERROR", True), end


async def test_a_body_in_an_encoding_that_nobody_asked_for_fails_with_what_to_do(
    http: HttpTool, site: Site, at: str
) -> None:
    site["/x"] = Answer(200, {"content-encoding": "compress"}, b"abc")
    fault = await fault_of(http, get(f"{at}/x"))
    assert (fault.kind, fault.retryable) == ("parse", False) and "`accept-encoding: gzip`" in fault.message
    site["/x"] = Answer(200, {"content-encoding": ", ".join(["gzip"] * 50)}, b"abc")
    assert "50 encodings" in (await fault_of(http, get(f"{at}/x"))).message
    site["/x"] = Answer(200, {"content-encoding": "gzip"}, b"this is not gzip")
    assert "cannot be unpacked" in (await fault_of(http, get(f"{at}/x"))).message


async def test_bodies_packed_inside_each_other_are_bounded_at_every_stage(http: HttpTool, site: Site, at: str) -> None:
    inner = b"\x78\x9c" + b"\x00\x00\x00\xff\xff" * 3_000_000  # empty blocks: 15 MB that unpack to nothing
    site["/x"] = Answer(200, {"content-encoding": "deflate, gzip"}, gzip.compress(inner))
    assert (await fault_of(http, get(f"{at}/x"))).kind == "too_large"


@pytest.mark.parametrize("packed", [False, True])
async def test_a_body_that_is_too_large_is_not_read_to_its_end(
    http: HttpTool, site: Site, at: str, packed: bool
) -> None:
    body = b"x" * 20_000_000
    site["/x"] = Answer(200, {"content-encoding": "gzip"} if packed else {}, gzip.compress(body) if packed else body)
    fault = await fault_of(http, get(f"{at}/x"))
    assert (fault.kind, fault.retryable) == ("too_large", False)
    assert len((await http(get(f"{at}/x", max_bytes=30_000_000)))["text"]) == len(body)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, "invalid_settings"),
        ({"url": "ftp://127.0.0.1/"}, "invalid_url"),
        ({"url": "/relative"}, "invalid_url"),
        ({"url": "http://"}, "invalid_url"),
        ({"url": "http://[::1"}, "invalid_url"),
        ({"url": "http://127.0.0.1:99999/"}, "invalid_url"),
        ({"url": "http://ann:secret@127.0.0.1/"}, "invalid_url"),
        ({"url": "http://127.0.0.1/", "json": 1, "body": "x"}, "invalid_settings"),
        ({"url": "http://127.0.0.1/", "auth": {"bearer": 1, "basic": {}}}, "invalid_settings"),
        ({"url": "http://127.0.0.1/", "auth": {"basic": "ann"}}, "invalid_settings"),
        ({"url": "http://127.0.0.1/", "params": {"a": {}}}, "invalid_settings"),
        ({"url": "http://127.0.0.1/", "timeout": "soon"}, "invalid_settings"),
        ({"url": "http://127.0.0.1/", "follow_redirects": "no"}, "invalid_settings"),
        ({"url": "http://127.0.0.1/", "pages": {"nex": "x"}}, "invalid_settings"),
        ({"url": "http://127.0.0.1/", "pages": {"next": "x", "most": 0}}, "invalid_settings"),
        ({"url": "http://127.0.0.1/", "headers": {"a": "ü\ud800"}}, "invalid_settings"),
    ],
)
async def test_what_cannot_be_meant_is_refused(http: HttpTool, config: dict[str, Any], kind: str) -> None:
    fault = await fault_of(http, call(None, config))
    assert (fault.kind, fault.retryable) == (kind, False)
    assert "secret" not in fault.message


@pytest.mark.parametrize(
    "more",
    [{"headers": {"a": "b\r\nInjected: c"}}, {"method": "GET / HTTP/1.1\r\nX: y"}, {"headers": {"a b": "c"}}],
)
async def test_nothing_can_be_smuggled_into_a_request(http: HttpTool, site: Site, at: str, more: Any) -> None:
    fault = await fault_of(http, get(f"{at}/x", **more))
    assert (fault.kind, fault.retryable) == ("invalid_request", False)
    assert site.asked == []


@pytest.mark.parametrize("method", ["GÉT", "get it", "", "\uff27\uff25\uff34", "GET\n"])
async def test_a_method_is_one_plain_word(http: HttpTool, site: Site, at: str, method: str) -> None:
    fault = await fault_of(http, get(f"{at}/x", method=method))
    assert (fault.kind, fault.retryable, site.asked) == ("invalid_request", False, [])
    assert fault.message == f"`method` is a word such as GET or PATCH, not {method!r}"


async def test_the_address_in_the_result_has_no_query(http: HttpTool, site: Site, at: str) -> None:
    site["/a%20b"] = says(1)
    answer = await http(get(f"{at}/a b?page=2#top", params={"token": "secret"}))
    assert answer["url"] == f"{at}/a%20b"
    assert site.asked[0].query == {"page": ["2"], "token": ["secret"]}


async def test_redirects_are_followed_or_not_as_is_said(http: HttpTool, site: Site, at: str) -> None:
    site["/old"], site["/new"] = sends_to("/new?a=1"), says("here")
    answer = await http(get(f"{at}/old"))
    assert (answer["data"], answer["url"]) == ("here", f"{at}/new")
    assert (await http(get(f"{at}/old", follow_redirects=False)))["status_code"] == 302


@pytest.mark.parametrize(
    ("status", "method", "after"),
    [(301, "POST", "GET"), (302, "POST", "GET"), (303, "PUT", "GET"), (307, "POST", "POST"), (308, "PUT", "PUT")],
)
async def test_a_redirect_keeps_or_drops_the_body_by_its_status(
    http: HttpTool, site: Site, at: str, status: int, method: str, after: str
) -> None:
    site["/old"], site["/new"] = sends_to("/new", status), says("here")
    await http(get(f"{at}/old", method=method, json={"a": 1}))
    last = site.asked[-1]
    assert (last.method, last.body) == (after, b'{"a":1}' if after != "GET" else b"")
    assert ("content-type" in last.headers) == (after != "GET")


async def test_a_circle_of_redirects_ends(http: HttpTool, site: Site, at: str) -> None:
    site["/x"] = sends_to("/x")
    fault = await fault_of(http, get(f"{at}/x"))
    assert (fault.kind, fault.retryable, len(site.asked)) == ("too_many_redirects", False, 11)


SECRETS = {"authorization", "cookie", "x-api-key", "x-custom"}


async def test_a_secret_for_one_host_never_reaches_another(http: HttpTool, site: Site, at: str) -> None:
    other = Site()
    with served(other) as elsewhere:
        site["/old"], site["/same"], site["/here"] = sends_to(f"{elsewhere}/new"), sends_to("/here"), says("here")
        other["/new"] = says("there")
        secrets = {"Cookie": "c=1", "X-Api-Key": "k", "X-Custom": "s", "Accept": "application/json"}
        for path in ("/old", "/same"):
            await http(get(f"{at}{path}", auth={"bearer": "t"}, headers=secrets))
        assert set(other.asked[0].headers) & SECRETS == set()
        assert other.asked[0].headers["accept"] == "application/json"
        assert set(site.asked[-1].headers) & SECRETS == SECRETS, "the same host gets them again"
        site["/old"] = sends_to(f"{elsewhere}/new", 307)
        fault = await fault_of(http, get(f"{at}/old", json={"password": "p"}))
        assert (fault.kind, fault.retryable, len(other.asked)) == ("redirect_refused", False, 1)


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://ann:pw@127.0.0.1/", "http://[::1"]
)
async def test_a_redirect_leads_to_addresses_of_the_web_only(
    http: HttpTool, site: Site, at: str, location: str
) -> None:
    site["/x"] = sends_to(location)
    assert (await fault_of(http, get(f"{at}/x"))).kind == "invalid_url"


def numbered(asked: Asked) -> Answer:
    page = int(asked.query.get("page", ["1"])[0])
    more = page + 1 if page < 4 else None
    return says({"rows": [10 * page, 10 * page + 1], "next": more and f"/list?page={more}", "cursor": more})


@pytest.mark.parametrize(
    "pages",
    [
        {"next": "data.next", "items": "data.rows"},
        {"next": "data.cursor", "items": "data.rows", "param": "page"},
    ],
)
async def test_pages_are_read_one_after_the_other(http: HttpTool, site: Site, at: str, pages: Any) -> None:
    site["/list"] = numbered
    answer = await http(get(f"{at}/list", params={"size": 2}, pages=pages))
    assert answer["data"] == [10, 11, 20, 21, 30, 31, 40, 41]
    assert (answer["pages"], answer["status_code"], len(site.asked)) == (4, 200, 4)
    keys = [asked.headers["idempotency-key"] for asked in site.asked]
    assert keys == ["run-1/a/1", "run-1/a/1/2", "run-1/a/1/3", "run-1/a/1/4"]


async def test_the_next_page_may_stand_in_the_link_header(http: HttpTool, site: Site, at: str) -> None:
    site["/one"] = says([1], 200, link='</zero>; rel="prev", </two?x=1>; rel="next"')
    site["/two"] = says([2])
    assert (await http(get(f"{at}/one", pages={"next": "link"})))["data"] == [1, 2]


async def test_pages_without_end_are_a_failure(http: HttpTool, site: Site, at: str) -> None:
    site["/list"] = says({"rows": [1], "next": "/list"})
    pages = {"next": "data.next", "items": "data.rows", "most": 5}
    fault = await fault_of(http, get(f"{at}/list", pages=pages))
    assert (fault.kind, fault.retryable, len(site.asked)) == ("too_many_pages", False, 5)


async def test_all_pages_together_are_within_the_limit_of_bytes(http: HttpTool, site: Site, at: str) -> None:
    site["/list"] = says({"rows": ["x" * 1000], "next": "/list"})
    pages = {"next": "data.next", "items": "data.rows"}
    assert (await fault_of(http, get(f"{at}/list", pages=pages, max_bytes=5000))).kind == "too_large"
    assert len(site.asked) == 5


async def test_a_page_on_another_host_gets_no_secret(http: HttpTool, site: Site, at: str) -> None:
    other = Site()
    with served(other) as elsewhere:
        site["/list"], other["/list"] = says({"rows": [1], "next": f"{elsewhere}/list"}), says({"rows": [2]})
        pages = {"next": "data.next", "items": "data.rows"}
        answer = await http(get(f"{at}/list", pages=pages, auth={"bearer": "t"}))
        assert answer["data"] == [1, 2]
        assert "authorization" not in other.asked[0].headers


async def test_a_page_without_a_list_is_a_failure(http: HttpTool, site: Site, at: str) -> None:
    site["/list"] = says({"rows": 5})
    fault = await fault_of(http, get(f"{at}/list", pages={"next": "data.next", "items": "data.rows"}))
    assert (fault.kind, fault.message) == ("parse", "`pages.items`: there is no list at data.rows of the answer")


async def test_many_requests_are_under_way_at_once(http: HttpTool, site: Site, at: str) -> None:
    site["/x"] = says(1)
    answers = await asyncio.gather(*(http(get(f"{at}/x")) for _ in range(100)))
    assert [answer["data"] for answer in answers] == [1] * 100
