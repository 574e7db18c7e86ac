"""When a condition holds."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from tests.templates.views import CHAINABLE, STRICT, world


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


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], True),
        ([["{{ n > 2 }}", False]], False),
        ([["{{ n > 5 }}", False]], True),
        ([["{{ n > 5 }}", False], ["{{ yes }}", True], [True, False]], True),
        ([["{{ n > 5 }}", True], [True, False]], False),
        ([["no", True], ["{{ text }}", False]], False),
    ],
)
def test_of_rules_the_first_that_holds_decides_and_if_none_does_it_is_yes(rules: Any, expected: bool) -> None:
    for templates in (STRICT, CHAINABLE):
        assert templates.truth({"$first": rules}, world()) is expected


def test_rules_behind_the_one_that_decides_are_not_asked() -> None:
    assert STRICT.truth({"$first": [["{{ yes }}", False], ["{{ nobody }}", True]]}, world()) is False
    with pytest.raises(CannotEvaluate, match="'nobody' is not defined"):
        STRICT.truth({"$first": [["{{ nobody }}", True], ["{{ yes }}", False]]}, world())


def test_the_paths_of_rules_are_those_of_their_conditions() -> None:
    assert STRICT.paths({"$first": [["{{ a.b }}", True], ["{{ c and d }}", False]]}) == (("a", "b"), ("c",), ("d",))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if n > 2 %}true{% else %}false{% endif %}", True),
        ("{% if n > 5 %}true{% else %}false{% endif %}", False),
        ("{% if n > 5 %}true{% endif %}", False),
        ("{{ yes }} ", True),
        ("{{ not yes }}{{ nobody }}", False),
    ],
)
def test_a_text_with_statements_says_yes_or_no(template: str, expected: bool) -> None:
    assert CHAINABLE.truth(template, world()) is expected
