"""What a template becomes: the native value of a single expression, or a text, and nothing a second time."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from tests.templates.views import STRICT, value, world


def exactly(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(exactly(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(exactly, left, right))
    return bool(left == right)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ n }}", 3),
        ("  {{ n }}\n", 3),
        ("{{n}}", 3),
        ("{{- n -}}", 3),
        ("{{ f }}", 1.5),
        ("{{ whole }}", 2.0),
        ("{{ yes }}", True),
        ("{{ nothing }}", None),
        ("{{ list }}", [3, 1, 2]),
        ("{{ map.b }}", {"c": [10, 20]}),
        ("{{ map['b'].c[-1] }}", 20),
        ("{{ steps['fetch-page'].n }}", 7),
        ("{{ digits }}", "42"),
        ("{{ [n, {'k': list}] }}", [3, {"k": [3, 1, 2]}]),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("{{ '}}' }}", "}}"),
        ("{{ '{{' }}", "{{"),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ rows[:2] | tojson }}", '[{"id":1,"ok":true,"tag":"x"},{"id":2,"ok":false,"tag":"y"}]'),
    ],
)
def test_a_single_expression_keeps_its_type(template: str, expected: Any) -> None:
    assert exactly(value(template), expected)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("n={{ n }}", "n=3"),
        ("{{ n }}{{ n }}", "33"),
        ("{{ n }} {{ f }}", "3 1.5"),
        ("a {{ nothing }} b", "a  b"),
        ("{{ nothing }}{{ nothing }}", ""),
        ("{{ yes }}!", "true!"),
        ("v{{ whole }}", "v2.0"),
        ("-{{ list }}-{{ map.b }}", '-[3,1,2]-{"c":[10,20]}'),
        ("{{ text }}\n", "hello"),
        (".{{ text }}\n", ".hello\n"),
        ("a  {{- n -}}  b", "a3b"),
        ("a {# nobody reads this {{ n }} #}b", "a b"),
        ("{# only #}{{ n }}", 3),
        ("${#array[@]} {{ n }}", "${#array[@]} 3"),
        ("100 {% of {{ n }}", "100 {% of 3"),
        ("ünï {{ text }} ✔", "ünï hello ✔"),
    ],
)
def test_anything_else_is_a_text(template: str, expected: Any) -> None:
    assert exactly(value(template), expected)


@pytest.mark.parametrize("text", ["", "plain", "42", "1e5", "[1, 2]", "true", "null", "{'a': 1}", "}} {", "$let"])
def test_a_text_without_expressions_stays_as_it_is(text: str) -> None:
    assert exactly(value(text), text)


@pytest.mark.parametrize("text", ["1e5", "[1,2]", "1_000", "true", "null", " 7 ", "{}"])
def test_nothing_is_typed_anew_after_it_was_rendered(text: str) -> None:
    assert exactly(value("{{ x }}", x=text), text)
    assert exactly(value("{{ x }}{{ nothing }}", x=text), text)


def test_what_was_rendered_is_not_rendered_again() -> None:
    assert value("{{ template }}") == "{{ 7 * 7 }}"
    assert value("a {{ template }}") == "a {{ 7 * 7 }}"
    assert value("{{ '{{ n }}' }}") == "{{ n }}"
    assert value("{{ '{{' }} n }}") == "{{ n }}"


def test_maps_and_lists_are_walked_and_keys_are_no_templates() -> None:
    template = {"{{ n }}": ["{{ n }}", {"deep": "{{ text }}!"}], "same": [1, None, 2.5, True]}
    assert value(template) == {"{{ n }}": [3, {"deep": "hello!"}], "same": [1, None, 2.5, True]}


@pytest.mark.parametrize("template", [7, 2.5, True, None, [], {}])
def test_what_is_no_text_is_itself(template: Any) -> None:
    assert exactly(value(template), template)


def test_a_result_is_a_copy() -> None:
    view = world()
    for template in ("{{ map }}", "{{ map if yes else n }}", "{{ [map][0] }}"):
        result = STRICT.value(template, view)
        assert result == view["map"]
        result["b"]["c"].append("spoilt")
        assert view["map"] == world()["map"]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ 1e308 * 10 }}", "inf is not a number"),
        ("{{ 1e308 * 10 - 1e308 * 10 }}", "nan is not a number"),
        ("{{ {1: 2} }}", "the key 1 of a map is not a text"),
        ("{{ 2 ** 127 }}", "too large"),
        ("{{ x }}", "nan is not a number"),
        ("{{ empty | first }}", "no value"),
    ],
)
def test_what_json_cannot_hold_is_refused(template: str, why: str) -> None:
    with pytest.raises(CannotEvaluate, match=why):
        STRICT.value(template, {**world(), "x": float("nan")})


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(CannotEvaluate, match="nested deeper"):
        STRICT.value("{{ x }}", {"x": deep})


def test_an_error_says_at_which_key_line_and_column() -> None:
    with pytest.raises(CannotEvaluate) as error:
        value({"headers": [{"auth": "one\n  {{ map.bb }}"}]})
    assert str(error.value) == (
        "headers[0].auth: 'map.bb' is not defined: 'map' has no 'bb'; did you mean 'map.b'?"
        " (line 2, column 6: `{{ map.bb }}`)"
    )


def test_a_long_text_is_shortened_in_a_message() -> None:
    with pytest.raises(CannotEvaluate) as error:
        value("{{ nobody }}" + "x" * 1000)
    assert len(str(error.value)) < 200
