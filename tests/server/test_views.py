"""What commands read in place of a database: rows as they are stored, and nothing that a token may not see."""

import httpx2
import pytest
from msgspec import json

from refold.core.codec import decode_fact
from refold.ports import Limit, LimitUse, RunPage, Share
from refold.server.views import DOCUMENTS
from tests.server.conftest import NS, Server


async def test_rows_and_facts_are_as_they_are_stored(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "greet")
    await server.until(client, run, "completed")
    views = server.service.views
    page = json.decode((await client.get(f"{NS}/views/runs", params={"limit": 1})).content, type=RunPage)
    assert page == views.runs(limit=1)
    found = (await client.get(f"{NS}/views/runs/{run}/facts")).json()
    facts = [(number, at, decode_fact(json.encode(fact))) for number, at, fact in found["items"]]
    assert (facts, found["more"]) == (list(views.facts(run)), False)
    one = (await client.get(f"{NS}/views/runs/{run}/facts", params={"number": [1, 99]})).json()["items"]
    assert [each[0] for each in one] == [1]
    assert (await client.get(f"{NS}/views/runs/nothing")).json() is None


async def test_an_answer_is_cut_at_its_bytes_and_continues(
    server: Server, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await server.start(client, "prints")
    await server.until(client, run, "completed")
    monkeypatch.setattr("refold.server.views.MOST_BYTES", 10)
    seen, after = [], 0
    while True:
        part = (await client.get(f"{NS}/views/runs/{run}/facts", params={"after": after})).json()
        seen += [each[0] for each in part["items"]]
        if not part["more"]:
            break
        after = seen[-1]
    assert seen == [number for number, _, _ in server.service.views.facts(run)]
    first = (await client.get(f"{NS}/views/runs/{run}/lines")).json()
    assert (len(first["items"]), first["more"]) == (1, True)


async def test_no_documents_are_given_but_those_of_schedules(server: Server, client: httpx2.AsyncClient) -> None:
    assert set(DOCUMENTS) == {"schedule", "schedule_time", "backfill", "calendar", "dismissed"}
    for kind in ("token", "session", "ticket", "server", "audit", "workflow", "x"):
        answer = await client.get(f"{NS}/views/documents", params={"kind": kind})
        assert (answer.status_code, "hash" in answer.text) == (422, False), kind


async def test_messages_and_runs_of_other_workflows_are_hidden(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "broken")
    await server.until(client, run, "failed")
    async with server.client(await server.token("viewer")) as viewer:
        shown = (await viewer.get(f"{NS}/views/runs")).text
        assert ("division" in shown, "failed" in shown) == (False, True)
        assert (await viewer.get(f"{NS}/views/runs/{run}/facts")).status_code == 403
    async with server.client(await server.token("operator", workflows=("greet",))) as other:
        assert (await other.get(f"{NS}/views/runs")).json()["rows"] == []
        assert (await other.get(f"{NS}/views/runs/{run}")).json() is None
        assert (await other.get(f"{NS}/views/runs/{run}/facts")).status_code == 404
        assert (await other.get(f"{NS}/views/runs:called", params={"text": run})).json() == []
        assert (await other.get(f"{NS}/views/dead-letters")).json() == []
        [plan] = server.service.views.plans(server.service.views.summary(run).plan)  # type: ignore[union-attr]
        assert (await other.get(f"{NS}/views/plans/{plan}")).status_code == 404
        started = await other.post(f"{NS}/runs", json={"plan": plan})
        assert started.status_code == 404


async def test_a_question_is_answered_only_by_who_may_decide(server: Server, client: httpx2.AsyncClient) -> None:
    """An answer is a signal; its name must not be a way around."""
    run = await server.start(client, "listen")
    await server.until(client, run, "waiting")
    async with server.client(await server.token("operator")) as operator:
        answer = await operator.post(f"{NS}/runs/{run}/signals/answer:q", json={"value": 1})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert (await client.post(f"{NS}/runs/{run}/signals/answer:q", json={"value": 1})).status_code == 200


async def test_a_plan_is_stored_under_its_own_hash_alone(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "greet")
    hash = (await client.get(f"{NS}/runs/{run}")).json()["plan"]
    plan = (await client.get(f"{NS}/plans/{hash}")).json()
    assert (await client.put(f"{NS}/plans/{hash}", json={"plan": plan})).status_code == 200
    assert (await client.put(f"{NS}/plans/{'0' * 64}", json={"plan": plan})).status_code == 422
    assert (await client.put(f"{NS}/plans/{hash}", json={"plan": {"name": 5}})).status_code == 422
    started = await client.post(f"{NS}/runs", json={"plan": hash, "id": "a" * 32})
    assert (started.status_code, started.json()["id"]) == (201, "a" * 32)
    assert (await client.post(f"{NS}/runs", json={"plan": hash, "id": "../x"})).status_code == 422
    async with server.client(await server.token("operator")) as operator:
        assert (await operator.put(f"{NS}/plans/{hash}", json={"plan": plan})).status_code == 403


async def test_shares_and_limits_are_as_the_store_has_them(server: Server, client: httpx2.AsyncClient) -> None:
    server.process.engine.store.set_weight("acme", 3)
    server.process.engine.store.set_limit(Limit(name="api", slots=2))
    shares = json.decode((await client.get(f"{NS}/views/shares")).content, type=list[Share])
    limits = json.decode((await client.get(f"{NS}/views/limits")).content, type=list[LimitUse])
    assert shares == [Share("acme", 3)]
    assert limits == [LimitUse(Limit(name="api", slots=2))]
