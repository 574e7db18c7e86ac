"""The let form: values bound first, and what is rendered with them in view."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from refold.templates import paths_of
from tests.templates.views import STRICT, value


def let(bound: dict[str, Any], inside: Any) -> dict[str, Any]:
    return {"$let": bound, "$in": inside}


def test_bound_names_are_seen_bare_and_under_input() -> None:
    inside = {"url": "u/{{ x[0] }}", "n": "{{ input.y + y }}", "who": "{{ input.who }}"}
    form = let({"x": "{{ map.b.c }}", "y": 2}, inside)
    assert value(form) == {"input": {"x": [10, 20], "y": 2}, "config": {"url": "u/10", "n": 4, "who": "ann"}}


def test_a_bound_name_goes_before_all_others() -> None:
    form = let({"n": "{{ n + 1 }}", "who": "bob"}, ["{{ n }}", "{{ who }}", "{{ input.who }}", "{{ input }}"])
    assert value(form)["config"] == [4, "bob", "bob", {"n": 4, "who": "bob"}]


def test_bound_values_do_not_see_each_other() -> None:
    with pytest.raises(CannotEvaluate, match=r"input.b: 'a1' is not defined"):
        value(let({"a1": 1, "b": "{{ a1 }}"}, {}))


def test_what_is_bound_is_data() -> None:
    assert value(let({"x": "{{ template }}"}, {"a": "{{ x }}", "b": "{{ input.x }}!"}))["config"] == {
        "a": "{{ 7 * 7 }}",
        "b": "{{ 7 * 7 }}!",
    }


def test_without_an_input_of_the_run_the_bound_values_are_the_input() -> None:
    assert STRICT.value(let({"x": 1}, ["{{ input.x }}", "{{ input }}"]), {})["config"] == [1, {"x": 1}]


def test_an_error_inside_says_at_which_key() -> None:
    with pytest.raises(CannotEvaluate, match=r"^params.q: 'nobody' is not defined"):
        value(let({}, {"params": {"q": "{{ nobody }}"}}))


@pytest.mark.parametrize(
    "template", [{"$let": {}}, {"$in": {}}, {"$let": {}, "$in": {}, "more": 1}, {"$let": 1, "$in": 2}]
)
def test_any_other_map_is_a_map(template: dict[str, Any]) -> None:
    assert value(template) == template


def test_the_paths_of_a_let_form_are_those_it_does_not_bind() -> None:
    inside = {"a": "{{ x }} {{ x.y }} {{ input.x }} {{ input.z }} {{ map.b }}", "b": "{{ input }}"}
    found = paths_of(let({"x": "{{ steps.fetch.rows }} {{ x }}"}, inside))
    assert found == (("steps", "fetch", "rows"), ("x",), ("input", "z"), ("map", "b"), ("input",))
