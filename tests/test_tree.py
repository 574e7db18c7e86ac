"""The structure that the source keeps: no import cycle, layers, a pure core.

The list of public names is in test_exports.py. `make shape` prints sizes, which are not laws.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import ROOT, cycles, import_graph


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = import_graph()
    assert {"refold", "refold.errors", "refold.core"} <= graph.keys(), "the source is not where this test looks"
    assert cycles(graph) == []


def test_a_circle_is_found_whichever_module_comes_first() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set[str](), "e": {"f"}, "f": {"e", "a"}}
    assert sorted(cycles(graph)) == [["b", "c"], ["e", "f"]]
    assert sorted(cycles(dict(reversed(graph.items())))) == [["b", "c"], ["e", "f"]]


@pytest.mark.parametrize("contract", ["Dependencies point inward", "The core is pure", "No cycles anywhere"])
def test_imports_keep_the_contracts_of_the_project_file(contract: str, contracts: str) -> None:
    assert f"{contract} KEPT" in contracts


@pytest.fixture(scope="module")
def contracts() -> str:
    """What import-linter prints; it reads the contracts from pyproject.toml."""
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([program, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True).stdout
