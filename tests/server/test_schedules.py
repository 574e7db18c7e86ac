"""Schedules over HTTP: made, changed, paused, triggered and backfilled, as the command line does it."""

from pathlib import Path

import httpx2

from tests.cli.program import refold
from tests.server.conftest import NS, Server

DAILY = {"workflow": "greet", "cron": ["30 7 * * *"], "zone": "Europe/Berlin", "input": {"name": "Ann"}}


async def test_a_schedule_is_made_shown_and_listed_as_the_command_line_shows_it(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    made = await client.put(f"{NS}/schedules/daily", json=DAILY)
    assert made.status_code == 201, made.text
    shown = (await client.get(f"{NS}/schedules/daily")).json()
    assert (shown["cron"], shown["zone"], shown["by"], shown["state"]) == (
        DAILY["cron"],
        "Europe/Berlin",
        "admin",
        "active",
    )
    [listed] = (await client.get(f"{NS}/schedules")).json()["items"]
    assert listed.items() <= shown.items()
    printed = refold(tmp_path, "schedules", "list", "-o", "json").data
    assert printed == [listed]


async def test_a_schedule_is_changed_and_deleted_only_with_its_version(client: httpx2.AsyncClient) -> None:
    first = await client.put(f"{NS}/schedules/daily", json=DAILY)
    other = {**DAILY, "cron": ["0 8 * * *"]}
    blind = await client.put(f"{NS}/schedules/daily", json=other)
    assert (blind.status_code, blind.json()["code"]) == (428, "precondition_required")
    changed = await client.put(f"{NS}/schedules/daily", json=other, headers={"if-match": first.headers["etag"]})
    assert (changed.status_code, changed.json()["cron"]) == (200, ["0 8 * * *"])
    late = await client.put(f"{NS}/schedules/daily", json=DAILY, headers={"if-match": first.headers["etag"]})
    assert late.status_code == 412
    assert (await client.delete(f"{NS}/schedules/daily")).status_code == 428
    gone = await client.request("DELETE", f"{NS}/schedules/daily", headers={"if-match": changed.headers["etag"]})
    assert gone.status_code == 204
    assert (await client.get(f"{NS}/schedules/daily")).status_code == 404


async def test_a_wrong_schedule_is_refused_with_its_place(client: httpx2.AsyncClient) -> None:
    wrong = await client.put(f"{NS}/schedules/daily", json={**DAILY, "cron": ["61 7 * * *"]})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/definition")
    text = "apiVersion: refold/v1\nkind: Schedule\nmetadata: {name: daily}\nworkflow: greet\nzone: Mars\nevery: 20s\n"
    placed = (await client.put(f"{NS}/schedules/daily", json={"definition": text})).json()["errors"][0]
    assert (placed["line"], "Mars" in placed["detail"]) == (5, True)
    nobody = await client.put(f"{NS}/schedules/daily", json={**DAILY, "workflow": "nothing"})
    assert nobody.status_code == 404
    inputs = await client.put(f"{NS}/schedules/daily", json={**DAILY, "input": {"name": 5}})
    assert inputs.status_code == 422, inputs.text


async def test_a_schedule_is_paused_resumed_and_triggered(server: Server, client: httpx2.AsyncClient) -> None:
    await client.put(f"{NS}/schedules/daily", json=DAILY)
    paused = (await client.post(f"{NS}/schedules/daily/pause", json={"note": "holidays"})).json()
    assert (paused["state"], paused["note"], paused["next"]) == ("paused", "holidays", None)
    resumed = (await client.post(f"{NS}/schedules/daily/resume")).json()
    assert (resumed["state"], resumed["passed"]) == ("active", 0)
    fired = await client.post(f"{NS}/schedules/daily/trigger", json={})
    assert (fired.status_code, fired.json()["state"]) == (200, "started"), fired.text
    shown = await server.until(client, fired.json()["run"], "completed")
    assert shown["labels"]["schedule"] == "daily"
    times = (await client.get(f"{NS}/schedules/daily")).json()["times"]
    assert [(each["state"], each["run"], each["how"]) for each in times] == [("started", shown["id"], "triggered")]


async def test_a_backfill_is_counted_first_and_then_starts_its_runs(server: Server, client: httpx2.AsyncClient) -> None:
    hourly = {"workflow": "greet", "cron": ["0 * * * *"]}
    await client.put(f"{NS}/schedules/hourly", json=hourly)
    span = {"from": "2026-01-01T00:00:00Z", "until": "2026-01-01T02:00:00Z"}
    dry = (await client.post(f"{NS}/schedules/hourly/backfill", json={**span, "dry_run": True})).json()
    assert (dry["count"], dry["times"][0]) == (3, "2026-01-01T00:00:00.000000Z")
    assert (await client.get(f"{NS}/runs:count")).json()["count"] == 0
    made = await client.post(f"{NS}/schedules/hourly/backfill", json={**span, "id": "january", "at_once": 3})
    assert (made.status_code, made.json()["total"]) == (201, 3), made.text
    stopped = (await client.post(f"{NS}/schedules/hourly/backfills/january/stop")).json()
    assert stopped["state"] in ("stopped", "done")
    unknown = await client.post(f"{NS}/schedules/hourly/backfills/march/pause")
    assert unknown.status_code == 404


async def test_a_preview_says_where_the_clock_changes(client: httpx2.AsyncClient) -> None:
    text = (
        "apiVersion: refold/v1\nkind: Schedule\nmetadata: {name: daily}\nworkflow: greet\n"
        "cron: ['30 2 * * *']\nzone: Europe/Berlin\n"
    )
    body = {"definition": text, "from": "2026-03-28T12:00:00Z", "limit": 2}
    found = (await client.post(f"{NS}/schedules:preview", json=body)).json()
    assert [each["utc"][:16] for each in found["items"]] == ["2026-03-29T01:00", "2026-03-30T00:30"]
    assert "skips" in found["items"][0]["note"]
    neither = await client.post(f"{NS}/schedules:preview", json={})
    assert neither.status_code == 422


async def test_a_credential_of_other_workflows_sees_no_schedule_of_this_one(
    server: Server, client: httpx2.AsyncClient
) -> None:
    await client.put(f"{NS}/schedules/daily", json=DAILY)
    async with server.client(await server.token("author", workflows=("ask",))) as other:
        assert (await other.get(f"{NS}/schedules")).json()["items"] == []
        assert (await other.get(f"{NS}/schedules/daily")).status_code == 404
        assert (await other.post(f"{NS}/schedules/daily/pause", json={})).status_code == 404
        assert (await other.put(f"{NS}/schedules/mine", json=DAILY)).status_code == 404
    async with server.client(await server.token("viewer")) as viewer:
        assert "input" not in (await viewer.get(f"{NS}/schedules/daily")).json()
