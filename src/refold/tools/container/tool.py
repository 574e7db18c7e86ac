"""The tool `container`: runs a container with the program docker, and leaves none behind."""

import asyncio
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.logs import WARNING, event, logger
from refold.ports import Program, ProgramEnd, Programs, ToolCall
from refold.tool_api import Keys, folder_of, refused, text_of, type_name
from refold.tools.container.info import CONTAINER
from refold.tools.shell.tool import about, fault_of_end, limit_of, stdin_of, streams_of

log = logger("tools")

DOCKER = "docker"
REMOVED_WITHIN = 10.0  # seconds, or docker does not answer
OF_DOCKER = 125  # the exit code of docker itself
NOT_STARTED = {126: "cannot be executed in", 127: "is not in"}
TAKEN = "is already in use"
UNREACHABLE = re.compile(r"cannot connect to the docker daemon|error during connect|connection refused", re.I)
VARIABLE = re.compile(r"[^=\0]+")
LONGEST_LINE = 60_000  # characters of a variable in a file; docker reads no more than 64 KiB
STEERING = re.compile(
    r"(?i:DOCKER|BUILDKIT|BUILDX|COMPOSE|CONTAINER|LD|DYLD|GO|SSL|SSH|XDG|OTEL|GIT|LC|MALLOC|GLIBC|GCONV)_?\w*"
    r"|(?i:HTTPS?|NO|ALL|FTP)_PROXY|(?i:no|all|https?)_proxy|PATH|HOME|USER|SHELL|TMPDIR|TEMP|TMP|LANG|TERM|PWD|IFS|ENV"
    r"|BASH\w*|HOSTALIASES|RES_OPTIONS|NLSPATH|TZ\w*|LOCALDOMAIN"
)


class ContainerTool:
    """Runs containers.

    `env` is the environment of docker itself, such as DOCKER_HOST: containers do not see it, and docker does not see
    theirs. `conceal` removes secrets from a text before it is shortened.
    """

    def __init__(self, programs: Programs, env: Mapping[str, str], conceal: Callable[[str], str] = str) -> None:
        self.programs, self.env, self._conceal = programs, env, conceal
        self._keys = Keys(CONTAINER)

    async def __call__(self, call: ToolCall) -> Any:
        keys = self._keys.read(call).keys
        name, env = name_of_call(call), {**about(call), **_env(keys.get("env", {}))}
        options, image = list(_options(call, keys)), list(_image(keys))
        stdin = stdin_of(keys.get("stdin"), "utf-8")
        try:
            with _handed_over(env, self.env) as (variables, seen):
                argv = [DOCKER, "run", "--rm", "--name", name, *options, *variables, *image]
                program = Program(
                    argv=argv, env={**self.env, **seen}, stdin=stdin, cwd=folder_of(call), keep=limit_of(keys)
                )
                async with asyncio.timeout(keys.get("timeout")):
                    ended = await self._run(program, call, name)
        except TimeoutError:
            await self._remove(name)
            raise ToolFailed(Fault("timeout", f"container {name} took too long", retryable=True)) from None
        except asyncio.CancelledError:
            await self._remove(name)
            raise
        return _judged(ended, keys, name, self._conceal)

    async def _run(self, program: Program, call: ToolCall, name: str) -> ProgramEnd:
        ended = await self._start(program, call)
        if ended.code == OF_DOCKER and TAKEN in streams_of(ended)["stderr"]:
            await self._remove(name)  # an earlier try of this command left it, and its holder is gone
            ended = await self._start(program, call)
        return ended

    async def _start(self, program: Program, call: ToolCall) -> ProgramEnd:
        try:
            return await self.programs.run(program, call.say)
        except FileNotFoundError:
            why = "there is no program `docker` on the PATH; install it, or start this worker where it is"
            raise refused(why, "no_program") from None
        except (OSError, ValueError) as error:
            raise refused(f"docker cannot be started: {error}", "no_program") from None

    async def _remove(self, name: str) -> None:
        """Remove the container, which continues to run without the program that has started it."""
        try:
            async with asyncio.timeout(REMOVED_WITHIN):
                await self.programs.run(Program(argv=[DOCKER, "rm", "--force", name], env=self.env))
        except (OSError, ToolFailed, TimeoutError) as error:
            event(log, WARNING, "a container could not be removed", container=name, why=type(error).__name__)


def name_of_call(call: ToolCall) -> str:
    """Return the name of the container, which is the same in every try."""
    return f"refold-{hashlib.sha256(call.idempotency_key.encode()).hexdigest()[:32]}"


def _options(call: ToolCall, keys: Mapping[str, Any]) -> Iterator[str]:
    yield from ("--label", f"refold.run={call.run}", "--label", f"refold.step={call.command.step}")
    if "stdin" in keys:
        yield "--interactive"
    for key, option in (("network", "--network"), ("user", "--user"), ("cwd", "--workdir"), ("pull", "--pull")):
        if key in keys:
            yield f"{option}={keys[key]}"
    for name, value in keys.get("resources", {}).items():
        if name not in ("cpus", "memory"):
            raise refused(f"`resources` has `cpus` and `memory`, and no {name!r}")
        if value is not None:
            yield f"--{name}={text_of(value, f'`resources.{name}`')}"
    for volume in keys.get("volumes", []):
        yield from _volume(volume)


def _volume(volume: Any) -> Iterator[str]:
    match volume:
        case str():
            yield f"--volume={volume}"
        case {"source": str(source), "target": str(target), **more} if set(more) <= {"read_only"}:
            if "," in source + target:
                raise refused("a volume has no comma in its paths; write it as text, `SOURCE:TARGET`")
            kind = "bind" if source.startswith("/") else "volume"
            alone = ",readonly" if more.get("read_only") else ""
            yield f"--mount=type={kind},source={source},target={target}{alone}"
        case _:
            raise refused("a volume is text, `SOURCE:TARGET`, or a map of `source`, `target` and `read_only`")


def _env(given: Any) -> dict[str, str]:
    pairs = given.items() if isinstance(given, Mapping) else _pairs(given)
    found = {str(name): text_of(value, f"`env.{name}`") for name, value in pairs if value is not None}
    for name in found:
        if not VARIABLE.fullmatch(name):
            raise refused(f"{name!r} is not a name of a variable")
    return found


def _pairs(given: Any) -> Iterator[tuple[str, Any]]:
    for each in given if isinstance(given, list) else [given]:
        if not isinstance(each, Mapping) or not {"name"} <= set(each) <= {"name", "value"}:
            raise refused(f"`env` is a map, or a list of `{{name, value}}`, and no {type_name(each)}")
        yield text_of(each["name"], "`env.name`"), each.get("value")


@contextmanager
def _handed_over(env: Mapping[str, str], own: Mapping[str, str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Options that give a container its variables, and the few of them that docker has to see itself for that.

    Values are not arguments, which everybody can see, and not in the environment of docker, which they would steer
    (DOCKER_HOST, LD_PRELOAD, PATH): docker reads them from a file without a name, which is gone with this process.
    Such a file has a line for each. What does not fit into a line is handed over by its name, unless docker, its
    helpers or the loader of programs may read a variable of that name.
    """
    lines = {name: value for name, value in env.items() if _is_a_line(name, value)}
    named = {name: value for name, value in env.items() if name not in lines}
    for name in named:
        if name in own or STEERING.fullmatch(name):
            raise refused(f"`env.{name}` has several lines, and docker itself would read it; give it in `stdin`")
    with _file_of("".join(f"{name}={value}\n" for name, value in lines.items())) as path:
        yield [*([f"--env-file={path}"] if lines else []), *(f"--env={name}" for name in named)], named


def _is_a_line(name: str, value: str) -> bool:
    """Whether docker reads it from a file as it is: lines of 64 KiB, without the space around a name."""
    plain = not name.startswith("#") and not any(char.isspace() for char in name)
    return plain and "\n" not in value and not value.endswith("\r") and len(name) + len(value.encode()) < LONGEST_LINE


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("refold-env", os.MFD_CLOEXEC)
        try:
            with open(file, "wb", closefd=False) as out:
                out.write(text.encode("utf-8", "surrogateescape"))
            yield f"/proc/{os.getpid()}/fd/{file}"
        finally:
            os.close(file)
    else:  # pragma: no cover (Linux has the other)
        with tempfile.NamedTemporaryFile("w", prefix="refold-env-") as out:
            out.write(text)
            out.flush()
            yield out.name


def _image(keys: Mapping[str, Any]) -> Iterator[str]:
    image, command = keys["image"], [text_of(each, "`command`") for each in keys.get("command", [])]
    if not image or image.startswith("-"):
        raise refused(f"{image!r} is not a name of an image")
    if command:
        yield f"--entrypoint={command[0]}"
    yield image
    yield from command[1:]
    yield from (text_of(each, "`args`") for each in keys.get("args", []))


def _reason(stderr: str) -> str:
    """What docker says of itself, between the progress of a pull and words on its help; or else the last line."""
    lines = stderr.strip().splitlines() or [""]
    return next((line.removeprefix("docker: ") for line in lines if line.startswith("docker: ")), lines[-1])


def _judged(ended: ProgramEnd, keys: Mapping[str, Any], name: str, conceal: Callable[[str], str]) -> dict[str, Any]:
    result = {
        "exit_code": ended.code,
        **streams_of(ended),
        "truncated": ended.left_out,
        "name": name,
        "image": keys["image"],
    }
    if ended.code in keys.get("ok_codes", [0]):
        return result
    last = _reason(result["stderr"])
    if ended.code == OF_DOCKER:
        lost = UNREACHABLE.search(result["stderr"]) is not None
        kind, why = "connection" if lost else "container", f"docker could not run {keys['image']}: {last}"
        raise ToolFailed(Fault(kind, why, code=ended.code, retryable=lost, data=result))
    if ended.code in NOT_STARTED:
        why = f"the program {NOT_STARTED[ended.code]} {keys['image']}: {last}"
        raise ToolFailed(Fault("no_program", why, code=ended.code, retryable=False, data=result))
    raise ToolFailed(fault_of_end(f"container {keys['image']}", ended, result, conceal))
