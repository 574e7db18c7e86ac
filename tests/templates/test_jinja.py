"""What the chainable dialect has and does in the manner of Jinja."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from refold.templates.filters import FILTERS
from refold.templates.jinja import MORE_FILTERS, MORE_TESTS
from tests.templates.test_filters import USES
from tests.templates.views import value

OF_JINJA = {
    "center": ("'ab' | center(6)", "  ab  "),
    "e": ("'<a & b>' | e", "&lt;a &amp; b&gt;"),
    "escape": ("'\\'\"' | escape", "&#39;&#34;"),
    "filesizeformat": ("[1, 999, 1500, 2500000] | map('filesizeformat')", ["1 Byte", "999 Bytes", "1.5 kB", "2.5 MB"]),
    "get": ("map | get('z', map | get('a'))", 1),
    "int": ("'0x1f' | int(0, 16) + ('x' | int) + ('7' | int)", 38),
    "safe": ("'<a>' | safe", "<a>"),
    "striptags": ("'<p>a  <b>b</b> &amp; c<!-- d > --></p> <e' | striptags", "a b & c <e"),
    "truncate": ("'one two three' | truncate(10) ~ ('one two three' | truncate(7, leeway=0))", "one two threeone..."),
    "wordcount": ("'one two, three' | wordcount", 3),
    "wordwrap": ("'aaa bbb ccc\nd' | wordwrap(7)", "aaa bbb\nccc\nd"),
}

IN_CHAINABLE = [
    ("yes ~ '/' ~ (not yes)", "True/False"),
    ("[yes, n] | join(',')", "True,3"),
    ("yes | string", "True"),
    ("[yes] | string", "[true]"),
    ("'%s %03d' % (text, n)", "hello 003"),
    ("'%d%%' % n", "3%"),
    ("2048 | filesizeformat(true)", "2.0 KiB"),
    ("'3.5' | int", 3),
    ("rows | groupby('tag') | map(attribute='grouper')", ["x", "y"]),
    ("(rows | groupby('tag'))[0].list | map(attribute='id')", [1, 3]),
    ("rows | groupby('tag') | map('first')", ["x", "y"]),
    ("rows | selectattr('id', '>', 1) | map(attribute='id')", [2, 3]),
    ("rows | rejectattr('id', 'greaterthan', 1) | map(attribute='id')", [1]),
    ("list | select('==', 1)", [1]),
    ("rows | selectattr('nope', 'defined')", []),
    ("rows | selectattr('nope', '<', 1)", []),
    ("n is sameas 3 and yes is sameas true and not n is sameas '3'", True),
    ("yes is sameas 1", False),
    ("rows.0.id + map.b.c.1", 21),
    ("'a b' | wordwrap(1, wrapstring='|')", "a|b"),
    ("[{'a': [1, {'b': 2}]}] == [{'a': [1, {'b': 2}]}]", True),
    ("[{'a': [1, {'b': 2}]}] == [{'a': [1, {'b': 3}]}]", False),
    ("[1, [2]] < [1, [3]] and [1] < [1, 2] and not [2] < [1, 2]", True),
]

WRONG_IN_CHAINABLE = [
    ("text | center(100000)", "the filter 'center': a width is between 0 and 1000"),
    ("text.zfill('a')", "`.zfill()`: a width is between 0 and 1000"),
    ("map | filesizeformat", "the filter 'filesizeformat': a map is not a text"),
    ("text | filesizeformat", "the filter 'filesizeformat': a text is not a size"),
    ("[1, 2] < [1, 'a']", "`<`: a number cannot be compared with a text"),
    ("'%d' % text", "`%`"),
    ("text | xmlattr", "there is no filter 'xmlattr'"),
]


@pytest.mark.parametrize("name", sorted(OF_JINJA))
def test_filters_that_only_jinja_has_work_in_the_chainable_dialect(name: str) -> None:
    expression, expected = OF_JINJA[name]
    assert name in expression
    assert value(f"{{{{ {expression} }}}}", "chainable") == expected


def test_what_jinja_has_besides_is_in_the_chainable_dialect_alone() -> None:
    changed = {name for name in MORE_FILTERS if MORE_FILTERS[name] is not FILTERS.get(name)}
    assert changed == set(OF_JINJA)
    for name in sorted(set(MORE_FILTERS) - set(FILTERS)):
        with pytest.raises(CannotEvaluate, match="there is no filter"):
            value(f"{{{{ text | {name} }}}}")
    for name in (*MORE_TESTS, "sameas"):
        with pytest.raises(CannotEvaluate, match="there is no test"):
            value(f"{{{{ list | select('{name}', 1) }}}}")
    assert {name: value(f"{{{{ 2 is {name} 1 }}}}", "chainable") for name in ("greaterthan", "lessthan")} == {
        "greaterthan": True,
        "lessthan": False,
    }


@pytest.mark.parametrize("name", sorted(set(USES) - set(OF_JINJA) - {"join", "string"}))
def test_every_other_filter_is_the_same_in_both_dialects(name: str) -> None:
    expression, expected = USES[name]
    assert value(f"{{{{ {expression} }}}}", "chainable") == expected


@pytest.mark.parametrize(("expression", "expected"), IN_CHAINABLE, ids=[each[0] for each in IN_CHAINABLE])
def test_what_the_chainable_dialect_does_in_the_manner_of_jinja(expression: str, expected: Any) -> None:
    assert value(f"{{{{ {expression} }}}}", "chainable") == expected


@pytest.mark.parametrize(("expression", "message"), WRONG_IN_CHAINABLE, ids=[each[0] for each in WRONG_IN_CHAINABLE])
def test_what_does_not_fit_in_the_chainable_dialect(expression: str, message: str) -> None:
    with pytest.raises(CannotEvaluate) as error:
        value(f"{{{{ {expression} }}}}", "chainable")
    assert message in str(error.value)
