"""Hostile texts as names, keys, labels, inputs, prompts, options, log lines and errors are shown, and do nothing."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec import Struct, json
from playwright.async_api import Browser, Page, expect

from tests.page.conftest import visiting
from tests.page.hostile import hostile_strings
from tests.server.conftest import NS, Server, served

STRINGS = hostile_strings()
HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {{name: {name}}}\n"
ASKS = """\
workload: {{text: ""}}
workflow:
  - step: ask
    tool: {{kind: gate, prompt: "{{{{ workload.text }}}}", options: {options}}}
"""
FAILS = """\
workload: {texts: []}
workflow:
  - step: fail
    loop: {in: "{{ workload.texts }}", iterator: text, max_in_flight: 20}
    tool: {kind: python, code: "print(text)\\nraise ValueError(text)"}
"""
MARKUP = (
    "#main :is(script, iframe, img, object, embed, base, style, link, video, math, template, body, meta, [onerror], "
    "[onload], [onfocus], [ontoggle], [srcdoc]), #main a[href^='javascript'], #main a[href^='data']"
)


class Traps(Struct, frozen=True):
    server: Server
    asks: Sequence[str]
    fails: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def traps(page_files: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Traps]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    async with served(folder) as server:
        playbooks = folder / "playbooks"
        options = json.encode({f"o{number}": text for number, text in enumerate(STRINGS[:20])}).decode()
        (playbooks / "asks.yaml").write_text(HEAD.format(name="asks") + ASKS.format(options=options))
        (playbooks / "fails.yaml").write_text(HEAD.format(name="fails") + FAILS)
        (playbooks / "<img src=x onerror=alert(1)>.yaml").write_text("workflow: <script>alert(1)</script>\n")
        async with server.client(await server.token()) as client:
            for text in STRINGS[:10]:
                await server.token("viewer", text)
            bodies = [
                {
                    "workflow": "asks",
                    "input": {"text": text},
                    "name": text,
                    "key": text,
                    "labels": {"of": text if text.isprintable() else "hidden"},
                }
                for text in STRINGS
            ]
            outcomes = (await client.post(f"{NS}/runs:batch", json={"runs": bodies})).json()["items"]
            asks = [each["run"]["id"] for each in outcomes]
            fails = await server.start(client, "fails", input={"texts": STRINGS})
            for run in asks:
                await server.until(client, run, "waiting")
            await server.until(client, fails, "failed")
        yield Traps(server, asks, fails)


async def test_hostile_texts_are_shown_as_they_are_on_every_page(browser: Browser, traps: Traps) -> None:
    async with visiting(browser, traps.server) as visitor:
        page = await visitor.sign_in("admin", "admin")
        scripts = await page.evaluate("document.scripts.length")

        async def shown(path: str) -> str:
            """The text of a page that has done nothing that it must not."""
            await visitor.open(page, path)
            assert await page.evaluate("(wrong) => document.querySelectorAll(wrong).length", MARKUP) == 0, path
            found = await page.evaluate("[document.title === '1', document.scripts.length, window.hit]")
            assert found == [False, scripts, None], path
            assert visitor.seen.faults() == [], path
            return await text_of(page)

        assert missing(await shown("gates")) == []
        assert missing(await shown(f"gates?open={traps.asks[0]}/ask/1"), STRINGS[:20]) == []
        assert "<img src=x onerror=alert(1)>.yaml" in await shown("workflows")
        await shown("workflows/asks?tab=runs")
        await shown("workflows/asks?tab=source")
        await shown("workflows/asks")
        await page.get_by_role("button", name="Use the input of the last run").click()
        await shown("dead-letters")
        assert await page.locator(".gate").count() == 100
        await page.locator(".gate-title").first.click()
        letters = page.locator("#main .gate-body tbody")
        await expect(letters).to_be_visible()
        assert len(missing(await letters.inner_text())) < len(STRINGS)
        assert missing(await shown("settings?tab=tokens"), STRINGS[:10]) == []
        await shown("settings?tab=audit")
        await shown("workers")
        await shown("runs")
        await shown("now")
        for run in (traps.fails, traps.asks[0]):
            for tab in ("steps", "graph", "timeline", "history", "data", "logs", "family", "usage"):
                await shown(f"runs/{run}?tab={tab}")
        await shown(f"runs/{traps.fails}/loops/fail")
        assert await page.evaluate("Object.keys(localStorage).filter((key) => key !== 'refold.preferences')") == []


async def text_of(page: Page) -> str:
    return str(await page.locator("#main").evaluate("(main) => main.textContent"))


def missing(text: str, wanted: Sequence[str] = STRINGS) -> list[str]:
    return [each for each in wanted if each not in text]
