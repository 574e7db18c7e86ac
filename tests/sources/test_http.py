"""Pages of servers: how they are followed, what is refused, and what nobody else is told."""

from collections.abc import Iterator
from typing import Any

import pytest

from refold.plan import Call as Work
from refold.plan import Plan, Step
from tests.sources.pulls import SECRETS, Sources, opened
from tests.tools.calls import engine, fault_of_run
from tests.tools.web import Answer, Asked, Site, says, served

TOKEN = SECRETS["REFOLD_SECRET_API"]


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()
    with served(found) as found.address:  # type: ignore[attr-defined]
        yield found


def at(site: Site, path: str = "/x") -> str:
    return str(site.address) + path  # type: ignore[attr-defined]


async def test_a_server_that_asks_for_time_gets_it(sources: Sources, site: Site) -> None:
    site["/x"] = Answer(429, {"retry-after": "17"})
    fault = await sources.fault("http", {"url": at(site)})
    assert (fault.kind, fault.retryable, fault.retry_after) == ("rate_limit", True, 17.0)
    site["/x"] = Answer(503)
    assert (await sources.fault("http", {"url": at(site)})).retryable is True
    assert (await sources.fault("http", {"url": at(site, "/none")})).retryable is False


async def test_parameters_and_headers_are_sent_and_secrets_only_to_their_host(sources: Sources, site: Site) -> None:
    def answer(asked: Asked) -> Answer:
        again = f"/x?key={asked.query['key'][0]}&page=2"
        return says({"items": [asked.query["day"][0]], "next": again if "page" not in asked.query else None})

    def second(asked: Asked) -> Answer:
        return answer(asked) if "page" not in asked.query else says({"items": ["last"], "next": None})

    site["/x"] = second
    settings = {
        "url": at(site),
        "params": {"day": "monday", "key": {"secret": "api"}},
        "headers": {"x-team": "blue", "x-key": {"secret": "api"}},
        "auth": {"bearer": {"secret": "api"}},
        "items": "items",
        "next": {"path": "next"},
    }
    page = await sources.pull("http", settings)
    assert TOKEN not in str(page)
    assert page == {"items": ["monday"], "cursor": {"at": at(site, "/x?page=2"), "skip": 0}}
    assert (await sources.pull("http", settings, page["cursor"]))["items"] == ["last"]
    first, last = site.asked
    assert first.headers["authorization"] == last.headers["authorization"] == f"Bearer {TOKEN}"
    assert (first.headers["x-team"], last.headers["x-key"]) == ("blue", TOKEN)
    assert (first.query["key"], last.query) == ([TOKEN], {"page": ["2"], "key": [TOKEN]})


@pytest.mark.parametrize(
    "auth",
    [
        {"secret": "api"},
        {"bearer": {"secret": "api"}},
        {"api_key": {"header": "authorization", "value": {"secret": "api"}}},
    ],
)
async def test_a_secret_is_named_and_read_for_each_page(sources: Sources, site: Site, auth: Any) -> None:
    site["/x"] = says([1])
    assert await sources.all("http", {"url": at(site), "auth": auth}) == [1]
    assert site.asked[0].headers["authorization"].removeprefix("Bearer ") == TOKEN


async def test_a_secret_that_comes_back_as_an_item_fails_the_page_and_is_not_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_SECRET_API", TOKEN)
    site["/x"] = says([f"you are {TOKEN}"])
    asked = {"kind": "http", "settings": {"url": at(site), "auth": {"secret": "api"}}, "most": 5, "owner": "r/a/1"}
    plan = Plan(name="p", steps=(Step(name="a", work=Work(tool="source"), input=asked),))
    async with engine() as running:
        fault = await fault_of_run(running, plan)
    assert fault.kind == "secret" and "items[0]" in fault.message
    assert TOKEN not in str(fault)


async def test_another_host_is_told_nothing(sources: Sources, site: Site) -> None:
    elsewhere = Site()
    elsewhere["/y"] = says([2])
    with served(elsewhere) as address:
        site["/x"] = says([1], link=f'<{address}/y>; rel="next"')
        settings = {
            "url": at(site),
            "params": {"key": {"secret": "api"}},
            "headers": {"x-key": {"secret": "api"}},
            "auth": {"secret": "api"},
            "next": {"link": True},
        }
        assert await sources.all("http", settings) == [1, 2]
    assert TOKEN in str(site.asked) and TOKEN not in str(elsewhere.asked)


async def test_addresses_that_are_not_public_are_refused(site: Site) -> None:
    site["/x"] = says([1])
    async with opened(private=False) as sources:
        assert (await sources.fault("http", {"url": at(site)})).kind == "blocked_address"
    assert site.asked == []


async def test_a_page_without_items_is_passed_over(sources: Sources, site: Site) -> None:
    pages = {"1": ([], "2"), "2": ([], "3"), "3": (["a"], "4"), "4": ([], None)}

    def answer(asked: Asked) -> Answer:
        items, following = pages[asked.query.get("p", ["1"])[0]]
        return says({"items": items, "next": following})

    site["/x"] = answer
    settings = {"url": at(site), "items": "items", "next": {"cursor": "next", "param": "p"}}
    page = await sources.pull("http", settings)
    assert page == {"items": ["a"], "cursor": {"at": "4", "skip": 0}}
    assert await sources.pull("http", settings, page["cursor"]) == {"items": [], "cursor": None}


@pytest.mark.parametrize(
    ("body", "more", "why"),
    [
        ({"a": 1}, {}, "there is no list in the answer of"),
        ({"a": 1}, {"items": "a"}, "there is no list at `a` of the answer of"),
        ({"a": [1]}, {"items": "b.c"}, "but null; `items` says where it stands"),
        ({"a": [1], "n": 5}, {"items": "a", "next": {"path": "n"}}, "`next.path`: there is a number in the answer"),
        ([1], {"next": {"page": 1}}, "`next` must be `{link: true}`"),
        ([1], {"next": {"cursor": "x"}}, "`next` must be `{link: true}`"),
        ([1], {"next": {"link": True, "page": "p"}}, "`next` must be `{link: true}`"),
    ],
)
async def test_what_cannot_be_followed_is_told(
    sources: Sources, site: Site, body: Any, more: dict[str, Any], why: str
) -> None:
    site["/x"] = says(body)
    fault = await sources.fault("http", {"url": at(site), **more})
    assert why in fault.message
    assert fault.retryable is False


async def test_a_page_that_leads_to_itself_is_no_endless_loop(sources: Sources, site: Site) -> None:
    site["/x"] = says({"items": [1], "next": "/x?page=2"})
    settings = {"url": at(site), "items": "items", "next": {"path": "next"}}
    page = await sources.pull("http", settings)
    fault = await sources.fault("http", settings, page["cursor"])
    assert "would be the same once more" in fault.message


async def test_an_answer_that_is_no_json_is_told(sources: Sources, site: Site) -> None:
    site["/x"] = Answer(200, {"content-type": "text/html"}, b"<html>")
    assert (await sources.fault("http", {"url": at(site)})).kind == "parse"
    assert (await sources.fault("http", {"url": "x.test"})).message == "an address starts with http:// or https://"
    assert (await sources.fault("http", {"url": at(site)}, cursor=7)).kind == "bad_cursor"
