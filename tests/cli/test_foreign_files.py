"""Commands on files that are locked, read-only, damaged, from somebody else, or gone: what is said, and what is not."""

import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from json import dumps
from pathlib import Path
from zlib import crc32

import pytest
from msgspec import json, msgpack

from refold.cli import output
from refold.cli.app import called
from tests.cli import in_process
from tests.cli.program import PROGRAM, environment, noop, playbook, refold, shell, started, terminal, until

EVIL = "\x1b]0;owned\x07\x9b31m\u202ex"
SPELT = "\\x1b]0;owned\\x07\\x9b31m\\x202ex"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With three runs."""
    folder = tmp_path_factory.mktemp("template")
    file = playbook(folder, noop("one", result="1"))
    for name in ("first", "second", "third"):
        assert refold(folder, "run", file, "--name", name, "-q").code == 0
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "folder")
    return tmp_path / "folder"


def change(folder: Path, query: str, *bindings: object, forge: bool = True) -> None:
    """With seals that fit."""
    db = sqlite3.connect(folder / "refold.db", isolation_level=None)
    db.execute(query, bindings)
    if not forge:
        db.close()
        return
    for run, head, status, created_at, summary in db.execute(
        "select run, head, status, created_at, summary from runs"
    ).fetchall():
        seal = crc32(msgpack.encode((run, head, status, created_at, summary)))
        db.execute("update runs set seal = ? where run = ?", (seal, run))
    db.close()


def run_of(folder: Path, name: str) -> str:
    rows: list[dict[str, str]] = refold(folder, "runs", "list", "-o", "json").data
    return next(row["id"] for row in rows if row["name"] == name)


LOOKING = (
    ("runs", "list"),
    ("runs", "show", "first"),
    ("runs", "history", "first"),
    ("runs", "why", "first"),
    ("runs", "logs", "first"),
    ("runs", "watch", "first"),
    ("runs", "record", "first"),
    ("runs", "prune", "--older-than", "1d", "--dry-run"),
    ("gates", "list"),
    ("dlq", "list"),
    ("db", "info"),
    ("db", "check"),
    ("doctor",),
)


def test_commands_that_look_do_not_wait_for_a_lock_that_is_held(folder: Path) -> None:
    before = sorted(os.listdir(folder))
    with open(folder / "refold.db-lock") as lock, open(folder / "refold.db-door") as door, in_process.here(folder):
        for each in (lock, door):
            fcntl.flock(each, fcntl.LOCK_EX)
        for command in LOOKING:
            done = in_process.command(*command)
            assert done.code == 0, (command, done)
        assert refold(folder, "runs", "list").code == 0
    assert sorted(os.listdir(folder)) == before, "nothing is left behind"


def test_commands_that_look_work_while_the_engine_is_stopped(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "touch ready; while [ ! -e go ]; do sleep 0.05; done"))
    with started(tmp_path, "run", file, "--name", "first", "-q") as engine:
        until((tmp_path / "ready").exists)
        engine.send_signal(signal.SIGSTOP)
        try:
            done = refold(tmp_path, "runs", "show", "first")
            assert (done.code, "one" in done.out) == (0, True)
            assert refold(tmp_path, "runs", "list").code == 0
        finally:
            engine.send_signal(signal.SIGCONT)
        (tmp_path / "go").touch()
        assert engine.wait(30) == 0


def test_one_bad_summary_hides_no_other_run(folder: Path) -> None:
    run = run_of(folder, "second")
    change(folder, "update runs set summary = ? where run = ?", b"{", run)
    done = refold(folder, "runs", "list")
    assert done.code == 5
    assert [name in done.out for name in ("first", "second", "third")] == [True, False, True]
    assert f"table runs, key ('{run}'), column summary" in done.err
    assert [row["name"] for row in refold(folder, "runs", "list", "-o", "json").data] == ["third", "first"]
    assert refold(folder, "runs", "show", "first").code == 0, "it is of no concern to this one"
    for command in (("runs", "show", run), ("runs", "history", run), ("gates", "list"), ("db", "check")):
        done = refold(folder, *command)
        assert (done.code, "column summary" in done.err + done.out) in ((5, True), (0, False)), (command, done)
    assert refold(folder, "run", "play.yaml", "--name", "fourth", "-q") == (0, "1\n", "")


@pytest.mark.parametrize(
    "command", [("runs", "show"), ("runs", "why"), ("runs", "cancel"), ("runs", "signal"), ("gates", "approve")]
)
def test_a_run_whose_row_cannot_be_read_is_not_said_to_be_missing_alone(folder: Path, command: tuple[str, str]) -> None:
    run = run_of(folder, "second")
    change(folder, "update runs set summary = ? where run = ?", b"{", run)
    done = refold(folder, *command, "second", *(["go"] if command[1] in ("signal", "approve") else []))
    assert (done.code, f"table runs, key ('{run}'), column summary" in done.err) == (5, True)


ROWS = {
    "workers.tools": "update workers set tools = '{'",
    "workers.queues": "update workers set queues = '[1]'",
    "workers.lock": "update workers set lock = '../../x'",
    "runs.head": "update runs set head = 4600000000000000000",
    "plans.data": "update plans set data = x'00'",
    "facts.data": "update facts set data = x'00'",
    "runs.status": "update runs set status = cast(x'ff' as text)",
    "runs.created_at": "update runs set created_at = -9000000000000000000",
}


@pytest.mark.parametrize("what", ROWS)
def test_a_malformed_row_is_an_error_with_its_name_in_every_command(folder: Path, what: str) -> None:
    change(folder, ROWS[what], forge="cast" not in ROWS[what])
    named = set[bool]()
    with in_process.here(folder):
        for command in (*LOOKING, ("gates", "show", "first"), ("runs", "items", "first")):
            done = in_process.command(*command)
            assert done.code in (0, 1, 3, 4, 5), (command, done)
            if done.code == 5:
                named.add(f"table {what.split('.')[0]}" in done.err + done.out)
    assert named == {True} or what in ("workers.tools", "workers.queues"), "nobody lives whose tools would be asked for"


def test_a_path_in_the_file_is_not_removed(folder: Path) -> None:
    (folder.parent / "precious").write_text("x")
    change(
        folder,
        "insert into workers values ('default', 'foreign', ?, null, null)",
        str(folder.parent / "precious"),
    )
    assert refold(folder, "run", "play.yaml", "--name", "more", "-q").code == 0
    assert (folder.parent / "precious").read_text() == "x"


GONE: dict[str, Callable[[Path], object]] = {
    "moved": lambda folder: os.rename(folder / "refold.db", folder / "other.db"),
    "deleted": lambda folder: os.unlink(folder / "refold.db"),
    "replaced": lambda folder: shutil.move(shutil.copy(folder / "refold.db", folder / "copy"), folder / "refold.db"),
}


@pytest.mark.parametrize("how", GONE)
def test_a_file_that_goes_away_under_a_run_ends_it_with_5_and_a_reason(tmp_path: Path, how: str) -> None:
    script = "touch ready; while [ ! -e go ]; do sleep 0.05; done; touch done"
    file = playbook(tmp_path, shell("one", script, "two"), shell("two", "touch two"))
    with started(tmp_path, "run", file, "--name", "first", "-q") as engine:
        until((tmp_path / "ready").exists)
        GONE[how](tmp_path)
        (tmp_path / "go").touch()
        stdout, stderr = engine.communicate(timeout=60)
    assert (engine.returncode, stdout) == (5, "")
    assert "moved, deleted or replaced" in stderr
    assert not (tmp_path / "two").exists(), "what the step came to was not acknowledged"


def test_an_engine_whose_file_is_gone_while_its_step_works_ends_without_a_traceback(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "touch ready; sleep 600"))
    with started(tmp_path, "run", file, "--name", "first", "-q") as engine:
        until((tmp_path / "ready").exists)
        GONE["deleted"](tmp_path)
        _, stderr = engine.communicate(timeout=60)
    assert engine.returncode == 5
    assert "moved, deleted or replaced" in stderr and "Traceback" not in stderr


def test_a_backup_that_is_restored_without_its_log_is_not_mixed_with_it(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", result="1"))
    waits = playbook(tmp_path, shell("one", "touch ready; sleep 60"), name="waits.yaml")
    assert refold(tmp_path, "run", file, "--name", "first", "-q").code == 0
    (tmp_path / "backup").write_bytes((tmp_path / "refold.db").read_bytes())
    with started(tmp_path, "run", waits, "--name", "later", "-q") as engine:
        until((tmp_path / "ready").exists)
        engine.kill()
    (tmp_path / "refold.db").write_bytes((tmp_path / "backup").read_bytes())
    for command in (("runs", "list"), ("run", file, "-q")):
        done = refold(tmp_path, *command)
        assert (done.code, "refold.db-wal" in done.err) == (5, True)
    for end in ("-wal", "-shm"):
        (tmp_path / f"refold.db{end}").unlink()
    assert [row["name"] for row in refold(tmp_path, "runs", "list", "-o", "json").data] == ["first"]


def test_a_file_of_an_older_schema_is_migrated_by_a_command_of_its_own(tmp_path: Path) -> None:
    from refold.stores.sqlite.migrate import APPLICATION, migrations

    db = sqlite3.connect(tmp_path / "refold.db")
    db.executescript(migrations()[1])
    db.executescript(f"pragma application_id = {APPLICATION}; pragma user_version = 1; pragma journal_mode = wal")
    db.close()
    done = refold(tmp_path, "runs", "list")
    assert (done.code, "refold db migrate" in done.err) == (5, True)
    done = refold(tmp_path, "db", "migrate")
    assert (done.code, f"schema {max(migrations())}" in done.err) == (0, True)
    assert refold(tmp_path, "runs", "list").code == 0


def test_a_text_result_is_exact_in_a_pipe_and_harmless_on_a_terminal(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", result=dumps(EVIL + "\tx\n\u0939")))
    done = subprocess.run(
        [*PROGRAM, "run", file, "-q"], cwd=tmp_path, env=environment(), capture_output=True, check=True
    )
    assert done.stdout.decode() == EVIL + "\tx\n\u0939\n"
    with terminal(tmp_path, "run", file, "-q", columns=120) as seen:
        assert seen.end() == 0
    assert b"\x1b]0" not in seen.raw and b"\xc2\x9b" not in seen.raw and b"\x07" not in seen.raw
    assert SPELT.encode() in seen.raw and "\u0939".encode() in seen.raw


def test_json_on_a_terminal_is_the_same_document_without_control_codes(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", result=dumps({"a": EVIL})))
    with terminal(tmp_path, "run", file, "-q", columns=120) as seen:
        assert seen.end() == 0
    assert b"\xc2\x9b" not in seen.raw
    assert json.decode(seen.raw.replace(b"\r\n", b"\n")) == {"a": EVIL}


def test_names_and_arguments_are_spelt_out_wherever_they_are_printed(tmp_path: Path) -> None:
    gate = playbook(tmp_path, "step: ask\ntool: {kind: gate, prompt: p, assignee: a}", name="gate.yaml")
    commands: tuple[tuple[str, ...], ...] = (
        ("run", gate, "--name", EVIL, "--detach"),
        ("runs", "list"),
        ("runs", "show", EVIL),
        ("runs", "why", EVIL),
        ("gates", "list"),
        ("gates", "show", EVIL),
        ("gates", "show", EVIL, EVIL),
        ("gates", "approve", EVIL, EVIL),
        ("runs", "show", f"no{EVIL}"),
        ("runs", "pause", EVIL),
        ("runs", "cancel", EVIL),
        ("runs", "prune", "--older-than", "0s", "--dry-run"),
        ("dlq", "show", EVIL),
        ("run", f"{EVIL}.yaml"),
        ("validate", f"{EVIL}.yaml"),
        ("db", EVIL),
        ("runs", "list", f"--{EVIL}"),
        ("runs", "list", "--db", f"{EVIL}/refold.db"),
        ("run", gate, "-i", EVIL),
    )
    spelt = 0
    with in_process.here(tmp_path):
        for command in commands:
            done = in_process.command(*command)
            assert not any(mark in done.out + done.err for mark in ("\x1b", "\x07", "\x9b", "\u202e")), (command, done)
            assert done.code != 70, (command, done)
            spelt += "owned" in done.out + done.err
    assert spelt >= len(commands) - 3


@pytest.mark.parametrize("option", ["--key", "--name", "--label", "-i", "--queue", "--limit"])
def test_an_argument_that_is_not_utf_8_is_a_usage_error(folder: Path, option: str) -> None:
    wrong = "a=\udcff" if option in ("--label", "-i") else "\udcff"
    done = refold(folder, "run", "play.yaml", option, wrong, "-q")
    assert (done.code, "Traceback" in done.err, "bug" in done.err) == (2, False, False), done.err


def test_rebuild_spells_out_what_is_wrong(folder: Path) -> None:
    change(folder, "update facts set run = ? where run = (select min(run) from facts)", EVIL)
    done = refold(folder, "db", "rebuild")
    assert (done.code, "\x1b" in done.out + done.err, "owned" in done.out) == (5, False, True)


def test_nothing_from_outside_can_look_like_a_colour_of_our_own() -> None:
    shown = output.styled("good", "green", True)
    assert output.spelt_out(shown) == "\x1b[32mgood\x1b[0m"
    assert output.spelt_out("\x1b[32mbad\x1b[0m") == "\\x1b[32mbad\\x1b[0m"
    assert output.spelt_out("a\tb\nc") == "a\tb\nc"
    assert output.spelt_out("\u200d\u0939\u093f emoji 👩\u200d🚀") == "\u200d\u0939\u093f emoji 👩\u200d🚀"


def test_an_os_error_is_told_with_its_own_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = folder / "folder"
    recorded.mkdir()
    before = os.getcwd()
    os.chdir(folder)
    try:
        code = called(["runs", "record", "first", "-o", str(recorded)])
    finally:
        os.chdir(before)
    said = capsys.readouterr().err
    assert (code, str(recorded) in said, "stdout" in said) == (1, True, False)


def test_what_cannot_be_written_to_stdout_is_told_as_that(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "runs", "list"], cwd=folder, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"error: stdout: No space left on device\n")


def test_a_body_that_cancels_everything_ends_its_process_with_a_message(tmp_path: Path) -> None:
    code = "import asyncio; [each.cancel() for each in asyncio.all_tasks()]; await asyncio.sleep(0)"
    step = f"step: one\ntool: {{kind: python, isolation: inline, code: '{code}'}}"
    done = refold(tmp_path, "run", playbook(tmp_path, step), "-q")
    assert done.code == 1
    assert "`refold runs resume` continues the run" in done.err and "Traceback" not in done.err
