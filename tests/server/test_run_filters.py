"""What a list of runs can be filtered by, and that paging with a filter loses and repeats nothing."""

import httpx2
import pytest

from refold.server import runs
from tests.server.conftest import NS, Server


async def ids(client: httpx2.AsyncClient, **query: str | list[str]) -> list[str]:
    answer = await client.get(f"{NS}/runs", params=query)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["items"]]


async def test_runs_are_filtered_by_all_that_a_row_says(server: Server, client: httpx2.AsyncClient) -> None:
    done, failed = await server.start(client, "greet"), await server.start(client, "broken")
    gate, waits = await server.start(client, "ask"), await server.start(client, "listen", key="k", name="ears")
    await server.until(client, done, "completed")
    plan = (await server.until(client, failed, "failed"))["plan"]
    await server.until(client, gate, "waiting")
    await server.until(client, waits, "waiting")
    [group] = (await client.get(f"{NS}/dead-letters")).json()["items"]
    assert await ids(client, status=["completed", "failed"]) == [failed, done]
    assert await ids(client, plan=plan) == [failed]
    assert await ids(client, fingerprint=group["fingerprint"]) == [failed]
    assert await ids(client, gates="true") == [gate]
    assert await ids(client, key="k", name="ears") == [waits]
    assert await ids(client, by="ended", since="1h") == [failed, done]
    assert await ids(client, by="ended", until="2001-01-01T00:00:00Z") == []
    counted = (await client.get(f"{NS}/runs:count", params={"status": ["completed", "failed"]})).json()
    assert counted == {"count": 2, "capped": False}
    for wrong in ({"order": "name"}, {"by": "odd"}, {"status": "odd"}):
        answer = await client.get(f"{NS}/runs", params=wrong)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, f"?{next(iter(wrong))}")


async def test_a_filtered_list_goes_on_and_is_cut_after_so_many_rows(
    server: Server, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SCANNED_AT_ONCE", 2)
    monkeypatch.setattr(runs, "MOST_SCANNED", 4)
    batch = {"runs": [{"workflow": "greet" if n % 3 else "listen"} for n in range(12)]}
    started = [each["run"]["id"] for each in (await client.post(f"{NS}/runs:batch", json=batch)).json()["items"]]
    wanted = {run for n, run in enumerate(started) if not n % 3}
    for run in wanted:
        await server.until(client, run, "waiting")
    seen, query, parts = [], {"status": ["waiting", "paused"], "limit": "3"}, 0
    while True:
        page = (await client.get(f"{NS}/runs", params=query)).json()
        seen += [each["id"] for each in page["items"]]
        parts += 1
        if not page["more"]:
            break
        query["cursor"] = page["next_cursor"]
    assert (sorted(seen), parts > 1) == (sorted(wanted), True)
