"""Streams: every fact once and in order, across reconnections; several topics on one; ended with their credential."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from msgspec import json

from refold.server.streams import MOST_OF_ONE
from tests.server.conftest import NS, Server

Event = tuple[str, str, Any]  # id, name, data


async def events(answer: httpx2.Response) -> AsyncIterator[Event]:
    id = name = ""
    async for line in answer.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "id":
            id = value
        elif field == "event":
            name = value
        elif field == "data":
            yield id, name, json.decode(value)
            id = name = ""


@asynccontextmanager
async def reading(client: httpx2.AsyncClient, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Event]]:
    async with client.stream("GET", f"{NS}{path}", headers=headers, timeout=120) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        found = events(answer)
        first = await anext(found)
        assert first[1] == "hello"
        yield found


async def test_a_log_stream_has_every_fact_once_and_goes_on_after_the_last_event(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "ask")
    await server.until(client, run, "waiting")
    seen: list[int] = []
    async with reading(client, f"/runs/{run}/stream") as found:
        id, name, data = await anext(found)
        assert (id, name, data["type"]) == ("1", "fact", "run_started")
        seen.append(int(id))
    await client.post(f"{NS}/runs/{run}/gates/ok/1", json={"option": "approve"})
    head = (await server.until(client, run, "completed"))["head"]
    async with reading(client, f"/runs/{run}/stream", **{"last-event-id": str(seen[-1])}) as found:
        while seen[-1] < head:
            seen.append(int((await anext(found))[0]))
    assert seen == list(range(1, head + 1))


async def test_a_fact_is_on_the_stream_as_soon_as_it_is_committed(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "listen")
    head = (await server.until(client, run, "waiting"))["head"]
    async with reading(client, f"/runs/{run}/stream?from={head}") as found:
        await client.post(f"{NS}/runs/{run}/signals/go", json={"value": 1})
        id, _, data = await asyncio.wait_for(anext(found), 30)
        assert (int(id), data["number"]) == (head + 1, head + 1)


async def test_several_topics_share_a_stream_and_each_shows_what_changed(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "ask")
    await server.until(client, run, "waiting")
    async with reading(client, f"/stream?topics=runs,gates,run:{run},facts:{run},overview") as found:
        latest: dict[str, Any] = {}
        while len(latest) < 5:
            _, name, data = await asyncio.wait_for(anext(found), 30)
            latest[name] = data
        assert latest["gates"]["items"][0]["run"] == run
        assert latest["run"]["status"] == "waiting"
        await client.post(f"{NS}/runs/{run}/gates/ok/1", json={"option": "approve"})
        while latest["run"]["status"] != "completed" or latest["gates"]["items"]:
            _, name, data = await asyncio.wait_for(anext(found), 30)
            latest[name] = data
    async with server.client(await server.token("viewer")) as viewer:
        assert (await viewer.get(f"{NS}/stream?topics=lines:{run}")).status_code == 403
        assert (await viewer.get(f"{NS}/stream?topics=odd")).status_code == 422
        assert (await viewer.get(f"{NS}/stream?topics=run:none")).status_code == 404


async def test_every_event_names_its_topic_and_a_run_sends_the_rows_that_changed(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "ask")
    head = (await server.until(client, run, "waiting"))["head"]
    topics = [f"run:{run}", f"facts:{run}@{head - 1}", "run:none", "overview"]
    async with reading(client, f"/stream?topics={','.join(topics)}") as found:
        events: dict[str, tuple[str, Any]] = {}
        while len(events) < 4:
            _, name, data = await asyncio.wait_for(anext(found), 30)
            events[data["topic"]] = name, data
        assert {topic: name for topic, (name, _) in events.items()} == dict(
            zip(topics, ["run", "facts", "gone", "overview"], strict=True)
        )
        assert [each["number"] for each in events[topics[1]][1]["items"]] == [head]
        whole = events[topics[0]][1]
        assert whole["all"] and len(whole["steps"]) > 1
        await client.post(f"{NS}/runs/{run}/gates/ok/1", json={"option": "approve"})
        rows = {each["step"]: each for each in whole["steps"]}
        data = whole
        while data["status"] != "completed":
            _, name, event = await asyncio.wait_for(anext(found), 30)
            if name == "run":
                data = event
                assert not data["all"]
                rows |= {each["step"]: each for each in data["steps"]}
        assert list(rows.values()) == (await client.get(f"{NS}/runs/{run}")).json()["steps"]


async def test_streams_end_when_their_credential_is_revoked(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "listen")
    token = await server.token("viewer", "eve")
    async with server.client(token) as viewer, reading(viewer, f"/runs/{run}/stream?from=1000") as found:
        await client.delete(f"{NS}/tokens/{token.split('_')[1]}")
        assert (await asyncio.wait_for(anext(found), 60))[1] == "revoked"
        assert [each async for each in found] == []
    while server.service.streams:
        await asyncio.sleep(0.01)


async def test_a_credential_has_a_bounded_number_of_streams_and_gets_places_back(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "listen")
    async with asyncio.timeout(60):
        opened = [reading(client, f"/runs/{run}/stream") for _ in range(MOST_OF_ONE)]
        for each in opened:
            await each.__aenter__()
        refused = await client.get(f"{NS}/runs/{run}/stream")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        for each in opened:
            await each.__aexit__(None, None, None)
        while server.service.streams:
            await asyncio.sleep(0.01)
        async with reading(client, f"/runs/{run}/stream"):
            pass
