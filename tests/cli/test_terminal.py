"""On a terminal, on a pipe, and when either goes away: Ctrl-C once and twice, SIGTERM, hang-up, `| head`."""

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

from tests.cli.program import PROGRAM, environment, noop, playbook, refold, shell, started, terminal, until

WAITS = shell("slow", "touch begun\nwhile test ! -f go; do sleep 0.02; done", "last")
TO_CONTINUE = "to continue: refold runs resume mine"


def slow(folder: Path) -> str:
    return playbook(folder, noop("first", "slow"), WAITS, noop("last", result="'the end'"))


def statuses(folder: Path) -> dict[str, str]:
    steps = refold(folder, "runs", "show", "mine", "-o", "json").data["steps"]
    return {name: step["status"] for name, step in steps.items()}


def test_the_tree_shows_each_step_and_stays_when_the_run_is_over(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", slow(tmp_path), "--name", "mine") as seen:
        seen.until("· last")
        assert seen.lines[0].startswith("mine  running  ")
        assert seen.lines[1] == "✓ first"
        assert seen.lines[2][2:] == "slow"
        (tmp_path / "go").touch()
        assert seen.end() == 0
    assert seen.lines[0].startswith("mine  completed  ")
    assert seen.lines[1:] == ["✓ first", "✓ slow", "✓ last", "the end"]
    assert b"\x1b[?25l" not in seen.raw, "a cursor that is hidden stays hidden after kill -9"


def test_a_quick_run_is_drawn_once(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", playbook(tmp_path, noop("one", result="1"))) as seen:
        assert seen.end() == 0
    assert seen.lines[1:] == ["✓ one", "1"]


def test_a_loop_has_a_bar_and_a_failure_expands_in_place(tmp_path: Path) -> None:
    loop = "loop: {in: [1, 2, 3, 4], spec: {mode: parallel, max_in_flight: 2}}\nnext: bad"
    bad = shell("bad", "while test ! -f go; do sleep 0.02; done\nexit 3")
    each = shell("each", "while test ! -f items; do sleep 0.02; done", more=loop)
    with terminal(tmp_path, "run", playbook(tmp_path, each, bad)) as seen:
        seen.until("░░░░░░░░░░░░░░░░░░░░ 0/4 · 2 running")
        (tmp_path / "items").touch()
        seen.until("4/4")
        (tmp_path / "go").touch()
        assert seen.end() == 1
    assert seen.lines[1] == "✓ each  ████████████████████ 4/4"
    assert seen.lines[2] == "✗ bad"
    assert "exit code 3" in seen.lines[3]
    assert seen.lines[4:6] == ["    play.yaml:12:11", "    12 |   - step: bad"]


def test_on_twenty_columns_nothing_is_wrapped(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", slow(tmp_path), "--name", "a-very-long-name-indeed", columns=20) as seen:
        seen.until("· last")
        assert [line[2:] for line in seen.lines[1:]] == ["first", "slow", "last"]
        assert seen.lines[0].startswith("a-very-long-name-")
        (tmp_path / "go").touch()
        assert seen.end() == 0
    assert [line for line in seen.lines if line.startswith("✓")] == ["✓ first", "✓ slow", "✓ last"]


def test_the_history_is_cut_at_the_edge_unless_it_may_be_wide(tmp_path: Path) -> None:
    words = " ".join(f"word{n}" for n in range(20))
    step = f"step: one\ntool: {{kind: assert, that: false, message: '{words}'}}"
    refold(tmp_path, "run", playbook(tmp_path, step), "--name", "mine", "-q")
    with terminal(tmp_path, "runs", "history", "mine", columns=50) as seen:
        assert seen.end() == 0
    assert not any("word19" in line for line in seen.lines)
    with terminal(tmp_path, "runs", "history", "mine", "--wide", columns=50) as seen:
        assert seen.end() == 0
    assert any("word19" in line for line in seen.lines)


def test_a_size_that_the_environment_remembers_does_not_count(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", slow(tmp_path), "--name", "a-very-long-name", columns=16, COLUMNS="80") as seen:
        seen.until("· last")
        assert [line[2:] for line in seen.lines[1:]] == ["first", "slow", "last"]
        (tmp_path / "go").touch()
        assert seen.end() == 0


def test_without_colour_the_tree_is_drawn_all_the_same(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", slow(tmp_path), NO_COLOR="1") as seen:
        seen.until("· last")
        (tmp_path / "go").touch()
        assert seen.end() == 0
    assert "✓ slow" in seen.lines
    assert re.findall(rb"\x1b\[[\d;]*m", seen.raw) == []


def test_the_first_ctrl_c_hands_back_and_says_how_to_go_on(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", slow(tmp_path), "--name", "mine") as seen:
        until((tmp_path / "begun").exists)
        seen.type(b"\x03")
        assert seen.end() == 130
    assert any("stopping: steps may finish within 0.3 s" in line for line in seen.lines)
    assert seen.lines[-1] == TO_CONTINUE
    assert statuses(tmp_path) == {"first": "completed", "slow": "queued", "last": "pending"}
    (tmp_path / "go").touch()
    resumed = refold(tmp_path, "runs", "resume", "mine", "-q")
    assert resumed == (0, "the end\n", "")


def test_a_step_that_finishes_within_the_grace_counts(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", slow(tmp_path), "--name", "mine", REFOLD_STOP_GRACE="120") as seen:
        until((tmp_path / "begun").exists)
        seen.type(b"\x03")
        seen.until("stopping: ")
        (tmp_path / "go").touch()
        assert seen.end() == 130
    assert statuses(tmp_path) == {"first": "completed", "slow": "completed", "last": "queued"}


def test_the_second_ctrl_c_kills_at_once_and_nothing_finished_is_lost(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", slow(tmp_path), "--name", "mine", REFOLD_STOP_GRACE="3600") as seen:
        until((tmp_path / "begun").exists)
        seen.type(b"\x03")
        seen.until("stopping: ")
        seen.type(b"\x03")
        assert seen.end() == 130
    assert seen.lines[-2:] == ["killed", TO_CONTINUE]
    (tmp_path / "go").touch()
    assert refold(tmp_path, "runs", "resume", "mine", "-q") == (0, "the end\n", "")
    assert statuses(tmp_path) == dict.fromkeys(("first", "slow", "last"), "completed")


def test_sigterm_hands_back_and_says_how_to_go_on(tmp_path: Path) -> None:
    with started(tmp_path, "run", slow(tmp_path), "--name", "mine") as process:
        until((tmp_path / "begun").exists)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()[-1]) == (143, "", TO_CONTINUE)
    assert statuses(tmp_path)["slow"] == "queued"


def test_a_terminal_that_is_closed_hands_back_quietly(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", slow(tmp_path), "--name", "mine") as seen:
        seen.until("slow")
        until((tmp_path / "begun").exists)
        seen.hang_up()
        assert seen.wait() == 128 + signal.SIGHUP
    assert statuses(tmp_path) == {"first": "completed", "slow": "queued", "last": "pending"}
    assert "held" not in refold(tmp_path, "runs", "why", "mine").out, "nobody holds what was handed back"


def test_under_nohup_a_closed_terminal_does_not_matter(tmp_path: Path) -> None:
    command = ["sh", "-c", f"trap '' HUP; exec {shlex.join(PROGRAM)} run {slow(tmp_path)} --name mine"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL) as process:
        until((tmp_path / "begun").exists)
        process.send_signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        assert process.wait(60) == 0


def piped(folder: Path, line: str) -> "subprocess.CompletedProcess[str]":
    shown = line.replace("refold", shlex.join(PROGRAM), 1)
    command = ["bash", "-c", f"set -o pipefail; {shown}"]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", result="[1, 2, 3]"))
    done = piped(tmp_path, f"refold run {file} -q | head -1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")
    done = piped(tmp_path, "refold runs history -o jsonl | head -1")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    done = piped(tmp_path, "refold runs show -o json | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", result="1"))
    done = piped(tmp_path, f"refold run {file} -q > /dev/full")
    assert (done.returncode, done.stderr) == (1, "error: stdout: No space left on device\n")


def test_a_run_goes_on_when_nobody_reads_its_progress(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", "two"), shell("two", "sleep 0.3\ntouch done", "bad"), shell("bad", "exit 1"))
    done = piped(tmp_path, f"refold run {file} 2>&1 >/dev/null | head -1")
    assert (tmp_path / "done").exists()
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("run play-")


def test_a_run_goes_on_when_its_progress_is_stuck(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with open(write, "wb", buffering=0) as pipe:
        while pipe.write(b"x" * 4096):
            pass
        os.set_blocking(write, True)
        file = playbook(tmp_path, shell("one", "sleep 0.2", "two"), noop("two", result="7"))
        done = subprocess.run(
            [*PROGRAM, "run", file], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=write, timeout=20
        )
    os.close(read)
    assert (done.returncode, done.stdout) == (0, b"7\n")
