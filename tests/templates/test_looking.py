"""What is known of a template before it is evaluated: what is wrong with it, and which paths it names."""

import subprocess
import sys

import pytest

from refold.core.expressions import CannotEvaluate
from refold.templates import TemplateProblem, Use, paths_of, problem_of, uses_of
from refold.templates.grammar import DEEPEST
from refold.templates.tokens import LONGEST_EXPRESSION
from tests.templates.views import STRICT, value

BROKEN = [
    ("{{ a", "`{{` is not closed by `}}`", 1, 1),
    ("ok\n  {{ a b }}", "`b` stands where an operator or the end should be", 2, 8),
    ("{{ }}", "the end stands where a value should be", 1, 4),
    ("{{ a | join(=b) }}", "`=` stands where a value should be", 1, 13),
    ("{{ a. }}", "the end stands where a name should be", 1, 7),
    ("{{ a.1 }}", "`1` stands where a name should be", 1, 6),
    ("{{ a[ }}", "this `[` is not closed", 1, 5),
    ("{{ {'a': 1 }}", "`{{` is not closed by `}}`", 1, 1),
    ("{{ a) }}", "`)` stands where an operator or the end should be", 1, 5),
    ("{{ a[] }}", "in the brackets stands one value", 1, 8),
    ("{{ a[1:2:3:4] }}", "in the brackets stands one value", 1, 15),
    ("{{ (a }} {{ b }}", "this `(` is not closed", 1, 4),
    ("{{ [a b] }}", "`b` stands where `,` or `]` should be", 1, 7),
    ("{{ {'a' 1} }}", "`1` stands where `:` should be", 1, 9),
    ("{{ {'a': 1 'b': 2} }}", "stands where `,` or `}` should be", 1, 12),
    ("{{ 'a }}", "this text is not closed", 1, 4),
    ("{{ 'a\\q' }}", "has no meaning in a text", 1, 6),
    ("{{ '\\ud800' }}", "has no meaning in a text", 1, 5),
    ("{{ a ? b }}", "'?' has no meaning here", 1, 6),
    ("{{ a + }}", "the end stands where a value should be", 1, 8),
    ("{{ a not b }}", "`b` stands where `in` should be", 1, 10),
    ("{{ 1 < 2 < 3 }}", "two values can be compared", 1, 4),
    ("{{ a | nope }}", "there is no filter 'nope'", 1, 8),
    ("{{ a | uper }}", "did you mean 'upper'?", 1, 8),
    ("{{ a | 1 }}", "`1` stands where the name of a filter should be", 1, 8),
    ("{{ a is nope }}", "there is no test 'nope'", 1, 9),
    ("{{ a is defnied }}", "did you mean 'defined'?", 1, 9),
    ("{{ rows | select('nope') }}", "there is no test 'nope'", 1, 11),
    ("{{ rows | selectattr('a', b) }}", "there is no test", 1, 11),
    ("{{ rows | map('sort') }}", "`map` takes the name of a filter for single values", 1, 11),
    ("{{ rows | map(a) }}", "`map` takes the name of a filter", 1, 11),
    ("{{ now() }}", "there is no function 'now'", 1, 4),
    ("{{ rang(3) }}", "did you mean 'range'?", 1, 4),
    ("{{ a.append(1) }}", "there is no method 'append'", 1, 12),
    ("{{ a.upper() }}", "there is no method 'upper', but a filter: `| upper`", 1, 11),
    ("{{ a.strip() }}", "there is no method 'strip'", 1, 11),
    ("{{ a.gett('x') }}", "did you mean 'get'?", 1, 10),
    ("{{ a()() }}", "only functions and methods can be called", 1, 7),
    ("{{ 'a'() }}", "only functions and methods can be called", 1, 7),
    ("{{ (a | first)() }}", "only functions and methods can be called", 1, 15),
    ("{{ dict(a=1, 2) }}", "arguments without a name come first", 1, 14),
    ("{{ dict(if=1) }}", "stands where the name of an argument should be", 1, 9),
    ("{{ dict(**a) }}", "`**` stands where a value should be", 1, 9),
    ("{{ range(*a) }}", "`*` stands where a value should be", 1, 10),
    ("{{ 99999999999999999999999999 }}", "a number as large as this", 1, 4),
    ("{{ 1e999 }}", "a number as large as this", 1, 4),
    ("{{ if }}", "`if` stands where a value should be", 1, 4),
    ("{% set x = 1 %}{{ x }}", "`{% … %}` has no place here", 1, 1),
    ("a\n{% for x in y %}{% endfor %}", "`{% … %}` has no place here", 2, 1),
    ("{{ " + "(" * (DEEPEST + 1) + "a" + ")" * (DEEPEST + 1) + " }}", "at most 32 deep", 1, 4 + DEEPEST),
    ("{{ a" + " | upper" * (DEEPEST + 1) + " }}", "at most 32 deep", 1, 8),
    ("{{ '" + "a" * LONGEST_EXPRESSION + "' + 'b' }}", "the expression is too long", 1, 1),
    ("{{ a }}" * 1001, "at most 1000 expressions", 1, 7001),
]


@pytest.mark.parametrize(("text", "message", "line", "column"), BROKEN, ids=[broken[0][:24] for broken in BROKEN])
def test_what_is_no_template_is_told_with_its_place(text: str, message: str, line: int, column: int) -> None:
    problem = problem_of(text)
    assert problem is not None
    assert message in problem.message
    assert (problem.line, problem.column) == (line, column)
    with pytest.raises(CannotEvaluate) as error:
        value(text)
    assert problem.message in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "plain", "{{ a }}", "{# c #}", "{# open", "{% open", "}} %}", "{{ a }} {{ b | int }}"]
)
def test_what_is_a_template_has_no_problem(text: str) -> None:
    assert problem_of(text) is None


def test_somebody_who_wanted_braces_is_told_how_to_write_them() -> None:
    for text in ("{{.Names}}", "a {{ b"):
        problem = problem_of(text)
        assert isinstance(problem, TemplateProblem)
        assert problem.hint == "to write `{{` itself, write `{{ '{{' }}`"
    assert value("{{ '{{' }}.Names}}") == "{{.Names}}"


def test_dialects_differ_in_their_methods() -> None:
    assert problem_of("{{ a.upper() }}") is not None
    assert problem_of("{{ a.upper() }}", "chainable") is None
    assert problem_of("{{ a.append(1) }}", "chainable") is not None


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("plain", []),
        ("{{ 1 + 1 }}", []),
        ("{{ a }}", ["a"]),
        ("{{ a.b.c }} {{ a.b.c }}", ["a.b.c"]),
        ("{{ a['b'].c }}", ["a.b.c"]),
        ("{{ a['b c'].d }}", ["a.b c.d"]),
        ("{{ a.b[0].c }}", ["a.b"]),
        ("{{ a.b[c.d].e }}", ["a.b", "c.d"]),
        ("{{ a.items() }}", ["a"]),
        ("{{ a.b.get(c, d) }}", ["c", "d", "a.b"]),
        ("{{ a.items }}", ["a.items"]),
        ("{{ a | default(b.c) }}", ["b.c", "a"]),
        ("{{ a.b if c.d else e.f }}", ["a.b", "c.d", "e.f"]),
        ("{{ a is defined and b in [c, {d: e}] }}", ["a", "b", "c", "d", "e"]),
        ("{{ a | map('replace', b, c) | join(d) }}", ["d", "b", "c", "a"]),
        ("{{ (a | first).x.y }}", ["a"]),
        ("{{ a[b:c] }}", ["a", "b", "c"]),
        ("{{ range(a) | length + dict(x=b).x }}", ["a", "b"]),
        ("{{ broken", []),
    ],
)
def test_every_path_that_is_read_is_named(text: str, paths: list[str]) -> None:
    expected = [tuple(path.split(".")) for path in paths]
    assert list(paths_of(text)) == expected
    assert list(STRICT.paths({"k": [text, 1, None]})) == expected


def test_uses_say_where_a_path_stands_and_whether_it_may_lead_nowhere() -> None:
    assert uses_of("{{ a.b }}\n {{ c | default(d) }} {{ e is defined and f[0].g }}") == (
        Use(("a", "b"), 1, 4, False),
        Use(("c",), 2, 5, True),
        Use(("d",), 2, 17, True),
        Use(("e",), 2, 26, True),
        Use(("f",), 2, 43, False),
    )
    assert uses_of("{{ broken") == ()


def test_to_look_at_templates_needs_nothing_that_evaluates_texts() -> None:
    code = "import sys, refold.templates as t; t.problem_of('{{ a | upper }}'); "
    code += "assert 'refold.templates.language' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
