"""All tabs of a browser share one stream: the tab that holds a lock reads it, and hands the events on."""

from playwright.async_api import Page, Request, expect

from tests.page.conftest import Visitor
from tests.server.conftest import Server

TABS = 12  # a browser opens six connections to a host: with a stream per tab the seventh would hang
HIDE = """
(is) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => is });
  Object.defineProperty(document, "visibilityState", { configurable: true, get: () => (is ? "hidden" : "visible") });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


class Streams:
    """Which tab reads the stream."""

    def __init__(self, visitor: Visitor) -> None:
        self.readers: list[Page] = []
        visitor.context.on("request", self._note)

    def _note(self, request: Request) -> None:
        if "/stream?" in request.url:
            self.readers.append(request.frame.page)

    @property
    def leader(self) -> Page:
        return self.readers[-1]


async def opened(visitor: Visitor, count: int) -> list[Page]:
    first = await visitor.sign_in("admin", "admin")
    await visitor.open(first, "gates")
    pages = [first]
    while len(pages) < count:
        page = await visitor.context.new_page()
        await visitor.open(page, "gates")
        pages.append(page)
    return pages


async def until_streams(server: Server, count: int, page: Page) -> None:
    """Wait until the server has so many streams, and see that it does not have more of them meanwhile."""
    for _ in range(600):
        if sum(server.service.streams.values()) == count:
            return
        await page.wait_for_timeout(50)
    raise AssertionError(f"the server has {server.service.streams}, not {count}")


async def waiting(server: Server, name: str) -> str:
    """A run that waits at a gate."""
    async with server.client(await server.token()) as client:
        run = await server.start(client, "ask", name=name)
        await server.until(client, run, "waiting")
    return run


async def shows(pages: list[Page], text: str) -> None:
    for page in pages:
        await expect(page.locator("#main").get_by_text(text)).to_be_visible()


async def test_twelve_tabs_are_live_over_one_stream_and_lose_nothing_when_its_reader_is_closed(
    visitor: Visitor, server: Server
) -> None:
    streams = Streams(visitor)
    pages = await opened(visitor, TABS)
    await until_streams(server, 1, pages[-1])
    await waiting(server, "first")
    await shows(pages, "1 waiting for a person")
    await until_streams(server, 1, pages[-1])
    leader = streams.leader
    await waiting(server, "second")
    await leader.close()
    pages.remove(leader)
    await waiting(server, "third")
    await shows(pages, "3 waiting for a person")
    await until_streams(server, 1, pages[-1])
    assert streams.leader in pages
    assert visitor.seen.faults() == []


async def test_a_hidden_reader_hands_the_stream_to_a_tab_that_is_seen(visitor: Visitor, server: Server) -> None:
    streams = Streams(visitor)
    pages = await opened(visitor, 3)
    await until_streams(server, 1, pages[-1])
    await waiting(server, "first")
    await shows(pages, "1 waiting for a person")
    before = streams.leader
    others = [page for page in pages if page is not before]
    await before.evaluate(HIDE, True)
    while streams.leader is before:
        await others[0].wait_for_timeout(20)
    await until_streams(server, 1, others[0])
    await waiting(server, "second")
    await shows(others, "2 waiting for a person")


async def test_the_stream_is_let_go_while_no_tab_is_seen_and_all_is_caught_up_afterwards(
    visitor: Visitor, server: Server
) -> None:
    await visitor.context.clock.install()
    pages = await opened(visitor, 2)
    await until_streams(server, 1, pages[0])
    for page in pages:
        await page.evaluate(HIDE, True)
    for _ in range(2):  # whoever takes over lets go too
        for page in pages:
            await page.clock.fast_forward(61_000)
    await until_streams(server, 0, pages[0])
    await waiting(server, "while nobody looked")
    await pages[1].evaluate(HIDE, False)
    await shows([pages[1]], "1 waiting for a person")
    await until_streams(server, 1, pages[1])
