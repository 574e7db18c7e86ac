"""The quick look at Python code: it calls good only what the thorough one takes."""

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.tools.python.compile import InvalidCode, is_good, prepare

GOOD = [
    "return 1",
    "x = 1\nreturn x",
    "result = await f()",
    "def main():\n    return 1",
    "if x:\n    return 2\nresult = 3",
    "",
]
BAD = [
    " return 1",
    "\treturn 1",
    "if x\n    return 1",
    "return 1\n  x = 2",
    "yield 1\nreturn",
    "\\\n return 1",
    "nonlocal x\nreturn x",
    "class A:\n    return 1",
    "x = (\nreturn x",
    "break\nreturn 1",
    "\0",
    "(" * 5000,
    "return 1 +",
]


def takes(code: str) -> bool:
    try:
        prepare(code, "<code>")
    except InvalidCode:
        return False
    return True


@pytest.mark.parametrize("code", GOOD)
def test_good_code_is_seen_to_be_good(code: str) -> None:
    assert is_good(code) and takes(code)


@pytest.mark.parametrize("code", BAD, ids=lambda code: repr(code[:20]))
def test_bad_code_is_never_called_good(code: str) -> None:
    assert not is_good(code) and not takes(code)


STATEMENTS = ["return 1", " return 1", "    return 1", "x = 1", "global x", "import os", "from os import *", "    pass"]
HEADS = ["if x:", "def f():", "async def f():", "    await g()", "class A:", "    x: int = 1"]
ODD = ["\tpass", "'''", "x = [", "]", "# note", "", "\\"]
lines = st.sampled_from([*STATEMENTS, *HEADS, *ODD])


@for_all(st.lists(lines, max_size=6).map("\n".join))
def test_what_is_called_good_the_thorough_look_takes(code: str) -> None:
    assert not is_good(code) or takes(code)
