"""The graph of a run: what stands in a node stays in it."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.page.conftest import NARROW, WIDE, visiting
from tests.page.scene import play
from tests.server.conftest import Server

OUTSIDE = """(nodes) => nodes.flatMap((node) => {
  const box = node.querySelector(".box").getBoundingClientRect();
  return [...node.querySelectorAll("text")]
    .map((text) => [text.textContent, text.getBoundingClientRect()])
    .filter(([, at]) => at.right > box.right - 2 || at.left < box.left)
    .map(([text]) => text);
})"""
"""The texts that leave their node."""


@pytest.mark.parametrize("width", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_the_texts_of_a_node_stay_in_it(
    browser: Browser, server: Server, tmp_path: Path, width: dict[str, Any]
) -> None:
    scene = await play(server, tmp_path / "playbooks")
    async with visiting(browser, server, viewport=width) as visitor:
        page = await visitor.sign_in("admin", "admin")
        for run in (scene.done, scene.failed, scene.asks, scene.many, scene.named, scene.sleeps):
            await visitor.open(page, f"runs/{run}?tab=graph")
            await expect(page.locator(".node").first).to_be_visible()
            assert await page.locator(".node").evaluate_all(OUTSIDE) == []
        await visitor.open(page, f"runs/{scene.named}?tab=graph")
        name = page.locator(".node .name")
        shown = await name.inner_html()
        assert len(shown) > 30 and "…" in shown, "a long name is cut in the middle, and no shorter than it has to be"
        assert shown.startswith("a_step_with") and shown.endswith("window")
        assert visitor.seen.faults() == []
