"""Names that lead nowhere: an error that says what is missing, or in chainable dialects nothing at all."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate, TemplateScope
from tests.templates.views import CHAINABLE, STRICT, value, world


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ nobody }}", "'nobody' is not defined"),
        ("{{ nobody.x.y }}", "'nobody.x.y' is not defined"),
        ("{{ map.z }}", "'map.z' is not defined: 'map' has no 'z'"),
        ("{{ map.b.d.e }}", "'map.b.d.e' is not defined: 'map.b' has no 'd'"),
        ("{{ steps.fetch.rowz }}", "'steps.fetch' has no 'rowz'; did you mean 'steps.fetch.rows'?"),
        ("{{ stepz.fetch }}", "did you mean 'steps'?"),
        ("{{ fetc }}", "did you mean 'fetch'?"),
        ("{{ rows[7].id }}", "'rows[7].id' is not defined: 'rows' is a list of 3"),
        ("{{ rows.id }}", "'rows' is a list of 3"),
        ("{{ n.x }}", "'n.x' is not defined: 'n' is a number"),
        ("{{ nothing.x }}", "'nothing' is null"),
        ("{{ text.x }}", "'text' is a text"),
        ("{{ map[text] }}", "'map.hello' is not defined"),
        ("{{ rows[n + 4].id }}", "'rows[7].id' is not defined"),
        ("{{ map[list] }}", "'map[a list]' is not defined: a list is not a key"),
        ("{{ (rows | first).idd }}", "did you mean '(…).id'?"),
        ("{{ map.z == 1 }}", "'map.z' is not defined"),
        ("{{ nobody == none }}", "'nobody' is not defined"),
        ("{{ map.z ~ 'x' }}", "'map.z' is not defined"),
        ("{{ not map.z }}", "'map.z' is not defined"),
        ("{{ map.z | upper }}", "'map.z' is not defined"),
        ("{{ [map.z] }}", "'map.z' is not defined"),
        ("x {{ map.z }}", "'map.z' is not defined"),
        ("{{ rows | map(attribute='idd') }}", "did you mean 'element.id'?"),
        ("{{ empty | first }}", "the expression has no value"),
        ("{{ (empty | first) or 1 }}", "the expression has no value"),
    ],
)
def test_a_name_that_leads_nowhere_is_an_error_that_names_the_path(template: str, message: str) -> None:
    with pytest.raises(CannotEvaluate) as error:
        value(template)
    assert message in str(error.value)
    assert "_[" not in str(error.value) and "0x" not in str(error.value)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ nobody | default(1) }}", 1),
        ("{{ nobody.x.y | default(1) }}", 1),
        ("{{ steps.later.rows | default([]) }}", []),
        ("{{ steps.later.rows[0].id | d('none') }}", "none"),
        ("{{ steps[text].x | default(1) }}", 1),
        ("{{ rows[7].id | default(1) }}", 1),
        ("{{ steps.fetch.status | default(1) }}", 200),
        ("{{ steps.fetch.status | default(steps.later.status) }}", 200),
        ("{{ steps.later.status | default(steps.fetch.status) }}", 200),
        ("{{ nobody | default(nobody.x) | default(2) }}", 2),
        ("{{ nothing | default(1) }}", None),
        ("{{ nothing | default(1, true) }}", 1),
        ("{{ empty | first | default(1) }}", 1),
        ("{{ (rows | first).nope | default(1) }}", 1),
        ("{{ rows | map(attribute='nope', default=0) }}", [0, 0, 0]),
        ("{{ steps.fetch is defined }}", True),
        ("{{ steps.later is defined }}", False),
        ("{{ steps.later.rows is defined }}", False),
        ("{{ steps.later is undefined }}", True),
        ("{{ steps.later is not defined }}", True),
        ("{{ nothing is defined }}", True),
        ("{{ steps.later.ok if steps.later is defined else 'no' }}", "no"),
        ("{{ steps.later is defined and steps.later.ok }}", False),
        ("{{ yes or nobody }}", True),
        ("{{ n if yes else nobody.x }}", 3),
        ("a{{ nobody | default('') }}b", "ab"),
    ],
)
def test_where_a_default_or_a_test_takes_care_of_it_a_path_may_lead_nowhere(template: str, expected: Any) -> None:
    assert value(template) == expected


def test_two_names_that_lead_nowhere_have_no_value() -> None:
    with pytest.raises(CannotEvaluate, match="no value"):
        value("{{ nobody | default(map.z) }}")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ nobody }}", None),
        ("{{ nobody.x.y }}", None),
        ("{{ nobody[text].y }}", None),
        ("{{ map.z.y }}", None),
        ("a{{ nobody.x }}b", "ab"),
        ("{{ nobody ~ 'x' }}", "x"),
        ("{{ nobody | default(1) }}", 1),
        ("{{ nobody.x.y | default(1) }}", 1),
        ("{{ nobody is defined }}", False),
        ("{{ not nobody.x }}", True),
        ("{{ 1 if nobody.x else 2 }}", 2),
        ("{{ nobody or 'x' }}", "x"),
        ("{{ nobody == 1 }}", False),
        ("{{ nobody > 1 }}", False),
        ("{{ nobody | length }}", 0),
        ("{{ nobody | upper }}", ""),
        ("{{ nobody | list }}", []),
        ("{{ nobody[1:] }}", []),
        ("{{ nobody.get('x') }}", None),
        ("{{ nobody.items() }}", []),
        ("{{ rows | map(attribute='nope') }}", [None, None, None]),
        ("{{ 'x' | int }}", 0),
        ("{{ empty | first }}", None),
        ("{{ nobody | first }}", None),
        ("{{ nobody.x | last | default(4) }}", 4),
        ("{{ nobody.x < 1 }}", False),
        ("{{ nobody.x >= 1 }}", False),
        ("{{ 1 <= nobody }}", False),
        ("{{ nobody != 1 }}", True),
        ("{{ nobody == none }}", True),
        ("{{ nobody in [1] }}", False),
        ("{{ nobody not in [1] }}", True),
        ("{{ nobody in text }}", False),
        ("{{ 1 in nobody.x }}", False),
        ("{{ 1 not in nobody.x }}", True),
        ("{{ nobody and 1 }}", None),
        ("{{ nobody | tojson }}", "null"),
        ("{{ nobody | join(',') }}", ""),
        ("{{ nobody | sort }}", []),
        ("{{ nobody is mapping or nobody is string or nobody is number or nobody is sequence }}", False),
        ("{{ nobody is undefined and nobody.x is not defined }}", True),
        ("{{ '%s!' % nobody }}", "!"),
    ],
)
def test_in_a_chainable_dialect_it_is_nothing(template: str, expected: Any) -> None:
    assert value(template, "chainable") == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ nobody + 1 }}", "`+`: 'nobody' is not defined"),
        ("{{ 1 - map.b.d.e }}", "`-`: 'map.b.d.e' is not defined: 'map.b' has no 'd'"),
        ("{{ n * nobody.x }}", "`*`: 'nobody.x' is not defined"),
        ("{{ n + n + mapp.a }}", "did you mean 'map'?"),
        ("{{ -nobody.x }}", "`-`: 'nobody.x' is not defined"),
        ("{{ 'a' + nobody }}", "`+`: 'nobody' is not defined"),
        ("{{ nothing + 1 }}", "`+`: null and a number do not go together"),
        ("{{ n + text }}", "`+`: a number and a text do not go together"),
    ],
)
def test_in_a_chainable_dialect_one_cannot_reckon_with_nothing(template: str, message: str) -> None:
    with pytest.raises(CannotEvaluate) as error:
        value(template, "chainable")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("template", "expected"),
    [("{{ nobody }}", False), ("{{ nobody.x }}", False), ("{{ map.a }}", True), ("{{ nobody.x }}{{ nobody }}", False)],
)
def test_in_a_chainable_dialect_it_is_false(template: str, expected: bool) -> None:
    assert CHAINABLE.truth(template, world()) is expected


class Picky:
    """A view as the core has it: an unknown name cannot be evaluated."""

    def __getitem__(self, name: str) -> Any:
        if name == "ctx":
            return {"page": 1}
        raise CannotEvaluate(f"{name!r} is not defined")


@pytest.mark.parametrize("view", [Picky(), {"ctx": {"page": 1}}])
def test_a_view_may_say_in_its_own_way_that_it_has_no_such_name(view: TemplateScope) -> None:
    assert STRICT.value("{{ nobody | default(1) }}", view) == 1
    assert CHAINABLE.value("{{ nobody.x }}", view) is None
    with pytest.raises(CannotEvaluate, match="'pag' is not defined; did you mean 'page'"):
        STRICT.value("{{ pag }}", view)


def test_an_error_speaks_of_maps_and_lists_and_not_of_the_classes_that_show_them() -> None:
    for template, kind in (("{{ {map: 1} }}", "map"), ("{{ {list: 1} }}", "list")):
        with pytest.raises(CannotEvaluate, match=f"a {kind} is not a key"):
            value(template)


class Broken:
    """A view with a defect."""

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("broken")


def test_an_error_that_nobody_foresaw_is_one_of_its_expression() -> None:
    with pytest.raises(CannotEvaluate, match=r"RuntimeError: broken \(column 3 of `u/"):
        STRICT.value("u/{{ a + 1 }}", Broken())
