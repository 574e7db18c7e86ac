"""The pages of runs: every moment by its address and by keyboard, steering as the command line does it, loops."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from playwright.async_api import Page, expect

from tests.page.conftest import Visitor, settled
from tests.server.conftest import NS, Server


@asynccontextmanager
async def started(visitor: Visitor, workflow: str, status: str) -> AsyncIterator[tuple[Page, str, httpx2.AsyncClient]]:
    """A page that has signed in, a run that has this status, and a program that asks the same server."""
    server: Server = visitor.server
    async with server.client(await server.token()) as client:
        run = await server.start(client, workflow)
        await server.until(client, run, status)
        yield await visitor.sign_in("admin", "admin"), run, client


async def rows(page: Page) -> list[str]:
    found: list[str] = await page.locator(".step-row").evaluate_all(
        "(all) => all.map((each) => [...each.querySelectorAll('.status, .plain-button')]"
        ".map((part) => part.textContent.trim()).join(' '))"
    )
    return found


async def test_a_moment_is_in_the_address_and_keys_go_from_fact_to_fact(visitor: Visitor) -> None:
    async with started(visitor, "parts", "completed") as (page, run, client):
        head = (await client.get(f"{NS}/runs/{run}")).json()["head"]
        await visitor.open(page, f"runs/{run}?at=2")
        await expect(page.get_by_text("The run as it was after fact 2")).to_be_visible()
        await expect(page.locator(".run-head .badge")).to_have_text("running")
        for number in range(3, head):
            await page.keyboard.press("]")
            await expect(page).to_have_url(re.compile(rf"at={number}(&|$)"))
            await expect(page.get_by_text(f"after fact {number},")).to_be_visible()
            wanted = (await client.get(f"{NS}/runs/{run}/at/{number}")).json()
            status = {"issued": ("running", "waiting"), "entered": ("running", "waiting")}
            shown = await rows(page)
            for row, text in zip(wanted["steps"], shown, strict=True):
                assert text in [f"{each} {row['step']}" for each in status.get(row["status"], (row["status"],))]
        await page.keyboard.press("]")
        await expect(page.get_by_text(f"now, after {head} facts")).to_be_visible()
        await page.keyboard.press("[")
        await expect(page.get_by_text(f"after fact {head - 1},")).to_be_visible()
        await expect(page.get_by_role("button", name="Retry", exact=True)).to_have_attribute("aria-disabled", "true")
        assert visitor.seen.faults() == []


async def test_a_failed_run_opens_on_what_failed_and_is_retried_from_there(visitor: Visitor) -> None:
    async with started(visitor, "broken", "failed") as (page, run, client):
        await visitor.open(page, f"runs/{run}")
        await expect(page.locator(".detail")).to_contain_text("ZeroDivisionError")
        await page.get_by_role("button", name="Retry", exact=True).click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("1 failed step runs again")
        await expect(dialog).to_contain_text(f"refold runs retry {run}")
        await dialog.get_by_role("button", name="Retry").click()
        await expect(dialog).to_have_count(0)
        facts = (await client.get(f"{NS}/runs/{run}/facts")).json()["items"]
        assert [each["by"] for each in facts if each["type"] == "run_reopened"] == ["admin"]


async def test_nobody_steers_a_state_that_has_passed(visitor: Visitor) -> None:
    async with started(visitor, "ask", "waiting") as (page, run, client):
        await visitor.open(page, f"runs/{run}")
        await page.get_by_role("button", name="Cancel", exact=True).click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_be_visible()
        await client.post(f"{NS}/runs/{run}/pause", json={})  # meanwhile, by somebody else
        await expect(page.locator(".run-head .badge")).to_have_text("paused")
        await dialog.get_by_role("button", name="Cancel").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("read it again")
        assert (await client.get(f"{NS}/runs/{run}")).json()["status"] == "paused"


async def test_who_may_not_steer_sees_grey_buttons_that_name_the_permission(visitor: Visitor) -> None:
    server = visitor.server
    async with server.client(await server.token()) as client:
        run = await server.start(client, "ask")
        await server.until(client, run, "waiting")
        page = await visitor.sign_in("viewer", "eve")
        await visitor.open(page, f"runs/{run}")
        button = page.get_by_role("button", name="Pause", exact=True)
        await expect(button).to_have_attribute("aria-disabled", "true")
        await button.focus()
        await expect(page.get_by_role("tooltip")).to_contain_text('needs the permission "operate"')
        await button.press("Enter")
        await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_failed_items_of_a_loop_are_grouped_chosen_and_retried(visitor: Visitor) -> None:
    async with started(visitor, "parts", "completed") as (page, run, client):
        await visitor.open(page, f"runs/{run}/loops/each")
        await expect(page.locator(".group-row")).to_contain_text("division by zero")
        await page.locator(".group-row").click()
        await expect(page).to_have_url(re.compile("state=failed"))
        await expect(page.locator(".item-row:not(.head)")).to_have_count(2)
        await page.get_by_label("Select item 3").check()
        asked: list[dict[str, Any]] = []
        page.on("request", lambda request: asked.append(request.headers) if "items:retry" in request.url else None)
        await page.get_by_role("button", name="Retry 1").click()
        await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert [each["if-match"][0] for each in asked] == ['"']
        facts = (await client.get(f"{NS}/runs/{run}/facts")).json()["items"]
        assert [each["items"] for each in facts if each["type"] == "run_reopened"] == [{"each": [3]}]


async def test_filters_of_runs_are_chips_in_the_address_that_can_be_taken_away(visitor: Visitor) -> None:
    async with started(visitor, "broken", "failed") as (page, run, client):
        await visitor.server.until(client, await visitor.server.start(client, "greet"), "completed")
        await visitor.open(page, "runs?status=failed&workflow=broken")
        await expect(page.locator(".run-row:not(.head)")).to_have_count(1)
        await page.get_by_role("button", name="Remove the filter workflow broken").click()
        await expect(page).to_have_url(re.compile(r"runs\?status=failed$"))
        await page.go_back()
        await expect(page).to_have_url(re.compile("workflow=broken"))
        await visitor.open(page, "runs?workflow=nothing")
        await expect(page.get_by_text("No run fits.")).to_be_visible()
        await page.locator(".empty").get_by_role("button", name="workflow nothing").click()
        await expect(page.locator(".run-row:not(.head)")).to_have_count(2)
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await settled(page)
        await expect(page).to_have_url(re.compile(rf"runs/{run}"))
        assert visitor.seen.faults() == []
