"""Code of NoETL files: the names it finds, how `main` is bound, and what comes of a call."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from refold.core.commands import Command
from refold.core.outcomes import Fault
from refold.errors import InvalidValue, ToolFailed
from refold.executors.inline import Inline
from refold.executors.interpreter_pool import InterpreterPool
from refold.ports import ToolCall
from refold.tools.python.body import as_json
from refold.tools.python.tool import PythonTool

WHERE = pytest.mark.parametrize("isolation", ["process", "inline"])
CONTEXT = {
    "city": "Oslo",
    "fetch": {"rows": [1, 2]},
    "load": {"data": {"n": 3}, "status": "ok"},
    "ctx": {"seen": 4},
}


@pytest.fixture
async def python() -> AsyncIterator[PythonTool]:
    processes, inline = InterpreterPool(1, grace=0.2), Inline(4)
    yield PythonTool({"process": processes, "inline": inline})
    await processes.close()
    await inline.close()


def noetl(code: str, isolation: str = "inline", input: dict[str, Any] | None = None, **settings: Any) -> ToolCall:
    given = {"input": input or {}, "config": {}, "context": CONTEXT}
    command = Command(id="a/1", step="a", visit=1, attempt=1, input=given)
    told = {"code": code, "isolation": isolation, "dialect": "noetl", **settings}
    return ToolCall("run-1", command, told)


async def fault_of(python: PythonTool, call: ToolCall) -> Fault:
    with pytest.raises(ToolFailed) as caught:
        await python(call)
    fault = caught.value.fault
    assert isinstance(fault, Fault)
    return fault


FOUND: list[tuple[str, dict[str, Any], Any]] = [
    ("result = x + args['x'] + input_data['x']", {"x": 1}, 3),
    ("result = input_data", {"input_data": "mine", "x": 1}, "mine"),
    ("result = args['input_data']", {"input_data": "mine"}, "mine"),
    ("result = execution_id", {}, "run-1"),
    (
        "result = [os.sep, json.dumps([1]), datetime.date(2026, 1, 2), uuid.UUID(int=1).int]",
        {},
        ["/", "[1]", "2026-01-02", 1],
    ),
    ("result = context['city']", {}, "Oslo"),
    ("result = context['fetch']['rows'] + context['fetch']['data']['rows']", {}, [1, 2, 1, 2]),
    ("result = context['load']['data']", {}, {"n": 3}),
    ("result = context.get('fetch').get('data').get('rows')", {}, [1, 2]),
    ("result = context.get('nothing', {}).get('data', 5)", {}, 5),
    ("result = context['fetch'].get('nothing', 5)", {}, 5),
    ("result = context['ctx']['seen']", {}, 4),
    ("result = json.loads(json.dumps(context))['load']['status']", {}, "ok"),
    ("def main(city, x, more=2):\n    return [city, x, more]", {"x": 1}, ["Oslo", 1, 2]),
    ("def main(city):\n    return city", {"city": "Rome"}, "Rome"),
    ("def main(context, **rest):\n    return [context['city'], rest]", {"x": 1}, ["Oslo", {"x": 1}]),
    ("def main(x, **rest):\n    return rest", {"x": 1, "y": 2}, {"y": 2}),
    ("async def main(x):\n    return x", {"x": 1}, 1),
    ("result = 1\ndef main():\n    return 2", {}, 1),
    ("result = None\ndef main():\n    return 2", {}, None),
    ("return x", {"x": 1}, 1),
    ("def main():\n    pass", {}, None),
]


@WHERE
async def test_code_finds_what_the_language_promises(python: PythonTool, isolation: str) -> None:
    for code, input, value in FOUND:
        assert await python(noetl(code, isolation, input)) == value, code


@WHERE
@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import sys\nprint('one')\nprint('two', file=sys.stderr)", {"stdout": "one\n", "stderr": "two\n"}),
        ("x = 1", {"stdout": "", "stderr": ""}),
        ("import asyncio\nawait asyncio.sleep(0)\nprint('later')", {"stdout": "later\n", "stderr": ""}),
    ],
)
async def test_without_a_result_what_was_printed_is_the_result(
    python: PythonTool, isolation: str, code: str, told: dict[str, str]
) -> None:
    assert await python(noetl(code, isolation)) == told


async def test_of_what_was_printed_a_bounded_part_is_the_result(python: PythonTool) -> None:
    told = await python(noetl("for _ in range(3000):\n    print(99 * 'x')", "process"))
    assert len(told["stdout"]) == 64 * 1024


async def test_what_is_printed_is_heard_too(python: PythonTool) -> None:
    said: list[tuple[str, str]] = []
    for isolation in ("process", "inline"):
        which = noetl("print('hello')", isolation)
        await python(ToolCall(which.run, which.command, which.settings, lambda *line: said.append(line)))
    assert said == [("stdout", "hello")] * 2


CHANGES = (
    *("context['x'] = 1", "del context['city']", "context.update(x=1)", "context.pop('city')", "context.clear()"),
    *("context.setdefault('x', 1)", "context |= {'x': 1}", "context.popitem()"),
)


@WHERE
async def test_the_context_cannot_be_changed(python: PythonTool, isolation: str) -> None:
    for change in CHANGES:
        fault = await fault_of(python, noetl(change, isolation))
        assert (fault.type, fault.message[:30]) == ("TypeError", "`context` can be read and not "), change
    assert CONTEXT["city"] == "Oslo"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def main(missing):\n    pass", "main() needs 'missing', and the input of the step has x"),
        ("def main(*args):\n    pass", "main() takes parameters by name, and *args has none"),
    ],
)
async def test_a_main_that_cannot_be_called_is_an_error(python: PythonTool, code: str, why: str) -> None:
    fault = await fault_of(python, noetl(code, "inline", {"x": 1}))
    assert (fault.kind, fault.message, fault.retryable) == ("no_argument", why, False)


@WHERE
async def test_one_call_sees_nothing_of_another(python: PythonTool, isolation: str) -> None:
    await python(noetl("import sys\nleft = 1\nsys.path.append('/left')", isolation))
    code = "import sys\nresult = ['left' in globals(), 'LEFT' in os.environ]"
    assert await python(noetl(code, isolation)) == [False, False]


async def test_the_process_is_for_the_next_call_as_it_was_for_the_last(python: PythonTool) -> None:
    look = "import sys\nresult = [sorted(os.environ.items()), sys.path, os.getcwd(), sys.stdout is sys.__stdout__]"
    before = await python(noetl(look, "process"))
    spoil = "import sys\nos.environ.update(LEFT='1', HOME='/left')\nos.environ.pop('PATH')\nsys.path.append('/left')\n"
    await python(noetl(spoil + "os.chdir('/')\nsys.stdout = None", "process"))
    await python(noetl("print('still heard')", "process"))
    after = await python(noetl(look, "process"))
    assert after[:3] == before[:3]


class Odd:
    def __str__(self) -> str:
        return "odd"

    __repr__ = __str__


class Broken:
    def tolist(self) -> list[Any]:
        raise ValueError

    def __str__(self) -> str:
        return "broken"


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (Odd(), "odd"),
        ({"a": Odd(), 1: (2, Odd())}, {"a": "odd", "1": [2, "odd"]}),
        (float("nan"), "nan"),
        ([float("inf"), 1.5], ["inf", 1.5]),
        (b"text", "text"),
        (b"\xff", "\\xff"),
        ({1, "a"}, ["a", 1]),
        (2**80, 2**80),
        ("\ud800", "\\ud800"),
        (Broken(), "broken"),
        (True, True),
        (None, None),
        (ValueError("v"), "v"),
    ],
)
def test_what_has_no_form_in_json_is_text(value: Any, json: Any) -> None:
    found = as_json(value)
    assert found == json or found == [1, "a"]


def test_a_circle_is_refused_all_the_same() -> None:
    circle: list[Any] = [Odd()]
    circle.append(circle)
    with pytest.raises(InvalidValue, match="in a circle"):
        as_json(circle)


async def test_libs_are_there_by_their_names(python: PythonTool) -> None:
    libs = {"m": "math", "root": {"from": "math", "import": "sqrt"}}
    assert await python(noetl("result = [m.floor(1.5), root(4)]", libs=libs)) == [1, 2.0]
    assert await python(noetl("result = math.floor(1.5)", libs=["math"])) == 1
    for missing in ({"m": "no_such_module"}, ["no_such_module"]):
        fault = await fault_of(python, noetl("result = 1", libs=missing))
        assert (fault.kind, fault.message) == ("no_module", "there is no module 'no_such_module'")
