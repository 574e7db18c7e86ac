"""Operators, filters, tests, functions and methods: what each makes of ordinary values."""

from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from refold.templates.checks import CHECKS
from refold.templates.compiler import LIST_FILTERS
from refold.templates.filters import FILTERS, FUNCTIONS
from refold.templates.methods import METHODS
from tests.templates.views import value

OPERATORS = [
    ("n + 1", 4),
    ("n - 1 - 1", 1),
    ("n * 2 + 1", 7),
    ("1 + n * 2", 7),
    ("7 / 2", 3.5),
    ("7 // 2", 3),
    ("-7 // 2", -4),
    ("-7 % 3", 2),
    ("2 ** 10", 1024),
    ("2 ** 3 ** 2", 64),
    ("2 ** -1", 0.5),
    ("2 ** 70", 2**70),
    ("-n", -3),
    ("-map.b.c[0]", -10),
    ("-n | abs", 3),
    ("0x10 + 1_000", 1016),
    ("1.5e1", 15),
    ("text + '!'", "hello!"),
    ("list + [9]", [3, 1, 2, 9]),
    ("'ab' * 2 ~ 3 * 'c'", "ababccc"),
    ("[0] * 3", [0, 0, 0]),
    ("'a' * -1", ""),
    ("n ~ text ~ nothing ~ yes ~ f", "3hellotrue1.5"),
    ("'a' ~ list ~ map.b", 'a[3,1,2]{"c":[10,20]}'),
    ("'a' 'b' \"c\"", "abc"),
    ("'\\u00e9\\x41\\n\\'\\\"\\\\\\/'", "éA\n'\"\\/"),
    ("n == 3", True),
    ("n == 3.0", True),
    ("n != '3'", True),
    ("list == [3, 1, 2]", True),
    ("[list, map.b] == [[3, 1, 2], {'c': [10, 20]}]", True),
    ("map == {'a': 1}", False),
    ("steps.fetch.rows != [1]", True),
    ("n > 2", True),
    ("n >= 3", True),
    ("n < 3", False),
    ("n <= 3", True),
    ("'a' < 'b'", True),
    ("[1, 2] < [1, 3]", True),
    ("1 in list", True),
    ("9 not in list", True),
    ("'ell' in text", True),
    ("1 in text", False),
    ("'a' in map", True),
    ("map.b in [{'c': [10, 20]}]", True),
    ("n and text", "hello"),
    ("nothing or text", "hello"),
    ("not n or yes and not nothing", True),
    ("'a' if n > 2 else 'b'", "a"),
    ("'a' if n > 5", None),
    ("1 if nothing else 2 if nothing else 3", 3),
    ("list[0]", 3),
    ("list[-1]", 2),
    ("list[1:]", [1, 2]),
    ("list[:2]", [3, 1]),
    ("list[::-1]", [2, 1, 3]),
    ("text[1:3]", "el"),
    ("text[0]", "h"),
    ("rows[n - 1].id", 3),
    ("map[['a'][0]]", 1),
    ("{'a': [1]}['a'][0]", 1),
    ("{'a': n, 'b' ~ n: 1}", {"a": 3, "b3": 1}),
]

USES = {
    "add_time": ("'2026-03-01T09:00:00Z' | add_time(days=-1)", "2026-02-28T09:00:00Z"),
    "format_time": ("'2026-03-01' | format_time('%d %B %Y')", "01 March 2026"),
    "in_zone": ("'2026-03-01T09:00:00Z' | in_zone('Asia/Kolkata')", "2026-03-01T14:30:00+05:30"),
    "start_of": ("'2026-03-18T09:00:00Z' | start_of('month')", "2026-03-01T00:00:00Z"),
    "unix_time": ("'1970-01-02T00:00:00Z' | unix_time", 86400),
    "abs": ("-2.5 | abs", 2.5),
    "b64decode": ("'aGk=' | b64decode", "hi"),
    "b64encode": ("'hi' | b64encode", "aGk="),
    "batch": ("[1, 2, 3] | batch(2, 0)", [[1, 2], [3, 0]]),
    "bool": ("list | bool", True),
    "capitalize": ("'hi THERE' | capitalize", "Hi there"),
    "chain": ("list | chain([9])", [3, 1, 2, 9]),
    "count": ("map | count", 3),
    "d": ("nobody | d(1)", 1),
    "default": ("nobody | default(1)", 1),
    "dictsort": ("{'b': 1, 'a': 2} | dictsort", [["a", 2], ["b", 1]]),
    "first": ("list | first", 3),
    "float": ("'1.5' | float", 1.5),
    "format": ("'%s has %03d %%' | format(text, n)", "hello has 003 %"),
    "fromjson": ("'{\"a\": [1, null]}' | fromjson", {"a": [1, None]}),
    "groupby": ("rows | groupby('tag') | map('first')", ["x", "y"]),
    "indent": ("'a\nb\n\nc' | indent(2)", "a\n  b\n\n  c"),
    "int": ("'42' | int + 1", 43),
    "items": ("map.b | items", [["c", [10, 20]]]),
    "join": ("rows | join(', ', attribute='tag')", "x, y, x"),
    "keys": ("map | keys", ["a", "items", "b"]),
    "last": ("list | last", 2),
    "length": ("text | length", 5),
    "lines": ("'a\nb' | lines", ["a", "b"]),
    "list": ("'ab' | list", ["a", "b"]),
    "lower": ("'AB' | lower", "ab"),
    "map": ("rows | map(attribute='id')", [1, 2, 3]),
    "max": ("list | max", 3),
    "min": ("list | min", 1),
    "reject": ("list | reject('odd')", [2]),
    "rejectattr": ("rows | rejectattr('ok') | map(attribute='id')", [2]),
    "replace": ("text | replace('l', 'L')", "heLLo"),
    "reverse": ("list | reverse", [2, 1, 3]),
    "round": ("2.567 | round(2)", 2.57),
    "select": ("list | select('gt', 1)", [3, 2]),
    "selectattr": ("rows | selectattr('tag', 'eq', 'x') | map(attribute='id')", [1, 3]),
    "slice": ("[1, 2, 3, 4, 5] | slice(3)", [[1, 2], [3, 4], [5]]),
    "sort": ("rows | sort(attribute='tag', reverse=true) | map(attribute='id')", [2, 1, 3]),
    "split": ("'a,b,c' | split(',', 1)", ["a", "b,c"]),
    "string": ("[1, none] | string", "[1,null]"),
    "sum": ("rows | sum(attribute='id')", 6),
    "title": ("'a b' | title", "A B"),
    "tojson": ("{'a': ['<é>', none]} | tojson", '{"a":["<é>",null]}'),
    "trim": ("' a ' | trim", "a"),
    "truncate": ("'one two three' | truncate(10)", "one..."),
    "unique": ("[1, 2, 1] | unique", [1, 2]),
    "upper": ("text | upper", "HELLO"),
    "urlencode": ("{'q': 'a b&c', 'n': 1} | urlencode", "q=a%20b%26c&n=1"),
    "values": ("map.b | values", [[10, 20]]),
    "zip": ("[1, 2] | zip(['a', 'b'])", [[1, "a"], [2, "b"]]),
}

MORE = [
    ("rows | map(attribute='missing', default='-') | join", "---"),
    ("['a', 'b'] | map('upper')", ["A", "B"]),
    ("['a-b'] | map('replace', '-', '+')", ["a+b"]),
    ("[[2, 1], [3]] | map('min')", [1, 3]),
    ("rows | map(attribute='tag') | unique | list", ["x", "y"]),
    ("{'a': {'b': 1}} | map('upper')", ["A"]),
    ("[1.5, 2] | sum", 3.5),
    ("list | sum(start=10)", 16),
    ("'a b  c' | split", ["a", "b", "c"]),
    ("'3.7' | int", 3),
    ("' -4 ' | int", -4),
    ("'x' | int(0)", 0),
    ("nothing | float(1)", 1),
    ("'%(a)s-%(b).2f' | format(a=text, b=f)", "hello-1.50"),
    ("{'a': 1} | tojson(indent=2)", '{\n  "a": 1\n}'),
    ("'abc' | truncate(5)", "abc"),
    ("'one two' | truncate(6, true, '~')", "one t~"),
    ("'a' | indent(2, true)", "  a"),
    ("'a/b c' | urlencode", "a/b%20c"),
    ("[1, 2, 3, 4] | slice(3, 0)", [[1, 2], [3, 0], [4, 0]]),
    ("list | sort | reverse | first", 3),
    ("range(3)", [0, 1, 2]),
    ("range(1, 10, 4)", [1, 5, 9]),
    ("dict(a=1, b=list)", {"a": 1, "b": [3, 1, 2]}),
    ("map.get('a')", 1),
    ("map.get('z', 5)", 5),
    ("map.b.items()", [["c", [10, 20]]]),
    ("map.keys()", ["a", "items", "b"]),
    ("map.b.values()", [[10, 20]]),
    ("map.items", "data"),
    ("{'a': 1}.get('a')", 1),
]

TRUE = {
    "boolean": "yes is boolean",
    "defined": "n is defined",
    "divisibleby": "9 is divisibleby 3 and 9 is divisibleby(3)",
    "endingwith": "text is endingwith('lo')",
    "eq": "n is eq 3",
    "equalto": "n is equalto(3)",
    "even": "2 is even",
    "false": "not yes is false",
    "float": "f is float",
    "ge": "n is ge 3",
    "gt": "n is gt 2",
    "in": "n is in list and n is not in [1]",
    "int": "n is int",
    "integer": "n is integer",
    "iterable": "list is iterable and not n is iterable",
    "le": "n is le(3)",
    "lower": "text is lower",
    "lt": "n is lt 4",
    "mapping": "map is mapping and {} is mapping and list is not mapping",
    "ne": "n is ne 4",
    "none": "nothing is none and n is not none",
    "number": "n is number and f is number and text is not number",
    "odd": "n is odd",
    "sequence": "list is sequence and [] is sequence",
    "startingwith": "text is startingwith 'he'",
    "string": "text is string and n is not string",
    "true": "yes is true",
    "undefined": "nobody is undefined",
    "upper": "'A' is upper",
}

METHODS_USED = {
    "capitalize": ("text.capitalize()", "Hello"),
    "casefold": ("'A'.casefold()", "a"),
    "center": ("'a'.center(3)", " a "),
    "count": ("text.count('l') + list.count(1)", 3),
    "endswith": ("text.endswith('lo')", True),
    "find": ("text.find('l')", 2),
    "format": ("'{} {1} {n:>3} {{}}'.format(1, 'b', n=n)", "1 b   3 {}"),
    "get": ("map.get('a')", 1),
    "isalnum": ("text.isalnum()", True),
    "isalpha": ("text.isalpha()", True),
    "isdigit": ("digits.isdigit()", True),
    "islower": ("text.islower()", True),
    "isnumeric": ("digits.isnumeric()", True),
    "isspace": ("text.isspace()", False),
    "isupper": ("text.isupper()", False),
    "items": ("{'a': 1}.items()", [["a", 1]]),
    "join": ("', '.join(['a', 1])", "a, 1"),
    "keys": ("map.b.keys()", ["c"]),
    "ljust": ("'a'.ljust(3, '.')", "a.."),
    "lower": ("'A'.lower()", "a"),
    "lstrip": ("' a '.lstrip()", "a "),
    "partition": ("'a=b=c'.partition('=')", ["a", "=", "b=c"]),
    "removeprefix": ("text.removeprefix('he')", "llo"),
    "removesuffix": ("text.removesuffix('lo')", "hel"),
    "replace": ("text.replace('l', 'L')", "heLLo"),
    "rfind": ("text.rfind('l')", 3),
    "rjust": ("'a'.rjust(3)", "  a"),
    "rpartition": ("'a=b=c'.rpartition('=')", ["a=b", "=", "c"]),
    "rsplit": ("'a,b,c'.rsplit(',', 1)", ["a,b", "c"]),
    "rstrip": ("' a '.rstrip()", " a"),
    "split": ("'a,b'.split(',')", ["a", "b"]),
    "splitlines": ("'a\nb\n'.splitlines()", ["a", "b"]),
    "startswith": ("text.startswith('he')", True),
    "strip": ("' a '.strip()", "a"),
    "swapcase": ("text.swapcase()", "HELLO"),
    "title": ("text.title()", "Hello"),
    "upper": ("text.upper()", "HELLO"),
    "values": ("map.b.values()", [[10, 20]]),
    "zfill": ("digits.zfill(5)", "00042"),
}

WRONG = [
    ("n + text", "`+`: a number and a text do not go together"),
    ("nothing + 1", "`+`: null and a number"),
    ("list + map", "`+`: a list and a map"),
    ("text * text", "`*`: a text and a text"),
    ("text - 1", "`-`: a text and a number"),
    ("text ** 2", "`**`: a text and a number"),
    ("'%s' % n", "`%`: a text and a number"),
    ("-text", "`-`: a text is not a number"),
    ("n < text", "`<`: a number cannot be compared with a text"),
    ("nothing > 1", "`>`: null cannot be compared with a number"),
    ("1 in n", "`in`: a number is not a list"),
    ("1 / 0", "division by zero"),
    ("n | length", "the filter 'length': a number has no length"),
    ("n | join", "the filter 'join': a number is not a list"),
    ("list | upper", "the filter 'upper': a list is not a text"),
    ("nothing | upper", "the filter 'upper': null is not a text"),
    ("'x' | int", "the filter 'int': 'x' is not a number"),
    ("'nan' | int", "the filter 'int': 'nan' is not a number"),
    ("text | abs", "the filter 'abs': a text is not a number"),
    ("'{' | fromjson", "the filter 'fromjson': this is not JSON"),
    ("text | replace('a')", "the filter 'replace'"),
    ("text | replace(1, 2)", "the filter 'replace'"),
    ("text | upper(1)", "the filter 'upper'"),
    ("n | sort", "the filter 'sort': a number is not a list"),
    ("n[1:]", "the slice: a number has no slices"),
    ("list.get('a')", "`.get()`: a list is not a map"),
    ("range('a')", "`range`"),
    ("range(0, 5, 0)", "`range`"),
    ("'!' | b64decode", "the filter 'b64decode'"),
    ("'%d' | format('x')", "the filter 'format'"),
    ("list | batch(0)", "a batch has between 1"),
    ("list | slice(0)", "between 1 and"),
    ("(-8) ** 0.5", "a complex is not a value"),
]


@pytest.mark.parametrize(("expression", "expected"), OPERATORS, ids=[each[0] for each in OPERATORS])
def test_operators_give_the_values_of_the_table(expression: str, expected: Any) -> None:
    assert value(f"{{{{ {expression} }}}}") == expected


@pytest.mark.parametrize("name", sorted({*FILTERS, *LIST_FILTERS}))
def test_every_filter_gives_the_value_of_the_table(name: str) -> None:
    expression, expected = USES[name]
    assert name in expression
    assert value(f"{{{{ {expression} }}}}") == expected


@pytest.mark.parametrize(("expression", "expected"), MORE, ids=[each[0] for each in MORE])
def test_filters_functions_and_methods_of_maps_give_the_values_of_the_table(expression: str, expected: Any) -> None:
    assert value(f"{{{{ {expression} }}}}") == expected


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_every_test_is_true_where_the_table_says(name: str) -> None:
    assert f"is {name}" in TRUE[name] or f"is not {name}" in TRUE[name]
    assert value(f"{{{{ {TRUE[name]} }}}}") is True


@pytest.mark.parametrize("field", ["{} {}", "{1}", "{n}", "{} {4}"])
def test_a_field_without_an_argument_is_an_error_that_names_it(field: str) -> None:
    with pytest.raises(CannotEvaluate, match=f"the field '\\{field[-3:].strip()}' has no argument"):
        value(f"{{{{ '{field}'.format(1) }}}}", "chainable")


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_of_the_chainable_dialect_gives_the_value_of_the_table(name: str) -> None:
    expression, expected = METHODS_USED[name]
    assert f".{name}(" in expression
    assert value(f"{{{{ {expression} }}}}", "chainable") == expected


def test_there_are_two_functions_and_none_asks_the_clock() -> None:
    assert sorted(FUNCTIONS) == ["dict", "range"]


@pytest.mark.parametrize(("expression", "message"), WRONG, ids=[each[0] for each in WRONG])
def test_what_does_not_fit_is_an_error_that_says_so(expression: str, message: str) -> None:
    with pytest.raises(CannotEvaluate) as error:
        value(f"{{{{ {expression} }}}}")
    assert message in str(error.value)
    assert "View" not in str(error.value)
