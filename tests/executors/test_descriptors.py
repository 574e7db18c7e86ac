"""What a step can reach of the processes around it: its own three streams, and nothing that the engine listens to."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from refold import Engine
from refold.errors import ToolFailed
from refold.executors import supervised, supervisor_process
from refold.executors.limits import Limits
from refold.executors.programs import Programs
from refold.executors.supervised import ProgramStart, Supervisors
from refold.tools.container.tool import ContainerTool
from tests.alive import children, living, noted_in, own_children, within
from tests.executors.bodies import LIST_FILES
from tests.executors.test_processes import BODIES, pool
from tests.tools.calls import call, engine, fault_of_run, one_step

STREAMS = [0, 1, 2]
LISTED = [sys.executable, "-c", LIST_FILES]
SERVER = """
import io, json, sys
from contextlib import redirect_stdout
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        heard = io.StringIO()
        with redirect_stdout(heard):
            exec(sys.argv[1], {})
        result = {"serverInfo": {}, "content": [{"type": "text", "text": heard.getvalue()}]}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture
async def opened() -> AsyncIterator[Engine]:
    async with engine() as found:
        yield found


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({}, {"command": LISTED}),
        ({}, {"command": LISTED, "stdin": "given"}),
        ({"script": f'exec "{sys.executable}" -c "$1"'}, {"args": [LIST_FILES]}),
    ],
    ids=["a program", "a program that is given something", "a script"],
)
async def test_a_program_of_a_step_has_its_three_streams_and_no_other_file(
    opened: Engine, settings: dict[str, Any], config: dict[str, Any]
) -> None:
    for _ in range(2):  # the second time by a supervisor that was used before
        several = await asyncio.gather(*(opened.run(one_step("shell", settings, config)) for _ in range(3)))
        assert [json.loads(each["stdout"]) for each in several] == 3 * [STREAMS]


async def test_an_mcp_server_has_its_three_streams_and_no_other_file(opened: Engine) -> None:
    config = {"command": [sys.executable, "-c", SERVER, LIST_FILES], "tool": "any"}
    assert json.loads((await opened.run(one_step("mcp", None, config)))["text"]) == STREAMS


async def test_the_client_of_containers_has_its_three_streams_and_no_other_file(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!{sys.executable}\n{LIST_FILES}")
    docker.chmod(0o700)
    programs = Programs(env={"PATH": str(tmp_path)})
    result = await ContainerTool(programs, {})(call(None, {"image": "any"}))
    await programs.close()
    assert json.loads(result["stdout"]) == STREAMS


async def test_the_code_of_a_step_has_its_three_streams_and_the_line_of_its_interpreter() -> None:
    async with pool() as processes:
        for _ in range(2):
            assert await processes.run(f"{BODIES}:open_files", None) == [*STREAMS, 3]


@pytest.mark.parametrize("body", ["open_files_of_a_fork", "open_files_of_a_program"])
async def test_what_the_code_of_a_step_starts_does_not_inherit_the_line_of_its_interpreter(body: str) -> None:
    async with pool() as processes:
        for _ in range(2):
            assert await processes.run(f"{BODIES}:{body}", None) == STREAMS


async def test_a_program_that_is_given_no_streams_does_not_get_those_of_the_engine(tmp_path: Path) -> None:
    supervisors = Supervisors(Limits())
    code = "import os; open('told', 'w').write(str([os.path.realpath(f'/proc/self/fd/{n}') for n in range(3)]))"
    start = ProgramStart(argv=[sys.executable, "-c", code], env={}, files={}, cwd=str(tmp_path))
    assert await supervisors.start(start).over == 0
    await supervisors.close()
    assert (tmp_path / "told").read_text() == str(3 * ["/dev/null"])


@pytest.mark.parametrize(
    "what",
    [
        "a byte",
        "a great length",
        "a short length",
        "no text",
        "a forged answer",
        "a forged answer to the next",
        "a deep answer",
        "half an answer",
    ],
)
async def test_what_a_body_writes_to_the_line_of_its_interpreter_fails_its_step_alone(what: str) -> None:
    troubles: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
    async with pool() as processes:
        with pytest.raises(ToolFailed, match="the process lost its connection to the engine before the step ended"):
            await processes.run(f"{BODIES}:spoil", what)
        assert await asyncio.gather(*(processes.run(f"{BODIES}:echo", each) for each in range(3))) == [0, 1, 2]
    assert troubles == []


BABBLER = """
import os, socket, sys, time
control = socket.socket(fileno=int(sys.argv[1]))
while True:
    data, files, *_ = socket.recv_fds(control, 1, 8)
    if not data:
        break
    for each in files:
        os.write(each, WORDS)
"""


@pytest.mark.parametrize(
    "words",
    [b"\xff\xfe\n", b"ended x\n", b"ended 0 0\n", b"failed 2\n", b"failed 2 \xff\n", b"ended " + 99 * b"9" + b"\n"],
)
async def test_garbage_on_the_socket_of_a_supervisor_is_a_failure_of_its_program_alone(
    words: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
    babbler = tmp_path / "babbler.py"
    babbler.write_text(BABBLER.replace("WORDS", repr(words)))
    monkeypatch.setattr(supervised, "SUPERVISOR_SCRIPT", str(babbler))
    supervisors = Supervisors(Limits())
    start = ProgramStart(argv=["true"], env={"PATH": os.environ["PATH"]}, files={})
    assert await asyncio.wait_for(supervisors.start(start).over, 30) is None
    await supervisors.close()
    assert troubles == []


@pytest.mark.parametrize("kind", ["shell", "python"])
async def test_a_launcher_and_a_supervisor_that_die_together_are_noticed(
    opened: Engine, kind: str, tmp_path: Path
) -> None:
    code = f"import os, pathlib, time\npathlib.Path({str(tmp_path)!r}, f'pid {{os.getpid()}}').touch()\ntime.sleep(60)"
    config = {"command": [sys.executable, "-c", code]} if kind == "shell" else {}
    plan = one_step(kind, None if kind == "shell" else {"code": code}, config)
    before = children(os.getpid())
    failing = asyncio.create_task(fault_of_run(opened, plan))
    [pid] = await asyncio.to_thread(noted_in, tmp_path, 1, 30.0)
    [supervisor] = own_children(os.getpid()) - before
    killed = [supervisor, *own_children(supervisor)]
    try:
        for each in killed:
            os.kill(each, signal.SIGKILL)
        fault = await asyncio.wait_for(failing, 30)
        assert (fault.kind, fault.message) == ("process_died", "the process was killed with its supervisor")
        if kind == "python":
            assert await asyncio.to_thread(within, 30.0, lambda: living([pid]) == set())
    finally:
        if living([pid]):
            os.kill(pid, signal.SIGKILL)  # nobody is left who could end a program
    assert await asyncio.to_thread(within, 30.0, lambda: living(killed) == set())  # their sockets are closed now
    assert (await opened.run(one_step("shell", {"script": "echo next"})))["stdout"] == "next\n"


async def test_who_gets_no_grace_is_not_asked_first() -> None:
    """A crowd that is asked wakes up all at once, and whoever ends it waits for its turn among them."""
    supervisors = Supervisors(Limits())
    for _ in range(3):
        program = supervisors.start(ProgramStart(argv=["sleep", "60"], env={"PATH": os.environ["PATH"]}, files={}))
        assert await asyncio.to_thread(within, 30.0, lambda: len(children(supervisors.pid)) == 2)
        program.stop(0.0)
        assert await program.over == -signal.SIGKILL
    await supervisors.close()


async def test_what_a_body_has_forked_ends_like_any_program_when_it_is_asked_to() -> None:
    """And not like an interpreter, by way of all that it has loaded: a crowd of copies has no time for that."""
    async with pool() as processes:
        assert await processes.run(f"{BODIES}:end_a_fork", None) == -signal.SIGTERM


class Crowd:
    """Processes that take a millisecond each to go, one after the other, and the time in which they do."""

    def __init__(self, size: int) -> None:
        self.alive = set(range(1, size + 1))
        self.killed: list[int] = []
        self.now = 0.0
        self.work = 0

    def find(self) -> set[int]:
        self.work += len(self.alive)
        return set(self.alive)

    def send(self, pid: int, number: int) -> None:
        self.work += 1
        if number == signal.SIGKILL and pid not in self.killed:
            self.killed.append(pid)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        gone = round(1000 * self.now)
        self.alive -= set(self.killed[:gone])

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Crowd]:
    def end(size: int) -> Crowd:
        crowd = Crowd(size)
        monkeypatch.setattr(supervisor_process, "time", crowd)
        monkeypatch.setattr(supervisor_process, "send", crowd.send)
        supervisor_process.kill_all(crowd.find, lambda: bool(crowd.alive))
        return crowd

    return end


def test_to_end_ten_times_as_many_processes_is_about_ten_times_the_work(ended: Callable[[int], Crowd]) -> None:
    few, many = ended(200), ended(2000)
    assert many.alive == set()
    assert many.work < 20 * few.work
    assert many.now < 2.1, "and none of them is waited for when it is gone"
