"""What a source is given is held against its description, and what it gives is what a loop can rely on."""

import subprocess
import sys
from typing import Any

import pytest

from refold.core.commands import Command
from refold.errors import ToolFailed
from refold.ports import Page, Pull, ToolCall
from refold.registry import LazyRegistry
from refold.sources.tool import SourceTool
from refold.tool_api import ToolInfo
from tests.sources.pulls import Sources


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("csv", {"path": "x", "delimeter": ";"}, "the source csv has no key `delimeter`; did you mean `delimiter`?"),
        ("range", {"stop": 3, "scope": "all"}, "the source range has no key `scope`; did you mean `stop`?"),
        ("list", {"items": [], "filter": {}}, "the source list has no key `filter`; it has `items`"),
        ("http", {"url": "http://x", "filter": {"a": 1}}, "the source http has no key `filter`; it has `url`"),
        ("csv", {}, "the source csv needs `path`"),
        ("csv", {"path": None}, "the source csv needs `path`"),
        ("csv", {"path": 7}, "`path` must be text, not a number"),
        ("csv", {"path": "x", "filter": "y"}, "`filter` must be a map, not text"),
        ("range", {"stop": 2.5}, "`stop` must be a whole number, not a number"),
        ("range", {"stop": 3, "step": 0}, "`step` must not be 0; 1 goes up, -1 goes down"),
        ("list", {"items": "abc"}, "`items` must be a list, not text"),
        ("python", {"code": "return []", "args": [1]}, "`args` must be a map, not a list"),
    ],
)
async def test_settings_that_do_not_fit_are_refused_by_name(
    sources: Sources, kind: str, settings: dict[str, Any], why: str
) -> None:
    fault = await sources.fault(kind, settings)
    assert fault.message.startswith(why)
    assert (fault.kind, fault.retryable) == ("invalid_settings", False)


async def test_an_unknown_kind_is_refused_by_name(sources: Sources) -> None:
    fault = await sources.fault("cvs", {"path": "x"})
    assert (fault.kind, fault.retryable) == ("no_source", False)
    assert fault.message == "there is no source of the kind 'cvs'; did you mean `csv`?"


async def test_a_secret_that_is_not_there_is_told_by_its_name(sources: Sources) -> None:
    fault = await sources.fault("http", {"url": "http://127.0.0.1:9/", "auth": {"secret": "no_such"}})
    assert fault.kind == "auth" and "no_such" in fault.message


async def test_data_that_looks_like_a_secret_is_data(sources: Sources) -> None:
    items = [{"secret": "api"}, {"secret": "x"}]
    assert await sources.all("list", {"items": items}) == items


async def test_what_the_reader_adds_is_no_setting(sources: Sources) -> None:
    assert await sources.all("range", {"stop": 2, "folder": "/tmp", "dialect": "noetl"}) == [0, 1]


@pytest.mark.parametrize("asked", [None, [], {}, {"kind": 7}, {"kind": "range", "settings": []}])
async def test_an_order_that_is_none_is_refused(sources: Sources, asked: Any) -> None:
    with pytest.raises(ToolFailed) as caught:
        await sources.tool(ToolCall("run", Command("each/1", "each", 1, 1, "source", input=asked), {}))
    assert caught.value.fault.retryable is False


@pytest.mark.parametrize("most", [0, -1, "x", None])
async def test_a_page_has_at_least_one_item(sources: Sources, most: Any) -> None:
    assert "`most` must be" in (await sources.fault("range", {"stop": 2}, None, most)).message


@pytest.mark.parametrize(
    ("page", "kind", "why"),
    [
        ([1, 2], "bad_source", "it gave a list and no Page"),
        (Page([1, 2, 3]), "bad_source", "it gave 3 items, and 2 were wanted"),
        (Page([1], 7), "bad_source", "its cursor does not move on: 7 comes after itself"),
        (Page([{"a": {1}}]), "invalid_value", "items[0].a: a set is not a JSON value"),
        (Page([1], object()), "invalid_value", "cursor: a object is not a JSON value"),
    ],
)
async def test_a_source_that_does_not_keep_its_promise_is_named(page: Any, kind: str, why: str) -> None:
    async def odd(pull: Pull) -> Any:
        return page

    tool = SourceTool(LazyRegistry({}, {"odd": lambda: odd}), {"odd": ToolInfo(kind="odd", about="Odd.")})
    asked = {"kind": "odd", "cursor": 7, "most": 2}
    with pytest.raises(ToolFailed) as caught:
        await tool(ToolCall("run", Command("each/1", "each", 1, 1, "source", input=asked), {}))
    fault = caught.value.fault
    assert (fault.kind, fault.retryable) == (kind, False)
    assert why in fault.message and "the source odd" in fault.message


def test_no_kind_is_loaded_before_it_is_used() -> None:
    code = """
import asyncio, sys
from refold import open_engine
from refold.plan import Call, Plan, Step

async def main():
    async with open_engine() as engine:
        await engine.run(Plan(name="p", steps=(Step(name="a"),)))
        print(*[name for name in sys.modules if name.startswith("refold.sources")])
        asked = {"kind": "range", "settings": {"stop": 3}, "cursor": None, "most": 2, "owner": "r/a/1"}
        step = Step(name="a", work=Call(tool="source"), input=asked)
        print(await engine.run(Plan(name="p", steps=(step,))))
        heavy = ("text_files", "sql", "http_pages", "glob_files", "python_items")
        print(*[name for name in heavy if f"refold.sources.{name}" in sys.modules])

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "{'items': [0, 1], 'cursor': 2}", ""]
