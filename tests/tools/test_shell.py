"""The tool `shell`: values stay data, outcomes are told, and nothing is left running."""

import asyncio
import json
import os
import random
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from refold.executors.programs import Programs
from refold.ports import Program
from refold.tools.shell.tool import ShellTool
from tests.alive import children, living, noted_in, within
from tests.tools.calls import call, engine, fault_of, fault_of_run, one_step

ROOT = Path(__file__).parents[2]
PYTHON = sys.executable

NOTE = 'mkdir -p "$FOLDER"; touch "$FOLDER/pid $$"; '  # what runs here is noted as a file


@pytest.fixture
async def shell() -> AsyncIterator[ShellTool]:
    before = children(os.getpid())
    tool = ShellTool(Programs(grace=0.2))
    yield tool
    await tool.close()
    assert children(os.getpid()) - before == set()


def metacharacters(count: int) -> list[str]:
    """Texts that mean something to a shell, wherever they stand in it."""
    chance = random.Random(7)
    known = [
        *("$(id)", "`id`", "; id", "| id", "&& id", "$HOME", "${HOME}", "'; id '", '"; id "', "\\", "\n id", "> x"),
        *("*", "~", "!!", "#x", "-n", "--", "%s%s", "\t", " ", "", "$'\\x41'", "<(id)", "{a,b}", "[a-z]", "ü", "\x01"),
    ]
    alphabet = "$`;|&<>()[]{}'\"\\*?~!#%^=-+ \t\n\rabcü\x7f"
    return known + ["".join(chance.choices(alphabet, k=chance.randint(1, 20))) for _ in range(count - len(known))]


async def test_500_texts_full_of_metacharacters_pass_through_arguments_as_they_are(shell: ShellTool) -> None:
    for text in metacharacters(500):
        done = await shell(call(None, {"command": ["printf", "%s", text]}))
        assert done["stdout"] == text


async def test_500_texts_full_of_metacharacters_pass_through_the_environment_as_they_are(shell: ShellTool) -> None:
    for text in metacharacters(500):
        done = await shell(call({"script": 'printf %s "$VALUE"'}, {"env": {"VALUE": text}}))
        assert done["stdout"] == text


async def test_they_pass_through_the_arguments_of_a_script_and_its_stdin_too(shell: ShellTool) -> None:
    texts = metacharacters(500)
    code = "import json, sys; json.dump([sys.argv[1:], sys.stdin.read()], sys.stdout)"
    script = f'exec {shlex.quote(PYTHON)} -c {shlex.quote(code)} "$@"'
    done = await shell(call({"script": script}, {"args": texts, "stdin": "".join(texts).replace("\r", "")}))
    assert json.loads(done["stdout"]) == [texts, "".join(texts).replace("\r", "")]


async def test_a_result_has_exit_code_and_both_streams(shell: ShellTool) -> None:
    done = await shell(call({"script": "echo out; echo err >&2"}))
    assert done == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n", "truncated": 0}


async def test_numbers_and_truths_are_arguments_as_programs_write_them(shell: ShellTool) -> None:
    done = await shell(call(None, {"command": ["echo", 1, 2.5, True, False]}))
    assert done["stdout"] == "1 2.5 true false\n"


@pytest.mark.parametrize(
    ("settings", "config", "why"),
    [
        (None, {"command": ["echo", None]}, "`command[1]` must be text or a number, not null"),
        (None, {"command": ["echo", [1]]}, "`command[1]` must be text or a number, not a list"),
        (None, {"command": "echo x"}, "`command` must be a list; text is a `script`, or a command with `shell: true`"),
        (None, {"command": []}, "`command` must be a list of the program and its arguments, not a list"),
        (None, {}, "shell needs exactly one of `command` and `script`"),
        ({"script": "x"}, {"command": ["x"]}, "shell needs exactly one of `command` and `script`"),
        (None, {"script": "echo $1"}, "`script` of shell cannot be computed: it is taken as it is written"),
        (None, {"shell": True, "command": "x"}, "`shell` of shell cannot be computed: it is taken as it is written"),
        ({"shell": True}, {"command": ["x"]}, "`shell` and `args` belong to a script; a list is started as it is"),
        ({"script": "x"}, {"env": {"A": {}}}, "`env.A` must be text or a number, not a map"),
        ({"script": "x", "encoding": "klingon"}, {}, "there is no encoding 'klingon'"),
        ({"script": "x"}, {"colour": 1}, "shell has no key `colour`; it has command, script, args, shell, cwd, env,"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    shell: ShellTool, settings: dict[str, Any] | None, config: dict[str, Any], why: str
) -> None:
    fault = await fault_of(shell, call(settings, config))
    assert (fault.kind, fault.retryable) == ("invalid_settings", False)
    assert fault.message.startswith(why)


async def test_text_is_for_a_shell_only_if_that_is_said(shell: ShellTool) -> None:
    assert (await shell(call({"shell": True}, {"command": "echo a | tr a b"})))["stdout"] == "b\n"


async def test_a_script_ends_with_its_first_failing_line(shell: ShellTool) -> None:
    fault = await fault_of(shell, call({"script": "echo one\nfalse\necho two"}))
    assert (fault.kind, fault.code, fault.data["stdout"]) == ("exit", 1, "one\n")


async def test_an_exit_code_that_is_not_expected_fails_the_step_and_may_be_tried_again(shell: ShellTool) -> None:
    fault = await fault_of(shell, call({"script": "echo so far; echo it broke >&2; exit 3"}))
    assert (fault.kind, fault.code, fault.retryable) == ("exit", 3, True)
    assert fault.message == "the script ended with exit code 3: it broke"
    assert fault.data == {"exit_code": 3, "stdout": "so far\n", "stderr": "it broke\n", "truncated": 0}
    done = await shell(call({"script": "exit 3"}, {"ok_codes": [0, 3]}))
    assert done["exit_code"] == 3


async def test_a_program_that_is_killed_says_by_what(shell: ShellTool) -> None:
    fault = await fault_of(shell, call({"script": "kill -9 $$"}))
    assert (fault.kind, fault.code, fault.message) == ("exit", -signal.SIGKILL, "the script was killed by SIGKILL")


@pytest.mark.parametrize(
    "config",
    [
        {"command": ["/no/such/program"]},
        {"command": ["echo", "a\0b"]},
        {"command": ["/etc/passwd"]},
        {"command": ["echo"], "cwd": "/no/such/folder"},
        {"command": ["echo"], "env": {"A=B": "c"}},
        {"command": ["echo", "x" * 3_000_000]},
    ],
)
async def test_a_program_that_cannot_be_started_is_no_reason_to_try_again(
    shell: ShellTool, config: dict[str, Any]
) -> None:
    fault = await fault_of(shell, call(None, config))
    assert (fault.kind, fault.retryable) == ("no_program", False)


async def test_folder_environment_and_stdin_are_those_given(shell: ShellTool, tmp_path: Path) -> None:
    config = {"cwd": str(tmp_path), "env": {"COLOUR": "red", "SHADE": None}, "stdin": {"a": [1]}}
    done = await shell(call({"script": 'pwd; echo "$COLOUR$SHADE"; cat; echo; echo "$REFOLD_IDEMPOTENCY_KEY"'}, config))
    assert done["stdout"].splitlines() == [str(tmp_path), "red", '{"a": [1]}', "run-1/a/1"]


async def test_a_program_that_does_not_read_its_stdin_ends_all_the_same(shell: ShellTool) -> None:
    assert (await shell(call({"script": "exit 0"}, {"stdin": "x" * 5_000_000})))["exit_code"] == 0
    done = await shell(call(None, {"command": ["wc", "-c"], "stdin": "x" * 5_000_000}))
    assert done["stdout"].strip() == "5000000"


async def test_the_encoding_is_that_of_all_streams(shell: ShellTool) -> None:
    done = await shell(call({"script": "cat", "encoding": "latin-1"}, {"stdin": "grün"}))
    assert done["stdout"] == "grün"
    done = await shell(call({"script": "cat; printf '\\377'"}, {"stdin": "grün"}))
    assert done["stdout"] == "grün\ufffd"
    fault = await fault_of(shell, call({"script": "cat", "encoding": "ascii"}, {"stdin": "grün"}))
    assert fault.kind == "invalid_settings"


async def test_of_output_beyond_the_limit_the_beginning_and_the_end_are_kept(shell: ShellTool) -> None:
    script = "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"
    done = await shell(call({"script": script}, {"max_output": 1000}))
    left_out = 3_000_000 + len("first\n\nlast\n") - 1000
    assert done["stdout"] == f"first\n{'x' * 494}\n… [{left_out} bytes are left out] …\n{'x' * 494}\nlast\n"
    assert done["truncated"] == left_out and done["stderr"] == ""


async def test_a_step_can_raise_the_limit_of_its_output(shell: ShellTool) -> None:
    script = "head -c 3000000 /dev/zero; head -c 1000 /dev/zero >&2"
    done = await shell(call({"script": script}, {"max_output": 3_000_000}))
    assert (len(done["stdout"]), len(done["stderr"]), done["truncated"]) == (3_000_000, 1000, 0)
    for wrong in (-1, 1 << 40):
        fault = await fault_of(shell, call({"script": script}, {"max_output": wrong}))
        assert fault.kind == "invalid_settings" and "stdout_file" in fault.message


async def test_output_can_go_to_a_file_which_appears_when_the_program_has_succeeded(
    shell: ShellTool, tmp_path: Path
) -> None:
    keys = {"cwd": str(tmp_path), "stdout_file": "big.bin"}
    script = "head -c 5000000 /dev/zero; test ! -e big.bin; echo aside >&2"
    done = await shell(call({"script": script}, keys))
    assert done == {
        "exit_code": 0,
        "stdout": "",
        "stderr": "aside\n",
        "truncated": 0,
        "stdout_file": str(tmp_path / "big.bin"),
        "stdout_bytes": 5_000_000,
    }
    assert (tmp_path / "big.bin").stat().st_size == 5_000_000
    fault = await fault_of(shell, call({"script": "echo new; exit 3"}, keys))
    assert fault.kind == "exit" and (tmp_path / "big.bin").stat().st_size == 5_000_000
    assert [each.name for each in tmp_path.iterdir()] == ["big.bin"]
    fault = await fault_of(shell, call({"script": "echo new"}, {**keys, "stdout_file": "gone/x"}))
    folder = tmp_path / "gone"
    why = f"`stdout_file`: there is no folder {folder}: create it, or name another file"
    assert (fault.kind, fault.message) == ("no_file", why)


async def test_output_beyond_a_mebibyte_is_counted_and_not_kept(shell: ShellTool) -> None:
    said: list[str] = []
    config = {"command": ["head", "-c", "50000000", "/dev/zero"]}
    done = await shell(call(None, config, None, lambda _, line: said.append(line)))
    assert done["stdout"].count("\0") == 1024 * 1024
    assert done["truncated"] == 50_000_000 - 1024 * 1024
    assert sum(map(len, said)) < 1_100_000
    assert said[-1].endswith("bytes more are left out)")


async def test_a_child_that_keeps_the_pipe_open_is_not_waited_for_and_not_left_behind(
    shell: ShellTool, tmp_path: Path
) -> None:
    up = f'({NOTE} echo up; touch "$FOLDER/up"; exec sleep 100)'
    script = up + ' & while [ ! -e "$FOLDER/up" ]; do sleep 0.01; done; echo done'
    asked = call({"script": script.replace("$$", "$(sh -c 'echo $PPID')")}, {"env": {"FOLDER": str(tmp_path / "n")}})
    done = await asyncio.wait_for(shell(asked), 60)
    assert done["stdout"].split() == ["up", "done"]
    [pid] = noted_in(tmp_path / "n", 1)
    assert await asyncio.to_thread(within, 60.0, lambda: living([pid]) == set())


LEAVES = (
    "import os, pathlib, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork():\n    sys.exit()\n"
    "os.setsid()\n"
    "if os.fork():\n    os._exit(0)\n"
    "(pathlib.Path(sys.argv[1]) / f'pid {os.getpid()}').touch()\n"
    "os.closerange(0, 3)\n"
    "time.sleep(100)\n"
)


async def test_a_daemon_that_a_program_has_left_behind_is_gone_when_the_program_is(
    shell: ShellTool, tmp_path: Path
) -> None:
    script = f'"$@"; while [ -z "$(ls {shlex.quote(str(tmp_path))})" ]; do :; done'
    await shell(call({"script": script}, {"args": [PYTHON, "-c", LEAVES, str(tmp_path)]}))
    assert living(noted_in(tmp_path, 1)) == set()


async def test_the_shell_of_a_noetl_file_is_bash(shell: ShellTool) -> None:
    settings = {"shell": True, "dialect": "noetl"}
    done = await shell(call(settings, {"command": "x=(a b); echo ${x[1]} ${BASH_VERSION:+bash}; set -o pipefail"}))
    assert done["stdout"] == "b bash\n"


STUBBORN = (
    "import os, pathlib, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if len(sys.argv) == 2:\n"
    "    for new in (False, True):\n"
    "        subprocess.Popen([sys.executable, '-c', sys.orig_argv[2], sys.argv[1], 'child'], start_new_session=new)\n"
    "(pathlib.Path(sys.argv[1]) / f'pid {os.getpid()}').touch()\n"
    "time.sleep(100)\n"
)


async def test_a_program_that_is_out_of_time_is_killed_with_all_it_has_started(tmp_path: Path) -> None:
    async with engine() as opened:
        for limit in (1.5, 6.0, 24.0):  # a busy machine may need longer to begin with it
            folder = tmp_path / str(limit)
            folder.mkdir()
            plan = one_step("shell", None, {"command": [PYTHON, "-c", STUBBORN, str(folder)]}, timeout=limit)
            assert (await asyncio.wait_for(fault_of_run(opened, plan), 60)).kind == "timeout"
            if len(list(folder.iterdir())) == 3:
                break
        assert living(noted_in(folder, 3)) == set(), "when the try is over, nothing of it runs any more"


async def test_a_program_may_clean_up_within_the_grace(tmp_path: Path) -> None:
    programs = Programs(grace=120.0)
    script = f'trap "touch $FOLDER/cleaned; exit" TERM; {NOTE} while :; do sleep 0.02; done'
    program = Program(argv=["/bin/sh", "-c", script], env={"FOLDER": str(tmp_path)})
    running = asyncio.create_task(programs.run(program))
    await asyncio.to_thread(noted_in, tmp_path, 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)  # it does not wait for the rest of the grace
    assert (tmp_path / "cleaned").exists()
    await programs.close()


async def test_closing_the_engine_ends_what_runs(tmp_path: Path) -> None:
    async with engine() as opened:
        await opened.start(one_step("shell", None, {"command": [PYTHON, "-c", STUBBORN, str(tmp_path)]}))
        pids = await asyncio.to_thread(noted_in, tmp_path, 3)
    assert living(pids) == set()


PARENT = """
import asyncio, sys
from refold.executors.programs import Programs
from refold.ports import Program

asyncio.run(Programs().run(Program(argv=sys.argv[1:])))
"""


def test_nothing_outlives_an_engine_that_is_killed(tmp_path: Path) -> None:
    command = [PYTHON, "-c", PARENT, PYTHON, "-c", STUBBORN, str(tmp_path)]
    parent = subprocess.Popen(command, cwd=ROOT)
    try:
        pids = noted_in(tmp_path, 3)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert within(60.0, lambda: living(pids) == set())


async def test_many_programs_run_at_once(shell: ShellTool, tmp_path: Path) -> None:
    """Each waits until all are there."""
    script = 'touch "$FOLDER/$1"; while [ $(ls "$FOLDER" | wc -l) -lt 20 ]; do sleep 0.05; done'
    calls = (
        shell(call({"script": script}, {"args": [str(number)], "env": {"FOLDER": str(tmp_path)}}))
        for number in range(20)
    )
    await asyncio.wait_for(asyncio.gather(*calls), 60)
