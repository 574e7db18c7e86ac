"""Every page with real data: in both themes and widths, by people who cannot see it, and without reaching outside."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.page.conftest import NARROW, WIDE, Visitor, visiting
from tests.page.scene import Scene, play
from tests.server.conftest import NS, Server, served
from web.build_page import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCHEDULE = """\
apiVersion: refold/v1
kind: Schedule
metadata: {name: every-morning}
workflow: orders
cron: "30 6 * * MON-FRI"
zone: Europe/Berlin
"""
PAGES = {
    "now": ("now", "chairs"),
    "runs": ("runs", "order 4711"),
    "runs of one status": ("runs?status=failed", "invoices"),
    "run": ("runs/{done}", "orders of Wednesday"),
    "failed run": ("runs/{failed}", "card 4242 was refused by the bank"),
    "waiting run": ("runs/{asks}", "chairs"),
    "long names": ("runs/{named}", "a_step_with_a_name_that_nobody_can_read"),
    "graph": ("runs/{done}?tab=graph", "report"),
    "timeline": ("runs/{done}?tab=timeline", "fetch"),
    "history": ("runs/{done}?tab=history", "orders of Wednesday"),
    "data": ("runs/{done}?tab=data", "orders of Wednesday"),
    "logs": ("runs/{done}?tab=logs", "orders of north"),
    "family": ("runs/{done}?tab=family", "orders of Wednesday"),
    "usage": ("runs/{done}?tab=usage", "orders of Wednesday"),
    "moment": ("runs/{done}?at=4", "orders of Wednesday"),
    "loop": ("runs/{many}/loops/each", "squares"),
    "gates": ("gates?open={asks}/ask/1", "May we buy two chairs, oak for 480 euros?"),
    "choices of a gate": ("gates?open={chooses}/choose/1", "Sea blue"),
    "dead-letters": ("dead-letters", "card # was refused by the bank"),
    "workflows": ("workflows", "settle-invoices"),
    "workflow": ("workflows/orders", "The day that is settled"),
    "versions": ("workflows/orders?tab=versions", "Compare with now"),
    "editor": ("workflows/buy?tab=source", "cost_centre"),
    "schedules": ("schedules", "every-morning"),
    "schedule": ("schedules/every-morning", "Last times"),
    "workers": ("workers", "every queue"),
    "operations": ("operations", "cancel 1 run"),
    "settings": ("settings", "Time zone of all times"),
    "tokens": ("settings?tab=tokens", "New token"),
    "audit": ("settings?tab=audit", "POST /runs"),
    "server": ("settings?tab=server&all=1", "lease_for"),
    "api": ("api", "/api/v1/ns/{{ns}}/gates"),
    "api route": ("api?q=pause&open=POST /api/v1/ns/{{ns}}/runs/{{run}}/pause", "curl -X POST"),
}
"""What each address must show."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def played(page_files: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Server, Scene]]:
    folder: Path = tmp_path_factory.mktemp("scene")
    async with served(folder) as server:
        scene = await play(server, folder / "playbooks")
        async with server.client(await server.token()) as client:
            made = await client.put(f"{NS}/schedules/every-morning", json={"definition": SCHEDULE})
            assert made.status_code == 201, made.text
            wanted = {"action": "cancel", "ids": [scene.sleeps], "reason": "it is late"}
            counted = await client.post(f"{NS}/operations", json=wanted)
            assert counted.status_code == 201, counted.text
        yield server, scene


def address(path: str, scene: Scene) -> str:
    return path.format(**{name: getattr(scene, name) for name in scene.__struct_fields__})


async def serious(page: Page) -> list[str]:
    """What axe finds that keeps somebody from using the page."""
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = await page.evaluate(
        "() => axe.run(document, { resultTypes: ['violations'], rules: { region: { enabled: false } } })"
    )
    return [
        f"{each['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:240]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]


async def show_all(visitor: Visitor, scene: Scene, theme: str, width: dict[str, int]) -> None:
    page = await visitor.sign_in("admin", "admin")
    wrong: dict[str, list[str]] = {}
    for name, (path, text) in PAGES.items():
        await visitor.open(page, address(path, scene))
        await expect(page.locator("#main").get_by_text(address(text, scene)).first, name).to_be_visible()
        assert visitor.seen.faults() == [], name
        assert await page.evaluate("document.documentElement.scrollWidth") <= width["width"], f"{name} is too wide"
        if theme == "light" or width == WIDE:  # dark and narrow together bring nothing new
            wrong[name] = await serious(page)
    assert {name: each for name, each in wrong.items() if each} == {}, theme


@pytest.mark.parametrize("width", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_each_page_shows_what_there_is_and_axe_finds_nothing_serious(
    browser: Browser, played: tuple[Server, Scene], theme: Any, width: dict[str, int]
) -> None:
    server, scene = played
    async with visiting(browser, server, color_scheme=theme, viewport=width, reduced_motion="reduce") as visitor:
        await show_all(visitor, scene, theme, width)
