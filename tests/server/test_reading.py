"""What the page reads: reasons in words, moments as texts, lines of a step, times, strips of loops."""

import json
import re
from typing import Any

import httpx2
from msgspec import convert

from refold.core.read.why import Reason
from refold.core.read.why_text import why_text
from refold.core.times import instant
from tests.server.conftest import NS, Server


async def test_a_reason_is_said_in_the_words_of_the_command_line_and_a_row_says_why_in_one_line(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "ask")
    shown = await server.until(client, run, "waiting")
    [reason, join] = (await client.get(f"{NS}/runs/{run}/why")).json()["reasons"]
    text = reason.pop("text")
    assert text == why_text(convert(reason, Reason), 0) == "waits for a decision: go on?"
    assert shown["why"] == "ok: waits for a decision: go on? (and 1 more)"
    assert join["text"] == "waits for ok"
    failed = await server.start(client, "broken")
    assert "division" in (await server.until(client, failed, "failed"))["why"]
    rows = (await client.get(f"{NS}/runs", params={"why": "true"})).json()["items"]
    assert [each["why"].partition(":")[0] for each in rows] == ["step bad", "ok"]
    async with server.client(await server.token("viewer")) as viewer:
        told = (await viewer.get(f"{NS}/runs", params={"why": "true"})).json()["items"]
        assert [each["why"] for each in told] == ["step bad failed", "ok: waits for a decision (and 1 more)"]


async def test_every_moment_of_facts_and_lines_is_a_text_and_values_stay_as_they_are(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "prints")
    await server.until(client, run, "completed")
    facts = (await client.get(f"{NS}/runs/{run}/facts")).json()["items"]
    [settled] = [each for each in facts if each["type"] == "step_settled"]
    report = settled["report"]
    assert instant(report["claimed_at"]) <= instant(report["started_at"]) <= instant(settled["at"])
    assert report["outcome"]["result"] == {"until": 5}, "a value of the user"
    lines = (await client.get(f"{NS}/runs/{run}/lines")).json()["items"]
    assert all(re.fullmatch(r"\d{4}-.*Z", each["line"]["at"]) for each in lines)


async def test_lines_are_found_by_step_stream_and_text_in_both_directions(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "prints")
    await server.until(client, run, "completed")

    async def texts(**query: Any) -> tuple[list[str], Any]:
        found = (await client.get(f"{NS}/runs/{run}/lines", params=query)).json()
        return [each["line"]["text"] for each in found["items"]], found["next"]

    assert await texts() == (["one", "two", "three"], None)
    first, place = await texts(limit=2)
    assert (first, await texts(after=place)) == (["one", "two"], (["three"], None))
    last, place = await texts(limit=2, before=1000)
    assert (last, await texts(before=place)) == (["two", "three"], (["one"], None))
    assert await texts(q="tw") == (["two"], None)
    assert await texts(step="say", stream="stdout", before=1000, q="thr") == (["three"], None)
    assert await texts(step="other") == ([], None)
    assert await texts(item=1) == ([], None)
    assert json.dumps(await texts(stream="stderr")) == "[[], null]"
