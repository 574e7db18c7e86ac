"""Values in Python code: a literal, or escaped for the string they stand in."""

from typing import Any

import pytest

from refold.tools.noetl_text import HOLE, Misplaced
from refold.tools.python.noetl_text import spots_of, written

EVIL = [
    "'",
    '"',
    '"""',
    "'''",
    "\\",
    "\\'",
    "\n",
    "\r\nx = 1",
    "\0",
    "{y}",
    "{{y}}",
    "'); import os; os.abort(); ('",
    "__import__('os').abort()",
    "#",
    "\\N{DIGIT ONE}",
    "7",
    "ü€😀",
    "\ud800",
    "%s{0}",
]


def spliced(template: str, value: Any) -> str:
    text = template.replace("@@", HOLE)
    spots = spots_of(text)
    return written(text, spots, [value] * len(spots))


def run(template: str, value: Any) -> Any:
    names: dict[str, Any] = {"y": "Y"}
    exec(spliced(template, value), names)
    return names["x"]


@pytest.mark.parametrize("value", EVIL)
@pytest.mark.parametrize(
    ("template", "before", "after"),
    [
        ("x = @@", "", ""),
        ("x = (@@)", "", ""),
        ("x = [1, @@][1]", "", ""),
        ("def f(a): return a\nx = f(@@)", "", ""),
        ("x = '@@'", "", ""),
        ('x = "a@@b"', "a", "b"),
        ("x = '''a\n@@'''", "a\n", ""),
        ('x = """\n"@@" """', '\n"', '" '),
        ("x = r'a\\d@@b'", "a\\d", "b"),
        ('x = r"""a@@"""', "a", ""),
        ("x = f'{y} @@'", "Y ", ""),
        ("x = f'{{a}} @@ {y}'", "{a} ", " Y"),
        ("x = u'\\1@@'", "\1", ""),
        ("x = 'a' '@@' 'b'", "a", "b"),
        ("x = '# @@'", "# ", ""),
    ],
)
def test_a_value_arrives_as_it_is(template: str, before: str, after: str, value: str) -> None:
    assert run(template, value) == before + value + after


@pytest.mark.parametrize(
    "value", [None, True, 0, -7, 1.5, -1e300, float("inf"), float("-inf"), [1, ["a"]], {"a": {"b": None}}, 10**400]
)
def test_values_of_other_types_are_literals(value: Any) -> None:
    assert run("x = @@", value) == value
    assert run("x = [@@][0]", value) == value


def test_what_is_no_number_is_none_in_code_either() -> None:
    found = run("x = @@", float("nan"))
    assert found != found


def test_signs_beside_a_number_do_not_change_it() -> None:
    assert run("x = 2**@@", -1) == 0.5
    assert run("x = 5-@@", -3) == 8
    assert run("x = @@.real", 3) == 3


def test_bytes_have_the_text_as_utf_8() -> None:
    assert run("x = b'a@@'", "ü'\\") == "aü'\\".encode()
    assert run("x = rb'\\d@@'", "ü'\\") == b"\\d" + "ü'\\".encode()


def test_lines_keep_their_numbers() -> None:
    assert spliced("x = @@\ny = '@@'\n", "a\nb").count("\n") == 2


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("@@", "the whole code"),
        ("x = 1 # @@", "in a comment"),
        ("x_@@ = 1", "part of a longer name"),
        ("x = 1@@", "part of a longer name"),
        ("x = @@'a'", "part of a longer name"),
        ("x = f'{@@}'", "an expression of an f-string"),
        ("x = f'{y:@@}'", "an expression of an f-string"),
        ("x = f'{y!r:>{@@}}'", "an expression of an f-string"),
        ("x = '\\@@'", "behind a backslash"),
        ("x = '\\x4@@'", "does not compile"),
        ("import @@", "does not compile"),
        ("from @@ import a", "does not compile"),
        ("@@ = 1", "does not compile"),
        ("def @@(): pass", "does not compile"),
        ("lambda @@: 1", "does not compile"),
        ("print @@", "does not compile"),
        ("x = '@@", "longer name, number or string"),
        ("exec('@@')", "`exec` runs"),
        ("eval(f'1 + @@')", "`eval` runs"),
        ("import os\nos.system('ls @@')", "`os.system` runs"),
        ("import subprocess\nsubprocess.run('ls ' + '@@', shell=True)", "`subprocess.run` runs"),
        ("cursor.execute(\"select '@@'\")", "`cursor.execute` runs"),
    ],
)
def test_every_other_place_is_refused(template: str, why: str) -> None:
    with pytest.raises(Misplaced) as caught:
        spliced(template, "7")
    assert why in str(caught.value)


def test_code_without_values_is_not_read() -> None:
    assert spliced("this is not Python # at all", "") == "this is not Python # at all"
