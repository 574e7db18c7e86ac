"""Starting, watching, deciding and retrying, all by the keyboard."""

from pathlib import Path

from playwright.async_api import Locator, Page, expect

from tests.page.conftest import Visitor
from tests.page.scene import write_playbooks
from tests.server.conftest import NS, Server

MOST = 150  # presses of Tab until something has to have the focus


async def reach(page: Page, wanted: Locator) -> None:
    """Press Tab until this has the focus, which must be visible there."""
    await expect(wanted).to_be_visible()
    for _ in range(MOST):
        if await wanted.evaluate("(element) => element === document.activeElement"):
            outline = await wanted.evaluate("(element) => getComputedStyle(element).outlineStyle")
            assert outline != "none", "the focus cannot be seen"
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"{wanted} cannot be reached by Tab")


async def go(page: Page, words: str) -> None:
    """By the palette."""
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox")).to_be_focused()
    await page.keyboard.type(words)
    await expect(page.get_by_role("option").first).to_contain_text(words)
    await page.keyboard.press("Enter")


async def test_start_watch_decide_and_retry_by_the_keyboard_alone(
    visitor: Visitor, server: Server, tmp_path: Path
) -> None:
    write_playbooks(tmp_path / "playbooks")
    page = await visitor.sign_in("admin", "admin")
    await go(page, "Workflows")
    await reach(page, page.get_by_role("button", name="Start buy"))
    await page.keyboard.press("Enter")
    await reach(page, page.get_by_label("Name of the run"))
    await page.keyboard.type("by hand")
    await reach(page, page.locator("#main").get_by_role("button", name="Start", exact=True))
    await page.keyboard.press("Enter")
    await expect(page.locator("#main h1")).to_contain_text("by hand")
    await expect(page.locator("#main").get_by_text("waiting").first).to_be_visible()

    await go(page, "Gates")
    await expect(page.get_by_role("button", name="May we buy")).to_be_visible()
    await page.keyboard.press("j")
    await reach(page, page.get_by_label("Who pays"))
    await page.keyboard.type("12")
    await reach(page, page.get_by_role("button", name="Buy it"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("The form is not complete.")).to_be_visible()
    await reach(page, page.get_by_label("Who pays"))
    await page.keyboard.press("Control+a")
    await page.keyboard.type("1234")
    await reach(page, page.get_by_label("The highest price"))
    await page.keyboard.type("480.50")
    await reach(page, page.get_by_role("button", name="Buy it"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Nobody has to decide anything.")).to_be_visible()
    async with server.client(await server.token()) as client:
        [bought] = (await client.get(f"{NS}/runs", params={"name": "by hand"})).json()["items"]
        assert (await server.until(client, bought["id"], "completed"))["status"] == "completed"
        failed = await server.start(client, "settle-invoices", name="invoices")
        before = await server.until(client, failed, "failed")

    await go(page, "invoices")
    await reach(page, page.locator("#main").get_by_role("button", name="Retry", exact=True).first)
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await reach(page, dialog.get_by_role("button", name="Retry", exact=True))
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_hidden()
    async with server.client(await server.token()) as client:
        after = await server.until(client, failed, "failed")
        while after["head"] <= before["head"] + 1:
            after = await server.until(client, failed, "failed")
    assert visitor.seen.faults() == []
