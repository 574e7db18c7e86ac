"""What hostile statements come to: bounded time, bounded memory, and a world that is as it was before."""

import re

import pytest

from refold.core.expressions import CannotEvaluate
from refold.templates.data import LARGEST
from refold.templates.statements import MOST_TURNS
from tests.templates.measuring import measured
from tests.templates.test_bounds import CHANGES, ESCAPES, GROWTH, METHOD_GROWTH, is_refused
from tests.templates.views import CHAINABLE, digest, value, world

TURNS = "{% for i in range(99999) %}"
SPACE = "{% set s = namespace(x=[1], t='a') %}"
ENDLESS = [
    TURNS + TURNS + "{{ i }}{% endfor %}{% endfor %}",
    TURNS + "{% endfor %}" + TURNS + "{% endfor %}",
    "{% for i in range(20) %}" * 32 + "{% endfor %}" * 32,
    "{% for a in range(9999) %}{% for b in range(9999) %}{% set x = 1 %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) if i in range(99999) %}{% endfor %}",
    "{% for i in range(90000) if i %}{% endfor %}",
    "{% for c in large %}{% endfor %}",
    TURNS + "{{ i + 1 }}{% endfor %}",
    TURNS + "{% if i > 5 and i < 7 %}{{ text }}{% endif %}{% endfor %}",
    TURNS + "{% if n %}" * 20 + "{% endif %}" * 20 + "{% endfor %}",
    TURNS + "{% if [" + "1," * 3000 + "] %}{% endif %}{% endfor %}",
    TURNS + "{% if " + "+".join(["n"] * 1500) + " %}{% endif %}{% endfor %}",
    TURNS + "{% if " + " and ".join(["n|string"] * 500) + " %}{% endif %}{% endfor %}",
    TURNS + "{% if deep == twin %}{% endif %}{% endfor %}",
    TURNS + "{% if deep < twin %}{% endif %}{% endfor %}",
    TURNS + "{% set x = deep | list %}{% endfor %}",
    TURNS + "{% set x = large ~ 'a' %}{% endfor %}",
    TURNS + "{% if large | upper %}{% endif %}{% endfor %}",
    TURNS + "{% if rows | sort(attribute='id') %}{% endif %}{% endfor %}",
    TURNS + "{% if deep | tojson %}{% endif %}{% endfor %}",
]
GROWING = [
    TURNS + "{{ big }}{% endfor %}",
    TURNS + "{{ rows }}{% endfor %}",
    TURNS + "x" * 100 + "{% endfor %}",
    TURNS + "{% set x %}{{ big }}{% endset %}{% endfor %}",
    "{% set x %}" + TURNS + "{{ big }}{% endfor %}{% endset %}",
    "{% set x = 'a' %}" + "{% set x = x ~ x %}" * 30,
    "{% set x = 'a' %}" + "{% set x = x + x %}" * 30,
    "{% set x = 'a' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 30,
    "{% set x = [1] %}" + "{% set x = [x, x] %}" * 30 + "{{ x }}",
    "{% set x = [1] %}" + "{% set x = x + x %}" * 30,
    "{% set x = {'a': 1} %}" + "{% set x = {'a': x, 'b': x} %}" * 30 + "{{ x | tojson }}",
    "{% set x = [1] %}" + "{% set x = dict(a=x, b=[x]) %}" * 30 + "{{ x == x }}{{ x | string }}",
    SPACE + "{% for i in range(30) %}{% set s.t = s.t ~ s.t %}{% endfor %}",
    SPACE + "{% for i in range(30) %}{% set s.x = [s.x, s.x] %}{% endfor %}",
    SPACE + "{% for i in range(30) %}{% set s.x = s.x + s.x %}{% endfor %}",
    SPACE + "{% for i in range(30) %}{% set s.x = dict(a=s, b=s) %}{% endfor %}",
    SPACE + "{% for i in range(9999) %}{% set s.x = [s.x] %}{% endfor %}",
    SPACE + "{% for i in range(9999) %}{% set s.x = s %}{% endfor %}",
    SPACE + "{% for i in range(9999) %}{% set s.x = ([[s.x]] | list)[0] %}{% endfor %}",
    SPACE + TURNS + "{% set s.x = s.x + [i] %}{% endfor %}",
    SPACE + TURNS + "{% set s.t = s.t ~ 'abcdefgh' %}{% endfor %}",
]


@pytest.mark.parametrize("template", [*ENDLESS, *GROWING], ids=[template[:70] for template in [*ENDLESS, *GROWING]])
def test_statements_without_end_are_refused(template: str) -> None:
    deep = [[[number] * 1000 for number in range(100)]]
    twin = [[[number] * 1000 for number in range(100)]]
    view = world() | {"big": "x" * 100_000, "large": "y" * (LARGEST - 1), "deep": deep, "twin": twin}
    before = digest(view)

    def work() -> None:
        with pytest.raises(CannotEvaluate):
            CHAINABLE.value(template, view)

    taken = measured(work)
    assert taken.is_little(), taken
    assert digest(view) == before


@pytest.mark.parametrize("template", [*GROWTH[::4], *METHOD_GROWTH[::3]], ids=lambda template: template[:60])
def test_what_would_grow_in_an_expression_is_refused_in_statements_too(template: str) -> None:
    expression = re.sub(r"^\{\{|\}\}$", "", template)
    if "{{" not in expression:
        assert is_refused("{% set x =" + expression + "%}{{ x }}", "chainable")
        assert is_refused("{% for x in [1] %}{{" + expression + "}}{% endfor %}", "chainable")


@pytest.mark.parametrize("template", [each for each in (*ESCAPES, *CHANGES) if each.startswith("{{")])
def test_statements_see_plain_data_only_and_change_nothing(template: str) -> None:
    expression = template[2:-2]
    for text in (
        "{% set x =" + expression + "%}{{ x }}",
        "{% if" + expression + "%}{% endif %}",
        "{% for x in" + expression + "%}{{ x }}{% endfor %}",
        "{% for x in [1] if" + expression + "%}{% endfor %}",
        "{% set x = namespace(a=" + expression + ") %}{% set x.a =" + expression + "%}{{ x.a }}",
    ):
        try:
            result = value(text, "chainable", obj=1)
        except CannotEvaluate as error:
            assert "object at" not in str(error)
        else:
            assert result in ("", "[null]", "hello", '{"a":1}')


def test_a_hundred_thousand_turns_are_a_loop_and_no_more() -> None:
    text = "{% for i in range(count) %}{% endfor %}{% for i in range(1) %}{{ i }}{% endfor %}"
    assert CHAINABLE.value(text, {"count": MOST_TURNS - 1}) == "0"
    with pytest.raises(CannotEvaluate, match="more than 100,000 turns"):
        CHAINABLE.value(text, {"count": MOST_TURNS})


def test_a_text_of_a_mebibyte_is_made_and_no_more() -> None:
    text = "{% for i in range(count) %}" + "x" * 1024 + "{% endfor %}"
    assert len(CHAINABLE.value(text, {"count": 1024})) == LARGEST
    with pytest.raises(CannotEvaluate, match="more than 1 MiB"):
        CHAINABLE.value(text, {"count": 1025})


def test_a_name_holds_no_value_that_is_nested_too_deeply_or_too_large() -> None:
    with pytest.raises(CannotEvaluate, match="nested deeper than 200"):
        CHAINABLE.value("{% set x = [1] %}" + "{% set x = [x] %}" * 300, {})
    with pytest.raises(CannotEvaluate, match="handles more than 8 MiB"):
        CHAINABLE.value("{% set x = [1] %}" + "{% set x = [x, x] %}" * 30, {})


def test_to_ask_has_its_price_whatever_the_answer() -> None:
    with pytest.raises(CannotEvaluate, match="handles more than 8 MiB"):
        CHAINABLE.value("{% for i in range(40000) %}{{ i + 1 }}{% endfor %}", {})


def test_to_compare_has_its_price_for_each_element() -> None:
    deep, twin = [[[number] * 1000 for number in range(100)] for _ in range(2)]
    with pytest.raises(CannotEvaluate, match="handles more than 8 MiB"):
        CHAINABLE.value(
            "{% for i in range(50) %}{% if deep == twin %}{% endif %}{% endfor %}", {"deep": deep, "twin": twin}
        )
