"""The settings page: what the server is, for those who may know it."""

from playwright.async_api import expect

from refold.server.service import ServerFacts, ShownSetting
from tests.page.conftest import Visitor
from tests.server.conftest import Server

FACTS = ServerFacts(
    "a file of SQLite", "refold.db", (ShownSetting("slots", 7, "refold.toml:3"), ShownSetting("poll", 1.0, "default"))
)


async def test_administrators_see_the_store_and_where_each_setting_comes_from(visitor: Visitor, server: Server) -> None:
    server.service.facts = FACTS
    page = await visitor.sign_in("admin", "admin")
    await visitor.open(page, "settings?tab=server")
    await expect(page.get_by_role("region", name="Store")).to_contain_text("a file of SQLite")
    settings = page.get_by_role("region", name="Settings of the server")
    await expect(settings).to_contain_text("1 of 2 are set")
    await expect(settings.locator("tbody tr")).to_have_text(["slots7refold.toml:3"])
    await settings.get_by_role("button", name="with defaults").click()
    await expect(settings.locator("tbody tr")).to_have_text(["slots7refold.toml:3", "poll1default"])
    assert visitor.seen.faults() == []


async def test_others_see_which_permission_is_missing(visitor: Visitor, server: Server) -> None:
    page = await visitor.sign_in("operator", "ann")
    await visitor.open(page, "settings?tab=server")
    await expect(page.locator("#main")).to_contain_text('need the permission "administer"')
    await expect(page.get_by_role("region", name="Store")).to_have_count(0)
    assert visitor.seen.faults() == []
