"""Texts in pieces: literal text and values apart, for those who quote values in their own way."""

from collections.abc import Iterable
from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from refold.templates import EmbeddedValue
from refold.templates.data import LARGEST
from tests.templates.views import CHAINABLE, STRICT, world


def values(pieces: Iterable[str | EmbeddedValue]) -> list[str | EmbeddedValue]:
    """The pieces, without where their expressions stand."""
    return [piece if isinstance(piece, str) else EmbeddedValue(piece.value) for piece in pieces]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("{{ n }}", [EmbeddedValue(3)]),
        ("echo {{ text }} {{ list }}", ["echo ", EmbeddedValue("hello"), " ", EmbeddedValue([3, 1, 2])]),
        ("{{ nothing }}{{ yes }}", [EmbeddedValue(None), EmbeddedValue(True)]),
        ("{{ digits }}!", [EmbeddedValue("42"), "!"]),
        ("a  {{- n + 1 -}}  b", ["a", EmbeddedValue(4), "b"]),
        ("a{# b #}c", ["a", "c"]),
    ],
)
def test_values_keep_their_type_and_their_place(text: str, expected: list[Any]) -> None:
    assert values(STRICT.pieces(text, world())) == expected
    assert values(CHAINABLE.pieces(text, world())) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{% if yes %}a{{ n }}{% else %}b{{ text }}{% endif %}", ["a", EmbeddedValue(3)]),
        (
            "{% for r in rows if r.ok %}({{ r.id }}){% endfor %}",
            ["(", EmbeddedValue(1), ")", "(", EmbeddedValue(3), ")"],
        ),
        ("{% set x %}a{{ n }}{% endset %}{{ x }}", [EmbeddedValue("a3")]),
        ("{% raw %}{{ n }}{% endraw %}{{ map.b }}", ["{{ n }}", EmbeddedValue({"c": [10, 20]})]),
        ("{% if yes %}{{ nobody.x }}{% endif %}", [EmbeddedValue(None)]),
    ],
)
def test_statements_leave_values_apart_too(text: str, expected: list[Any]) -> None:
    assert values(CHAINABLE.pieces(text, world())) == expected


def test_a_piece_is_a_copy_and_what_was_rendered_is_not_rendered_again() -> None:
    view = world()
    for text in ("{{ map }}", "{% if yes %}{{ map }}{% endif %}"):
        (piece,) = CHAINABLE.pieces(text, view)
        assert isinstance(piece, EmbeddedValue)
        piece.value["b"]["c"].append("spoilt")
    assert view == world()
    assert CHAINABLE.pieces("{{ template }}", view) == [EmbeddedValue("{{ 7 * 7 }}")]


def test_what_has_no_value_is_told() -> None:
    with pytest.raises(CannotEvaluate, match=r"'nobody' is not defined \(column 6 of `a {{ nobody }}`\)"):
        STRICT.pieces("a {{ nobody }}", world())
    with pytest.raises(CannotEvaluate, match="is not closed"):
        CHAINABLE.pieces("{% if n %}", world())


def test_what_a_loop_collects_is_bounded() -> None:
    view = {"large": "x" * (LARGEST // 4), "rows": list(range(1000))}
    with pytest.raises(CannotEvaluate, match="more than 1 MiB"):
        CHAINABLE.pieces("{% for i in range(5) %}{{ large }}{% endfor %}", view)
    with pytest.raises(CannotEvaluate, match="more than 1 MiB"):
        CHAINABLE.pieces("{% for i in range(5000) %}{{ rows }}{% endfor %}", view)
    assert CHAINABLE.pieces("{{ large }}", view) == [EmbeddedValue(view["large"])]


def test_a_piece_knows_where_its_expression_stands() -> None:
    pieces = STRICT.pieces("echo {{ text }} {{ list }}", world())
    assert [piece.at for piece in pieces if isinstance(piece, EmbeddedValue)] == [5, 16]
