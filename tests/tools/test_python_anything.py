"""Code that raises anything and returns anything: a value or a clear error comes of it, and the engine goes on."""

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from refold import Engine, open_engine
from refold.core.faults import MOST
from refold.playbooks.playbook import read
from refold.tools.artifact.tool import safe_join
from refold.tools.catalog import CATALOG
from tests.tools.calls import SETTINGS, engine, fault_of_run, one_step

WHERE = pytest.mark.parametrize("isolation", ["process", "inline"])


@pytest.fixture
async def opened() -> AsyncIterator[Engine]:
    async with engine() as found:
        yield found
        for isolation in ("process", "inline"):
            assert await found.run(one_step("python", {"code": "result = 1", "isolation": isolation})) == 1


MUTE = "class Mute({}):\n    def __str__(self):\n        raise {}\n    __repr__ = __str__\nraise Mute"
SLY = (
    "class Sly(Exception):\n"
    "    def __getattr__(self, name):\n        raise KeyboardInterrupt\n"
    "    kind = property(lambda self: 1 / 0)\n"
    "raise Sly('sly')"
)
ERRORS = {
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
    "SystemExit": ("import sys\nsys.exit('bye')", "SystemExit", "bye"),
    "GeneratorExit": ("raise GeneratorExit('g')", "GeneratorExit", "g"),
    "BaseException": ("class Own(BaseException): pass\nraise Own('own')", "__step__.Own", "own"),
    "async KeyboardInterrupt": ("async def main():\n    raise KeyboardInterrupt('k')", "KeyboardInterrupt", "k"),
    "async SystemExit": ("async def main():\n    raise SystemExit('s')", "SystemExit", "s"),
    "async GeneratorExit": ("async def main():\n    raise GeneratorExit('g')", "GeneratorExit", "g"),
    "StopIteration": ("raise StopIteration('s')", None, None),
    "StopAsyncIteration": ("raise StopAsyncIteration('s')", "StopAsyncIteration", "s"),
    "CancelledError": ("import asyncio\nraise asyncio.CancelledError('c')", "asyncio.exceptions.CancelledError", "c"),
    "TimeoutError": ("raise TimeoutError('t')", "TimeoutError", "t"),
    "mute": (MUTE.format("Exception", "ValueError"), "__step__.Mute", "a Mute whose message cannot be read"),
    "mute for good": (MUTE.format("Exception", "SystemExit"), "__step__.Mute", "a Mute whose message cannot be read"),
    "mute and base": (MUTE.format("BaseException", "KeyboardInterrupt"), "__step__.Mute", None),
    "sly": (SLY, "__step__.Sly", "sly"),
    "no text": ("raise ValueError('\\ud800')", "ValueError", "\\ud800"),
    "group": ("raise BaseExceptionGroup('both', [SystemExit(1), ValueError(2)])", "BaseExceptionGroup", None),
    "circle": ("e = ValueError('v')\ne.__cause__ = e\nraise e", "ValueError", "v"),
    "recursion": ("def f():\n    f()\nf()", "RecursionError", None),
    "memory": ("raise MemoryError", "MemoryError", None),
}


@WHERE
async def test_whatever_code_raises_is_a_fault(opened: Engine, isolation: str) -> None:
    for which, (code, name, message) in ERRORS.items():
        fault = await fault_of_run(opened, one_step("python", {"code": code, "isolation": isolation}))
        assert name is None or fault.type == name, which
        assert message is None or fault.message == message, which
        assert fault.traceback, which


@WHERE
async def test_a_message_without_end_is_cut(opened: Engine, isolation: str) -> None:
    code = "raise ValueError(50_000_000 * 'x' + 'end')"
    fault = await fault_of_run(opened, one_step("python", {"code": code, "isolation": isolation}))
    assert len(fault.message) < MOST + 100 and len(fault.traceback) < MOST + 100
    assert fault.message.endswith("end") and "characters are left out" in fault.message


@WHERE
async def test_causes_are_told_with_their_lines(opened: Engine, isolation: str) -> None:
    code = "def f():\n    1 / 0\ntry:\n    f()\nexcept Exception as e:\n    raise OSError('outer') from e"
    fault = await fault_of_run(opened, one_step("python", {"code": code, "isolation": isolation}))
    assert (fault.type, fault.message) == ("OSError", "outer")
    assert "ZeroDivisionError: division by zero" in fault.traceback
    assert "direct cause of the following exception" in fault.traceback
    assert '"<step a>", line 2, in f' in fault.traceback and "1 / 0" in fault.traceback


VALUES: dict[str, tuple[str, Any]] = {
    "2**80": ("result = 2 ** 80", 2**80),
    "-2**80": ("result = [-2 ** 80]", [-(2**80)]),
    "a set": ("result = {3, 1, 2}", [1, 2, 3]),
    "a time": ("import datetime\nresult = datetime.datetime(2026, 1, 2, 3)", "2026-01-02T03:00:00"),
    "a decimal": ("import decimal\nresult = decimal.Decimal('1.10')", "1.10"),
    "a dataclass": ("import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\nresult = P(1)", {"x": 1}),
    "a tuple": ("result = (1, (2,))", [1, [2]]),
    "a float": ("result = 1e300", 1e300),
    "nothing": ("pass", None),
}


@WHERE
async def test_a_value_with_an_obvious_form_takes_it(opened: Engine, isolation: str) -> None:
    for which, (code, value) in VALUES.items():
        assert await opened.run(one_step("python", {"code": code, "isolation": isolation})) == value, which


REFUSED = {
    "NaN": ("result = {'rate': [float('nan')]}", "result.rate[0]: nan cannot be represented in JSON"),
    "infinity": ("result = float('-inf')", "result: -inf cannot be represented in JSON"),
    "bytes": ("result = {'file': b'x'}", "result.file: bytes are not a JSON value"),
    "a circle": ("x = []\nx.append(x)\nresult = x", "result[0][0]"),
    "a wide circle": ("x = {}\nx.update(a=x, b=x)\nresult = [x, object()]", "result[0]"),
    "deep": ("x = 1\nfor _ in range(100_000):\n    x = [x]\nresult = x", "result[0]"),
    "a mixed set": ("result = {1, 'a'}", "result: a set of values that cannot be sorted"),
    "an object": ("result = object()", "result: a object is not a JSON value"),
    "a function": ("result = len", "result: a builtin_function_or_method is not a JSON value"),
    "a generator": ("result = (x for x in [1])", "result: a generator is not a JSON value"),
    "a surrogate": ("result = '\\ud800'", "result: a lone surrogate is not text"),
    "a key": ("result = {1: 2}", "result: the key 1 is not a string"),
}


@WHERE
async def test_a_value_without_one_is_refused_with_its_path(opened: Engine, isolation: str) -> None:
    for which, (code, why) in REFUSED.items():
        fault = await fault_of_run(opened, one_step("python", {"code": code, "isolation": isolation}))
        assert (fault.kind, fault.retryable) == ("invalid_value", False), which
        assert fault.message.startswith(why), which


@pytest.mark.parametrize(("isolation", "shape"), [("process", "text"), ("inline", "rows")])
async def test_100_mb_are_a_value_too(isolation: str, shape: str, tmp_path: Path) -> None:
    code = {"text": "result = 100_000_000 * 'x'", "rows": "result = [{'row': 99_000 * 'x'} for _ in range(1000)]"}
    async with open_engine(settings=SETTINGS, db=tmp_path / "refold.db") as opened:
        run = (await opened.start(one_step("python", {"code": code[shape], "isolation": isolation}))).id
        result = await opened.result(run)
        size = len(result) if shape == "text" else sum(len(row["row"]) for row in result)
        assert math.isclose(size, 100_000_000, rel_tol=0.02)


async def test_a_result_beyond_the_limit_is_refused_and_says_what_to_do(opened: Engine) -> None:
    code = "result = 300_000_000 * 'x'"
    fault = await fault_of_run(opened, one_step("python", {"code": code}))
    assert (fault.kind, fault.retryable) == ("invalid_value", False)
    assert fault.message.startswith("result: 286 MiB are more than the 256 MiB that a step can return: ")


def traversals(count: int) -> list[str]:
    ups = ["..", "../..", "./..", "../.", "..//", "sub/../..", "sub/../../..", ".//..//", "..\\..", "....//", "..%2f.."]
    ends = ["secret.py", "/secret.py", "outside/secret.py", "scripts/../../secret.py", "secret.py\0", "secret.py/."]
    heads = ["", "/", "//", "./", "scripts/", "~/", "file://", "\\", "%2e%2e/", "link/", "a\0/"]
    found = [f"{head}{up}/{end}" for head in heads for up in ups for end in ends]
    extra = ["/etc/passwd", "//etc/passwd", "/proc/self/environ", "link", "link/secret.py", "", ".", "..", "/", "\0"]
    return [*extra, *found][:count]


async def test_300_ways_out_of_the_folder_find_no_file(tmp_path: Path) -> None:
    play = tmp_path / "deep" / "play"
    (play / "scripts").mkdir(parents=True)
    (play / "sub").mkdir()
    (play / "inside.py").write_text("result = 'inside'")
    for folder in (tmp_path, tmp_path / "deep", tmp_path / "outside"):
        folder.mkdir(exist_ok=True)
        (folder / "secret.py").write_text("result = 'secret'")
    (play / "link").symlink_to(tmp_path / "outside")
    (play / "loop").symlink_to(play / "loop")
    names = traversals(600)
    assert len(set(names)) >= 300
    for name in [*names, "loop", "loop/x", str(tmp_path / "secret.py")]:
        for root in (play, play / "scripts"):
            path = safe_join(str(root), name)
            assert path is None or not Path(path).is_file(), name
    async with engine() as opened:
        settings = {"folder": str(play), "isolation": "inline"}
        for name in names[:320:4]:
            fault = await fault_of_run(opened, one_step("python", {"script": name, **settings}))
            assert fault.kind == "no_script"
        assert await opened.run(one_step("python", {"script": "sub/../inside.py", **settings})) == "inside"
        assert await opened.run(one_step("python", {"script": str(play / "inside.py"), **settings})) == "inside"


async def test_a_script_of_a_playbook_is_found_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plays" / "scripts").mkdir(parents=True)
    (tmp_path / "plays" / "scripts" / "seven.py").write_text("result = 7")
    text = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: play}\nworkflow:\n"
    text += "  - {step: a, tool: {kind: python, script: seven.py}}\n"
    monkeypatch.chdir(tmp_path)
    plan = read(text, "plays/play.yaml", CATALOG).plan
    monkeypatch.chdir("/")
    async with engine() as opened:
        assert await opened.run(plan) == 7
