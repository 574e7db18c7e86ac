"""When a condition holds."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from tests.templates.views import STRICT, world


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (True, True),
        (False, False),
        (None, False),
        (0, False),
        ([], False),
        ({"a": 1}, True),
        ("yes", True),
        ("{{ yes }}", True),
        ("{{ not yes }}", False),
        ("{{ n }}", True),
        ("{{ n - 3 }}", False),
        ("{{ 0.0 }}", False),
        ("{{ nothing }}", False),
        ("{{ list }}", True),
        ("{{ empty }}", False),
        ("{{ map }}", True),
        ("{{ {} }}", False),
        ("{{ empty | list }}", False),
        ("{{ text }}", True),
        ("{{ n > 2 and text == 'hello' }}", True),
        ("{{ n }} > 2", True),
        ("{{ nothing }}{{ nothing }}", False),
    ],
)
def test_a_value_is_as_true_as_python_has_it(template: Any, expected: bool) -> None:
    assert STRICT.truth(template, world()) is expected


@pytest.mark.parametrize("word", ["", "false", "0", "no", "none", "null", "off", "{}", "[]"])
def test_a_text_that_says_no_is_false(word: str) -> None:
    for spelt in (word, f" {word}\n", word.upper(), word.title()):
        assert STRICT.truth(spelt, {}) is False
        assert STRICT.truth("{{ word }}", {"word": spelt}) is False
        assert STRICT.truth("{{ word }}{{ none }}", {"word": spelt}) is False


@pytest.mark.parametrize("word", ["true", "1", "on", "nope", "falsey", "00", "[ ]", "x"])
def test_any_other_text_is_true(word: str) -> None:
    assert STRICT.truth(word, {}) is True
    assert STRICT.truth("{{ word }}", {"word": word}) is True


def test_a_condition_that_cannot_be_evaluated_is_neither() -> None:
    with pytest.raises(CannotEvaluate, match="'nobody' is not defined"):
        STRICT.truth("{{ nobody }}", world())
