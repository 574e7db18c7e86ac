"""Who opens the link is signed in; nobody else is, and no other program of this machine can use the browser."""

from playwright.async_api import Browser, expect

from tests.page.conftest import Visitor, visiting
from tests.server.conftest import Server


async def test_a_link_signs_in_once_and_leaves_no_ticket_in_the_address(visitor: Visitor, browser: Browser) -> None:
    page = await visitor.sign_in("operator", "dee")
    await expect(page.get_by_text("dee", exact=False).first).to_be_visible()
    assert "ticket" not in page.url and "ticket" not in await page.evaluate(
        "JSON.stringify([history.state, document.referrer])"
    )
    [cookie] = await visitor.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"] == "/"
    assert visitor.server.address.rpartition(":")[2] in cookie["name"]
    await page.reload()
    await expect(page.locator("#main")).to_be_visible()
    await page.get_by_role("button", name="sign out").click()
    await expect(page.get_by_text("You are not signed in.")).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("You are not signed in.")).to_be_visible()
    assert visitor.seen.violations == [] and visitor.seen.foreign == []


async def test_a_ticket_that_was_used_signs_nobody_in(visitor: Visitor, server: Server, browser: Browser) -> None:
    token = await server.token("operator", "dee")
    ticket = await server.service.credentials.new_ticket(token.split("_")[1])
    for is_first in (True, False):
        async with visiting(browser, server) as other:
            page = await other.context.new_page()
            await page.goto(f"{server.address}/#ticket={ticket}")
            wanted = page.locator("#main") if is_first else page.get_by_text("You are not signed in.")
            await expect(wanted).to_be_visible()
