"""The page in a real browser, in front of a real server: both live in the event loop of the tests of this folder."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec import Struct
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.page import browser as browsers
from tests.server.conftest import Server, served
from web.build_page import ROOT, build

WAIT = 60_000  # milliseconds; a busy machine is slow, and nothing that works waits for so long
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One event loop for all tests of this folder."""
    here = Path(__file__).parent
    for item in items:
        is_async = isinstance(item, pytest.Function) and asyncio.iscoroutinefunction(item.obj)
        if is_async and here in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def page_files() -> None:
    """The page, built from the sources as they are."""
    build(ROOT)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    found = browsers.find()
    expect.set_options(timeout=WAIT)
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(
            executable_path=found.program,
            env={**os.environ, **found.environment},
            args=["--host-resolver-rules=MAP evil.test 127.0.0.1"],  # a name that somebody else lets point here
            timeout=WAIT,
        )
        yield opened
        await opened.close()


class Watched(Struct):
    """What a browser was seen to do that a page of Refold must not do."""

    violations: list[str]
    errors: list[str]
    dialogues: list[str]
    foreign: list[str]

    def faults(self) -> list[str]:
        return [*self.violations, *self.errors, *self.dialogues, *self.foreign]


class Visitor(Struct):
    """A browser with its own cookies, in front of a server."""

    server: Server
    context: BrowserContext
    seen: Watched

    async def sign_in(self, role: str = "admin", name: str = "") -> Page:
        token = await self.server.token(role, name)
        id = token.split("_")[1]
        ticket = await self.server.service.credentials.new_ticket(id)
        page = await self.context.new_page()
        await page.goto(f"{self.server.address}/#ticket={ticket}")
        await expect(page.locator("#main")).to_be_visible()
        return page

    async def open(self, page: Page, path: str) -> None:
        """Go to a page by its address behind the `#`, and wait until it shows what it has."""
        await page.goto(f"{self.server.address}/#/ns/default/{path}")
        await settled(page)


async def settled(page: Page) -> None:
    await expect(page.locator("#main .page").first).to_be_visible()
    await expect(page.locator("#main .loading")).to_have_count(0)


@asynccontextmanager
async def visiting(browser: Browser, server: Server, **options: Any) -> AsyncIterator[Visitor]:
    """A new browser; whatever it does that it must not is in `seen`."""
    context = await browser.new_context(
        **{"viewport": WIDE, "locale": "en-GB", "timezone_id": "Europe/Berlin", **options}
    )
    context.set_default_timeout(WAIT)
    seen = Watched([], [], [], [])

    async def note(text: str) -> None:
        seen.violations.append(text)

    await context.expose_function("noteViolation", note)
    await context.add_init_script(
        "addEventListener('securitypolicyviolation', (event) =>"
        " noteViolation(`${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`))"
    )
    context.on("request", lambda request: _check_origin(request.url, server, seen))
    context.on("weberror", lambda error: seen.errors.append(str(error.error)))
    context.on("dialog", lambda dialog: _refuse(dialog, seen))
    try:
        yield Visitor(server, context, seen)
    finally:
        await context.close()


def _check_origin(url: str, server: Server, seen: Watched) -> None:
    if not url.startswith((f"{server.address}/", "data:", "blob:")):
        seen.foreign.append(url)


async def _refuse(dialog: Any, seen: Watched) -> None:
    seen.dialogues.append(dialog.message)
    await dialog.dismiss()


@pytest_asyncio.fixture(loop_scope="session")
async def server(page_files: None, tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser, server: Server) -> AsyncIterator[Visitor]:
    async with visiting(browser, server) as opened:
        yield opened
