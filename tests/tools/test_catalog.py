"""The catalog of tools: what it checks before a run, and that its page is up to date."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.build.tools_page import page
from refold.tool_api import ToolProblem
from refold.tools.catalog import CATALOG

ROOT = Path(__file__).parents[2]


def problems(kind: str, keys: dict[str, Any]) -> list[ToolProblem]:
    check = CATALOG[kind].check
    return list(check(keys)) if check is not None else []


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("python", {"code": "return 1"}),
    ("python", {"code": "result = {{1}}"}),
    ("python", {"script": "x.py", "libs": {"a": "b", "c": {"from": "d", "import": "e"}}, "cwd": "{{ ctx.x }}"}),
    ("python", {"entry": "a.b:c.d", "libs": ["json"], "isolation": "inline"}),
    ("shell", {"command": ["echo", "{{ ctx.x }}"]}),
    ("shell", {"command": "{{ ctx.argv }}"}),
    ("shell", {"command": "ls | wc", "shell": True}),
    ("shell", {"script": "docker ps --format '{{.Names}}' && echo ${x}", "args": ["{{ ctx.x }}"]}),
    ("http", {"url": "https://x.test/{{ ctx.x }}", "auth": {"bearer": "{{ ctx.t }}"}, "pages": {"next": "link"}}),
    ("http", {"url": "{{ ctx.url }}", "json": {}, "pages": "{{ ctx.pages }}"}),
    ("noop", {}),
    ("wait", {"seconds": 5}),
    ("wait", {"signal": "go", "until": 5}),
]


@pytest.mark.parametrize(("kind", "keys"), GOOD)
def test_what_is_right_has_no_problem(kind: str, keys: dict[str, Any]) -> None:
    assert problems(kind, keys) == []


@pytest.mark.parametrize(
    ("kind", "keys", "key", "message"),
    [
        ("python", {}, "", "one of `code`, `script` and `entry` is needed"),
        ("python", {"code": "", "script": "x"}, "script", "`script` and `code` exclude each other"),
        ("python", {"entry": "a.b"}, "entry", "'a.b' does not name a function"),
        ("python", {"code": "", "libs": "json"}, "libs", "`libs` is not a list or map of imports"),
        ("python", {"code": "", "libs": {"a": {"from": "b"}}}, "libs", "`libs` is not a list or map of imports"),
        ("python", {"code": "", "isolation": "inline", "cwd": "/"}, "cwd", "`cwd` needs a process of its own"),
        ("shell", {}, "", "one of `command` and `script` is needed"),
        ("shell", {"command": ["x"], "script": "y"}, "script", "`script` and `command` exclude each other"),
        ("shell", {"command": "ls"}, "command", "a command is a list of the program and its arguments"),
        ("shell", {"command": "{{ a }} {{ b }}"}, "command", "a command is a list of the program and its arguments"),
        ("shell", {"command": []}, "command", "the command is empty"),
        ("shell", {"command": ["x"], "shell": True}, "shell", "a shell takes text, not a list"),
        ("shell", {"command": ["x"], "args": ["y"]}, "args", "`args` belong to a script"),
        ("http", {"url": "x.test/a"}, "url", "an address starts with http:// or https://"),
        ("http", {"url": "http://x", "json": {}, "body": ""}, "body", "`body` and `json` exclude each other"),
        ("http", {"url": "http://x", "auth": {}}, "auth", "`auth` has exactly one of `bearer`, `basic` and `api_key`"),
        ("http", {"url": "http://x", "auth": {"token": 1}}, "auth", "`auth` has exactly one of"),
        ("http", {"url": "http://x", "pages": {}}, "pages", "`pages` needs `next`"),
        ("http", {"url": "http://x", "pages": {"next": "link", "size": 5}}, "pages", "`pages` has no 'size'"),
        ("wait", {}, "", "nothing ends this wait"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(kind: str, keys: dict[str, Any], key: str, message: str) -> None:
    [problem] = problems(kind, keys)
    assert problem.key == key
    assert problem.message.startswith(message)
    assert not problem.line


@pytest.mark.parametrize(
    ("code", "line", "column"),
    [("x =", 1, 4), ("x = 1\nif x\n    y", 2, 5), ("def f(:\n    pass", 1, 7), ("x = 1\nbreak", 2, 1)],
)
def test_code_that_does_not_compile_is_told_with_line_and_column(code: str, line: int, column: int) -> None:
    [problem] = problems("python", {"code": code})
    assert (problem.key, problem.line, problem.column) == ("code", line, column)
    assert problem.message.startswith("the code does not compile: ")


@pytest.mark.parametrize(
    ("keys", "key", "line", "column"),
    [
        ({"script": "echo {{ ctx.x }}"}, "script", 1, 6),
        ({"script": "set -e\necho ok\n  rm {{ x }}"}, "script", 3, 6),
        ({"script": "{% if x %}ls{% endif %}"}, "script", 1, 1),
        ({"command": "echo '{{ x }}'", "shell": True}, "command", 1, 7),
    ],
)
def test_no_value_is_spliced_into_the_text_of_a_shell(keys: dict[str, Any], key: str, line: int, column: int) -> None:
    [problem] = problems("shell", keys)
    assert (problem.key, problem.line, problem.column) == (key, line, column)
    assert "`env`" in problem.hint


def test_what_must_not_be_computed_is_static() -> None:
    static = {(info.kind, key.name) for info in CATALOG.values() for key in info.keys if key.static}
    assert static >= {("python", "code"), ("python", "script"), ("python", "entry"), ("python", "isolation")}
    assert static >= {("shell", "script"), ("shell", "shell"), ("http", "verify")}


def test_every_kind_and_every_key_is_explained() -> None:
    assert set(CATALOG) >= {"python", "shell", "http", "noop", "wait", "playbook"}
    assert [info.kind for info in CATALOG.values() if not info.about or not info.result] == []
    assert [key.name for info in CATALOG.values() for key in info.keys if not key.about] == []


@pytest.mark.parametrize("kind", CATALOG)
def test_the_examples_are_right(kind: str) -> None:
    for example in yaml.safe_load_all(CATALOG[kind].example):
        tool = dict(example["tool"])
        assert tool.pop("kind") == kind
        tool.pop("input", None)
        assert set(tool) <= {key.name for key in CATALOG[kind].keys}
        assert problems(kind, tool) == []


def test_the_page_on_tools_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/tools.md").read_text() == page(), "python -m docs.build.tools_page prints it"


def test_the_catalog_costs_no_more_than_it_must() -> None:
    heavy = ("httpx2", "httpcore2", "asyncio", "ssl")
    code = f"import sys, refold.tools.catalog; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_an_engine_loads_no_tool_and_no_pool_before_it_is_used() -> None:
    code = """
import asyncio, sys
from refold import open_engine
from refold.plan import Call, Plan, Step

HEAVY = (
    "httpx2", "httpcore2", "refold.executors.interpreter_pool", "refold.executors.programs", "refold.tools.python.tool"
)

async def main():
    async with open_engine() as engine:
        await engine.run(Plan(name="p", steps=(Step(name="a"),)))
        print(*[name for name in HEAVY if name in sys.modules])
        shell = Call(tool="shell", settings={"script": "exit 0"})
        await engine.run(Plan(name="p", steps=(Step(name="a", work=shell),)))
        print(*[name for name in HEAVY if name in sys.modules])

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["", "refold.executors.programs"]
