"""The tool `container`, with a program in the place of docker that notes what it is asked."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from refold.executors.programs import Programs
from refold.tools.container.tool import ContainerTool, name_of_call
from tests.tools.calls import call, engine, fault_of, one_step

DOCKER = """#!/usr/bin/env python3
import json, os, sys, time

folder = os.path.dirname(os.path.abspath(__file__))
def noted(what, line):
    with open(os.path.join(folder, what), "a") as file:
        file.write(json.dumps(line) + "\\n")

argv = sys.argv[1:]
passed = {each[6:]: os.environ.get(each[6:]) for each in argv if each.startswith("--env=")}
for each in argv:
    if each.startswith("--env-file="):
        with open(each[11:]) as file:
            passed.update(line.rstrip("\\n").split("=", 1) for line in file)
noted("own", dict(os.environ))
noted("asked", argv)
noted("passed", passed)
state = os.path.join(folder, "running")
if argv[0] == "rm":
    os.path.exists(state) and os.remove(state)
    sys.exit(0)
if os.path.exists(state):
    print("docker: Error response from daemon: Conflict. The container name is already in use.", file=sys.stderr)
    sys.exit(125)
what = passed.get("WHAT") or ""
if what == "sleep":
    open(state, "w").close()
    time.sleep(100)
if what == "unreachable":
    print("docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", file=sys.stderr)
    print("\\nRun 'docker run --help' for more information", file=sys.stderr)
    sys.exit(125)
if what == "no image":
    print("Unable to find image 'x' locally\\ndocker: pull access denied.", file=sys.stderr)
    print("\\nRun 'docker run --help' for more information", file=sys.stderr)
    sys.exit(125)
if what.isdigit():
    print("it broke", file=sys.stderr)
    sys.exit(int(what))
print("said", sys.stdin.read() if "--interactive" in argv else "")
"""


class Docker:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "docker"
        program.write_text(DOCKER)
        program.chmod(0o755)

    def noted(self, what: str) -> list[Any]:
        file = self.folder / what
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def asked(self) -> list[list[str]]:
        return self.noted("asked")

    @property
    def is_running(self) -> bool:
        return (self.folder / "running").exists()

    async def begun(self) -> None:
        until = time.monotonic() + 60
        while not self.is_running:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Docker(tmp_path)


@pytest.fixture
async def container(docker: Docker) -> AsyncIterator[ContainerTool]:
    programs = Programs(0.2)
    yield ContainerTool(programs, {"DOCKER_HOST": "tcp://elsewhere"})
    await programs.close()


def run(image: str = "busybox", **config: Any) -> Any:
    return call(None, {"image": image, **config})


async def test_a_container_is_started_with_what_the_keys_say(container: ContainerTool, docker: Docker) -> None:
    asked = run(
        "python:3.12",
        command=["python", "-c"],
        args=["print(1)", "--rm; rm -rf /", 5],
        env={"TOKEN": "s3cret", "NONE": None, "N": 1},
        volumes=["/in:/in:ro", {"source": "cache", "target": "/cache", "read_only": True}],
        resources={"cpus": 1.5, "memory": "512m"},
        network="none",
        user="1000:1000",
        cwd="/work",
        pull="never",
        stdin={"a": 1},
    )
    result = await container(asked)
    assert result == {
        "exit_code": 0,
        "stdout": 'said {"a": 1}\n',
        "stderr": "",
        "truncated": 0,
        "name": name_of_call(asked),
        "image": "python:3.12",
    }
    (argv,) = docker.asked
    at = argv.index("python:3.12")
    assert argv[:4] == ["run", "--rm", "--name", name_of_call(asked)]
    assert argv[at - 1 :] == ["--entrypoint=python", "python:3.12", "-c", "print(1)", "--rm; rm -rf /", "5"]
    assert set(argv[4:at]) >= {
        "--network=none",
        "--user=1000:1000",
        "--workdir=/work",
        "--pull=never",
        "--cpus=1.5",
        "--memory=512m",
        "--volume=/in:/in:ro",
        "--mount=type=volume,source=cache,target=/cache,readonly",
        "--interactive",
    }
    assert docker.noted("passed")[0].items() >= {"TOKEN": "s3cret", "N": "1"}.items()


async def test_values_of_variables_are_not_among_the_arguments(container: ContainerTool, docker: Docker) -> None:
    await container(run(env=[{"name": "TOKEN", "value": "s3cret"}]))
    (argv,), (passed,) = docker.asked, docker.noted("passed")
    assert "s3cret" not in " ".join(argv)
    assert passed["TOKEN"] == "s3cret"
    assert passed["REFOLD_IDEMPOTENCY_KEY"] == "run-1/a/1"
    assert "DOCKER_HOST" not in passed, "what docker itself needs is not for the container"


async def test_variables_of_a_container_do_not_steer_docker_itself(container: ContainerTool, docker: Docker) -> None:
    """They reach the container, all of them; docker has the environment that this process gives it."""
    given = {"DOCKER_HOST": "tcp://evil", "LD_PRELOAD": "/tmp/evil.so", "PATH": "/evil", "HOME": "/evil", "A": "b=c #d"}
    await container(run(env={**given, "PEM": "a\nb", "END": "x\r"}))
    (passed,), (own,) = docker.noted("passed"), docker.noted("own")
    assert passed.items() >= {**given, "PEM": "a\nb", "END": "x\r"}.items()
    assert own["DOCKER_HOST"] == "tcp://elsewhere"
    assert not {"LD_PRELOAD", "A"} & set(own) and own["PATH"] != "/evil" and own["HOME"] != "/evil"


@pytest.mark.parametrize("name", ["DOCKER_HOST", "LD_PRELOAD", "PATH", "https_proxy", "GODEBUG"])
async def test_a_variable_of_several_lines_that_docker_would_read_is_refused(
    container: ContainerTool, docker: Docker, name: str
) -> None:
    """Such a value has no place in a file of variables, and docker must not see it."""
    fault = await fault_of(container, run(env={name: "a\nb"}))
    assert (fault.kind, docker.asked) == ("invalid_settings", [])
    assert f"`env.{name}` has several lines" in fault.message


@pytest.mark.parametrize(
    ("what", "kind", "retryable", "why"),
    [
        ("3", "exit", True, "container busybox ended with exit code 3: it broke"),
        ("126", "no_program", False, "the program cannot be executed in busybox: it broke"),
        ("127", "no_program", False, "the program is not in busybox: it broke"),
        (
            "unreachable",
            "connection",
            True,
            "docker could not run busybox: Cannot connect to the Docker daemon at unix",
        ),
        ("no image", "container", False, "docker could not run busybox: pull access denied."),
    ],
)
async def test_a_failure_says_whose_it_is(
    container: ContainerTool, docker: Docker, what: str, kind: str, retryable: bool, why: str
) -> None:
    fault = await fault_of(container, run(env={"WHAT": what}))
    assert (fault.kind, fault.retryable) == (kind, retryable)
    assert fault.message.startswith(why)
    assert fault.data["exit_code"] == fault.code


async def test_an_exit_code_may_be_no_failure(container: ContainerTool, docker: Docker) -> None:
    assert (await container(run(env={"WHAT": "3"}, ok_codes=[0, 3])))["exit_code"] == 3


async def test_a_container_is_killed_by_its_name_when_time_is_up(container: ContainerTool, docker: Docker) -> None:
    asked = run(env={"WHAT": "sleep"}, timeout="1s")
    fault = await fault_of(container, asked)
    assert (fault.kind, fault.retryable) == ("timeout", True)
    assert docker.asked[-1] == ["rm", "--force", name_of_call(asked)]
    assert not docker.is_running


async def test_a_container_goes_with_its_step(container: ContainerTool, docker: Docker) -> None:
    running = asyncio.create_task(container(run(env={"WHAT": "sleep"})))
    await docker.begun()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not docker.is_running


async def test_what_an_earlier_try_left_behind_is_ended_first(container: ContainerTool, docker: Docker) -> None:
    (docker.folder / "running").touch()
    assert (await container(run()))["exit_code"] == 0
    assert [argv[0] for argv in docker.asked] == ["run", "rm", "run"]


def test_every_try_of_a_command_has_the_same_name_and_no_other_has_it() -> None:
    first = run()
    again = structs.replace(first, command=structs.replace(first.command, attempt=2))
    other = structs.replace(first, command=structs.replace(first.command, id="a/2"))
    assert name_of_call(first) == name_of_call(again) != name_of_call(other)
    assert re.fullmatch(r"refold-[0-9a-f]{32}", name_of_call(first))


@pytest.mark.parametrize(
    "config",
    [
        {"image": ""},
        {"image": "--privileged"},
        {"env": {"A=B": 1}},
        {"env": [{"nom": "A"}]},
        {"env": "A=B"},
        {"volumes": [5]},
        {"volumes": [{"source": "/a", "target": "/b,readonly"}]},
        {"resources": {"gpus": 1}},
        {"args": [{}]},
    ],
)
async def test_what_cannot_be_meant_is_refused(
    container: ContainerTool, docker: Docker, config: dict[str, Any]
) -> None:
    fault = await fault_of(container, run(**config))
    assert (fault.kind, fault.retryable, docker.asked) == ("invalid_settings", False, [])


async def test_a_machine_without_docker_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    programs = Programs(0.2)
    fault = await fault_of(ContainerTool(programs, {}), run())
    assert (fault.kind, fault.retryable) == ("no_program", False)
    assert fault.message.startswith("there is no program `docker` on the PATH; install it")
    await programs.close()


async def test_a_container_is_a_step_like_any_other(docker: Docker) -> None:
    async with engine() as opened:
        assert (await opened.run(one_step("container", None, {"image": "busybox"})))["stdout"] == "said \n"
