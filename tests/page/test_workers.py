"""The page of workers and queues: a remote worker is drained from it."""

from playwright.async_api import Page, expect

from refold.wire import BeatBody
from tests.page.conftest import Visitor
from tests.server.conftest import Server
from tests.server.test_desk import Hand

NAME = "worker-hand"


async def come(server: Server, worker: Hand) -> None:
    """A remote worker that has said hello, and asked for work."""
    assert (await worker.hello(NAME)).status_code == 200
    await worker.raw("beat", BeatBody())
    await worker.claimed()


async def why_grey(page: Page, button: str) -> str:
    found = page.get_by_role("button", name=button)
    await expect(found).to_have_attribute("aria-disabled", "true")
    await found.blur()  # a dialog that has closed gave it the focus back
    await found.focus()
    return await page.get_by_role("tooltip").inner_text()


async def test_a_remote_worker_is_drained_and_one_next_to_the_database_says_why_not(
    visitor: Visitor, server: Server
) -> None:
    async with server.client(await server.token()) as client:
        await server.until(client, await server.start(client, "greet"), "completed")  # the own worker is there too
    async with server.client(await server.token("worker")) as client:
        await come(server, Hand(client))
        page = await visitor.sign_in("admin", "admin")
        await visitor.open(page, "workers")
        [own] = [each.can.worker for each in server.service.views.workers() if each.can.worker != NAME]
        assert "end its process with a signal" in await why_grey(page, f"Drain {own}")
        await page.get_by_role("button", name=f"Drain {NAME}").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("It takes no more work and ends. It has nothing at the moment.")
        await dialog.get_by_role("button", name="Drain", exact=True).click()
        await expect(dialog).to_have_count(0)
        await expect(page.locator("tr", has_text=NAME)).to_contain_text("takes no more")
        assert "it was told already" in await why_grey(page, f"Drain {NAME}")
    assert visitor.seen.faults() == []


async def test_who_may_not_operate_sees_a_grey_button(visitor: Visitor, server: Server) -> None:
    async with server.client(await server.token("worker")) as client:
        await come(server, Hand(client))
        page = await visitor.sign_in("viewer", "eve")
        await visitor.open(page, "workers")
        assert 'needs the permission "operate"' in await why_grey(page, f"Drain {NAME}")
