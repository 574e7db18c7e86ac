"""Requests that are sent again, compressed answers, and bounds: of keyframes, and of streams."""

import asyncio
import gzip
import hashlib

import httpx2
import pytest
from msgspec import json

from refold.core.outcomes import SECOND
from refold.server import moments, repeats
from refold.server.moments import Moments
from refold.server.problems import HttpProblem
from refold.server.repeats import Answered
from refold.server.streams import MOST_STREAMS
from tests.server.conftest import NS, Server


async def facts(client: httpx2.AsyncClient, run: str, kind: str) -> int:
    return len((await client.get(f"{NS}/runs/{run}/facts", params={"kind": kind})).json()["items"])


async def test_a_request_that_is_sent_again_is_done_once_and_gets_the_same_answer(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "listen")
    await server.until(client, run, "waiting")
    key = {"idempotency-key": "once"}
    first = await client.post(f"{NS}/runs/{run}/signals/other", json={"value": 1}, headers=key)
    again = await client.post(f"{NS}/runs/{run}/signals/other", json={"value": 1}, headers=key)
    assert (again.status_code, again.content, again.headers["etag"]) == (200, first.content, first.headers["etag"])
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    assert await facts(client, run, "signal_received") == 1
    other = await client.post(f"{NS}/runs/{run}/signals/other", json={"value": 2}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    async with server.client(await server.token("operator", "bo")) as somebody:
        own = await somebody.post(f"{NS}/runs/{run}/signals/other", json={"value": 3}, headers=key)
        assert (own.status_code, "idempotent-replayed" in own.headers) == (200, False)
    assert await facts(client, run, "signal_received") == 2


async def test_equal_requests_at_once_are_one(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "listen")
    await server.until(client, run, "waiting")
    sent = [client.post(f"{NS}/runs/{run}/signals/other", json={}, headers={"idempotency-key": "k"}) for _ in range(20)]
    answers = await asyncio.gather(*sent)
    assert {each.status_code for each in answers} <= {200, 409}
    assert {each.json()["code"] for each in answers if each.status_code == 409} <= {"under_way"}
    assert await facts(client, run, "signal_received") == 1


async def test_a_hundred_equal_starts_at_once_are_one_run(server: Server, client: httpx2.AsyncClient) -> None:
    body, key = {"workflow": "greet"}, {"idempotency-key": "start"}
    answers = await asyncio.gather(*(client.post(f"{NS}/runs", json=body, headers=key) for _ in range(100)))
    assert {each.status_code for each in answers} == {201}
    assert len({each.json()["id"] for each in answers}) == 1
    assert (await client.get(f"{NS}/runs:count")).json()["count"] == 1


async def test_a_refused_request_may_be_sent_again_and_an_abandoned_one_after_a_minute(
    server: Server, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, key = await server.start(client, "listen"), {"idempotency-key": "k"}
    assert (await client.post(f"{NS}/runs/{run}/resume", headers=key, json={})).status_code in (200, 409)
    kept = server.service.repeats
    assert kept is not None

    async def dies() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await kept.once("t", "k", b"x", dies)  # type: ignore[arg-type]
    answer = Answered(200, {}, b"done")

    async def answers() -> Answered:
        return answer

    assert await kept.once("t", "k", b"x", answers) == (answer, False)
    assert await kept.once("t", "k", b"x", answers) == (answer, True)
    now, documents = server.service.now(), kept._documents
    for at, is_done in ((now, False), (now - 61 * SECOND, True)):
        abandoned = json.encode(repeats.RequestRecord(hashlib.sha256(b"x").hexdigest(), at))
        await documents.put(repeats.REQUEST, hashlib.sha256(f"t/{at}".encode()).hexdigest(), abandoned)
        if is_done:
            assert await kept.once("t", str(at), b"x", answers) == (answer, False)
        else:
            with pytest.raises(HttpProblem, match="no answer yet"):
                await kept.once("t", str(at), b"x", answers)
    monkeypatch.setattr(kept, "_now", lambda: now + 25 * 3600 * SECOND)
    await kept.tidy()
    assert await documents.all(repeats.REQUEST) == []


async def test_the_text_of_a_token_is_not_kept_for_a_repetition(server: Server, client: httpx2.AsyncClient) -> None:
    key = {"idempotency-key": "token"}
    made = await client.post(f"{NS}/tokens", json={"name": "n", "role": "viewer"}, headers=key)
    assert made.status_code == 201
    kept = server.service.repeats
    assert kept is not None
    assert await kept._documents.all(repeats.REQUEST) == []


async def test_large_answers_are_compressed_for_who_asks_and_streams_never(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "many")
    await server.until(client, run, "completed")
    path = f"{NS}/runs/{run}/facts"
    plain = await client.get(path, headers={"accept-encoding": "identity"})
    async with client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
        raw = b"".join([each async for each in answer.aiter_raw()])
    assert (answer.headers["content-encoding"], gzip.decompress(raw)) == ("gzip", plain.content)
    assert len(raw) < len(plain.content)
    for refusing in ("identity", "gzip;q=0", "br"):
        assert "content-encoding" not in (await client.get(path, headers={"accept-encoding": refusing})).headers
    small = await client.get("/version", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in small.headers
    async with client.stream("GET", f"{NS}/runs/{run}/stream", headers={"accept-encoding": "gzip"}) as stream:
        assert "content-encoding" not in stream.headers


async def test_keyframes_stay_within_their_bytes_also_those_of_one_run(
    server: Server, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await server.start(client, "many")
    head = (await server.until(client, run, "completed"))["head"]
    whole = Moments(server.service.views)
    expected = [whole.at(run, number)[1].seq for number in range(1, head + 1)]
    monkeypatch.setattr(moments, "EVERY", 2)
    monkeypatch.setattr(moments, "MOST_BYTES", 4000)
    small = Moments(server.service.views)
    for _ in range(2):
        assert [small.at(run, number)[1].seq for number in range(1, head + 1)] == expected
        sizes = [len(data) for kept in small._keyframes.values() for data in kept.values()]
        assert 0 < sum(sizes) <= 4000
        assert sum(sizes) == small._size


async def test_three_hundred_streams_leave_the_server_to_others(server: Server, client: httpx2.AsyncClient) -> None:
    """A server has 200 streams; whoever comes later is told so, and other requests are answered."""
    run = await server.start(client, "listen")
    await server.until(client, run, "waiting")
    tokens = [await server.token("viewer", f"reader-{number}") for number in range(MOST_STREAMS // 8 + 13)]
    readers = [server.client(token) for token in tokens]
    opened: list[httpx2.Response] = []
    try:
        async with asyncio.timeout(200):
            for reader in readers:
                for _ in range(8):
                    request = reader.build_request("GET", f"{NS}/runs/{run}/stream")
                    opened.append(await reader.send(request, stream=True))
            statuses = [each.status_code for each in opened]
            assert (statuses.count(200), set(statuses)) == (MOST_STREAMS, {200, 429})
            for _ in range(10):
                assert (await client.get(f"{NS}/runs")).status_code == 200
            assert (await client.post(f"{NS}/runs/{run}/signals/go", json={"value": 1})).status_code == 200
            await server.until(client, run, "completed")
    finally:
        for each in opened:
            await each.aclose()
        for reader in readers:
            await reader.aclose()
