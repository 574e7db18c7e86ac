"""The tool `python`: the styles of its code, the names it sees, where it runs, and how it ends."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from refold.core.outcomes import Succeeded
from refold.executors.inline import Inline
from refold.executors.interpreter_pool import InterpreterPool
from refold.ports import Done
from refold.tools.python.tool import PythonTool
from tests.alive import living, noted_in
from tests.tools.calls import call, engine, fault_of, fault_of_run, one_step

WHERE = pytest.mark.parametrize("isolation", ["process", "inline"])


@pytest.fixture
async def python() -> AsyncIterator[PythonTool]:
    processes, inline = InterpreterPool(1, grace=0.2), Inline(4)
    yield PythonTool({"process": processes, "inline": inline})
    await processes.close()
    await inline.close()


STYLES = {
    "result": "result = x + 1",
    "result in a branch": "if x:\n    result = x + 1",
    "result by global": "def f():\n    global result\n    result = x + 1\nf()",
    "main": "def main(x):\n    return x + 1",
    "main by keyword": "def main(*, x, step=7):\n    return x + 1",
    "main of all": "def main(**given):\n    return given['x'] + 1",
    "main with a default": "def main(x, more=1):\n    return x + more",
    "main that is wrapped": "import functools\ndef f(x, y):\n    return x + y\nmain = functools.partial(f, y=1)",
    "return": "return x + 1",
    "return in a branch": "for each in [x]:\n    if each:\n        return each + 1\nreturn None",
    "async main": "import asyncio\nasync def main(x):\n    await asyncio.sleep(0)\n    return x + 1",
    "main that gives a coroutine": "async def f(x):\n    return x + 1\nmain = lambda x: f(x)",
    "await": "import asyncio\nawait asyncio.sleep(0)\nresult = x + 1",
    "await and return": "import asyncio\nawait asyncio.sleep(0)\nreturn x + 1",
    "await and main": "import asyncio\nawait asyncio.sleep(0)\nasync def main(x):\n    return x + 1",
    "async with and return": "import asyncio\nasync with asyncio.timeout(5):\n    return x + 1",
    "async comprehension": "async def each():\n    yield x + 1\nresult = [y async for y in each()][0]",
    "result that is awaited": "async def f():\n    return x + 1\nresult = f()",
    "return with a type": "y: int = x + 1\nz: str\nreturn y",
    "return from the future": "from __future__ import annotations\nreturn x + 1",
    "names are global": "y = 1\ndef f():\n    return x + y\nreturn f()",
    "names can be changed": "y = 0\ndef f():\n    global y\n    y += 1\nf()\nreturn x + y",
    "a class": "class Sum:\n    y = x + 1\nreturn Sum().y",
    "a dataclass": "from dataclasses import dataclass\n@dataclass\nclass P:\n    y: 'int'\nresult = P(x + 1).y",
}


@WHERE
@pytest.mark.parametrize("style", STYLES)
async def test_every_style_gives_its_result(python: PythonTool, style: str, isolation: str) -> None:
    assert await python(call({"code": STYLES[style], "isolation": isolation}, None, {"x": 1})) == 2


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("result = 1\ndef main():\n    return 2", 1),
        ("def main():\n    return 2\nresult = None", None),
        ("result = 1\nreturn 3", 3),
        ("result = 1\nif False:\n    return 3", 1),
        ("def main():\n    return 2\nif True:\n    return", None),
        ("def main():\n    return 2\nif False:\n    return", 2),
        ("print('nothing')", None),
        ("", None),
    ],
)
async def test_return_counts_before_result_and_both_before_main(python: PythonTool, code: str, value: Any) -> None:
    assert await python(call({"code": code, "isolation": "inline"})) == value


async def test_an_input_named_result_or_main_is_only_an_input(python: PythonTool) -> None:
    given = {"result": 1, "main": 2}
    assert await python(call({"code": "x = result + main", "isolation": "inline"}, None, given)) is None
    assert await python(call({"code": "result = result + main", "isolation": "inline"}, None, given)) == 3


@WHERE
async def test_code_sees_its_input_and_its_context(python: PythonTool, isolation: str) -> None:
    code = "result = [x, input['x'], input_data['x'], args['x'], context]"
    *values, context = await python(call({"code": code, "isolation": isolation}, None, {"x": 5}))
    assert values == [5, 5, 5, 5]
    assert context == {
        "run": "run-1",
        "step": "a",
        "visit": 1,
        "attempt": 1,
        "last_error": None,
        "item": None,
        "idempotency_key": "run-1/a/1",
        "usage": {},
    }


@WHERE
async def test_code_says_what_it_has_used_up(python: PythonTool, isolation: str) -> None:
    code = "context['usage']['tokens'] = 12\nresult = 5"
    assert await python(call({"code": code, "isolation": isolation})) == Done(Succeeded(5), usage={"tokens": 12})
    later = "async def main():\n    context['usage'].update(usd=0.5)\n    return [1]"
    assert await python(call({"code": later, "isolation": isolation})) == Done(Succeeded([1]), usage={"usd": 0.5})


async def test_an_authors_own_input_data_wins(python: PythonTool) -> None:
    assert await python(call({"code": "result = input_data", "isolation": "inline"}, None, {"input_data": 5})) == 5


@pytest.mark.parametrize(
    ("main", "value"),
    [
        ("main(x)", [5]),
        ("main(context)", ["run-1"]),
        ("main(attempt)", [1]),
        ("main(input)", [{"x": 5, "y": 6}]),
        ("main(input_data)", [{"x": 5, "y": 6}]),
        ("main(y, **more)", [6, {"x": 5}]),
    ],
)
async def test_parameters_of_main_are_bound_by_name(python: PythonTool, main: str, value: list[Any]) -> None:
    names = main[5:-1].replace("**", "").replace("context", "context['run']")
    code = f"def {main}:\n    return [{names}]"
    assert await python(call({"code": code, "isolation": "inline"}, None, {"x": 5, "y": 6})) == value


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def main(z): ...", "main() needs 'z', and the input of the step has x, y"),
        ("def main(*all): ...", "main() takes parameters by name, and *all has none"),
        ("def main(x, /): ...", "main() takes parameters by name, and x has none"),
    ],
)
async def test_what_main_cannot_get_is_refused_by_name(python: PythonTool, code: str, why: str) -> None:
    fault = await fault_of(python, call({"code": code, "isolation": "inline"}, None, {"x": 5, "y": 6}))
    assert (fault.kind, fault.message, fault.retryable) == ("no_argument", why, False)


@WHERE
async def test_no_name_reaches_the_next_call(python: PythonTool, isolation: str) -> None:
    await python(call({"code": "leak = 1\nresult = 1", "isolation": isolation}, None, {"secret": 1}))
    code = "result = [name for name in ('leak', 'secret') if name in globals()]"
    assert await python(call({"code": code, "isolation": isolation})) == []


async def test_what_inline_code_does_to_its_input_is_its_own_affair(python: PythonTool) -> None:
    which = call({"code": "x.append(4)\nresult = x", "isolation": "inline"}, None, {"x": [1]})
    assert await python(which) == [1, 4]
    assert which.input["input"] == {"x": [1]}


async def test_libraries_are_imported_under_their_aliases(python: PythonTool) -> None:
    libs = {"m": "math", "join": {"from": "os.path", "import": "join"}, "path": "os.path"}
    code = "result = [m.floor(1.5), join('a', 'b'), path.basename('a/b')]"
    assert await python(call({"code": code, "libs": libs, "isolation": "inline"})) == [1, "a/b", "b"]
    assert await python(call({"code": "result = math.floor(2.5)", "libs": ["math"], "isolation": "inline"})) == 2


@pytest.mark.parametrize(
    ("libs", "kind"),
    [
        ({"x": "no.such.module"}, "no_module"),
        (["no_such_module"], "no_module"),
        ({"x": {"from": "math", "import": "no_such_name"}}, "no_function"),
    ],
)
async def test_a_library_that_is_missing_is_named(python: PythonTool, libs: Any, kind: str) -> None:
    fault = await fault_of(python, call({"code": "", "libs": libs, "isolation": "inline"}))
    assert (fault.kind, fault.retryable) == (kind, False)
    assert "no" in fault.message and "such" in fault.message


@WHERE
async def test_a_script_is_code_in_a_file(python: PythonTool, isolation: str, tmp_path: Path) -> None:
    path = tmp_path / "double.py"
    path.write_text("return [2 * x, __file__]")
    which = call({"script": str(path), "folder": str(tmp_path), "isolation": isolation}, None, {"x": 4})
    assert await python(which) == [8, str(path)]
    path.write_text("result = [3 * x, 'changed']")
    assert await python(which) == [12, "changed"]
    path.write_text("\n\nresult = 1 / 0")
    fault = await fault_of(python, which)
    assert fault.data == {"file": str(path), "line": 3, "source": "result = 1 / 0"}


async def test_a_script_is_looked_for_beside_its_playbook_too(tmp_path: Path) -> None:
    inline = Inline(1)
    python = PythonTool({"inline": inline})
    settings = {"folder": str(tmp_path), "isolation": "inline"}
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "seven.py").write_text("result = 7")
    assert await python(call({"script": "seven.py", **settings})) == 7
    assert await python(call({"script": "scripts/seven.py", **settings})) == 7
    fault = await fault_of(python, call({"script": "eight.py", **settings}))
    assert (fault.kind, fault.retryable) == ("no_script", False)
    assert str(tmp_path / "scripts") in fault.message
    await inline.close()


@WHERE
@pytest.mark.parametrize("function", ["double", "double_later"])
async def test_an_entry_is_a_function_whose_parameters_are_bound_by_name(
    python: PythonTool, isolation: str, function: str
) -> None:
    which = call({"entry": f"tests.tools.bodies:{function}", "isolation": isolation}, None, {"number": 4, "main": 0})
    assert await python(which) == 8


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ("no.such.module:f", "no_module"),
        ("tests.tools.bodies:nothing", "no_function"),
        ("tests.tools.bodies:number", "no_function"),
        ("nonsense", "invalid_settings"),
    ],
)
async def test_an_entry_that_is_no_function_is_refused(python: PythonTool, entry: str, kind: str) -> None:
    fault = await fault_of(python, call({"entry": entry, "isolation": "inline"}))
    assert (fault.kind, fault.retryable) == (kind, False)


async def test_only_entries_that_are_allowed_are_called() -> None:
    inline = Inline(1)
    python = PythonTool({"inline": inline}, allowed=["tests.tools.bodies:double"])
    settings = {"entry": "tests.tools.bodies:double", "isolation": "inline"}
    assert await python(call(settings, None, {"number": 4})) == 8
    fault = await fault_of(python, call({"entry": "os:getcwd", "isolation": "inline"}))
    assert (fault.kind, fault.retryable) == ("not_allowed", False)
    await inline.close()


async def test_a_call_has_its_own_folder_and_environment_and_leaves_none_behind(
    python: PythonTool, tmp_path: Path
) -> None:
    code = "import os\nresult = [os.getcwd(), os.environ.get('COLOUR'), os.environ.get('HOME')]\nos.chdir('/')"
    given = {"cwd": str(tmp_path), "env": {"COLOUR": "red", "HOME": "/nowhere"}}
    assert await python(call({"code": code}, given)) == [str(tmp_path), "red", "/nowhere"]
    assert await python(call({"code": code})) == [os.getcwd(), None, os.environ.get("HOME")]
    assert (await fault_of(python, call({"code": code}, {"cwd": "/no/such/folder"}))).kind == "no_folder"
    assert (await fault_of(python, call({"code": code, "isolation": "inline"}, given))).kind == "invalid_settings"


async def test_code_runs_in_another_process_unless_it_is_inline(python: PythonTool) -> None:
    code = "import os, threading\nresult = [os.getpid(), threading.current_thread().name]"
    elsewhere, _ = await python(call({"code": code}))
    here, thread = await python(call({"code": code, "isolation": "inline"}))
    assert (elsewhere != os.getpid(), here == os.getpid()) == (True, True)
    assert thread != threading.current_thread().name, "what may block has a thread of its own"
    on_loop = await python(call({"code": code + "\nasync def main(): ...\nreturn result", "isolation": "inline"}))
    assert on_loop == [os.getpid(), threading.current_thread().name]


async def test_code_is_compiled_once(python: PythonTool) -> None:
    import refold.tools.python.compile as python_code

    before = python_code.prepare.cache_info().misses
    for _ in range(5):
        await python(call({"code": "result = 'compiled once'", "isolation": "inline"}))
    assert python_code.prepare.cache_info().misses == before + 1


async def test_code_that_is_out_of_time_is_killed_for_real(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '100'])\n"
        "for pid in (os.getpid(), child.pid):\n"
        "    (pathlib.Path(folder) / f'pid {pid}').touch()\n"
        "time.sleep(100)"
    )
    async with engine() as opened:
        await opened.run(one_step("python", {"code": "result = 1"}))  # the process is warm
        for limit in (1.0, 4.0, 16.0):  # a busy machine may need longer to begin with it
            folder = tmp_path / str(limit)
            folder.mkdir()
            plan = one_step("python", {"code": code}, None, {"folder": str(folder)}, timeout=limit)
            fault = await asyncio.wait_for(fault_of_run(opened, plan), 60)
            assert fault.kind == "timeout"
            if len(list(folder.iterdir())) == 2:
                break
        assert living(noted_in(folder, 2)) == set()
        assert await opened.run(one_step("python", {"code": "result = 2"})) == 2


async def test_cancelling_the_run_kills_its_code(tmp_path: Path) -> None:
    code = "import os, pathlib, time\n(pathlib.Path(folder) / f'pid {os.getpid()}').touch()\ntime.sleep(100)"
    async with engine() as opened:
        run = (await opened.start(one_step("python", {"code": code}, None, {"folder": str(tmp_path)}))).id
        pids = await asyncio.to_thread(noted_in, tmp_path, 1)
        await opened.cancel(run)
        assert (await asyncio.wait_for(opened.wait(run), 60)).status == "cancelled"
        until = time.monotonic() + 60
        while living(pids) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        assert living(pids) == set()


async def test_an_engine_runs_python_without_being_told_how() -> None:
    async with engine() as opened:
        assert await opened.run(one_step("python", {"code": "return {'n': n + 1}"}, None, {"n": 1})) == {"n": 2}


async def test_a_failed_try_is_tried_again_under_the_same_idempotency_key() -> None:
    from refold import Retry

    code = "if context['attempt'] < 3:\n    raise OSError('not yet')\nresult = context['idempotency_key']"
    async with engine() as opened:
        run = (await opened.start(one_step("python", {"code": code}, retry=Retry(attempts=3)))).id
        assert await opened.result(run) == f"{run}/a/1"
