"""Every route with objects that a credential may see, and with those of others: made from the table of routes."""

from typing import Any

import httpx2
from msgspec import Struct

from refold.server.routes import Route
from refold.server.table import ROUTES
from tests.server.conftest import NS, Server
from tests.server.test_access import address

SECRET = "the-secret-of-others"
BODIES: dict[str, Any] = {
    "MigrateBody": {"to": "h"},
    "DecisionBody": {"option": "approve"},
    "AnswerBody": {"value": 1},
    "ScheduleBody": {"workflow": "greet", "every": "1h"},
    "BackfillBody": {"from": "2026-01-01T00:00:00Z"},
    "DefinitionBody": {"definition": "x"},
    "ItemsBody": {"items": [0]},
}
OWN = ("/runs/{run}", "/schedules/{id}", "/operations/{id}", "/dead-letters/{fingerprint}", "/plans/{hash}")


class Others(Struct):
    """What somebody else has: a run that failed, its plan, its dead letter, a schedule, an operation."""

    run: str
    plan: str
    fingerprint: str
    operation: str


async def made(server: Server, client: httpx2.AsyncClient) -> Others:
    run = await server.start(client, "broken", name=SECRET, input={"word": SECRET}, labels={"of": SECRET})
    shown = await server.until(client, run, "failed")
    [group] = (await client.get(f"{NS}/dead-letters")).json()["items"]
    assert (await client.put(f"{NS}/schedules/mine", json={"workflow": "broken", "every": "1h"})).status_code == 201
    counted = await client.post(f"{NS}/operations", json={"action": "delete", "filter": {"workflow": "broken"}})
    return Others(run, shown["plan"], group["fingerprint"], counted.json()["id"])


def filled(route: Route, others: Others) -> str:
    id = "mine" if "/schedules/" in route.path else others.operation
    return address(
        route,
        run=others.run,
        hash=others.plan,
        fingerprint=others.fingerprint,
        step="bad",
        name="broken",
        id=id,
    )


def concerns(route: Route) -> bool:
    """Whether an object of a person stands in the address; what workers reach follows from their leases."""
    if route.need == "work":
        return False
    return any(part in route.path for part in OWN) or route.path.endswith("/workflows/{name}")


async def test_an_object_of_others_is_not_there_for_any_route(server: Server, client: httpx2.AsyncClient) -> None:
    """Whoever may do everything, but with one workflow, gets 404 for each object of another: by id too."""
    others = await made(server, client)
    plan = (await client.get(f"{NS}/plans/{others.plan}")).json()
    token = await server.token("admin", name="limited", workflows=("greet",))
    tried = 0
    async with server.client(token) as limited:
        for route in filter(concerns, ROUTES):
            body = None if route.body is None else {**BODIES, "PlanBody": {"plan": plan}}.get(route.body.__name__, {})
            query = {"beginning": "x"} if route.path.endswith("/views/plans") else None
            answer = await limited.request(route.method, filled(route, others), json=body, params=query)
            if route.path.endswith("/views/runs/{run}"):
                assert answer.json() is None
            else:
                assert answer.status_code == 404, (route.name, answer.status_code, answer.text)
            assert SECRET not in answer.text
            tried += 1
    assert tried > 40
    shown = (await client.get(f"{NS}/runs/{others.run}")).json()
    assert (shown["status"], shown["head"] > 0) == ("failed", True)
    assert (await client.get(f"{NS}/schedules/mine")).json()["state"] == "active"
    assert (await client.get(f"{NS}/operations/{others.operation}")).json()["state"] == "counted"


async def test_no_list_mentions_an_object_of_others(server: Server, client: httpx2.AsyncClient) -> None:
    others = await made(server, client)
    lists = [
        route
        for route in ROUTES
        if route.method == "GET" and route.parameters == ("ns",) and not route.is_stream and route.need == "read"
    ]
    async with server.client(await server.token("operator", workflows=("greet",))) as limited:
        for route in lists:
            query = {"text": SECRET} if route.path.endswith(":called") else None
            text = (await limited.get(address(route), params=query)).text
            found = [each for each in (SECRET, others.run, others.fingerprint, "division", '"mine"') if each in text]
            assert not found, (route.name, found)
        assert (await limited.get(f"{NS}/runs:count")).json()["count"] == 0
        overview = (await limited.get(f"{NS}/overview")).json()
        assert (overview["runs"]["failed"]["count"], overview["dead_letters"]) == (0, [])
    assert len(lists) > 10


async def test_an_object_of_another_namespace_is_not_there_for_any_route(
    server: Server, client: httpx2.AsyncClient
) -> None:
    others = await made(server, client)
    token = await server.token("admin", name="elsewhere", namespaces=("other",))
    async with server.client(token) as elsewhere:
        for route in ROUTES:
            if "ns" not in route.parameters:
                continue
            answer = await elsewhere.request(route.method, filled(route, others), json={} if route.body else None)
            assert answer.status_code == 404, (route.name, answer.text)


async def test_who_may_not_see_values_gets_none_from_any_route(server: Server, client: httpx2.AsyncClient) -> None:
    others = await made(server, client)
    async with server.client(await server.token("viewer")) as viewer:
        for route in ROUTES:
            if route.method != "GET" or route.is_stream or "ns" not in route.parameters:
                continue
            answer = await viewer.get(filled(route, others))
            if route.need == "read":
                assert answer.status_code in (200, 404, 409, 422), (route.name, answer.text)
                assert "division" not in answer.text, route.name
            else:
                assert answer.status_code == 403, (route.name, answer.text)
        looked = await viewer.get(f"{NS}/runs", params={"error": "division"})
        assert looked.status_code == 403  # to look for a message is to see it
