"""The catalog of sources: what it says is complete, its examples are right, and its page is up to date."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.build.sources_page import page
from refold.sources.catalog import CATALOG
from refold.sources.services import Services
from refold.sources.tool import source_makers

ROOT = Path(__file__).parents[2]


def test_every_kind_and_every_key_is_explained() -> None:
    assert [info.kind for info in CATALOG.values() if not info.about or not info.result] == []
    assert [key.name for info in CATALOG.values() for key in info.keys if not key.about] == []
    assert [info.kind for info in CATALOG.values() if not info.example] == []


def test_the_catalog_has_the_kinds_that_can_be_made() -> None:
    async def ask(tool: str, keys: Any) -> Any:
        raise AssertionError("nothing is asked")

    makers = source_makers(Services(ask=ask, tokens=lambda text, driver: ()))
    assert list(makers) == list(CATALOG)
    assert all(callable(make()) for make in makers.values())


@pytest.mark.parametrize("kind", CATALOG)
def test_the_examples_are_right(kind: str) -> None:
    info = CATALOG[kind]
    for example in yaml.safe_load_all(CATALOG[kind].example):
        assert example.pop("kind") == kind
        assert {key.name for key in info.keys if key.required} <= set(example) <= {key.name for key in info.keys}
        assert info.check is None or not info.check(example)


def test_what_becomes_code_is_static() -> None:
    static = {(info.kind, key.name) for info in CATALOG.values() for key in info.keys if key.static}
    assert static >= {
        ("sql", "query"),
        ("sql", "key"),
        ("parquet", "where"),
        ("python", "code"),
        ("python", "function"),
    }


def test_values_that_are_computed_are_no_problem_before_a_run() -> None:
    computed: list[tuple[str, dict[str, Any]]] = [
        ("range", {"stop": "{{ 3 }}", "step": "{{ ctx.step }}"}),
        ("csv", {"path": "x", "types": {"a": "{{ ctx.type }}"}, "filter": "{{ ctx.filter }}", "columns": "{{ c }}"}),
        ("sql", {"driver": "duckdb", "query": "select 1", "params": "{{ ctx.params }}"}),
        ("http", {"url": "{{ ctx.url }}", "next": {"page": "p", "start": "{{ ctx.first }}"}}),
    ]
    for kind, keys in computed:
        check = CATALOG[kind].check
        assert check is not None and list(check(keys)) == [], kind


def test_the_page_on_sources_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/sources.md").read_text() == page(), "python -m docs.build.sources_page prints it"


def test_the_catalog_costs_no_more_than_it_must() -> None:
    heavy = ("httpx2", "duckdb", "apsw", "asyncio", "csv")
    code = f"import sys, refold.sources.catalog; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
