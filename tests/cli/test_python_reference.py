"""The reference of Python workflows is what the code says."""

import re
from pathlib import Path

import refold
import refold.plan
import refold.stages
from docs.build.python_page import page
from docs.build.python_page_words import DATA, STEP
from refold.python.workflow import Policy

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m docs.build.python_page"


def test_every_public_name_is_on_the_page_once() -> None:
    headings = re.findall(r"^### `(\w+)`$", page(), re.M)
    errors = ("ChildFailed", "LiveObjectLost", "StepFailed")
    public = {
        *refold.__all__,
        *refold.plan.__all__,
        *refold.stages.__all__,
        *errors,
        "resource",
    }  # it is not in __all__
    assert sorted([*headings, *DATA]) == sorted(public)
    assert [name for name in DATA if f"| `{name}` |" not in page()] == []


def test_every_name_and_every_method_says_what_it_is() -> None:
    text = page()
    silent = re.findall(r"^### `([\w.()]+)`\n\n(?:```\n[^`]*```\n\n)?\n", text, re.M)
    assert silent == []
    methods = re.findall(r"^\| `((?:await )?\w+\(.*)` \| (.*) \|$", text, re.M)
    assert len(methods) > 50
    assert [method for method, about in methods if not about.strip()] == []


def test_every_option_of_a_step_is_told_with_its_default() -> None:
    section = page().split("### `step`")[1].split("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", section, re.M) == [
        ("workers", "0"),
        ("retry", "None"),
        ("timeout", "None"),
        ("queue", '""'),
        ("priority", "None"),
        ("share", '""'),
        ("limit", '""'),
        ("isolation", '"inline"'),
        ("ray", "None"),
        ("collect", "None"),
        ("on_error", "None"),
        ("sends", "()"),
        ("mapped", "False"),
    ]
    assert STEP.keys() <= {*Policy.__struct_fields__}


def test_the_context_has_its_methods_and_none_that_is_the_engines_own() -> None:
    section = page().split("### `Context`")[1].split("\n### ")[0]
    methods = re.findall(r"^\| `(?:await )?(\w+)\(", section, re.M)
    assert " ".join(methods) == (
        "call run_child start_child map options resource get set update send publish collect ask first sleep wait_for"
        " now uuid random next_request requests continue_with usage log"
    )
    state = page().split("### `ctx.state`")[1].split("\n### ")[0]
    assert re.findall(r"^\| `(\w+)\(", state, re.M) == ["get", "get_or", "bytes", "delete", "keys"]


def test_what_must_be_awaited_is_shown_so() -> None:
    assert "| `await sleep(span: Span, *, key: str \\| None=None) -> None` |" in page()
    assert "| `send(event: Any) -> None` |" in page()
    assert re.search(r"^\| `stream\(.*\) -> AsyncIterator\[Shown\]` \|", page(), re.M)
