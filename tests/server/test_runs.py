"""Runs over HTTP: started, listed, shown, steered."""

import asyncio

import httpx2
import pytest

from refold.server.runs import brief_fact
from tests.server.conftest import NS, Server


async def test_a_run_is_started_shown_and_its_result_read(server: Server, client: httpx2.AsyncClient) -> None:
    answer = await client.post(
        f"{NS}/runs", json={"workflow": "greet", "input": {"name": "Ann"}, "name": "morning", "labels": {"team": "x"}}
    )
    assert answer.status_code == 201
    run = answer.json()["id"]
    assert answer.headers["location"] == f"{NS}/runs/{run}"
    shown = await server.until(client, run, "completed")
    assert (shown["name"], shown["labels"], shown["workflow"]) == ("morning", {"team": "x"}, "greet")
    assert [(step["step"], step["status"]) for step in shown["steps"]] == [("hello", "completed")]
    assert (await client.get(f"{NS}/runs/{run}/result")).json() == {"value": "hello Ann"}
    assert (await client.get(f"{NS}/runs/{run}/input")).json() == {"value": {"name": "Ann"}}
    facts = (await client.get(f"{NS}/runs/{run}/facts")).json()
    assert [each["number"] for each in facts["items"]] == list(range(1, facts["last"] + 1))
    assert facts["items"][0]["type"] == "run_started"


async def test_a_value_as_text_keeps_every_digit(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "listen")
    await server.until(client, run, "waiting")
    number = 9007199254740993
    sent = await client.post(f"{NS}/runs/{run}/signals/go", json={"value": number})
    assert sent.status_code == 200
    await server.until(client, run, "completed")
    text = (await client.get(f"{NS}/runs/{run}/result", params={"values": "text"})).json()
    assert str(number) in text["text"]
    assert (await client.get(f"{NS}/runs/{run}/result", params={"values": "none"})).json()["ref"]["size"] > 0


async def test_the_list_goes_on_with_its_cursor_and_repeats_nothing(server: Server, client: httpx2.AsyncClient) -> None:
    runs = [await server.start(client, "greet") for _ in range(5)]
    seen, query = [], {"limit": "2", "workflow": "greet"}
    while True:
        page = (await client.get(f"{NS}/runs", params=query)).json()
        seen += [row["id"] for row in page["items"]]
        if not page["more"]:
            break
        query["cursor"] = page["next_cursor"]
        runs.insert(0, await server.start(client, "greet"))  # a newer run does not disturb the list
    assert seen == list(reversed([run for run in runs if run in seen]))
    assert len(seen) == 5
    other = await client.get(f"{NS}/runs", params={**query, "workflow": "ask"})
    assert (other.status_code, other.json()["errors"][0]["pointer"]) == (422, "?cursor")
    other_letter = "B" if query["cursor"].startswith("A") else "A"
    forged = await client.get(f"{NS}/runs", params={**query, "cursor": other_letter + query["cursor"][1:]})
    assert forged.status_code == 422
    count = (await client.get(f"{NS}/runs:count", params={"workflow": "greet"})).json()
    assert count == {"count": len(runs), "capped": False}


async def test_a_key_and_an_idempotency_key_start_one_run(server: Server, client: httpx2.AsyncClient) -> None:
    bodies = [{"workflow": "greet", "key": "order-7"}] * 20
    runs = {(await each).json()["id"] for each in [client.post(f"{NS}/runs", json=body) for body in bodies]}
    assert len(runs) == 1
    key = {"idempotency-key": "once"}
    answers = await asyncio.gather(
        *(client.post(f"{NS}/runs", json={"workflow": "greet"}, headers=key) for _ in range(20))
    )
    assert len({each.json()["id"] for each in answers}) == 1
    assert sum("idempotent-replayed" not in each.headers for each in answers) == 1
    other = await client.post(f"{NS}/runs", json={"workflow": "greet", "input": {"name": "Bo"}}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_batch_has_an_outcome_for_each_start(client: httpx2.AsyncClient) -> None:
    runs = [{"workflow": "greet"}, {"workflow": "nothing"}, {"workflow": "greet", "input": {"name": 5}}]
    outcomes = (await client.post(f"{NS}/runs:batch", json={"runs": runs})).json()["items"]
    assert outcomes[0]["run"]["workflow"] == "greet"
    assert [each.get("problem", {}).get("status") for each in outcomes] == [None, 404, 422]


async def test_a_long_poll_answers_as_soon_as_the_head_has_moved(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "listen")
    shown = await server.until(client, run, "waiting")
    waiting = asyncio.create_task(client.get(f"{NS}/runs/{run}", params={"after": shown["head"], "wait": 60}))
    await asyncio.sleep(0)
    await client.post(f"{NS}/runs/{run}/signals/go", json={})
    assert (await asyncio.wait_for(waiting, 30)).json()["head"] > shown["head"]
    same = await client.get(f"{NS}/runs/{run}")
    again = await client.get(f"{NS}/runs/{run}", headers={"if-none-match": same.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_steering_answers_with_the_committed_state_and_names_its_author(server: Server) -> None:
    async with server.client(await server.token("operator", "bea")) as client:
        run = await server.start(client, "listen")
        await server.until(client, run, "waiting")
        paused = await client.post(f"{NS}/runs/{run}/pause", json={})
        assert (paused.status_code, paused.json()["status"]) == (200, "paused")
        assert "resume" in paused.json()["may"]
        assert (await client.post(f"{NS}/runs/{run}/resume")).json()["status"] != "paused"
        cancelled = await client.post(f"{NS}/runs/{run}/cancel", json={"reason": "no need"})
        assert cancelled.json()["status"] in ("cancelled", "ending")
        await server.until(client, run, "cancelled")
        facts = (await client.get(f"{NS}/runs/{run}/facts")).json()["items"]
        assert {each["by"] for each in facts if "by" in each} == {"bea"}
        again = await client.post(f"{NS}/runs/{run}/cancel", json={})
        assert (again.status_code, again.json()["code"]) == (409, "conflict")
        retried = await client.post(f"{NS}/runs/{run}/retry", json={})
        assert retried.status_code == 200
        await server.until(client, run, "waiting")


async def test_nobody_decides_on_a_state_that_has_passed(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "ask")
    shown = await server.until(client, run, "waiting")
    old = (await client.get(f"{NS}/runs/{run}")).headers["etag"]
    assert (await client.post(f"{NS}/runs/{run}/pause", json={})).status_code == 200
    late = await client.post(f"{NS}/runs/{run}/cancel", json={}, headers={"if-match": old})
    assert (late.status_code, late.json()["code"]) == (412, "changed_meanwhile")
    now = (await client.get(f"{NS}/runs/{run}")).headers["etag"]
    assert (await client.post(f"{NS}/runs/{run}/resume", json={}, headers={"if-match": now})).status_code == 200
    assert shown["gates"] == 1


async def test_gates_are_listed_and_decided_by_the_name_of_the_credential(server: Server) -> None:
    async with server.client(await server.token("author")) as author:
        run = await server.start(author, "ask")
        await server.until(author, run, "waiting")
        refused = await author.post(f"{NS}/runs/{run}/gates/ok/1", json={"option": "approve"})
        assert (refused.status_code, "`decide`" in refused.json()["detail"]) == (403, True)
    async with server.client(await server.token("approver", "cy")) as approver:
        [gate] = (await approver.get(f"{NS}/gates")).json()["items"]
        assert (gate["run"], gate["gate"], gate["visit"], gate["prompt"]) == (run, "ok", 1, "go on?")
        other = await approver.post(f"{NS}/runs/{run}/gates/ok/2", json={"option": "approve"})
        assert other.status_code == 409
        decided = await approver.post(f"{NS}/runs/{run}/gates/ok/1", json={"option": "approve"})
        assert decided.status_code == 200, decided.text
        await server.until(approver, run, "completed")
        facts = (await approver.get(f"{NS}/runs/{run}/facts")).json()["items"]
        assert [each["by"] for each in facts if each["type"] == "gate_decided"] == ["cy"]


async def test_who_may_not_see_values_sees_neither_the_question_nor_the_choices_of_a_gate(
    server: Server, client: httpx2.AsyncClient
) -> None:
    text = "{kind: gate, prompt: which?, choices: '{{ workload.names }}'}"
    playbook = (
        "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: choose}\nworkload: {names: [ann, bo]}\n"
        f"workflow:\n  - step: ask\n    tool: {text}\n"
    )
    assert (await client.put(f"{NS}/workflows/choose", json={"definition": playbook})).status_code == 201
    await server.until(client, await server.start(client, "choose"), "waiting")
    [shown] = (await client.get(f"{NS}/gates")).json()["items"]
    assert (shown["prompt"], shown["choices"]) == ("which?", {"ann": "ann", "bo": "bo"})
    async with server.client(await server.token("viewer")) as viewer:
        [seen] = (await viewer.get(f"{NS}/gates")).json()["items"]
        assert seen["options"] == shown["options"]
        assert not {"prompt", "choices"} & {*seen}


async def test_items_of_a_loop_are_pages_and_can_be_filtered(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "many")
    await server.until(client, run, "completed")
    first = (await client.get(f"{NS}/runs/{run}/loops/each/items", params={"limit": 2})).json()
    assert [each["result"] for each in first["items"]] == [10, 20]
    rest = await client.get(f"{NS}/runs/{run}/loops/each/items", params={"limit": 2, "cursor": first["next_cursor"]})
    assert [each["result"] for each in rest.json()["items"]] == [30]
    wrong = await client.get(f"{NS}/runs/{run}/loops/each/items", params={"state": "odd"})
    assert (wrong.status_code, "completed" in wrong.json()["detail"]) == (422, True)
    assert (await client.get(f"{NS}/runs/{run}/loops/none/items")).status_code == 404


async def test_what_failed_is_grouped_and_can_be_retried(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "broken")
    shown = await server.until(client, run, "failed")
    assert (shown["error"]["step"], shown["may"]) == ("bad", ["retry"])
    [group] = (await client.get(f"{NS}/dead-letters")).json()["items"]
    assert (group["runs"], group["tool"]) == (1, "python")
    [letter] = (await client.get(f"{NS}/dead-letters/{group['fingerprint']}")).json()["items"]
    assert letter["run"] == run
    overview = (await client.get(f"{NS}/overview")).json()
    assert (overview["runs"]["failed"]["count"], len(overview["dead_letters"])) == (1, 1)
    assert [each["worker"] for each in (await client.get(f"{NS}/workers")).json()["items"]]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("runs/none", 404),
        ("runs/none/facts", 404),
        ("plans/none", 404),
        ("workflows/none", 404),
        ("dead-letters/none", 404),
    ],
)
async def test_what_is_not_there_is_404(client: httpx2.AsyncClient, path: str, status: int) -> None:
    answer = await client.get(f"{NS}/{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail", "code", "trace_id"} <= answer.json().keys()


async def test_every_moment_of_a_run_can_be_shown_and_frames_equal_moments(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "ask")
    await server.until(client, run, "waiting")
    await client.post(f"{NS}/runs/{run}/gates/ok/1", json={"option": "approve"})
    head = (await server.until(client, run, "completed"))["head"]
    moments = [(await client.get(f"{NS}/runs/{run}/at/{n}")).json() for n in range(1, head + 1)]
    frames = (await client.get(f"{NS}/runs/{run}/frames")).json()
    assert frames["keyframe"] is None
    rows: dict[str, object] = {}
    for moment, frame in zip(moments, frames["frames"], strict=True):
        rows |= {row["step"]: row for row in frame["changed"]}
        assert [rows[row["step"]] for row in moment["steps"]] == moment["steps"]
        assert (moment["status"], brief_fact(moment["fact"])) == (frame["status"], frame["fact"])
    assert [moments[0]["status"], moments[-1]["status"]] == ["running", "completed"]
    later = (await client.get(f"{NS}/runs/{run}/frames", params={"after": 2, "limit": 1})).json()
    assert (later["keyframe"]["head"], [each["number"] for each in later["frames"]]) == (2, [3])
    assert (await client.get(f"{NS}/runs/{run}/facts/1")).json()["type"] == "run_started"
    for path in ("at/0", "at/999", "at/x", "facts/999", "facts/0"):
        assert (await client.get(f"{NS}/runs/{run}/{path}")).status_code == 404, path


async def test_one_item_can_be_shown(server: Server, client: httpx2.AsyncClient) -> None:
    run = await server.start(client, "many")
    await server.until(client, run, "completed")
    item = (await client.get(f"{NS}/runs/{run}/loops/each/items/1")).json()
    assert (item["value"], item["result"], item["status"]) == (2, 20, "completed")
    assert (await client.get(f"{NS}/runs/{run}/loops/each/items/3")).status_code == 404
    assert (await client.get(f"{NS}/runs/{run}/usage")).json() == {"usage": {}, "budget": {}}


async def test_a_run_is_exported_removed_and_imported_with_all_its_facts(
    server: Server, client: httpx2.AsyncClient
) -> None:
    run = await server.start(client, "greet")
    await server.until(client, run, "completed")
    facts = (await client.get(f"{NS}/runs/{run}/facts")).json()
    data = await client.get(f"{NS}/runs/{run}/export")
    assert data.headers["content-disposition"].startswith("attachment")
    assert (await client.delete(f"{NS}/runs/{run}")).status_code == 204
    assert (await client.get(f"{NS}/runs/{run}")).status_code == 404
    back = await client.post(f"{NS}/runs:import", json={"run": data.json()})
    assert (back.status_code, back.json()["id"]) == (201, run)
    assert (await client.get(f"{NS}/runs/{run}/facts")).json() == facts
    waiting = await server.start(client, "listen")
    await server.until(client, waiting, "waiting")
    refused = await client.delete(f"{NS}/runs/{waiting}")
    assert (refused.status_code, "cancel it first" in refused.json()["detail"]) == (409, True)
