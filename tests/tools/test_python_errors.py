"""What python code raises and returns: told with its own lines, or turned into JSON data, or refused by its path."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import uuid
from collections import Counter, OrderedDict, namedtuple
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from refold.errors import InvalidValue
from refold.executors.inline import Inline
from refold.executors.interpreter_pool import InterpreterPool
from refold.tools.python.body import plain
from refold.tools.python.compile import InvalidCode, prepare
from refold.tools.python.tool import PythonTool
from tests.tools.calls import call, engine, fault_of, fault_of_run, one_step

WHERE = pytest.mark.parametrize("isolation", ["process", "inline"])


@pytest.fixture
async def python() -> AsyncIterator[PythonTool]:
    processes, inline = InterpreterPool(1, grace=0.2), Inline(4)
    yield PythonTool({"process": processes, "inline": inline})
    await processes.close()
    await inline.close()


FAILING = {
    "at the top": ("x = 1\ny = x / 0", 2, "y = x / 0"),
    "in a function": ("def f(x):\n    return 1 / x\n\nf(0)", 2, "return 1 / x"),
    "in main": ("def main():\n    a = 1\n    return a / 0", 3, "return a / 0"),
    "in async main": (
        "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return 1 / 0",
        4,
        "return 1 / 0",
    ),
    "with return": ("if True:\n\n    return 1 / 0", 3, "return 1 / 0"),
    "with await": ("import asyncio\nawait asyncio.sleep(0)\n\nresult = 1 / 0", 4, "result = 1 / 0"),
    "in a library": ("import fractions\nfractions.Fraction(1, 0)", 2, "fractions.Fraction(1, 0)"),
}


@WHERE
@pytest.mark.parametrize("where", FAILING)
async def test_an_exception_names_the_line_of_the_code(python: PythonTool, where: str, isolation: str) -> None:
    code, line, source = FAILING[where]
    fault = await fault_of(python, call({"code": code, "isolation": isolation}))
    assert fault.type == "ZeroDivisionError"
    assert fault.data == {"file": "<step a>", "line": line, "source": source}
    first, place, *_ = fault.traceback.splitlines()
    assert first == "Traceback (most recent call last):"
    assert place.startswith('  File "<step a>", line '), "no frame of Refold comes before those of the code"
    assert f'"<step a>", line {line}, in ' in fault.traceback
    assert source in fault.traceback, "the source itself is shown"


@WHERE
async def test_an_exception_says_what_it_knows_of_itself(python: PythonTool, isolation: str) -> None:
    code = "class Busy(Exception):\n    kind, retryable, retry_after = 'busy', True, 2.5\nraise Busy('come back')"
    fault = await fault_of(python, call({"code": code, "isolation": isolation}))
    assert (fault.kind, fault.message, fault.retryable, fault.retry_after) == ("busy", "come back", True, 2.5)
    assert fault.type == "__step__.Busy"


@WHERE
async def test_sys_exit_ends_the_step_and_not_the_worker(python: PythonTool, isolation: str) -> None:
    fault = await fault_of(python, call({"code": "import sys\nsys.exit(3)", "isolation": isolation}))
    assert fault.type == "SystemExit"
    assert await python(call({"code": "result = 1", "isolation": isolation})) == 1


@WHERE
async def test_causes_and_groups_are_told_too(python: PythonTool, isolation: str) -> None:
    code = "try:\n    1 / 0\nexcept Exception as e:\n    raise ExceptionGroup('two', [ValueError('v'), e]) from e"
    fault = await fault_of(python, call({"code": code, "isolation": isolation}))
    assert "ZeroDivisionError" in fault.traceback and "ValueError: v" in fault.traceback


@pytest.mark.parametrize(
    ("code", "line", "column", "message"),
    [
        ("x = 1\ny = = 2", 2, 5, "invalid syntax"),
        ("def f():\nreturn 1", 2, 1, "expected an indented block"),
        ("x = (1", 1, 5, "'(' was never closed"),
        ("x = 1\n  y = 2", 2, 0, "unexpected indent"),
        ("print 'x'", 1, 1, "Missing parentheses"),
        ("x = 1\nyield x", 2, 1, "'yield' outside function"),
        ("x = 1\nif x:\n    return x\nyield x", 4, 1, "'yield' outside function"),
        ("class A:\n    return 1", 2, 5, "'return' outside function"),
        ("return 1\nbreak", 2, 1, "'break' outside loop"),
        ("x = '\0'", 0, 0, "null bytes"),
        ("(" * 500 + ")" * 500, 1, 0, "too many nested parentheses"),
    ],
)
def test_code_that_does_not_compile_has_a_line_and_a_column(code: str, line: int, column: int, message: str) -> None:
    with pytest.raises(InvalidCode) as caught:
        prepare(code, "<code>")
    assert caught.value.line == line
    assert caught.value.column == column or not column
    assert message in caught.value.message


@WHERE
async def test_code_that_does_not_compile_fails_the_step_for_good(python: PythonTool, isolation: str) -> None:
    fault = await fault_of(python, call({"code": "x = 1\ny =", "isolation": isolation}))
    assert (fault.kind, fault.retryable, fault.data) == ("invalid_code", False, {"line": 2})


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    at: datetime.date


class Pair(msgspec.Struct):
    one: int
    two: tuple[int, ...]


Named = namedtuple("Named", "a b")
NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)


class Array:
    """Like one of numpy."""

    def tolist(self) -> list[float]:
        return [1.0, 2.0]


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset("ba"), ["a", "b"]),
        (NOON, "2026-11-16T12:00:00+00:00"),
        (NOON.date(), "2026-11-16"),
        (NOON.time(), "12:00:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.10"), "1.10"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (Colour.RED, "red"),
        ({Colour.RED: Colour.RED}, {"red": "red"}),
        (Point(1, NOON.date()), {"x": 1, "at": "2026-11-16"}),
        (Pair(1, (2,)), {"one": 1, "two": [2]}),
        (Named(1, [2]), [1, [2]]),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (Array(), [1.0, 2.0]),
        (2**80, 2**80),
        ({"a": [1, 2.5, None, True, "ü"]}, {"a": [1, 2.5, None, True, "ü"]}),
    ],
)
def test_a_value_with_an_obvious_form_takes_it(value: Any, data: Any) -> None:
    assert plain(value) == data
    assert plain([value]) == [data]
    msgspec.json.encode(plain(value))


CIRCLE: list[Any] = []
CIRCLE.append((CIRCLE,))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"rows": [1, object()]}, "result.rows[1]: a object is not a JSON value"),
        ({"raw": b"abc"}, "result.raw: bytes are not a JSON value: decode them, or encode them as base64"),
        ({"n": (math.nan,)}, "result.n[0]: nan cannot be represented in JSON"),
        ({"n": math.inf}, "result.n: inf cannot be represented in JSON"),
        ({1: 2}, "result: the key 1 is not a string"),
        ({1, "a"}, "result: a set of values that cannot be sorted has no order to keep"),
        (Point, "result: a type is not a JSON value"),
        ("\ud800", "result: a lone surrogate is not text"),
        ((x for x in "ab"), "result: a generator is not a JSON value"),
    ],
)
def test_a_value_without_one_is_refused_with_its_path(value: Any, why: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        plain(value)
    assert str(caught.value) == why


def test_a_value_that_holds_itself_is_refused() -> None:
    with pytest.raises(InvalidValue, match="in a circle"):
        plain(CIRCLE)


@WHERE
async def test_a_result_that_is_no_data_fails_the_step_for_good(python: PythonTool, isolation: str) -> None:
    fault = await fault_of(python, call({"code": "result = {'rows': [b'x']}", "isolation": isolation}))
    assert (fault.kind, fault.retryable) == ("invalid_value", False)
    assert fault.message.startswith("result.rows[0]: bytes")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import os\nos._exit(3)", "process_died"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "process_died"),
        ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))\nx = 'x' * 10**10", "error"),
        ("import sys\nsys.setrecursionlimit(2000)\ndef f():\n    f()\nf()", "error"),
        ("raise KeyboardInterrupt", "error"),
        ("class Odd(Exception):\n    def __str__(self):\n        1 / 0\nraise Odd", "error"),
    ],
)
async def test_code_that_ends_badly_is_an_outcome_and_the_engine_goes_on(code: str, kind: str) -> None:
    async with engine() as opened:
        assert (await fault_of_run(opened, one_step("python", {"code": code}))).kind == kind
        assert await opened.run(one_step("python", {"code": "result = 1"})) == 1


async def test_results_of_many_megabytes_come_through() -> None:
    async with engine() as opened:
        assert len(await opened.run(one_step("python", {"code": "result = 'x' * 20_000_000"}))) == 20_000_000


async def test_inline_code_that_is_cancelled_hears_of_it(python: PythonTool) -> None:
    code = "import asyncio\ntry:\n    seen.append(1)\n    await asyncio.sleep(3600)\nfinally:\n    print('cleaned up')"
    said: list[Any] = []
    which = call({"code": code, "isolation": "inline"}, None, {"seen": []}, lambda *line: said.append(line))
    running = asyncio.create_task(python(which))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert said == [("stdout", "cleaned up")]
