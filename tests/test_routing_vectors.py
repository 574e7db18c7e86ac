"""The 60 routing cases: workflow in, exactly the stated result out."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ticks import run_core

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors" / "routing.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_core_agrees_with_the_case(case: dict[str, Any]) -> None:
    result = run_core(case["workflow"])
    del result["result"]  # not part of the cases
    assert result == case["result"]


def test_all_sixty_cases_are_there() -> None:
    assert len(CASES) == 60
