"""Hostile steps: each fails by name, leaves nothing behind, and the engine goes on as if nothing had been."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import Engine
from refold.core.facts import StepIssued, StepSettled
from refold.core.outcomes import SECOND, Fault
from refold.executors.limits import Limits, environment
from refold.executors.supervised import ProgramStart, Supervisors
from refold.settings import Settings
from tests.alive import children, living, noted_in, own_children, within
from tests.tools.calls import engine, fault_of_run, one_step

ROOT = Path(__file__).parents[2]
MEBI = 1024 * 1024
GRACE = 0.3
SETTINGS = Settings(processes=1, process_grace=GRACE, tool_memory=600 * MEBI)
KINDS = pytest.mark.parametrize("kind", ["python", "shell"])

BEGIN = "import os, pathlib, resource, signal, subprocess, sys, time\nnoted = pathlib.Path({folder!r})\n"
NOTE = "(noted / f'pid {os.getpid()}').touch()\n"
BOMB = (  # never more than 500: each that begins takes a ticket, and without one there is no fork
    "tickets = noted / 'tickets'\n"
    "tickets.touch()\n"
    "def forked():\n"
    "    with open(tickets, 'ab') as file:\n"
    "        file.write(b'x')\n"
    "        if file.tell() > 500:\n            return False\n"
    "    return os.fork() == 0\n"
    "while True:\n"
    "    try:\n"
    "        if forked():\n"
    f"            {NOTE}"
    "    except OSError:\n        pass\n"
)
CROWD = BOMB.replace("return False", "time.sleep(100)")  # those without a ticket leave the processor to others
LEAVE = (  # a daemon of the book, that wipes its environment and its name too
    "heard, said = os.pipe()\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork():\n        os._exit(0)\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "    pid = os.getpid()\n"
    "    (noted / f'pid {pid}').touch()\n"
    "    os.write(said, b'x')\n"
    "    os.execve('/bin/sh', ['quiet', '-c', 'trap \"\" TERM HUP; while :; do /bin/sleep 1; done'], {})\n"
    "os.wait()\n"
    "os.read(heard, 1)\n"
)
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + NOTE + "time.sleep(100)\n"
HOG = "kept = []\nwhile True:\n    kept.append(bytearray(10_000_000))\n"
CRASH = NOTE + "import ctypes\nctypes.string_at(0)\n"
EXIT = NOTE + "os._exit(7)\n"
UPSTAIRS = NOTE + "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(100)\n"
SPIN = NOTE + "while True:\n    pass\n"


def step(kind: str, code: str, folder: Path, **more: Any) -> Any:
    whole = BEGIN.format(folder=str(folder)) + code
    if kind == "python":
        return one_step("python", {"code": whole}, **more)
    return one_step("shell", None, {"command": [sys.executable, "-c", whole]}, **more)


@pytest.fixture
async def opened() -> AsyncIterator[Engine]:
    before = children(os.getpid())
    async with engine(SETTINGS) as found:
        yield found
        assert await found.run(one_step("python", {"code": "result = 1"})) == 1
        assert (await found.run(one_step("shell", {"script": "echo 2"})))["stdout"] == "2\n"
    assert living(children(os.getpid()) - before) == set()


async def failed(opened: Engine, plan: Any) -> Fault:
    """The fault of the run; a neighbour's steps go on all the while."""
    going = asyncio.create_task(_steps(opened))
    try:
        return await fault_of_run(opened, plan)
    finally:
        going.cancel()
        assert not going.done() or going.cancelled()
        await asyncio.wait([going])


async def _steps(opened: Engine) -> None:
    while True:
        await opened.run(one_step("python", {"code": "result = 1", "isolation": "inline"}))
        await asyncio.sleep(0.02)


async def out_of_time(opened: Engine, kind: str, code: str, folder: Path, count: int, *limits: float) -> float:
    """A try that was begun so far before its time was over; returns how long it took beyond its time.

    On a busy machine nothing may have begun within the first limit; then the next one counts.
    """
    for limit in limits:
        within_limit = folder / str(limit)
        within_limit.mkdir()
        began = time.monotonic()
        fault = await failed(opened, step(kind, code, within_limit, timeout=limit))
        took = time.monotonic() - began
        assert fault.kind == "timeout"
        noted = {int(each.name[4:]) for each in within_limit.iterdir() if each.name.startswith("pid ")}
        assert living(noted) == set()
        if len(noted) >= count:
            return took - limit
    raise AssertionError(f"less than {count} began within {limits[-1]:g} s")


@KINDS
async def test_a_bomb_of_500_processes_is_gone_when_its_try_is_over(opened: Engine, kind: str, tmp_path: Path) -> None:
    assert await out_of_time(opened, kind, BOMB, tmp_path, 100, 2.0, 8.0, 32.0) < GRACE + 60.0


@KINDS
async def test_a_daemon_that_wipes_its_traces_is_gone_when_its_try_is_over(
    opened: Engine, kind: str, tmp_path: Path
) -> None:
    await opened.run(step(kind, LEAVE, tmp_path))
    assert living(noted_in(tmp_path, 1)) == set(), "of a try that succeeded"
    await fault_of_run(opened, step(kind, LEAVE + "sys.exit(3)", tmp_path))
    await fault_of_run(opened, step(kind, LEAVE + "os._exit(3)", tmp_path))
    assert living(noted_in(tmp_path, 3)) == set()
    await out_of_time(opened, kind, LEAVE + "time.sleep(100)", tmp_path, 1, 1.0, 4.0, 16.0)


@KINDS
async def test_who_ignores_being_asked_is_killed_after_the_grace(opened: Engine, kind: str, tmp_path: Path) -> None:
    assert await out_of_time(opened, kind, STUBBORN, tmp_path, 1, 1.0, 4.0, 16.0) >= GRACE


@KINDS
@pytest.mark.parametrize(
    "code", [CROWD, LEAVE + "time.sleep(100)\n", STUBBORN], ids=["a crowd", "a daemon", "one that ignores being asked"]
)
async def test_a_try_that_is_out_of_time_is_gone_within_its_grace_and_a_second(
    opened: Engine, kind: str, code: str, tmp_path: Path
) -> None:
    """By the engine's own clock, from its order to its report, before which nothing of the try may live.

    Others use this machine too: they can make a try slower but none faster, so the fastest of a few is the measure.
    """
    took = list[float]()
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = (await opened.start(step(kind, code, folder, timeout=1.0))).id
        await opened.wait(run)
        if not any(each.name.startswith("pid ") for each in folder.iterdir()):
            continue  # it was out of time before it had begun
        assert living(noted_in(folder, 1)) == set()
        history = await opened.history(run)
        issued, settled = (
            next(at for _, at, fact in history if isinstance(fact, it)) for it in (StepIssued, StepSettled)
        )
        took.append((settled - issued) / SECOND)
        if took[-1] <= 1.0 + GRACE + 1.0 or len(took) == 5:
            break
    assert 1.0 <= min(took) <= 1.0 + GRACE + 1.0, took


@KINDS
async def test_a_hog_of_memory_ends_at_its_limit(opened: Engine, kind: str, tmp_path: Path) -> None:
    fault = await failed(opened, step(kind, HOG, tmp_path))
    assert "MemoryError" in (fault.type or fault.message)
    if kind == "python":
        assert fault.message == "the step may use 600 MiB of memory (the setting `tool_memory`), and needed more"


@KINDS
@pytest.mark.parametrize(
    ("code", "python", "shell"),
    [
        (CRASH, ("process_died", "SIGSEGV"), ("exit", -signal.SIGSEGV)),
        (EXIT, ("process_died", 7), ("exit", 7)),
        (UPSTAIRS, ("process_died", "SIGKILL"), ("process_died", "SIGKILL")),
    ],
    ids=["crash", "exit", "kill the supervisor"],
)
async def test_who_dies_hard_fails_by_name(
    opened: Engine, kind: str, tmp_path: Path, code: str, python: tuple[str, Any], shell: tuple[str, Any]
) -> None:
    fault = await failed(opened, step(kind, code, tmp_path))
    assert (fault.kind, fault.code) == (python if kind == "python" else shell)
    pids = noted_in(tmp_path, 1)
    assert await asyncio.to_thread(within, 60.0, lambda: living(pids) == set())


@KINDS
async def test_time_on_a_processor_is_limited_for_each_try(kind: str, tmp_path: Path) -> None:
    burn = "until = time.process_time() + 0.75\nwhile time.process_time() < until:\n    pass\n"
    async with engine(msgspec.structs.replace(SETTINGS, tool_cpu=1)) as opened:
        for _ in range(3 if kind == "python" else 0):
            await opened.run(step(kind, burn, tmp_path))
        fault = await fault_of_run(opened, step(kind, SPIN, tmp_path))
        assert fault.code in ("SIGXCPU", -signal.SIGXCPU, -signal.SIGKILL)
        if kind == "python":
            assert fault.message.endswith("it has used up its 1 seconds of processor time, the setting `tool_cpu`")
        assert await opened.run(one_step("python", {"code": "result = 1"})) == 1


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # in MiB


@KINDS
@pytest.mark.parametrize(
    "count", [300, pytest.param(10_240, marks=[pytest.mark.proof, pytest.mark.timeout(300)])], ids=["300 MiB", "10 GiB"]
)
async def test_output_without_end_costs_no_memory(opened: Engine, kind: str, tmp_path: Path, count: int) -> None:
    await opened.run(one_step("python", {"code": "print('x' * 3_000_000)"}))
    before = peak()
    code = f"line = b'x' * 1023 + b'\\n'\nfor _ in range({count}):\n    os.write(1, 1024 * line)\n"
    run = (await opened.start(step(kind, code, tmp_path))).id
    result = await opened.result(run)
    if kind == "shell":
        assert result["truncated"] == (count - 1) * MEBI
    lines = await opened.logs(run)
    assert sum(len(line["text"]) for _, line in lines) < 1.1 * MEBI
    assert lines[-1][1]["text"].endswith("bytes more are left out)")
    assert peak() - before < 100


LIMITS = (
    "import os, resource\n"
    "status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)\n"
    "mask = os.umask(0)\nos.umask(mask)\n"
    "names = ('AS', 'DATA', 'FSIZE', 'NOFILE', 'NPROC', 'CORE')\n"
    "found = {name: resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[0] for name in names}\n"
    "found.update(mask=mask, new_privs=status['NoNewPrivs'].strip(), leads=os.getsid(0) == os.getpid())\n"
)


@KINDS
async def test_every_limit_reaches_the_process(kind: str, tmp_path: Path) -> None:
    given = Settings(
        processes=1,
        tool_memory=512 * MEBI,
        tool_address_space=4096 * MEBI,
        tool_file_size=MEBI,
        tool_open_files=100,
        tool_processes=5000,
    )
    async with engine(given) as opened:
        code = LIMITS + ("result = found" if kind == "python" else "import json; print(json.dumps(found))")
        result = await opened.run(step(kind, code, tmp_path))
        found = result if kind == "python" else msgspec.json.decode(result["stdout"])
        assert found == {
            "AS": 4096 * MEBI,
            "DATA": 512 * MEBI,
            "FSIZE": MEBI,
            "NOFILE": 100,
            "NPROC": min(5000, *(x for x in resource.getrlimit(resource.RLIMIT_NPROC)[1:] if x >= 0)),
            "CORE": 0,
            "mask": 0o077,
            "new_privs": "1",
            "leads": True,
        }


async def test_no_limit_is_one_too(tmp_path: Path) -> None:
    none = Settings(processes=1, tool_memory=0, tool_file_size=0, tool_open_files=0, tool_processes=0, tool_cpu=0)
    async with engine(none) as opened:
        found = await opened.run(step("python", LIMITS + "result = found", tmp_path))
        for name in ("AS", "DATA", "FSIZE", "NOFILE", "NPROC"):
            assert found[name] == resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]


ORDINARY = {
    "duckdb": "import duckdb\nresult = duckdb.sql('select sum(range)::bigint from range(1000000)').fetchall()[0][0]",
    "threads": "from concurrent.futures import ThreadPoolExecutor as P\nresult = sum(P(64).map(len, ['a'] * 1000))",
    "processes": "import multiprocessing\nwith multiprocessing.get_context('spawn').Pool(2) as p:\n"
    "    result = p.map(abs, [-1])",
    "a program": "import subprocess\nresult = subprocess.run(['echo', 'x'], capture_output=True, text=True).stdout",
    "a file": "import tempfile\nwith tempfile.TemporaryFile() as file:\n    result = file.write(10_000_000 * b'x')",
}


async def test_the_limits_that_hold_by_themselves_are_no_hindrance() -> None:
    async with engine(Settings(processes=1)) as opened:
        found = {name: await opened.run(one_step("python", {"code": code})) for name, code in ORDINARY.items()}
    assert found == {
        "duckdb": 499_999_500_000,
        "threads": 1000,
        "processes": [1],
        "a program": "x\n",
        "a file": 10_000_000,
    }


def test_settings_come_from_the_environment_by_their_names() -> None:
    given = {"REFOLD_TOOL_MEMORY": "1000", "REFOLD_TOOL_CPU": "7", "REFOLD_PASS_ENV": "AWS_*, COLOUR"}
    settings = Settings.from_environment(given)
    assert settings.tool_limits == msgspec.structs.replace(Settings().tool_limits, memory=1000, cpu=7)
    assert settings.pass_env == ("AWS_*", "COLOUR")
    assert 0 < Settings().tool_limits.memory < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_tools_see_only_what_tells_where_they_are() -> None:
    kept = {"PATH": "/bin", "HOME": "/root", "LC_ALL": "C", "PYTHONPATH": "x", "HTTPS_PROXY": "p", "no_proxy": "h"}
    dropped = {"AWS_SECRET_ACCESS_KEY": "s", "REFOLD_KEY": "k", "COLOUR": "red", "XPATH": "", "PATHS": ""}
    assert environment({**kept, **dropped}) == kept
    assert environment({**kept, **dropped}, ["COLOUR", "AWS_*"]) == {
        **kept,
        "COLOUR": "red",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    assert "REFOLD_KEY" not in environment(dropped, ["REFOLD_*", "REFOLD_KEY", "*"])


@KINDS
async def test_no_secret_of_the_engine_is_in_the_environment_of_a_tool(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REFOLD_KEY", "DATABASE_PASSWORD", "COLOUR"):
        monkeypatch.setenv(name, "canary")
    async with engine(msgspec.structs.replace(SETTINGS, pass_env=("COLOUR",))) as opened:
        code = "import json\nfound = sorted(name for name, value in os.environ.items() if value == 'canary')\n"
        code += "result = found" if kind == "python" else "print(json.dumps(found))"
        found = await opened.run(step(kind, code, tmp_path))
        assert found == ["COLOUR"] if kind == "python" else found["stdout"] == '["COLOUR"]\n'


PARENT = """
import asyncio, sys
from tests.executors.test_containment import SETTINGS, step
from tests.tools.calls import engine
from pathlib import Path

async def main() -> None:
    async with engine(SETTINGS) as opened:
        code = Path(sys.argv[2]).read_text()
        await asyncio.gather(*(opened.run(step(kind, code, Path(sys.argv[1]))) for kind in ("python", "shell")))

asyncio.run(main())
"""


def test_an_engine_that_is_killed_takes_its_tools_along(tmp_path: Path) -> None:
    (tmp_path / "code").write_text(LEAVE + STUBBORN)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), str(tmp_path / "code")], cwd=ROOT)
    try:
        pids = {*noted_in(tmp_path, 4), *children(parent.pid)}
        assert len(living(pids)) >= 7, "and launcher and supervisors"
    finally:
        parent.kill()
        parent.wait()
    assert within(60.0, lambda: living(pids) == set())


async def test_a_warden_is_used_again_and_there_are_no_more_than_programs_at_once() -> None:
    supervisors = Supervisors(Limits())
    start = ProgramStart(argv=["true"], env={"PATH": os.environ["PATH"]}, files={})
    assert supervisors.pid == 0, "nothing is started before it is needed"
    for _ in range(5):
        assert await supervisors.start(start).over == 0
    assert len(own_children(supervisors.pid)) == 1
    await asyncio.gather(*(supervisors.start(start).over for _ in range(3)))
    assert len(own_children(supervisors.pid)) == 3
    await supervisors.close()


async def test_a_stop_that_comes_with_the_start_is_not_lost() -> None:
    supervisors = Supervisors(Limits())
    program = supervisors.start(ProgramStart(argv=["sleep", "60"], env={"PATH": os.environ["PATH"]}, files={}))
    program.stop(5.0)
    assert await asyncio.wait_for(program.over, 60) == -signal.SIGTERM
    again = supervisors.start(ProgramStart(argv=["true"], env={"PATH": os.environ["PATH"]}, files={}))
    assert await again.over == 0
    again.stop(0.0)
    await supervisors.close()


async def test_closing_ends_all_wards() -> None:
    others = children(os.getpid())  # of other tests, as a database server that all of them share
    supervisors = Supervisors(Limits())
    program = supervisors.start(ProgramStart(argv=["sleep", "60"], env={"PATH": os.environ["PATH"]}, files={}))
    assert await asyncio.to_thread(within, 60.0, lambda: len(children(supervisors.pid)) == 2)
    pids = children(os.getpid()) - others
    await supervisors.close()
    assert (await program.over, living(pids)) == (None, set())
