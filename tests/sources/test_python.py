"""Items from Python code: any iterator, in a process of its own, kept from page to page and begun anew after a loss."""

import os
from pathlib import Path
from typing import Any

import pytest

from refold.sources import python_items
from tests.sources.pulls import Sources

COUNTED = """
def main(path, count):
    with open(path, "a") as file:
        file.write("begun\\n")
    yield from range(count)
"""


def numbers(count: int) -> list[int]:
    """Named by tests as a function."""
    return list(range(count))


async def slow_numbers(count: int) -> Any:
    for i in range(count):
        yield i


@pytest.mark.parametrize(
    ("settings", "items"),
    [
        ({"code": "return [1, 2]"}, [1, 2]),
        ({"code": "return (x * n for x in (1, 2))", "args": {"n": 3}}, [3, 6]),
        ({"code": "result = {'a': 1}.items()"}, [["a", 1]]),
        ({"code": "async def main():\n    return [1, 2]"}, [1, 2]),
        ({"code": "import asyncio\nawait asyncio.sleep(0)\nreturn iter('ab')"}, ["a", "b"]),
        ({"code": "import datetime\ndef main():\n    yield datetime.date(2024, 1, 2)"}, ["2024-01-02"]),
        ({"function": "tests.sources.test_python:numbers", "args": {"count": 3}}, [0, 1, 2]),
        ({"function": "tests.sources.test_python:slow_numbers", "args": {"count": 3}}, [0, 1, 2]),
    ],
)
async def test_whatever_can_be_gone_through_is_a_source(
    sources: Sources, settings: dict[str, Any], items: list[Any]
) -> None:
    assert await sources.all("python", settings, 2) == items


async def test_an_iterator_lives_from_page_to_page_and_begins_anew_after_a_loss(
    sources: Sources, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    settings = {"code": COUNTED, "args": {"path": str(log), "count": 10}}
    page = await sources.pull("python", settings, None, 3)
    page = await sources.pull("python", settings, page["cursor"], 3)
    assert (page["items"], log.read_text().count("begun")) == ([3, 4, 5], 1)
    assert await sources.pull("python", settings, 3, 3) == page, "the page that was given last is given again"
    assert log.read_text().count("begun") == 1
    await sources.forget()
    assert (await sources.pull("python", settings, page["cursor"], 3))["items"] == [6, 7, 8]
    assert log.read_text().count("begun") == 2
    assert (await sources.pull("python", settings, None, 2))["items"] == [0, 1]
    assert log.read_text().count("begun") == 3


async def test_an_endless_iterator_is_asked_for_no_more_than_a_page(sources: Sources, tmp_path: Path) -> None:
    code = (
        "import itertools\ndef main(path):\n    with open(path, 'w', buffering=1) as file:\n"
        "        for i in itertools.count():\n            print(i, file=file)\n            yield i"
    )
    settings = {"code": code, "args": {"path": str(tmp_path / "log")}}
    page = await sources.pull("python", settings, None, 5)
    assert page == {"items": [0, 1, 2, 3, 4], "cursor": 5}
    assert len((tmp_path / "log").read_text().split()) == 5


async def test_an_error_names_the_line_and_the_next_try_begins_anew(sources: Sources, tmp_path: Path) -> None:
    code = "def main(path):\n    yield 1\n    with open(path) as file:\n        yield file.read()"
    settings = {"code": code, "args": {"path": str(tmp_path / "later")}}
    fault = await sources.fault("python", settings)
    assert (fault.type, fault.data["line"]) == ("FileNotFoundError", 3)
    assert fault.data["source"] == "with open(path) as file:"
    assert "iterating.py" not in fault.traceback
    (tmp_path / "later").write_text("here")
    assert await sources.all("python", settings, 2) == [1, "here"]


async def test_a_process_that_dies_is_told_and_replaced(sources: Sources, tmp_path: Path) -> None:
    code = (
        "import os\ndef main(path):\n    yield 1\n    if not os.path.exists(path):\n"
        "        open(path, 'w').close()\n        os._exit(9)\n    yield 2"
    )
    settings = {"code": code, "args": {"path": str(tmp_path / "once")}}
    page = await sources.pull("python", settings, None, 1)
    assert (await sources.fault("python", settings, page["cursor"], 1)).kind == "process_died"
    assert (await sources.pull("python", settings, page["cursor"], 1))["items"] == [2]


@pytest.mark.parametrize(
    ("settings", "kind", "why"),
    [
        ({}, "invalid_settings", "exactly one of `function` and `code` is needed"),
        ({"function": "x:y", "code": "return []"}, "invalid_settings", "exactly one of `function` and `code`"),
        ({"function": "json"}, "invalid_settings", "'json' does not name a function"),
        ({"function": "no_such_module:x"}, "no_module", "there is no module 'no_such_module'"),
        ({"function": "json:no_such"}, "no_function", "has no 'no_such'"),
        ({"code": "return 5"}, "no_items", "the code gave a int, and nothing to go through"),
        ({"code": "return 'abc'"}, "no_items", "the code gave a str"),
        ({"code": "return ["}, "invalid_code", "line 1"),
        ({"code": "return [1, object()]"}, "invalid_value", "item 2"),
    ],
)
async def test_what_gives_no_items_is_told(sources: Sources, settings: dict[str, Any], kind: str, why: str) -> None:
    fault = await sources.fault("python", settings)
    assert (fault.kind, fault.retryable) == (kind, False)
    assert why in fault.message


async def test_loops_have_processes_of_their_own_and_not_too_many(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_items, "LANES", 2)
    settings = {"code": "import os\ndef main():\n    while True:\n        yield os.getpid()"}
    pids = [(await sources.pull("python", settings, None, 1, f"run/each/{i}"))["items"][0] for i in range(3)]
    assert len({*pids, os.getpid()}) == 4
    again = await sources.pull("python", settings, 1, 1, "run/each/2")
    assert again["items"] == [pids[2]]
    begun = await sources.pull("python", settings, 1, 1, "run/each/0")
    assert begun["items"] != [pids[0]], "the one that was used longest ago has ended"


async def test_the_process_ends_with_the_last_item(sources: Sources) -> None:
    [pid] = await sources.all("python", {"code": "import os\nreturn [os.getpid()]"})
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
