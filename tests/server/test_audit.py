"""The audit log: what was done and by whom, never a value, and nothing can be changed or cut off unnoticed."""

from pathlib import Path

import httpx2
import pytest
from msgspec import json, structs

from refold.errors import Corrupt
from refold.server.access import Deed
from refold.server.audit import HEAD, KEPT, ROWS, AuditLog, AuditRow, audit_rows, row_id, verify
from refold.stores.memory import MemoryStore
from tests.cli.program import refold
from tests.server.conftest import NS, Server


async def test_each_change_refusal_and_sign_in_is_a_row_and_no_row_has_a_value(
    server: Server, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    secret = "a-value-that-nobody-audits"
    run = await server.start(client, "greet", input={"name": secret})
    await server.until(client, run, "completed")
    await client.get(f"{NS}/runs/{run}/export")
    await client.post(f"{NS}/runs/{run}/cancel", json={"reason": secret})
    async with server.client("rfd_aaaaaaaa_" + "x" * 43) as stranger:
        await stranger.get(f"{NS}/runs")
    token = (await server.service.credentials.tokens())[0]
    ticket = await server.service.credentials.new_ticket(token.id)
    async with server.client() as browser:
        await browser.post("/api/v1/sign-in", json={"ticket": ticket})
    rows = (await client.get(f"{NS}/audit")).json()["items"]
    assert [(row["by"], row["action"], row["result"]) for row in rows] == [
        ("admin", "POST /api/v1/ns/{ns}/runs", 201),
        ("admin", "GET /api/v1/ns/{ns}/runs/{run}/export", 200),
        ("admin", "POST /api/v1/ns/{ns}/runs/{run}/cancel", 409),
        ("", "GET /api/v1/ns/{ns}/runs", 401),
        ("admin", "POST /api/v1/sign-in", 200),
    ]
    assert [row["target"] for row in rows[:3]] == [run, run, run]
    shown = refold(tmp_path, "audit", "list", "-o", "json")
    assert (secret in shown.out, ticket in shown.out, len(shown.data)) == (False, False, 5)
    assert "5 rows" in refold(tmp_path, "audit", "verify").err


def audited() -> tuple[MemoryStore, AuditLog, list[int]]:
    now = [1_000_000]
    store = MemoryStore(lambda: now[0])

    async def advance(work: object) -> object:
        return work()  # type: ignore[operator]

    return store, AuditLog(store, advance, lambda: now[0]), now


async def filled(count: int) -> MemoryStore:
    store, audit, _ = audited()
    for number in range(count):
        await audit.note(Deed("ann", "t1", "127.0.0.1", "POST /x", f"r{number}", 200, "q"))
    return store


def change(store: MemoryStore, number: int, data: bytes | None) -> None:
    with store.turn(()) as turn:
        found = turn.document(ROWS, row_id(number))
        assert found is not None
        if data is None:
            turn.delete_document(ROWS, found.id, found.version)
        else:
            turn.put_document(ROWS, found.id, data, found.version)


async def test_rows_that_nobody_touched_fit_together() -> None:
    store = await filled(1200)
    assert verify(store.views) == 1200
    assert [row.number for row, _ in audit_rows(store.views, 1198)] == [1199, 1200]


@pytest.mark.parametrize("number", [2, 3, 5])
async def test_a_row_that_was_changed_or_removed_is_found(number: int) -> None:
    for remove in (False, True):
        store = await filled(5)
        found = store.views.document(ROWS, row_id(number))
        assert found is not None
        row = json.decode(found.data, type=AuditRow)
        forged = structs.replace(row, deed=structs.replace(row.deed, by="bob"))
        change(store, number, None if remove else json.encode(forged))
        with pytest.raises(Corrupt):
            verify(store.views)


async def test_rows_older_than_400_days_are_removed_and_the_rest_still_fits() -> None:
    store, audit, now = audited()
    for _ in range(3):
        await audit.note(Deed("ann", "t1", "", "POST /x", "", 200, "q"))
    now[0] += KEPT + 1
    await audit.note(Deed("bea", "t2", "", "POST /x", "", 200, "q"))
    await audit.tidy()
    assert [row.deed.by for row, _ in audit_rows(store.views)] == ["bea"]
    assert verify(store.views) == 1
    assert store.views.document(HEAD, HEAD) is not None
