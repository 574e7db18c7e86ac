"""What a hostile template comes to: it sees plain data only, changes nothing, and makes no more than it may."""

from typing import Any, Literal

import pytest

from refold.core.codec import DEPTH_LIMIT
from refold.core.expressions import CannotEvaluate
from refold.templates.data import LARGEST
from refold.templates.evaluation import Evaluation
from refold.templates.rendering import evaluated
from refold.templates.text import read
from tests.templates.measuring import measured
from tests.templates.views import CHAINABLE, STRICT, digest, value, world

Undefined = Literal["strict", "chainable"]
BIG = "x" * 100_000
LARGE = "y" * (LARGEST - 1)

ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ map.__class__ }}",
    "{{ map['__class__'] }}",
    "{{ map | attr('__class__') }}",
    "{{ list.__len__() }}",
    "{{ text.__init__.__globals__ }}",
    "{{ text.format_map(map) }}",
    "{{ text | attr('format') }}",
    "{{ [text] | map('attr', '__class__') }}",
    "{{ [map] | map(attribute='__class__') }}",
    "{{ [map] | map(attribute='pop') }}",
    "{{ [list] | map(attribute='append') }}",
    "{{ '{0.__class__}'.format(n) }}",
    "{{ '{0[a]}'.format(map) }}",
    "{{ '%(__class__)s' | format(a=1) }}",
    "{{ lipsum.__globals__ }}",
    "{{ lipsum(n=100000) }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ cycler('a') }}",
    "{{ joiner() }}",
    "{{ namespace(a=1) }}",
    "{{ debug() }}",
    "{{ self }}",
    "{{ self._TemplateReference__context }}",
    "{{ config }}",
    "{{ request.application.__globals__ }}",
    "{{ _ }}",
    "{{ _[0] }}",
    "{{ _(0) }}",
    "{{ _.view }}",
    "{{ caller() }}",
    "{{ super() }}",
    "{{ loop.cycle }}",
    "{{ now() }}",
    "{{ [1, 2] | random }}",
    "{{ text | pprint }}",
    "{{ text | safe }}",
    "{{ range | string }}",
    "{{ obj.boom() }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends '/etc/passwd' %}",
    "{% from 'x' import y %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set x = list.append(1) %}",
    "{% do list.append(1) %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}",
    "{% set x = 'a' %}{% for i in range(30) %}{% set x = x ~ x %}{% endfor %}",
    "{% raw %}{{ n }}{% endraw %}",
]

HARMLESS = (None, [None], "", "hello", "{{ n }}")  # what the chainable dialect may make of some of these

CHANGES = [
    "{{ list.append(1) }}",
    "{{ list.clear() }}",
    "{{ list.sort() }}",
    "{{ map.update({'a': 2}) }}",
    "{{ map.pop('a') }}",
    "{{ map.setdefault('z', 1) }}",
    "{{ map.b.c.append(1) }}",
    "{{ rows[0].update(a=1) }}",
    "{{ (list | attr('append'))(1) }}",
    "{{ map.pop }}",
    "{{ list.append }}",
    "{{ rows | map('pop', 'id') }}",
]

GROWTH = [
    "{{ 'a' * 10 ** 9 }}",
    "{{ 'a' * 10 ** 8 }}",
    "{{ 'a' * 1048577 }}",
    "{{ 100000000 * 'a' }}",
    "{{ [0] * 10 ** 9 }}",
    "{{ [0] * 10 ** 7 }}",
    "{{ [[0] * 100000] * 100000 }}",
    "{{ 10 ** 1000000000 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ range(100001) }}",
    "{{ range(10 ** 18) }}",
    "{{ range(-(10 ** 9), 10 ** 9) | length }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ '%*d' | format(999999999, 1) }}",
    "{{ '%.999999999f' | format(1.5) }}",
    "{{ ('%(a)s' * 1000) | format(a=big) }}",
    "{{ 'a' | indent(999999999) }}",
    "{{ ('\n' * 100000) | indent(1000) }}",
    "{{ big | replace('x', big) }}",
    "{{ big | replace('', big) }}",
    "{{ (big | list) | join(big) }}",
    "{{ rows | join(large) }}",
    "{{ large ~ large }}",
    "{{ large + large }}",
    "{{ 'a' ~ large ~ 'b' }}",
    "{{ [large, large, large] | tojson }}",
    "{{ [large, large, large] | string }}",
    "{{ [big] * 100 }}",
    "{{ [rows] * 50000 }}",
    "{{ large | list }}",
    "{{ large | split('y') }}",
    "{{ large | upper | split('Y') | length }}",
    "{{ [1] | batch(999999999, 0) }}",
    "{{ [1] | slice(999999999) }}",
    "{{ [1] | slice(100000, 0) | map('string') }}",
    "{{ range(100000) | map('string') | map('indent', 1000, true) }}",
    "{{ range(100000) | map('replace', '', big) }}",
    "{{ range(20000) | map('tojson', 16) | map('truncate', 5) | join(big) }}",
    "{{ [" + "large | upper, " * 20 + "] | length }}",
    "{{ [" + "range(100000) | list, " * 60 + "] | length }}",
    "{{ " + " + ".join(["(range(100000) | sum)"] * 60) + " }}",
    "{{ range(100000)" + " | sort" * 20 + " | length }}",
    "{{ range(100000) | zip(range(100000)) | zip(range(100000)) | tojson }}",
    "{{ ('[' * 900000) | fromjson }}",
    "{{ ('[0' ~ ',0' * 400000 ~ ']') | fromjson }}",
    "{{ large }}{{ large }}",
    "{{ big }}" * 11,
    "{{ {'a': large, 'b': large} }}",
    "{{ [[large]] * 2 }}",
    "{{ ([([([([([1] * 99)] * 99)] * 99)] * 99)] * 99) == ([([([([([1] * 99)] * 99)] * 99)] * 99)] * 99) }}",
    "{{ [[[['a'] * 9] * 9999] * 9999] | string }}",
    "{{ center('a', 999999999) }}",
    "{{ 'a' | center(999999999) }}",
]
METHOD_GROWTH = [
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '{:.999999999f}'.format(1.5) }}",
    "{{ ('{0}' * 1000).format(big) }}",
    "{{ big.replace('x', big) }}",
    "{{ big.join(big | list) }}",
    "{{ big.zfill(999999999) }}",
    "{{ big.center(999999999) }}",
    "{{ big.ljust(999999999) }}",
    "{{ big.expandtabs(999999999) }}",
    "{{ big.split('x') * 100 }}",
    "{{ large.splitlines() * 1000000 }}",
]


class Boom:
    """A host object, which has no business in a template."""

    def boom(self) -> str:
        raise AssertionError("called")


def is_refused(template: str, undefined: Undefined) -> bool:
    """Without a change to anything, and without taking long or much."""
    view = world() | {"big": BIG, "large": LARGE}
    before = digest(view)

    def work() -> None:
        with pytest.raises(CannotEvaluate):
            (STRICT if undefined == "strict" else CHAINABLE).value(template, view)

    taken = measured(work)
    assert taken.is_little(), taken
    return digest(view) == before


@pytest.mark.parametrize("template", ESCAPES)
def test_a_template_sees_plain_data_only(template: str) -> None:
    for undefined in ("strict", "chainable"):
        try:
            result = value(template, undefined, obj=1)
        except CannotEvaluate as error:
            assert "object at" not in str(error) and "<" not in str(error).replace("`<`", "")
        else:
            assert undefined == "chainable" and result in HARMLESS


def test_a_host_object_is_no_value() -> None:
    for template in (
        "{{ obj }}",
        "{{ [obj] }}",
        "{{ obj or 1 }}",
        "{{ obj.boom() }}",
        "{{ [obj] | first }}",
        "a{{ obj }}",
    ):
        with pytest.raises(CannotEvaluate, match=r"a Boom is not a value|is not a map|no method"):
            STRICT.value(template, {"obj": Boom()})


@pytest.mark.parametrize("template", CHANGES)
@pytest.mark.parametrize("undefined", ["strict", "chainable"])
def test_a_template_changes_nothing(template: str, undefined: Undefined) -> None:
    view = world()
    before = digest(view)
    try:
        result = (STRICT if undefined == "strict" else CHAINABLE).value(template, view)
    except CannotEvaluate:
        result = None
    assert result is None
    assert digest(view) == before


@pytest.mark.parametrize("template", GROWTH, ids=[template[:60] for template in GROWTH])
def test_what_would_grow_without_bounds_is_refused(template: str) -> None:
    assert is_refused(template, "strict")


@pytest.mark.parametrize("template", METHOD_GROWTH)
def test_what_would_grow_in_a_method_is_refused(template: str) -> None:
    assert is_refused(template, "chainable")


def test_what_is_only_named_may_be_of_any_size() -> None:
    data = {"rows": ["x" * 100_000] * 50}
    assert STRICT.value("{{ data }}", {"data": data}) == data
    assert STRICT.value({"a": "{{ data.rows }}"}, {"data": data}) == {"a": data["rows"]}
    assert STRICT.truth("{{ data.rows }}", {"data": data}) is True


def test_what_was_there_before_may_come_out_once_though_an_expression_chose_it() -> None:
    rows = [{"ok": number % 2 == 0, "text": "x" * 1000} for number in range(4000)]
    assert len(STRICT.value("{{ rows | selectattr('ok') }}", {"rows": rows})) == 2000
    assert len(STRICT.value("{{ rows if rows else [] }}", {"rows": rows})) == 4000
    assert STRICT.value("{{ rows | length }}", {"rows": rows}) == 4000
    with pytest.raises(CannotEvaluate, match="more than 1 MiB"):
        STRICT.value("{{ [rows, rows] }}", {"rows": rows})
    with pytest.raises(CannotEvaluate, match="more than 1 MiB"):
        STRICT.value("{{ [rows[0:2000], rows] }}", {"rows": rows})


def test_a_text_of_a_mebibyte_is_made_and_no_more() -> None:
    assert len(STRICT.value("{{ 'a' * 1048576 }}", {})) == LARGEST
    assert len(STRICT.value("a{{ large }}", {"large": LARGE})) == LARGEST
    with pytest.raises(CannotEvaluate, match="more than 1 MiB"):
        STRICT.value("ab{{ large }}", {"large": LARGE})


def test_a_hundred_thousand_numbers_are_a_loop() -> None:
    assert STRICT.value("{{ range(100000) }}", {}) == list(range(100_000))


def test_every_element_that_is_read_has_its_price() -> None:
    many = list(range(50_000))
    deep = [[number] * 1000 for number in range(50)]
    for template in ("{{ [" + "many | max, " * 12 + "] }}", "{{ [" + "deep | max, " * 12 + "] }}"):
        with pytest.raises(CannotEvaluate, match="handles more than 8 MiB"):
            STRICT.value(template, {"many": many, "deep": deep})
    assert STRICT.value("{{ [many | max, deep | min | length] }}", {"many": many, "deep": deep}) == [49_999, 1000]


def test_every_new_list_has_its_price() -> None:
    with pytest.raises(CannotEvaluate, match="handles more than 8 MiB"):
        STRICT.value("{{ [" + "range(50000), " * 30 + "] | length }}", {})


def test_every_part_of_an_expression_has_its_price() -> None:
    text = "{{ " + " + ".join(["1"] * 2000) + " }}"
    expression = read(text, lenient=False).whole
    assert expression is not None
    evaluation = Evaluation({}, lenient=False)
    with pytest.raises(CannotEvaluate, match="handles more than 8 MiB"):
        for _ in range(600):
            evaluated(evaluation, text, expression, lambda value, is_path: value)


def test_values_nested_too_deeply_are_not_ordered() -> None:
    deep: list[Any] = []
    for _ in range(DEPTH_LIMIT + 1):
        deep = [deep]
    with pytest.raises(CannotEvaluate, match="nested deeper than"):
        STRICT.value("{{ [deep, deep] | max | length }}", {"deep": deep})


def test_numbers_with_one_hash_are_found_as_quickly_as_others() -> None:
    """All multiples of this number have the same hash, so that a set of them takes time with the square of its size."""
    template = "{{ range(0, 2305843009213693951 * 90000, 2305843009213693951) | unique | length }}"
    taken = measured(lambda: STRICT.value(template, {}))
    assert taken.is_little(), taken
    assert STRICT.value(template, {}) == 90_000


@pytest.mark.parametrize("template", ["{{ [1] | sort(1) }}", "{{ [1] | sort(by=1) }}", "{{ 'a' | upper(1) }}"])
def test_arguments_that_do_not_fit_are_refused_in_words_that_name_no_function(template: str) -> None:
    with pytest.raises(CannotEvaluate, match=r"the filter '\w+': (too many positional|got an unexpected keyword) arg"):
        STRICT.value(template, {})
