"""The tool `shell`: runs a program with its arguments, or a script; no value is ever part of a shell's text."""

import codecs
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Program, ProgramEnd, Programs, ToolCall
from refold.tool_api import Keys, refused, text_of, type_name
from refold.tools.shell.info import SHELL

SH, BASH = "/bin/sh", "bash"  # the latter is what NoETL files are written for
LAST_WORDS = 8000  # characters of each stream that a failure tells


class ShellTool:
    """Runs programs; `conceal` removes secrets from a text before it is shortened."""

    def __init__(self, programs: Programs, conceal: Callable[[str], str] = str) -> None:
        self.programs, self._conceal = programs, conceal
        self._keys = Keys(SHELL)

    async def __call__(self, call: ToolCall) -> Any:
        keys = self._keys.read(call).keys
        encoding = _encoding(keys.get("encoding", "utf-8"))
        ok_codes = keys.get("ok_codes", [0])
        program = Program(
            argv=_argv(keys, call.command.step, BASH if call.settings.get("dialect") == "noetl" else SH),
            cwd=keys.get("cwd"),
            env={**about(call), **_env(keys.get("env", {}))},
            stdin=stdin_of(keys.get("stdin"), encoding),
        )
        try:
            ended = await self.programs.run(program, call.say)
        except (OSError, ValueError) as error:
            raise refused(f"{program.argv[0]!r} cannot be started: {error}", "no_program") from None
        result = {
            "exit_code": ended.code,
            "stdout": ended.stdout.decode(encoding, "replace"),
            "stderr": ended.stderr.decode(encoding, "replace"),
            "truncated": ended.left_out,
        }
        if ended.code not in ok_codes:
            name = "the script" if "script" in keys else program.argv[0]
            raise ToolFailed(fault_of_end(name, ended, result, self._conceal))
        return result

    async def close(self) -> None:
        await self.programs.close()


def _argv(keys: Mapping[str, Any], step: str, shell: str) -> list[str]:
    command, script = keys.get("command"), keys.get("script")
    if (command is None) == (script is None):
        raise refused("shell needs exactly one of `command` and `script`")
    args = _texts(keys.get("args", []), "args")
    if script is not None:
        return [shell, "-e", "-c", script, step, *args]
    if isinstance(command, str):
        if not keys.get("shell"):
            raise refused("`command` must be a list; text is a `script`, or a command with `shell: true`")
        return [shell, "-c", command, step, *args]
    if not isinstance(command, list) or not command:
        raise refused(f"`command` must be a list of the program and its arguments, not {type_name(command)}")
    if keys.get("shell") or args:
        raise refused("`shell` and `args` belong to a script; a list is started as it is")
    return _texts(command, "command")


def _texts(values: Sequence[Any], key: str) -> list[str]:
    return [text_of(each, f"`{key}[{i}]`") for i, each in enumerate(values)]


def _env(given: Mapping[str, Any]) -> dict[str, str]:
    return {name: text_of(value, f"`env.{name}`") for name, value in given.items() if value is not None}


def about(call: ToolCall) -> dict[str, str]:
    return {
        "REFOLD_RUN": call.run,
        "REFOLD_STEP": call.command.step,
        "REFOLD_ATTEMPT": str(call.command.attempt),
        "REFOLD_IDEMPOTENCY_KEY": call.idempotency_key,
    }


def stdin_of(value: Any, encoding: str) -> bytes:
    if value is None:
        return b""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise refused(f"`stdin` has no form in {encoding}: {error}") from None


def _encoding(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise refused(f"there is no encoding {name!r}") from None


def fault_of_end(program: str, ended: ProgramEnd, result: Mapping[str, Any], conceal: Callable[[str], str]) -> Fault:
    """Return the failure of a program.

    It may be tried again unless the step forbids it: an exit code does not show that.
    """
    how = f"ended with exit code {ended.code}" if ended.code >= 0 else f"was killed by {_signal(-ended.code)}"
    told = {n: conceal(each)[-LAST_WORDS:] if isinstance(each, str) else each for n, each in result.items()}
    last = told["stderr"].strip()
    message = f"{program} {how}" + (f": {last.splitlines()[-1]}" if last else "")
    return Fault("exit", message, traceback=last, code=ended.code, retryable=True, data=told)


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
