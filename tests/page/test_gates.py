"""The inbox of gates: what a gate offers besides its options is taken here too."""

from pathlib import Path

from playwright.async_api import expect

from tests.page.conftest import Visitor
from tests.page.scene import write_playbooks
from tests.server.conftest import NS, Server


async def test_any_number_of_the_choices_of_a_gate_can_be_taken(
    visitor: Visitor, server: Server, tmp_path: Path
) -> None:
    write_playbooks(tmp_path / "playbooks")
    async with server.client(await server.token()) as client:
        run = await server.start(client, "decorate", name="the hall")
        await server.until(client, run, "waiting")
        page = await visitor.sign_in("admin", "admin")
        await visitor.open(page, f"gates?open={run}/choose/1")
        choices = page.get_by_role("group", name="Choices")
        await expect(choices.get_by_role("checkbox")).to_have_count(3)
        await choices.get_by_label("Brick red").check()
        await choices.get_by_label("Moss green").check()
        await expect(choices).to_contain_text("2 of 3 taken")
        wanted = "refold gates approve 'the hall' choose --option approve --choose green --choose red"
        await expect(page.locator(".gate-body .command")).to_contain_text(wanted)
        await page.get_by_role("button", name="approve", exact=True).click()
        await expect(page.get_by_text("Nobody has to decide anything.")).to_be_visible()
        await server.until(client, run, "completed")
        assert (await client.get(f"{NS}/runs/{run}/result")).json()["value"] == "green, red"
    assert visitor.seen.faults() == []


async def test_a_refusal_takes_no_choices(visitor: Visitor, server: Server, tmp_path: Path) -> None:
    write_playbooks(tmp_path / "playbooks")
    async with server.client(await server.token()) as client:
        run = await server.start(client, "decorate", name="the hall")
        await server.until(client, run, "waiting")
        page = await visitor.sign_in("admin", "admin")
        await visitor.open(page, f"gates?open={run}/choose/1")
        await page.get_by_role("button", name="Take all").click()
        await page.get_by_role("button", name="reject", exact=True).click()
        await expect(page.get_by_text("Nobody has to decide anything.")).to_be_visible()
        await server.until(client, run, "failed")
    assert visitor.seen.faults() == []
