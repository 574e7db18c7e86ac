"""Statements in the chainable dialect: choices, loops, names, and what they make of a text."""

from typing import Any

import pytest

from refold.core.expressions import Aliased, CannotEvaluate
from refold.templates import Use, paths_of, problem_of, uses_of
from refold.templates.grammar import DEEPEST
from tests.templates.views import CHAINABLE, STRICT, value

CHOICES = [
    ("{% if n > 2 %}a{% endif %}", "a"),
    ("{% if n > 5 %}a{% endif %}", ""),
    ("{% if n > 5 %}a{% elif n > 2 %}b{% elif yes %}c{% else %}d{% endif %}", "b"),
    ("{% if n > 5 %}a{% elif n > 4 %}b{% else %}d{% endif %}", "d"),
    ("{% if nobody.x %}a{% else %}b{% endif %}", "b"),
    ("{% if nobody.x > 3 %}a{% else %}b{% endif %}", "b"),
    ("{% if empty %}a{% else %}b{% endif %}", "b"),
    ("{% if map %}{% if rows %}a{% endif %}b{% endif %}c", "abc"),
    ("{% if 'false' %}a{% endif %}", "a"),
    ("{% if n is defined and n in list %}a{% endif %}", "a"),
    ("{% if n -%} a {%- else %}b{% endif %}", "a"),
]
LOOPS = [
    ("{% for x in list %}{{ x }},{% endfor %}", "3,1,2,"),
    ("{% for x in (1, 2) %}{{ x }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}", "1212"),
    ("{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.length }} {% endfor %}", "103 213 323 "),
    ("{% for x in list %}{{ x }}{{ ', ' if not loop.last }}{% endfor %}", "3, 1, 2"),
    ("{% for x in list %}{% if loop.first %}<{% endif %}{{ loop.revindex }}{% endfor %}", "<321"),
    ("{% for x in list %}{{ loop.previtem }}-{{ loop.nextitem }} {% endfor %}", "-1 3-2 1- "),
    ("{% for x in empty %}a{% else %}b{{ n }}{% endfor %}", "b3"),
    ("{% for x in nobody.x %}a{% else %}b{% endfor %}", "b"),
    ("{% for x in nothing %}a{% endfor %}c", "c"),
    ("{% for x in list if x > 1 %}{{ loop.index }}{{ x }}/{{ loop.length }} {% endfor %}", "13/2 22/2 "),
    ("{% for x in list if x > 9 %}a{% else %}none{% endfor %}", "none"),
    ("{% for k, v in map.b.items() %}{{ k }}={{ v[0] }}{% endfor %}", "c=10"),
    ("{% for (k, v) in map | dictsort %}{{ k }}{% endfor %}", "abitems"),
    ("{% for k in map %}{{ k }}:{{ map[k] | length if map[k] is mapping }} {% endfor %}", "a: items: b:1 "),
    ("{% for c in text %}{{ c }}.{% endfor %}", "h.e.l.l.o."),
    (
        "{% for row in rows %}{% for k in row %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
        "1231;1232;1233;",
    ),
    ("{% for x in range(3) %}{{ x }}{% endfor %}", "012"),
    ("{% for row in rows | selectattr('ok') %}{{ row.id }}{% endfor %}", "13"),
    ("{% for g in rows | groupby('tag') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}", "x2y1"),
    ("{% for tag, some in rows | groupby('tag') %}{{ tag }}{{ some[0].id }}{% endfor %}", "x1y2"),
    ("{% for a in list %}{% for b in list if b < a %}{{ a }}{{ b }} {% endfor %}{% endfor %}", "31 32 21 "),
    ("{% for n in list %}{{ n }}{% endfor %}{{ n }}", "3123"),
]
NAMES = [
    ("{% set x = n * 2 %}{{ x }}", "6"),
    ("{% set x = 1 %}{% set x = x + 1 %}{{ x }}", "2"),
    ("{% set x, y = 1, 2 %}{{ x }}{{ y }}", "12"),
    ("{% set x = [1, {'a': 2}] %}{{ x[1].a }}{{ x | length }}", "22"),
    ("{% set x %}a{{ n }}{% if yes %}b{% endif %}{% endset %}{{ x }}{{ x | upper }}", "a3bA3B"),
    ("{% set x = map %}{{ x.items }}{{ x.b.c[1] }}", "data20"),
    ("{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "1"),
    ("{% for y in list %}{% set x = y %}{{ x }}{% endfor %}{{ x is defined }}", "312False"),
    ("{% set x = 'a' %}{% for y in list %}{% set x = x ~ y %}{{ x }} {% endfor %}{{ x }}", "a3 a1 a2 a"),
    ("{% set x = nobody.y %}{{ x is defined }}{{ x.z }}{{ x | default('-') }}", "False-"),
    ("{% set x = nothing %}{{ x is defined }}{{ x is none }}", "TrueTrue"),
    ("{% set s = namespace(t=0) %}{% for x in list %}{% set s.t = s.t + x %}{% endfor %}{{ s.t }}", "6"),
    ("{% set s = namespace(t=[]) %}{% for x in list %}{% set s.t = s.t + [x] %}{% endfor %}{{ s.t }}", "[3,1,2]"),
    ("{% set s = namespace() %}{% set s.a = 1 %}{% set u = s %}{% set s.a = 2 %}{{ s.a }}{{ u.a }}", "21"),
]
TEXTS = [
    ("a  {%- if yes -%}  b  {%- endif -%}  c", "abc"),
    ("a  {% if yes %}  b  {% endif %}  c", "a    b    c"),
    ("a\n{%- for x in list %}\n{{ x }}\n{%- endfor %}\nb", "a\n3\n1\n2\nb"),
    ("{%+ if yes +%} a {% endif %}", " a "),
    ("{% raw %}{{ n }}{% if %}{% endraw %}{{ n }}", "{{ n }}{% if %}3"),
    ("a {%- raw -%}  {{ n }}  {%- endraw -%}  b", "a{{ n }}b"),
    ("{% raw %}{% endraw %}{{ n }}", "3"),
    ("{# {% if %} #}{% if yes %}a{# b #}c{% endif %}", "ac"),
    ("a {#- b -#} c{% if yes %}{% endif %}", "ac"),
    ("{% if yes %}{{ yes }} {{ nothing }} {{ list }} {{ map.b }}{% endif %}", 'True  [3,1,2] {"c":[10,20]}'),
    ("{% if yes %}{{ template }}{% endif %}", "{{ 7 * 7 }}"),
    (
        "select {% for x in list %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %} from t",
        "select 3, 1, 2 from t",
    ),
    ("{% if '%}' == '%}' %}a{% endif %}", "a"),
    ("100 {% of {{ n }}", "100 {% of 3"),
]
EVERY = [*CHOICES, *LOOPS, *NAMES, *TEXTS]


@pytest.mark.parametrize(("template", "expected"), EVERY, ids=[each[0][:60] for each in EVERY])
def test_statements_make_a_text(template: str, expected: str) -> None:
    assert value(template, "chainable") == expected


@pytest.mark.parametrize(
    "template", ["{% if yes %}{{ n }}{% endif %}", "{% set x = n %}{{ x }}", "{% raw %}3{% endraw %}"]
)
def test_a_text_with_statements_is_a_text_even_if_only_a_number_is_left(template: str) -> None:
    assert value(template, "chainable") == "3"


def test_a_comment_is_no_statement() -> None:
    assert value("{# n #}{{ n }}", "chainable") == 3


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for x in n %}{% endfor %}", "a number is not a list to go through (column 13 of"),
        ("a\n {% for k, v in rows %}{% endfor %}", "a map cannot be unpacked into 2 names (line 2, column 2"),
        ("{% for a, b in [[1, 2, 3]] %}{% endfor %}", "a list of 3 cannot be unpacked into 2 names"),
        ("{% set a, b = 5 %}", "a number cannot be unpacked into 2 names"),
        ("{% set a.b = 5 %}", "'a' is not made by `namespace(…)`"),
        ("{% set map.a = 5 %}", "'map' is not made by `namespace(…)`"),
        ("{% set a = {} %}{% set a.b = 5 %}", "'a' is not made by `namespace(…)`"),
        ("{% if n + text %}{% endif %}", "`+`: a number and a text do not go together (column 7 of"),
        ("{% for x in list %}{{ nobody + x }}{% endfor %}", "'nobody' is not defined (column 23 of"),
        ("{% set x = nobody %}{{ x + 1 }}", "`+`: 'x' is not defined"),
    ],
)
def test_what_has_no_value_is_told_with_its_place(template: str, message: str) -> None:
    assert problem_of(template, "chainable") is None
    with pytest.raises(CannotEvaluate) as error:
        value(template, "chainable")
    assert message in str(error.value)


BROKEN = [
    ("{% if %}{% endif %}", "the end stands where a value should be", 1, 7),
    ("{% if n %}", "`{% if %}` is not closed by `{% endif %}`", 1, 1),
    ("a\n{% for x in y %}{% if x %}{% endif %}", "`{% for %}` is not closed by `{% endfor %}`", 2, 1),
    ("{% set x %}", "`{% set %}` is not closed by `{% endset %}`", 1, 1),
    ("{% raw %}", "`{% raw %}` is not closed by `{% endraw %}`", 1, 1),
    ("{% if n %}{% endfor %}", "`{% endfor %}` has nothing to belong to", 1, 11),
    ("{% else %}", "`{% else %}` has nothing to belong to", 1, 1),
    ("{% if n %}{% else %}{% elif n %}{% endif %}", "`{% elif %}` has nothing to belong to", 1, 21),
    ("{% for x of y %}{% endfor %}", "`of` stands where `in` should be", 1, 10),
    ("{% for 1 in y %}{% endfor %}", "`1` stands where a name should be", 1, 8),
    ("{% for in in y %}{% endfor %}", "`in` stands where a name should be", 1, 8),
    ("{% for x in y recursive %}{% endfor %}", "`recursive` stands where an operator or the end should be", 1, 15),
    ("{% set true = 1 %}", "`true` stands where a name should be", 1, 8),
    ("{% set x 1 %}", "`1` stands where `=` or the end should be", 1, 10),
    ("{% set x, y %}{% endset %}", "a block of text gets one name", 1, 1),
    ("{% endif x %}", "`{% endif %}` has nothing to belong to", 1, 1),
    ("{% if x %}{% endif x %}", "`x` stands where an operator or the end should be", 1, 20),
    ("{% if x | uper %}{% endif %}", "did you mean 'upper'?", 1, 11),
    ("{% 1 %}", "`1` stands where the name of a statement should be", 1, 4),
    ("{% if 'a %}", "this text is not closed", 1, 7),
    ("{% fro x in y %}{% endfor %}", "there is no statement 'fro'; did you mean 'for'?", 1, 1),
    (
        "{% if a %}" * (DEEPEST + 1) + "{% endif %}" * (DEEPEST + 1),
        f"at most {DEEPEST} deep",
        1,
        1 + 10 * (DEEPEST - 1),
    ),
    ("{% set x = 1 %}" * 1001, "at most 1000 expressions", 1, 15001),
]


@pytest.mark.parametrize(("text", "message", "line", "column"), BROKEN, ids=[broken[0][:24] for broken in BROKEN])
def test_what_is_no_statement_is_told_with_its_place(text: str, message: str, line: int, column: int) -> None:
    problem = problem_of(text, "chainable")
    assert problem is not None
    assert message in problem.message
    assert (problem.line, problem.column) == (line, column)
    with pytest.raises(CannotEvaluate, match="column"):
        value(text, "chainable")


@pytest.mark.parametrize(
    "statement",
    [
        "macro m()", "include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'", "block b", "call m()",
        "filter upper", "with x = 1", "do x", "autoescape true", "trans", "break", "continue",
    ],
)  # fmt: skip
def test_statements_that_are_not_there_are_named(statement: str) -> None:
    problem = problem_of("{% " + statement + " %}", "chainable")
    assert problem is not None
    assert f"there is no statement {statement.split()[0]!r}" in problem.message
    assert "there are `if`, `for`, `set`, `raw`" in problem.message


def test_the_dialect_of_refold_keeps_to_expressions() -> None:
    for text in ("{% if n %}{% endif %}", "{% set x = 1 %}", "{% raw %}a{% endraw %}"):
        with pytest.raises(CannotEvaluate, match="has no place here: there are only expressions"):
            STRICT.value(text, {"n": 1})


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("{% if a.b %}{{ c.d }}{% elif e %}{{ f }}{% else %}{{ g }}{% endif %}", ["a.b", "c.d", "e", "f", "g"]),
        ("{% for x in a.b %}{{ x.c }}{{ loop.index }}{{ d.e }}{% else %}{{ f }}{% endfor %}", ["a.b", "d.e", "f"]),
        ("{% for x in a.b %}{% endfor %}{{ x.y }}{{ loop.z }}", ["a.b", "x.y", "loop.z"]),
        ("{% for x in a if x.ok and b.ok %}{% endfor %}", ["a", "b.ok"]),
        ("{% for x in x.y %}{{ x.z }}{% endfor %}", ["x.y"]),
        ("{% for x in a %}{% for y in x.b %}{{ y.c }}{{ x.d }}{% endfor %}{% endfor %}", ["a"]),
        ("{% for k, v in a.b.items() %}{{ k }}{{ v.x }}{% endfor %}", ["a.b"]),
        ("{% for x in a | selectattr('ok') %}{{ x.id }}{% endfor %}", ["a"]),
        ("{% set x = a.b %}{{ x.c }}", ["a.b"]),
        ("{{ x.c }}{% set x = a.b %}{{ x.d }}", ["x.c", "a.b"]),
        ("{% set x = x.y %}{{ x }}", ["x.y"]),
        ("{% set x %}{{ a.b }}{% endset %}{{ x }}", ["a.b"]),
        ("{% if a %}{% set x = 1 %}{% endif %}{{ x.y }}", ["a", "x.y"]),
        ("{% if a %}{% set x = 1 %}{% else %}{% set x = b %}{% endif %}{{ x.y }}", ["a", "b"]),
        ("{% for y in a %}{% set x = y %}{% endfor %}{{ x.y }}", ["a", "x.y"]),
        ("{% set s = namespace(n=a.b) %}{% set s.n = s.n + c %}{{ s.n }}", ["a.b", "c"]),
        ("{% raw %}{{ a }}{% endraw %}", []),
        ("{% if a %}", []),
    ],
)
def test_paths_are_those_that_no_statement_binds(text: str, paths: list[str]) -> None:
    expected = [tuple(path.split(".")) for path in paths]
    assert list(paths_of(text)) == expected
    assert [use.path for use in uses_of(text, "chainable")] == expected


def test_a_use_inside_a_statement_has_its_place() -> None:
    assert uses_of("{% if a %}\n {{ b.c }}{% endif %}", "chainable") == (
        Use(("a",), 1, 7, True),
        Use(("b", "c"), 2, 5, True),
    )


def test_aliases_can_be_read_through_names() -> None:
    view = {"page": Aliased({"n": 1}, {"status": "ok"}), "pages": [Aliased({"n": 2}, {"status": "no"})]}
    assert CHAINABLE.value("{% for p in pages %}{{ p.status }}{{ p | tojson }}{% endfor %}", view) == 'no{"n":2}'
    assert CHAINABLE.value("{% if page.status == 'ok' %}{{ page }}{% endif %}", view) == '{"n":1}'


def test_a_key_goes_before_a_method_also_in_loops_and_filters() -> None:
    view = {"start": {"items": [1, 2]}, "rows": [{"keys": "k", "values": [7]}]}
    assert CHAINABLE.value("{{ start.items }}", view) == [1, 2]
    assert CHAINABLE.value("{% for x in start.items %}{{ x }}{% endfor %}", view) == "12"
    assert CHAINABLE.value("{% for r in rows %}{{ r.keys }}{{ r.values[0] }}{% endfor %}", view) == "k7"
    assert CHAINABLE.value("{{ start.items | sum + (rows | map(attribute='values') | first | first) }}", view) == 10


def test_a_method_that_is_called_is_one_whatever_keys_the_map_has() -> None:
    view = {"with": {"items": 1}, "without": {"a": 1}}
    assert CHAINABLE.value("{{ with.items() }}", view) == [["items", 1]]
    assert CHAINABLE.value("{{ without.items() }}", view) == [["a", 1]]
    assert CHAINABLE.value("{% for k, v in with.items() %}{{ k }}{{ v }}{% endfor %}", view) == "items1"
    assert CHAINABLE.value("{{ without.items }}", view) is None


def test_what_is_read_is_kept_and_gives_the_same_each_time() -> None:
    text = "{% set x = n %}{% for y in range(x) %}{{ y }}{% endfor %}"
    results: list[Any] = [CHAINABLE.value(text, {"n": n}) for n in (1, 2, 3)]
    assert results == ["0", "01", "012"]
