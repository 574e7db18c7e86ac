"""Values with further names: these lead somewhere, and nobody else sees them."""

from collections.abc import Mapping
from typing import Any

import pytest

from refold.core.expressions import Aliased, CannotEvaluate, TemplateScope, step_into, unaliased
from refold.core.read.template_scope import capture
from refold.templates import Templates
from tests.templates.views import CHAINABLE, STRICT

PAGE = {"n": 1, "rows": [{"id": 7}]}
VIEW = {
    "page": Aliased(PAGE, {"data": PAGE, "status": "ok", "n": "hidden"}),
    "rows": Aliased([3, 4], {"status": "error", "error": {"code": "E1"}}),
    "word": Aliased("hi", {"length": 2}),
    "deep": {"inner": Aliased({"a": 1}, {"b": Aliased({"c": 2}, {"d": 3})})},
    "twice": Aliased(Aliased({"a": 1}, {"b": 2}), {"b": 20, "c": 3}),
    "blank": Aliased({}, {"data": 1}),
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("page.status", "ok"),
        ("page.data.rows[0].id", 7),
        ("page.n", 1),
        ("page['sta' ~ 'tus']", "ok"),
        ("page.get('status')", "ok"),
        ("page.get('nobody', 5)", 5),
        ("rows.status", "error"),
        ("rows.error.code", "E1"),
        ("rows[1]", 4),
        ("word.length", 2),
        ("deep.inner.b.c", 2),
        ("deep.inner.b.d", 3),
        ("twice.a + twice.b + twice.c", 6),
    ],
)
def test_an_alias_leads_on_where_the_value_has_no_such_key(expression: str, expected: Any) -> None:
    for templates in (STRICT, CHAINABLE):
        assert templates.value(f"{{{{ {expression} }}}}", VIEW) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("page", PAGE),
        ("[page]", [PAGE]),
        ("deep", {"inner": {"a": 1}}),
        ("deep.inner.b", {"c": 2}),
        ("page | tojson", '{"n":1,"rows":[{"id":7}]}'),
        ("page | keys", ["n", "rows"]),
        ("page.items() | length", 2),
        ("page | list", ["n", "rows"]),
        ("'status' in page", False),
        ("rows | sum", 7),
        ("rows", [3, 4]),
        ("word", "hi"),
        ("word ~ '!'", "hi!"),
        ("twice", {"a": 1}),
    ],
)
def test_at_the_end_of_a_path_there_is_the_value_without_its_aliases(expression: str, expected: Any) -> None:
    for templates in (STRICT, CHAINABLE):
        assert templates.value(f"{{{{ {expression} }}}}", VIEW) == expected


def test_a_text_has_the_value_and_a_condition_asks_it() -> None:
    assert STRICT.value("{{ word }}, {{ deep.inner }}", VIEW) == 'hi, {"a":1}'
    assert STRICT.truth("{{ blank }}", VIEW) is False
    assert STRICT.truth("{{ blank.data }}", VIEW) is True


def test_what_neither_the_value_nor_an_alias_has_leads_nowhere() -> None:
    with pytest.raises(CannotEvaluate, match=r"'page.nobody' is not defined: 'page' has no 'nobody'"):
        STRICT.value("{{ page.nobody }}", VIEW)
    assert CHAINABLE.value("{{ page.nobody.x }}", VIEW) is None
    with pytest.raises(KeyError):
        step_into(VIEW["rows"], "nobody")
    assert unaliased(VIEW["twice"]) == {"a": 1}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([("page",)], {"page": PAGE}),
        ([("page", "data", "n")], {"page": {"data": {"n": 1}}}),
        ([("page", "status"), ("page", "n")], {"page": {"status": "ok", "n": 1}}),
        ([("rows", "error", "code")], {"rows": {"error": {"code": "E1"}}}),
        ([("rows",)], {"rows": [3, 4]}),
        ([("deep", "inner", "b")], {"deep": {"inner": {"b": {"c": 2}}}}),
        ([("deep", "inner", "b", "d")], {"deep": {"inner": {"b": {"d": 3}}}}),
    ],
)
def test_a_loop_captures_through_aliases_and_stores_what_was_written(paths: Any, expected: Any) -> None:
    found = capture(VIEW, paths, frozenset())
    assert found == expected
    for path in paths:
        assert STRICT.value("{{ " + ".".join(path) + " }}", found) == STRICT.value("{{ " + ".".join(path) + " }}", VIEW)


class Renamed(Templates):
    """A dialect in which every name is written backwards."""

    def names(self, view: TemplateScope) -> TemplateScope:
        assert isinstance(view, Mapping)
        return {name[::-1]: value for name, value in view.items()}


def test_a_dialect_may_have_names_of_its_own() -> None:
    templates, view = Renamed("chainable"), {"abc": 1, "on": "no"}
    assert templates.value({"k": ["{{ cba }}", "{{ abc }}"]}, view) == {"k": [1, None]}
    assert templates.value({"$let": {"x": "{{ cba }}"}, "$in": "{{ x + cba }}"}, view)["config"] == 2
    assert templates.truth("{{ cba }}", view) is True
    assert templates.truth({"$first": [["{{ no }}", True], ["{{ cba }}", False]]}, view) is False
    assert templates.pieces("a {{ cba }}", view)[1].value == 1  # type: ignore[union-attr]
    assert STRICT.names(view) is view and CHAINABLE.names(view) is view
