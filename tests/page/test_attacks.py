"""What other pages of a browser that is signed in try.

Cookies do not know ports, so a program on another port counts as the same site.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.page.conftest import Visitor
from tests.server.conftest import NS, Server

ATTACKS = Path(__file__).with_name("attacks.js")
SENT_BLINDLY = ("plain post", "beacon")
"""A browser sends these and does not say what became of them."""


@asynccontextmanager
async def another_port() -> AsyncIterator[str]:
    """Another program of this machine, which serves an empty page."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<!doctype html><title>another program</title>"
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def waiting_run(server: Server) -> str:
    async with server.client(await server.token()) as client:
        run = await server.start(client, "listen")
        await server.until(client, run, "waiting")
    return run


async def status_of(server: Server, run: str) -> str:
    async with server.client(await server.token()) as client:
        return str((await client.get(f"{NS}/runs/{run}")).json()["status"])


async def signed_in(visitor: Visitor) -> Page:
    await visitor.sign_in("admin", "admin")
    return await visitor.context.new_page()


async def test_a_page_of_another_port_of_this_machine_reads_and_changes_nothing(
    visitor: Visitor, server: Server
) -> None:
    run = await waiting_run(server)
    page = await signed_in(visitor)
    async with another_port() as address:
        await page.goto(address)
        outcomes = await page.evaluate(
            ATTACKS.read_text(encoding="utf-8").rstrip().rstrip(";"), [server.address + NS, run]
        )
    assert {name: each for name, each in outcomes.items() if name not in SENT_BLINDLY and each != "refused"} == {}
    assert set(SENT_BLINDLY) <= set(outcomes)
    assert await status_of(server, run) == "waiting"


async def test_a_form_of_another_port_changes_nothing(visitor: Visitor, server: Server) -> None:
    run = await waiting_run(server)
    page = await signed_in(visitor)
    field = """<input name='{"reason":"' value='"}'>"""
    form = f'<form method=post enctype=text/plain action="{server.address}{NS}/runs/{run}/cancel">{field}</form>'
    async with another_port() as address:
        await page.goto(address)
        await page.evaluate("(html) => { document.body.innerHTML = html; }", form)
        async with page.expect_navigation() as navigation:
            await page.evaluate("document.forms[0].submit()")
        answer = await navigation.value
    assert answer is not None and answer.status == 403
    assert await status_of(server, run) == "waiting"


@pytest.mark.parametrize("path", ["/", f"{NS}/runs", "/openapi.json"])
async def test_no_answer_can_be_put_into_a_frame_of_another_page(visitor: Visitor, server: Server, path: str) -> None:
    page = await signed_in(visitor)
    async with another_port() as address:
        await page.goto(address)
        await page.evaluate(
            "(url) => new Promise((done) => { const frame = document.createElement('iframe'); frame.src = url;"
            " frame.onload = done; frame.onerror = done; document.body.append(frame); })",
            server.address + path,
        )
        [_, frame] = page.frames
        assert frame.url.startswith("chrome-error:") or "Refold" not in await frame.content()


async def test_a_name_that_points_to_this_machine_gets_nothing(visitor: Visitor, server: Server) -> None:
    """As after a name was bound anew: the browser sends the name of the other site."""
    port = server.address.rpartition(":")[2]
    page = await signed_in(visitor)
    for path in ("/", "/openapi.json", f"{NS}/runs", "/livez"):
        answer = await page.goto(f"http://evil.test:{port}{path}")
        assert answer is not None and answer.status == 421, path
