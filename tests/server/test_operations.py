"""Operations on many runs: counted first, then done with exactly those, and through the end of a server."""

import asyncio
from typing import Any

import httpx2
import pytest
from msgspec import json, structs

from refold.server import operations
from refold.server.operations import LEASE, OPERATION, Operation
from tests.server.conftest import NS, Server


async def many(server: Server, client: httpx2.AsyncClient, number: int, workflow: str = "listen") -> list[str]:
    body = {"runs": [{"workflow": workflow, "labels": {"team": "x"}}] * number}
    outcomes = (await client.post(f"{NS}/runs:batch", json=body)).json()["items"]
    return [each["run"]["id"] for each in outcomes]


async def until(client: httpx2.AsyncClient, id: str, state: str) -> dict[str, Any]:
    while True:
        shown: dict[str, Any] = (await client.get(f"{NS}/operations/{id}", params={"limit": 200})).json()
        if shown["state"] == state:
            return shown
        await asyncio.sleep(0.02)


async def status(client: httpx2.AsyncClient, run: str) -> str:
    shown: str = (await client.get(f"{NS}/runs/{run}")).json()["status"]
    return shown


async def test_nothing_happens_before_go_and_then_only_to_what_was_counted(
    server: Server, client: httpx2.AsyncClient
) -> None:
    runs = await many(server, client, 3)
    await client.post(f"{NS}/runs/{runs[0]}/pause")
    body = {"action": "pause", "filter": {"workflow": "listen", "labels": {"team": "x"}}}
    made = await client.post(f"{NS}/operations", json=body)
    assert made.status_code == 201, made.text
    shown = made.json()
    assert (shown["state"], shown["count"], len(shown["first"])) == ("counted", 2, 2)
    assert shown["cannot"] == {
        "count": 1,
        "why": {"it is paused": 1},
        "first": [{"id": runs[0], "why": "it is paused"}],
    }
    assert await status(client, runs[1]) != "paused"
    late = await server.start(client, "listen", labels={"team": "x"})
    assert (await client.post(f"{NS}/operations/{shown['id']}/go", json={})).status_code == 200
    done = await until(client, shown["id"], "done")
    assert (done["done"], done["refused"], {each["outcome"] for each in done["items"]}) == (2, 0, {"done"})
    assert [await status(client, run) for run in runs] == ["paused"] * 3
    assert await status(client, late) != "paused"
    facts = (await client.get(f"{NS}/runs/{runs[1]}/facts", params={"kind": "run_paused"})).json()["items"]
    assert [each["by"] for each in facts] == ["admin"]


async def test_what_has_changed_meanwhile_is_refused_one_by_one(server: Server, client: httpx2.AsyncClient) -> None:
    runs = await many(server, client, 2)
    made = (await client.post(f"{NS}/operations", json={"action": "cancel", "ids": runs, "reason": "old"})).json()
    await client.post(f"{NS}/runs/{runs[0]}/cancel", json={})
    await server.until(client, runs[0], "cancelled")
    await client.post(f"{NS}/operations/{made['id']}/go", json={})
    done = await until(client, made["id"], "done")
    assert (done["done"], done["refused"]) == (1, 1)
    [refused] = [each for each in done["items"] if each["outcome"] == "refused"]
    assert (refused["id"], "cancelled" in refused["why"]) == (runs[0], True)
    listed = (await client.get(f"{NS}/operations")).json()["items"]
    assert [each["id"] for each in listed] == [made["id"]]


async def test_failed_runs_are_retried_and_deleted_by_their_fingerprint_and_their_status(
    server: Server, client: httpx2.AsyncClient
) -> None:
    runs = await many(server, client, 2, "broken")
    for run in runs:
        await server.until(client, run, "failed")
    [group] = (await client.get(f"{NS}/dead-letters")).json()["items"]
    body = {"action": "redrive", "filter": {"fingerprint": group["fingerprint"]}}
    made = (await client.post(f"{NS}/operations", json=body)).json()
    assert made["count"] == 2
    await client.post(f"{NS}/operations/{made['id']}/go", json={})
    await until(client, made["id"], "done")
    for run in runs:
        await server.until(client, run, "failed")
        facts = (await client.get(f"{NS}/runs/{run}/facts", params={"kind": "run_reopened"})).json()["items"]
        assert len(facts) == 1
    made = (await client.post(f"{NS}/operations", json={"action": "delete", "filter": {"status": ["failed"]}})).json()
    await client.post(f"{NS}/operations/{made['id']}/go", json={})
    await until(client, made["id"], "done")
    assert (await client.get(f"{NS}/runs:count")).json()["count"] == 0


async def test_an_operation_is_stopped_and_goes_on(server: Server, client: httpx2.AsyncClient) -> None:
    runs = await many(server, client, 45)
    made = (await client.post(f"{NS}/operations", json={"action": "pause", "ids": runs})).json()
    await client.post(f"{NS}/operations/{made['id']}/go", json={"rate": 1})
    while not (part := (await client.get(f"{NS}/operations/{made['id']}")).json())["done"]:
        await asyncio.sleep(0.02)
    stopped = (await client.post(f"{NS}/operations/{made['id']}/stop")).json()
    assert (stopped["state"], 0 < part["done"] < 45) == ("stopped", True)
    await client.post(f"{NS}/operations/{made['id']}/go", json={"rate": 10_000})
    done = await until(client, made["id"], "done")
    assert done["done"] == 45
    assert (await client.post(f"{NS}/operations/{made['id']}/stop")).status_code == 409


async def test_another_server_goes_on_with_what_a_dead_one_has_left(
    server: Server, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "LOOK", 0.05)
    runs = await many(server, client, 3)
    made = (await client.post(f"{NS}/operations", json={"action": "pause", "ids": runs})).json()
    found = await server.service.operations.find(made["id"])
    now = server.service.now()

    async def left_by(until: int) -> None:
        operation, version = await server.service.operations.find(made["id"])
        dead = structs.replace(operation, state="running", server="dead", until=until)
        await server.service.operations._documents.put(OPERATION, made["id"], json.encode(dead), version)

    assert found[0].state == "counted"
    await left_by(now + LEASE * 100)
    server.service.operations._wake.set()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(until(client, made["id"], "done"), 0.5)
    await left_by(now)
    server.service.operations._wake.set()
    assert (await until(client, made["id"], "done"))["done"] == 3


async def test_what_was_counted_and_not_begun_expires(server: Server, client: httpx2.AsyncClient) -> None:
    runs = await many(server, client, 1)
    made = (await client.post(f"{NS}/operations", json={"action": "pause", "ids": runs})).json()
    kept = server.service.operations._documents
    document = await kept.get(OPERATION, made["id"])
    assert document is not None
    old = structs.replace(json.decode(document.data, type=Operation), at=1)
    await kept.put(OPERATION, made["id"], json.encode(old), document.version)
    assert (await client.post(f"{NS}/operations/{made['id']}/go", json={})).status_code == 404
    await server.service.operations.tidy()
    assert (await kept.all(OPERATION), await kept.all("operation-part")) == ([], [])


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"action": "pause"}, "/filter"),
        ({"action": "pause", "filter": {}, "ids": []}, "/filter"),
        ({"action": "explode", "filter": {}}, "/action"),
        ({"action": "migrate", "filter": {}}, "/to"),
        ({"action": "pause", "filter": {"status": ["odd"]}}, "/filter/status"),
        ({"action": "pause", "filter": {"fingerprint": "x"}}, "/filter/fingerprint"),
        ({"action": "delete", "on": "schedules", "filter": {}}, "/on"),
        ({"action": "pause", "filter": {"since": "soon"}}, "/time"),
    ],
)
async def test_a_wrong_operation_is_refused(client: httpx2.AsyncClient, body: Any, pointer: str) -> None:
    answer = await client.post(f"{NS}/operations", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer), answer.text


async def test_an_operation_reaches_no_run_of_a_workflow_that_its_author_does_not_see(
    server: Server, client: httpx2.AsyncClient
) -> None:
    [foreign], [own] = await many(server, client, 1), await many(server, client, 1, "ask")
    async with server.client(await server.token("operator", workflows=("ask",))) as other:
        made = (await other.post(f"{NS}/operations", json={"action": "pause", "filter": {}})).json()
        assert (made["count"], made["first"][0]["id"]) == (1, own)
        assert (await other.post(f"{NS}/operations", json={"action": "pause", "ids": [foreign]})).status_code == 404
        everything = (await client.post(f"{NS}/operations", json={"action": "pause", "filter": {}})).json()
        assert (await other.get(f"{NS}/operations/{everything['id']}")).status_code == 404
        assert (await other.post(f"{NS}/operations/{everything['id']}/go", json={})).status_code == 404


async def test_schedules_are_paused_and_resumed_together(client: httpx2.AsyncClient) -> None:
    for name in ("one", "two"):
        await client.put(f"{NS}/schedules/{name}", json={"workflow": "greet", "every": "1h"})
    body = {"action": "pause", "on": "schedules", "filter": {}, "reason": "holidays"}
    made = (await client.post(f"{NS}/operations", json=body)).json()
    assert (made["count"], sorted(made["first"])) == (2, ["one", "two"])
    await client.post(f"{NS}/operations/{made['id']}/go", json={})
    await until(client, made["id"], "done")
    shown = (await client.get(f"{NS}/schedules")).json()["items"]
    assert [(each["state"], each["note"], each["by"]) for each in shown] == [("paused", "holidays", "admin")] * 2


async def test_the_children_of_one_run_can_be_meant(server: Server, client: httpx2.AsyncClient) -> None:
    await many(server, client, 2)
    for parent, number in (("", 2), ("0" * 32, 0)):
        made = await client.post(f"{NS}/operations", json={"action": "cancel", "filter": {"parent": parent}})
        assert made.json()["count"] == number, made.text
