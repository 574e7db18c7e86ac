"""Thousands of templates with the values that minijinja gave them, which evaluated expressions before Refold did."""

import json
from pathlib import Path
from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from tests.templates.views import CHAINABLE, STRICT

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))


def exact(value: Any) -> Any:
    """A value as a text in which 1, 1.0 and true differ, and in which the order of a map counts."""
    return json.dumps(value)


@pytest.mark.parametrize("undefined", ["strict", "chainable"])
def test_templates_have_the_values_that_were_recorded(undefined: str) -> None:
    templates = STRICT if undefined == "strict" else CHAINABLE
    cases = [case for case in RECORDED["cases"] if case[0] == undefined]
    assert len(cases) > 1500
    for _, text, *expected in cases:
        try:
            found = [exact(templates.value(text, RECORDED["view"]))]
        except CannotEvaluate:
            found = []  # no value was recorded for such a template
        assert found == [exact(value) for value in expected], text
