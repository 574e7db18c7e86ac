"""What a request carries is read strictly, within limits, and refused with the place of what is wrong."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from msgspec import Struct, json, structs

from refold.server.requests import DEEPEST
from refold.server.routes import BODY_LIMIT, Route
from refold.server.table import ROUTES
from tests.server.conftest import NS, Server
from tests.server.test_access import address

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ('{"workflow": "greet", "inputs": {}}', "", "did you mean `input`?"),
        ('{"workflow": 5}', "/workflow", "expected `str`"),
        ('{"workflow": "greet", "labels": {"a": 1}}', "/labels", "expected `str`"),
        ('{"workflow": "greet", "workflow": "ask"}', "", "stands twice"),
        ('{"workflow": "greet", "input": {"name": NaN}}', "", "NaN is not a JSON value"),
        ('{"workflow": "greet", "input": {"name": -' + "9" * 5000 + "}}", "", "5001 characters does not fit 64 bits"),
        ('{"workflow": "greet", "input": {"name": 1e999}}', "", "too large"),
        ('{"workflow": "greet", "input": {"name": 99999999999999999999}}', "", "does not fit 64 bits"),
        ('{"workflow": "greet", "input": {"name": "\\u0000"}}', "", "a NUL"),
        ('{"workflow": "greet", "input": {"name": "\\ud800"}}', "", "surrogate"),
        ('{"workflow": ', "", "not JSON"),
        ("[]", "", "expected `object`"),
        ('{"workflow": ""}', "/workflow", "name the workflow"),
        ('{"workflow": "greet", "labels": {"": "x"}}', "/labels", "label"),
    ],
)
async def test_a_wrong_body_is_refused_with_its_place(
    client: httpx2.AsyncClient, body: str, pointer: str, words: str
) -> None:
    answer = await client.post(f"{NS}/runs", content=body.encode(), headers=JSON)
    assert answer.status_code == 422, answer.text
    [problem] = answer.json()["errors"]
    assert (problem["pointer"], words in problem["detail"]) == (pointer, True), problem
    assert (await client.get(f"{NS}/runs:count")).json()["count"] == 0


async def test_a_body_that_is_not_json_is_415_and_one_that_is_nested_too_deep_413(client: httpx2.AsyncClient) -> None:
    plain = await client.post(f"{NS}/runs", content=b'{"workflow": "greet"}', headers={"content-type": "text/plain"})
    assert plain.status_code == 415
    deep = '{"workflow": "greet", "input": {"x": ' + "[" * 5000 + "]" * 5000 + "}}"
    assert (await client.post(f"{NS}/runs", content=deep.encode(), headers=JSON)).status_code == 413
    deep = '{"workflow": "greet", "input": {"x": ' + "[" * DEEPEST + "]" * DEEPEST + "}}"
    assert (await client.post(f"{NS}/runs", content=deep.encode(), headers=JSON)).status_code == 413
    fits = '{"workflow": "listen", "input": {"x": ' + "[" * (DEEPEST - 5) + "]" * (DEEPEST - 5) + "}}"
    assert (await client.post(f"{NS}/runs", content=fits.encode(), headers=JSON)).status_code == 201


async def test_a_body_above_the_limit_is_refused_before_it_is_read(server: Server, client: httpx2.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 65536
            yield b" " * 65536

    try:
        answer = await client.post(f"{NS}/runs", content=endless(), headers=JSON)
        assert answer.status_code == 413
    except (httpx2.WriteError, httpx2.ReadError, httpx2.RemoteProtocolError):
        pass  # the server has closed the connection while this client was still sending
    assert sent < 64 * BODY_LIMIT
    declared = await client.post(f"{NS}/runs", content=b" " * (BODY_LIMIT + 1), headers=JSON)
    assert declared.status_code == 413
    assert (await client.get("/livez")).status_code == 200


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "?limit"),
        ("limit=1000", "?limit"),
        ("limit=x", "?limit"),
        (f"limit={2**63}", "?limit"),
        ("limits=5", "?limits"),
        ("name=a&name=b", "?name"),
        ("status=odd", "?status"),
        ("label=a", "?label"),
        ("since=yesterday", "/time"),
        ("cursor=abc", "?cursor"),
        ("name=%00", "?name"),
        ("name=%ff", ""),
    ],
)
async def test_a_wrong_parameter_is_refused_with_its_name(client: httpx2.AsyncClient, query: str, pointer: str) -> None:
    answer = await client.get(f"{NS}/runs?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer), answer.text


async def test_a_wrong_method_names_the_right_ones(client: httpx2.AsyncClient) -> None:
    answer = await client.put(f"{NS}/runs", json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")


async def test_slow_senders_keep_nobody_waiting(server: Server, client: httpx2.AsyncClient) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    slow = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
    try:
        for _, writer in slow:
            writer.write(b"POST /api/v1/ns/default/runs HTTP/1.1\r\nhost: ")
        for _ in range(20):
            assert (await asyncio.wait_for(client.get(f"{NS}/runs"), 30)).status_code == 200
    finally:
        for _, writer in slow:
            writer.close()


async def generated(server: Server, client: httpx2.AsyncClient, number: int, seed: int) -> None:
    """Every route with parts of requests that are right, odd or wrong, in any mixture."""
    chance = random.Random(seed)
    run = await server.start(client, "greet")
    shown = await server.until(client, run, "completed")
    statuses: dict[int, int] = {}
    routes = [
        route
        for route in ROUTES
        if not route.is_stream and route.path not in ("/api/v1/sign-in", f"{NS}/tokens/{{id}}") and route.need != "work"
    ]
    for _ in range(number):
        route = chance.choice(routes)
        known = {
            "run": chance.choice([run, run, "x", "%E2%98%83"]),
            "step": chance.choice(["hello", "each", "%27"]),
            "hash": chance.choice([shown["plan"], "h"]),
            "name": chance.choice(["greet", "n", "%20"]),
            "n": chance.choice(["1", "0", "99999", "x", "-1"]),
            "visit": chance.choice(["1", "last", "x"]),
        }
        query = [chance.choice(QUERIES) for _ in range(chance.randrange(3))]
        query += [(each.encode_name, chance.choice(TEXTS)) for each in fields(route.query) if chance.random() < 0.3]
        text = "&".join(f"{name}={value}" for name, value in query if name != "wait")
        body = None if route.body is None else chance.choice([odd_body, typed_body])(chance, route, run)
        headers = dict(chance.choice([JSON, JSON, JSON, {}, {**JSON, "if-match": '"x"'}, {**JSON, "if-match": "*"}]))
        answer = await client.request(route.method, f"{address(route, **known)}?{text}", content=body, headers=headers)
        assert answer.status_code < 500, (route.name, known, text, body, answer.text)
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
    assert {200, 404, 422} <= statuses.keys()


async def test_generated_requests_never_give_500(server: Server, client: httpx2.AsyncClient) -> None:
    await generated(server, client, 1000, 20261118)


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
async def test_ten_thousand_generated_requests_never_give_500(
    server: Server, client: httpx2.AsyncClient, seed: int
) -> None:
    await generated(server, client, 2500, seed)


TEXTS = [
    "1",
    "-1",
    "0",
    "x",
    "",
    "true",
    "failed",
    "completed",
    "1h",
    "2026-01-01T00:00:00Z",
    "a:b",
    f"{2**63}",
]
VALUES: list[Any] = [
    1, -1, 1.5, True, None, "", "x", "greet", "completed", "1h", "2026-01-01T00:00:00Z", "2000-01-01T00:00:00Z",
    [], [0], ["x"], {}, {"a": 1}, {"a": "b"}, {"name": "x"}, 10**15, "\u2603",
]  # fmt: skip


def fields(kind: type[Struct]) -> tuple[Any, ...]:
    return structs.fields(kind)


def typed_body(chance: random.Random, route: Route, run: str) -> bytes:
    """The fields of the body, each with any value."""
    assert route.body is not None
    names = [each.encode_name for each in fields(route.body) if each.required or chance.random() < 0.4]
    return json.encode({name: chance.choice([*VALUES, run, [run]]) for name in names})


QUERIES = [
    ("limit", "5"),
    ("limit", "-1"),
    ("cursor", "AAAA"),
    ("after", "1"),
    ("after", "x"),
    ("status", "failed"),
    ("values", "text"),
    ("values", "odd"),
    ("state", "failed"),
    ("q", "%27;--"),
    ("wait", "0"),
    ("name", "%F0%9F%98%80"),
]


def odd_body(chance: random.Random, route: Route, run: str) -> bytes:
    values: list[Any] = [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"value": 1}',
        b'{"option": "approve"}',
        b'{"items": [0, -1]}',
        b'{"workflow": "greet"}',
        b'{"workflow": "listen", "key": "k"}',
        b'{"to": "abc"}',
        b"\xff",
        b'{"definition": "apiVersion: refold/v1"}',
        b'{"definition": "a: [b"}',
        b'{"runs": [{}]}',
        b'{"name": "n", "role": "viewer"}',
        b'{"from": "hello"}',
        b'{"budget": {"tokens": -1}}',
    ]
    found: bytes = chance.choice(values)
    return found
