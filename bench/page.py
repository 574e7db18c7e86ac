"""Measures the page in a real browser: `make bench-page`.

It prints sizes of the first load, times until a page shows its rows, DOM nodes, the largest answer, heap, and the
longest piece of work on the main thread while a run is live. `--items` and `--runs` say how large the data are.
"""

import argparse
import asyncio
import os
import re
import tempfile
import time
from pathlib import Path

from playwright.async_api import BrowserContext, Page, async_playwright, expect

from refold.server.page_files import ASSETS, INDEX
from tests.page import browser as browsers
from tests.server.conftest import NS, Server, served
from web.build_page import ROOT, build

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {{name: {name}}}\nworkflow:\n"
LOOP = (
    "  - step: each\n    loop: {{in: '{{{{ range({count}) | list }}}}', iterator: n, max_in_flight: {at_once}}}\n"
    "    tool: {{kind: noop, result: '{{{{ n }}}}'}}\n"
)
LONG_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
}).observe({ type: "longtask", buffered: true });
"""

LARGEST = """
Math.max(0, ...performance.getEntriesByType("resource")
  .filter((each) => each.name.includes("/api/") && !each.name.includes("/stream"))
  .map((each) => each.encodedBodySize))
"""


def say(what: str, value: float, unit: str, bound: float | None = None) -> None:
    limit = "" if bound is None else f"  (at most {bound:g} {unit}{'' if value <= bound else ': TOO MUCH'})"
    print(f"{what:<58} {value:>10.1f} {unit}{limit}", flush=True)


def sizes() -> None:
    html = INDEX.read_text(encoding="utf-8")
    names = set(re.findall(r'(?:src|href)="assets/([^"]+)"', html))
    packed = sum((ASSETS / f"{name}.gz").stat().st_size for name in names)
    say("requests of the first load", len(names) + 1, "", 6)
    say("scripts and styles of the first load, gzipped", packed / 1024, "KB", 80)
    plain = [path.stat().st_size for path in ASSETS.iterdir() if path.suffix != ".gz"]
    say("all files", sum(plain) / 1024, "KB", 1228.8)


async def shown(context: BrowserContext, server: Server, path: str, text: str) -> tuple[Page, float]:
    """Open an address in a new tab; return the seconds until the text is there."""
    page = await context.new_page()
    began = time.perf_counter()
    await page.goto(f"{server.address}/#/ns/default/{path}")
    await expect(page.locator("#main").get_by_text(text).first).to_be_visible()
    return page, time.perf_counter() - began


async def look(context: BrowserContext, server: Server, name: str, path: str, text: str) -> None:
    page, seconds = await shown(context, server, path, text)
    say(f"{name}: rows after", seconds * 1000, "ms", 1000)
    say(f"{name}: DOM nodes", await page.evaluate("document.querySelectorAll('*').length"), "", 3000)
    say(f"{name}: largest answer", await page.evaluate(LARGEST) / 1024, "KB", 1024)
    await page.close()


async def measure(items: int, runs: int) -> None:
    found = browsers.find()
    expect.set_options(timeout=120_000)
    with tempfile.TemporaryDirectory() as name:
        async with served(Path(name)) as server, async_playwright() as playwright:
            playbooks = Path(name) / "playbooks"
            for loop, count, at_once in (("large", items, 1000), ("live", 20_000, 50)):
                text = HEAD.format(name=loop) + LOOP.format(count=count, at_once=at_once)
                (playbooks / f"{loop}.yaml").write_text(text)
            browser = await playwright.chromium.launch(
                executable_path=found.program, env={**os.environ, **found.environment}
            )
            async with server.client(await server.token()) as client:
                large = await server.start(client, "large", name="large")
                for _ in range(0, runs, 1000):
                    bodies = [{"workflow": "greet"}] * min(runs, 1000)
                    await client.post(f"{NS}/runs:batch", json={"runs": bodies})
                head = (await server.until(client, large, "completed"))["head"]
                print(f"a run of {items} items and {head} facts; {runs} runs", flush=True)
                context = await browser.new_context(viewport={"width": 1440, "height": 900})
                await context.add_init_script(LONG_TASKS)
                page = await context.new_page()
                token = await server.token("admin", "bench")
                ticket = await server.service.credentials.new_ticket(token.split("_")[1])
                await page.goto(f"{server.address}/#ticket={ticket}")
                await expect(page.locator("#main")).to_be_visible()
                paint = "performance.getEntriesByName('first-contentful-paint')[0]"
                await page.wait_for_function(f"{paint} !== undefined")
                say("first paint with a cold cache", await page.evaluate(f"{paint}.startTime"), "ms", 300)
                await page.close()
                await look(context, server, "list of runs", "runs", "greet")
                await look(context, server, "run", f"runs/{large}", "each")
                await look(context, server, "history", f"runs/{large}?tab=history", "large")
                await look(context, server, "loop", f"runs/{large}/loops/each", "each")
                live = await server.start(client, "live", name="live")
                page, _ = await shown(context, server, f"runs/{live}", "each")
                await page.evaluate("window.longest = 0")
                await server.until(client, live, "completed")
                say("live run: longest piece on the main thread", await page.evaluate("window.longest"), "ms", 100)
                heap = await page.evaluate("performance.memory.usedJSHeapSize")
                say("live run: heap", heap / 1024 / 1024, "MB", 120)
            await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the page.")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=10_000)
    given = parser.parse_args()
    build(ROOT)
    sizes()
    asyncio.run(measure(given.items, given.runs))


if __name__ == "__main__":
    main()
