"""What a page draws: the graph of a run with what its arcs came to, a step, windows on facts and items."""

import httpx2

from tests.server.conftest import NS, Server


async def test_the_graph_of_a_run_says_what_each_arc_came_to_at_any_moment(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "parts")
    row = await server.until(client, run, "completed")
    graph = (await client.get(f"{NS}/runs/{run}/graph")).json()
    assert [(each["step"], each["kind"], each["is_loop"]) for each in graph["steps"]] == [
        ("each", "python", True),
        ("few", "noop", False),
        ("rest", "noop", False),
    ]
    assert [(each["from"], each["to"], each["has_condition"]) for each in graph["arcs"]] == [
        ("each", "few", True),
        ("each", "rest", False),
    ]
    assert "failed > 2" in graph["arcs"][0]["when"]
    assert graph["marks"] == ["dead", "taken"]
    at_first = (await client.get(f"{NS}/runs/{run}/graph", params={"at": 2})).json()
    assert (at_first["marks"], at_first["head"]) == (["open", "open"], 2)
    plan = (await client.get(f"{NS}/plans/{row['plan']}/graph")).json()
    assert plan["steps"] == graph["steps"]
    assert (await client.get(f"{NS}/plans/{'0' * 64}/graph")).status_code == 404
    async with server.client(await server.token("viewer")) as viewer:
        seen = (await viewer.get(f"{NS}/runs/{run}/graph")).json()
        assert (seen["arcs"][0]["when"], seen["arcs"][0]["has_condition"]) == (None, True)


async def test_a_step_is_shown_with_its_input_its_result_and_its_tries(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "parts")
    await server.until(client, run, "completed")
    rest = (await client.get(f"{NS}/runs/{run}/steps/rest", params={"values": "text"})).json()
    assert (rest["row"]["status"], rest["kind"], rest["result"]) == ("completed", "noop", {"text": "7"})
    [only] = rest["tries"]
    assert (only["attempt"], only["outcome"]) == (1, "succeeded")
    assert (await client.get(f"{NS}/runs/{run}/steps/nothing")).status_code == 404
    loop = (await client.get(f"{NS}/runs/{run}/steps/each")).json()
    assert len(loop["result"]["value"]) == 4
    failed = await server.start(client, "broken")
    await server.until(client, failed, "failed")
    bad = (await client.get(f"{NS}/runs/{failed}/steps/bad")).json()
    assert "division by zero" in bad["tries"][0]["error"]["message"]
    async with server.client(await server.token("viewer")) as viewer:
        seen = (await viewer.get(f"{NS}/runs/{failed}/steps/bad")).json()
        assert "input" not in seen and "division" not in str(seen)


async def test_facts_are_found_by_their_text_and_come_without_their_values(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "parts")
    await server.until(client, run, "completed")
    found = (await client.get(f"{NS}/runs/{run}/facts", params={"q": "REST/1 issued", "values": "none"})).json()
    assert [(each["type"], each["step"]) for each in found["items"]] == [("step_issued", "rest")]
    assert "input" not in found["items"][0]
    one = (await client.get(f"{NS}/runs/{run}/facts", params={"limit": 1})).json()
    assert (len(one["items"]), one["last"], one["more"]) == (1, 1, True)
    [first] = (await client.get(f"{NS}/runs/{run}/frames", params={"limit": 1})).json()["frames"]
    assert (first["fact"]["type"], "plan" in first["fact"]) == ("run_started", False)


async def test_the_items_of_a_loop_are_a_window_and_their_failures_are_grouped(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "parts")
    await server.until(client, run, "completed")
    items = f"{NS}/runs/{run}/loops/each/items"

    async def numbers(**query: object) -> tuple[list[int], int | None]:
        found = (await client.get(items, params=query)).json()  # type: ignore[arg-type]
        return [each["item"] for each in found["items"]], found["count"]

    assert await numbers(skip=1, limit=2) == ([1, 2], 4)
    assert await numbers(**{"from": 1, "until": 3}) == ([1, 2], 2)
    assert await numbers(state="failed") == ([1, 3], 2)
    assert await numbers(q="division by zero") == ([1, 3], None)
    groups = (await client.get(f"{NS}/runs/{run}/loops/each/failures")).json()
    [group] = groups["items"]
    assert (group["count"], group["items"], groups["failed"]) == (2, [1, 3], 2)
    assert "division by zero" in group["message"]
    async with server.client(await server.token("viewer")) as viewer:
        assert (await viewer.get(items, params={"q": "zero"})).status_code == 422
        [hidden] = (await viewer.get(f"{NS}/runs/{run}/loops/each/failures")).json()["items"]
        assert "message" not in hidden


async def test_runs_are_summed_by_time_status_and_workflow_for_a_filter(
    server: Server, client: httpx2.AsyncClient
) -> None:
    for workflow, status in (("broken", "failed"), ("greet", "completed"), ("greet", "completed")):
        await server.until(client, await server.start(client, workflow), status)
    found = (await client.get(f"{NS}/runs:summary", params={"bins": 4})).json()
    assert (found["count"], found["capped"]) == (3, False)
    assert (found["status"], found["workflow"]) == ({"completed": 2, "failed": 1}, {"greet": 2, "broken": 1})
    assert sum(sum(each.values()) for each in found["bins"]) == 3
    assert (await client.get(f"{NS}/runs:summary", params={"workflow": "greet"})).json()["count"] == 2
    failed = (await client.get(f"{NS}/runs", params={"error": "division"})).json()["items"]
    assert [each["workflow"] for each in failed] == ["broken"]
    assert (await client.get(f"{NS}/runs:summary", params={"bins": 0})).status_code == 422
