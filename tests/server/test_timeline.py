"""The time of a run over HTTP: its visits as segments, where the time went, the strip of a loop, and large values."""

import httpx2

from tests.server.conftest import NS, Server


async def test_the_timeline_and_the_time_of_a_run_follow_from_its_log(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "ask")
    await server.until(client, run, "waiting")
    shown = (await client.get(f"{NS}/runs/{run}/timeline")).json()
    [visit] = shown["visits"]
    assert (visit["step"], visit["segments"][0]["kind"], visit["segments"][0]["open"]) == ("ok", "person", True)
    await client.post(f"{NS}/runs/{run}/gates/ok/1", json={"option": "approve"})
    await server.until(client, run, "completed")
    over = (await client.get(f"{NS}/runs/{run}/timeline", params={"width": 10_000})).json()
    assert (over["over"], [each["step"] for each in over["visits"]]) == (True, ["ok", "done"])
    spent = (await client.get(f"{NS}/runs/{run}/time")).json()
    assert [each["step"] for each in spent["critical_path"]] == ["ok", "done"]
    assert spent["by_kind"]["person"] > 0
    for wrong in ({"width": 0}, {"from": "soon"}, {"until": "2001-01-01T00:00:00Z"}):
        answer = await client.get(f"{NS}/runs/{run}/timeline", params=wrong)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"][0]) == (422, "?"), wrong


async def test_the_strip_counts_the_items_of_a_loop_in_ranges(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "many")
    await server.until(client, run, "completed")
    strip = (await client.get(f"{NS}/runs/{run}/loops/each/strip", params={"bins": 2})).json()
    completed = strip["states"].index("completed")
    assert (strip["count"], strip["total"][completed]) == (3, 3)
    assert [each[completed] for each in strip["bins"]] == [1, 2]
    part = (await client.get(f"{NS}/runs/{run}/loops/each/strip", params={"from": 1, "until": 2})).json()
    assert len(part["bins"]) == 1
    wrong = await client.get(f"{NS}/runs/{run}/loops/each/strip", params={"from": 9})
    assert wrong.status_code == 422
    assert (await client.get(f"{NS}/runs/{run}/loops/nothing/strip")).status_code == 404


async def test_a_large_value_is_a_reference_and_is_downloaded_by_its_hash(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "listen")
    await server.until(client, run, "waiting")
    await client.post(f"{NS}/runs/{run}/signals/go", json={"value": "x" * 200_000})
    await server.until(client, run, "completed")
    reference = (await client.get(f"{NS}/runs/{run}/result")).json()["ref"]
    assert (reference["size"] > 200_000, len(reference["beginning"])) == (True, 2048)
    whole = await client.get(f"{NS}/runs/{run}/values/{reference['hash']}")
    assert len(whole.content) == reference["size"]
    assert whole.headers["content-disposition"].startswith("attachment")
    assert "immutable" in whole.headers["cache-control"]
    all_of_it = await client.get(f"{NS}/runs/{run}/result", params={"values": "download"})
    assert (all_of_it.content, all_of_it.headers["content-security-policy"]) == (whole.content, "sandbox")
    for unknown in ("0" * 64, "x"):
        assert (await client.get(f"{NS}/runs/{run}/values/{unknown}")).status_code == 404
