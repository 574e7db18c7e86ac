"""Many runs at once from the page: counted first, then done by the server with exactly those, whoever looks."""

from typing import Any

import httpx2
from playwright.async_api import Locator, Page, expect

from tests.page.conftest import Visitor
from tests.server.conftest import NS, Server


def requests_of(page: Page) -> list[str]:
    """What the page asks to change, as method and path."""
    asked: list[str] = []
    page.on(
        "request", lambda each: asked.append(each.url.partition(NS)[2].split("?")[0]) if each.method == "POST" else None
    )
    return asked


async def start_many(server: Server, client: httpx2.AsyncClient, workflow: str, number: int, status: str) -> list[str]:
    runs = [await server.start(client, workflow) for _ in range(number)]
    for run in runs:
        await server.until(client, run, status)
    return runs


async def only_operation(client: httpx2.AsyncClient) -> dict[str, Any]:
    [found] = (await client.get(f"{NS}/operations")).json()["items"]
    shown: dict[str, Any] = (await client.get(f"{NS}/operations/{found['id']}", params={"limit": 200})).json()
    return shown


async def let_go(page: Page, button: str) -> Locator:
    """Press the button of the dialog, which counted; return the bar of what is under way."""
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name=button, exact=True).click()
    await expect(dialog).to_have_count(0)
    return page.locator(".many")


async def test_a_group_of_dead_letters_is_counted_and_retried_as_an_operation(visitor: Visitor, server: Server) -> None:
    async with server.client(await server.token()) as client:
        runs = await start_many(server, client, "broken", 3, "failed")
        [group] = (await client.get(f"{NS}/dead-letters")).json()["items"]
        page = await visitor.sign_in("admin", "admin")
        asked = requests_of(page)
        await visitor.open(page, f"dead-letters?open={group['fingerprint']}")
        await page.get_by_role("button", name="Retry all of them").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("3 runs were counted")
        await expect(page.get_by_role("tooltip")).to_have_count(0)  # why it could not be pressed is over
        await expect(dialog).to_contain_text(f"refold dlq redrive {group['fingerprint']}")
        assert (await only_operation(client))["state"] == "counted"
        assert [(await client.get(f"{NS}/runs/{run}")).json()["status"] for run in runs] == ["failed"] * 3
        await dialog.get_by_label("How fast").select_option("1000")
        bar = await let_go(page, "Retry 3 runs")
        await expect(bar).to_contain_text("3 of 3 done")
        done = await only_operation(client)
        assert (done["action"], done["rate"], done["state"], done["refused"]) == ("redrive", 1000, "done", 0)
        assert {each["id"] for each in done["items"]} == {*runs}
        assert [path for path in asked if "/retry" in path] == []
        for run in runs:
            facts = (await client.get(f"{NS}/runs/{run}/facts", params={"kind": "run_reopened"})).json()["items"]
            assert [each["by"] for each in facts] == ["admin"]
    assert visitor.seen.faults() == []


async def test_all_runs_that_fit_are_acted_on_only_after_they_were_counted(visitor: Visitor, server: Server) -> None:
    async with server.client(await server.token()) as client:
        waiting = await start_many(server, client, "listen", 3, "waiting")
        await start_many(server, client, "greet", 1, "completed")
        await client.post(f"{NS}/runs/{waiting[0]}/pause", json={})
        page = await visitor.sign_in("admin", "admin")
        await visitor.open(page, "runs?workflow=listen")
        await page.get_by_label(f"Select {waiting[1]}").check()
        await page.get_by_role("button", name="all that fit").click()
        await page.get_by_role("button", name="pause …").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("2 runs were counted")
        await expect(dialog).to_contain_text("Left as they are: 1 paused")
        late = await server.start(client, "listen")
        await server.until(client, late, "waiting")
        bar = await let_go(page, "Pause 2 runs")
        await expect(bar).to_contain_text("2 of 2 done")
        status = {run: (await client.get(f"{NS}/runs/{run}")).json()["status"] for run in [*waiting, late]}
        assert status == {**dict.fromkeys(waiting, "paused"), late: "waiting"}
        await expect(page.get_by_role("button", name="Remove the filter workflow listen")).to_be_visible()
        await bar.get_by_role("link", name="outcome of each").click()
        await expect(page.locator(".gate-body tbody tr")).to_have_count(2)
    assert visitor.seen.faults() == []


async def test_the_filter_of_the_list_is_the_filter_of_the_operation(visitor: Visitor, server: Server) -> None:
    async with server.client(await server.token()) as client:
        wanted = await server.start(client, "listen", labels={"team": "shop"}, name="one")
        other = await server.start(client, "listen", labels={"team": "shop"}, name="two")
        for run in (wanted, other):
            await server.until(client, run, "waiting")
        page = await visitor.sign_in("admin", "admin")
        await visitor.open(page, "runs?status=waiting&label=team:shop&name=one")
        await page.get_by_role("button", name="Select all").click()
        await page.get_by_role("button", name="cancel …").click()
        bar = await let_go(page, "Cancel 1 run")
        await expect(bar).to_contain_text("1 of 1 done")
        await server.until(client, wanted, "cancelled")
        assert (await client.get(f"{NS}/runs/{other}")).json()["status"] == "waiting"


async def test_who_may_not_operate_sees_that_all_of_them_cannot_be_chosen(visitor: Visitor, server: Server) -> None:
    async with server.client(await server.token()) as client:
        await start_many(server, client, "greet", 1, "completed")
    page = await visitor.sign_in("viewer", "eve")
    await visitor.open(page, "runs")
    button = page.get_by_role("button", name="Select all")
    await expect(button).to_have_attribute("aria-disabled", "true")
    await button.focus()
    await expect(page.get_by_role("tooltip")).to_contain_text('needs the permission "operate"')
