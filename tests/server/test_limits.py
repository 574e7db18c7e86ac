"""Shares and limits through a server: who may set them, and that they are what the store has."""

from typing import Any

import httpx2
import pytest

from refold.ports import Limit, LimitUse, Share
from tests.server.conftest import NS, Server


async def test_shares_and_limits_are_set_and_removed(server: Server, client: httpx2.AsyncClient) -> None:
    views = server.process.engine.store.views
    assert (await client.put(f"{NS}/shares", json={"share": "acme/ä", "weight": 3})).status_code == 204
    assert (await client.put(f"{NS}/limits", json={"name": "api", "slots": 2, "rate": 0.5})).status_code == 204
    assert list(views.shares()) == [Share("acme/ä", 3)]
    assert list(views.limits()) == [LimitUse(Limit(name="api", slots=2, rate=0.5))]
    assert (await client.put(f"{NS}/shares", json={"share": "acme/ä", "weight": None})).status_code == 204
    answers = [await client.post(f"{NS}/limits:remove", json={"name": "api"}) for _ in range(2)]
    assert [each.status_code for each in answers] == [204, 404]
    assert (list(views.shares()), list(views.limits())) == ([], [])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("shares", {"share": "a", "weight": 0}),
        ("shares", {"share": "", "weight": 2}),
        ("shares", {"share": "a"}),
        ("limits", {"name": "a"}),
        ("limits", {"name": "a", "slots": -1}),
        ("limits", {"name": "rate:a", "slots": 1}),
        ("limits", {"name": "a", "slots": 1, "more": 2}),
    ],
)
async def test_what_is_no_weight_or_limit_is_refused(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    assert (await client.put(f"{NS}/{path}", json=body)).status_code == 422


async def test_who_sees_some_workflows_does_not_set_what_counts_for_all(server: Server) -> None:
    for token in (await server.token("viewer"), await server.token("operator", workflows=("greet",))):
        async with server.client(token) as client:
            assert (await client.put(f"{NS}/shares", json={"share": "a", "weight": 2})).status_code == 403
            assert (await client.put(f"{NS}/limits", json={"name": "a", "slots": 1})).status_code == 403
            assert (await client.post(f"{NS}/limits:remove", json={"name": "a"})).status_code == 403
    assert not list(server.process.engine.store.views.limits())
