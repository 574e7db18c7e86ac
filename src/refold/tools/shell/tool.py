"""The tool `shell`: runs a program with its arguments, or a script; no value is ever part of a shell's text."""

import codecs
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs

from refold.core import cut_text
from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Program, ProgramEnd, Programs, ToolCall
from refold.templates.output_blocks import read_answer
from refold.tool_api import Keys, ToolKey, folder_of, refused, text_of, type_name
from refold.tools.shell.info import SHELL

SH, BASH = "/bin/sh", "bash"  # the latter is what NoETL files are written for
KEPT = 1024 * 1024  # bytes of each stream, unless the step says otherwise
MOST_KEPT = 256 * 1024 * 1024
LAST_WORDS = 8000  # characters of each stream that a failure tells
SCRIPT_WORDS = 2000  # characters of its errors in the message of a script whose answer is read
READS = ToolKey(name="reads", type="map", static=True)  # added by the reader of `.wf` files; nobody writes it


class ShellTool:
    """Runs programs; `conceal` removes secrets from a text before it is shortened."""

    def __init__(self, programs: Programs, conceal: Callable[[str], str] = str) -> None:
        self.programs, self._conceal = programs, conceal
        self._keys = Keys(structs.replace(SHELL, keys=(*SHELL.keys, READS)))

    async def __call__(self, call: ToolCall) -> Any:
        keys = self._keys.read(call).keys
        encoding = _encoding(keys.get("encoding", "utf-8"))
        ok_codes = keys.get("ok_codes", [0])
        program = Program(
            argv=_argv(keys, call.command.step, BASH if call.settings.get("dialect") == "noetl" else SH),
            cwd=folder_of(call, keys.get("cwd")),
            env={**about(call), **_env(keys.get("env", {}))},
            stdin=stdin_of(keys.get("stdin"), encoding),
            keep=limit_of(keys),
            stdout_file=_part(keys["stdout_file"]) if "stdout_file" in keys else "",
        )
        try:
            ended = await self.programs.run(program, call.say)
        except (OSError, ValueError) as error:
            if program.stdout_file and getattr(error, "filename", None) == _path(program):
                raise refused(f"`stdout_file`: {_why_no_file(program, error)}", "no_file") from None
            raise refused(f"{program.argv[0]!r} cannot be started: {error}", "no_program") from None
        except BaseException:
            _remove_part(program)
            raise
        result = {"exit_code": ended.code, **streams_of(ended, encoding), "truncated": ended.left_out}
        if program.stdout_file:
            result |= _filed(program, ended.code in ok_codes)
        if ended.code not in ok_codes:
            name = "the script" if "script" in keys else program.argv[0]
            fault = fault_of_end(name, ended, result, self._conceal)
            if "reads" in keys:
                fault = structs.replace(
                    fault, message=_with_errors(fault.message, self._conceal(str(result["stderr"])))
                )
            raise ToolFailed(fault)
        return _read(str(result["stdout"]), keys["reads"], call) if "reads" in keys else result

    async def close(self) -> None:
        await self.programs.close()


def _with_errors(message: str, errors: str) -> str:
    return f"{message.partition(': ')[0]}: {errors.strip()[-SCRIPT_WORDS:]}" if errors.strip() else message


def _read(printed: str, reads: Mapping[str, Any], call: ToolCall) -> dict[str, Any]:
    """Return what a script says in its output block; warnings go to the run's log."""
    answer = read_answer(printed, None, reads.get("reserved", ()), script=True)
    for warning in answer.warnings if call.say is not None else ():
        call.say("stderr", f"warning: {warning}")  # type: ignore[misc]
    return answer.result()


def streams_of(ended: ProgramEnd, encoding: str = "utf-8") -> dict[str, str]:
    """Return both streams as text, each with a mark where bytes were left out."""
    out = ended.stdout.decode(encoding, "replace"), ended.stdout_end.decode(encoding, "replace")
    err = ended.stderr.decode(encoding, "replace"), ended.stderr_end.decode(encoding, "replace")
    return {
        "stdout": cut_text.joined(*out, ended.stdout_left_out),
        "stderr": cut_text.joined(*err, ended.stderr_left_out),
    }


def limit_of(keys: Mapping[str, Any]) -> int:
    """Return how many bytes of each stream are kept."""
    limit = keys.get("max_output", KEPT)
    if not 0 <= limit <= MOST_KEPT:
        raise refused(f"`max_output` is a number of bytes up to {MOST_KEPT:,}; larger output goes to `stdout_file`")
    return int(limit)


def _part(file: str) -> str:
    """Return the file that is written while the program runs; it gets its name when the program has succeeded."""
    if not file:
        raise refused("`stdout_file` needs the name of a file")
    return f"{file}.part"


def _path(program: Program) -> str:
    return os.path.join(program.cwd or "", program.stdout_file)


def _why_no_file(program: Program, error: Exception) -> str:
    folder = os.path.dirname(_path(program)) or os.curdir
    if not os.path.isdir(folder):
        return f"there is no folder {os.path.abspath(folder)}: create it, or name another file"
    return f"{_path(program)} cannot be written: {getattr(error, 'strerror', None) or error}"


def _remove_part(program: Program) -> None:
    if program.stdout_file:
        with suppress(OSError):  # it may never have been created
            os.remove(_path(program))


def _filed(program: Program, succeeded: bool) -> dict[str, Any]:
    """Give the file its name, or remove it. Return what the result has about it."""
    part = _path(program)
    if not succeeded:
        _remove_part(program)
        return {}
    path, size = part.removesuffix(".part"), os.path.getsize(part)
    os.replace(part, path)
    return {"stdout_file": os.path.abspath(path), "stdout_bytes": size}


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
