"""Playbooks without running them, the database file, and the program itself."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from refold import __version__
from refold.cli.words import now
from refold.core.outcomes import SECOND
from refold.stores.clock import machine_steady
from refold.stores.sqlite.store import SqliteStore
from tests.cli.program import PROGRAM, environment, noop, playbook, refold, shell, started, until
from tests.contracts.stores import commit, note


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    file = playbook(folder, noop("one", "two"), noop("two", result="1"))
    assert refold(folder, "run", file, "--name", "mine", "-q").code == 0
    return folder


def test_validate_tells_of_every_file_and_every_problem(tmp_path: Path) -> None:
    good = playbook(tmp_path, noop("one"), name="good.yaml")
    bad = playbook(tmp_path, "step: one\ntol: {kind: noop}", noop("one"), name="bad.yaml")
    done = refold(tmp_path, "validate", good)
    assert done == (0, "good.yaml: ok, 1 step\n", "")
    done = refold(tmp_path, "validate", good, bad)
    assert (done.code, done.out.splitlines()[0]) == (2, "good.yaml: ok, 1 step")
    assert re.fullmatch(r"bad.yaml: [2-9] errors(, .*)?", done.out.splitlines()[1])
    found = refold(tmp_path, "validate", bad, "-o", "json").data
    assert {"file": "bad.yaml", "line": 6, "column": 5, "severity": "error", "code": "unknown-key"}.items() <= found[
        0
    ].items()
    assert all(each["message"] for each in found)
    assert refold(tmp_path, "validate", "none.yaml").code == 3
    assert not (tmp_path / "refold.db").exists()


def test_a_playbook_can_be_drawn_and_so_can_a_run(folder: Path) -> None:
    drawn = refold(folder, "graph", "play.yaml")
    assert drawn.code == 0
    assert [name in drawn.out for name in ("one", "two")] == [True, True]
    assert "one" in refold(folder, "graph", "play.yaml", "--mermaid").out
    assert "✔" in refold(folder, "runs", "show", "mine", "--graph").out


def test_the_schema_is_a_json_schema(tmp_path: Path) -> None:
    schema = refold(tmp_path, "schema").data
    assert "$schema" in schema


def test_doctor_finds_nothing_wrong_where_nothing_is(folder: Path) -> None:
    found = {each["about"]: each for each in refold(folder, "doctor", "-o", "json").data}
    assert {each["state"] for each in found.values()} == {"ok"}
    assert {
        "python",
        "sqlite",
        "clock",
        "disk",
        "file system",
        "permissions",
        "integrity",
        "durability",
    } <= found.keys()
    assert found["refold"]["detail"] == __version__
    assert refold(folder, "doctor").code == 0


def test_doctor_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "refold.db").write_text("this is not a database, " * 100)
    done = refold(tmp_path, "doctor")
    assert (done.code, "not a SQLite database" in done.out) == (1, True)


def test_doctor_sees_a_file_that_others_may_read(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, noop("one")), "-q").code == 0
    (tmp_path / "refold.db").chmod(0o644)
    found = {each["about"]: each["state"] for each in refold(tmp_path, "doctor", "-o", "json").data}
    assert found["permissions"] == "warning"


def test_doctor_says_how_far_a_file_is_ahead_of_the_machines_clock(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "refold.db", lambda: now() + 3600 * SECOND, machine_steady())
    commit(store, "r", note())
    store.close()
    done = refold(tmp_path, "doctor")
    assert "the file's time is 1 h 0 min ahead of the machine's clock" in " ".join(done.out.split())


def test_info_says_how_much_is_in_the_file(folder: Path) -> None:
    seen = refold(folder, "db", "info", "-o", "json").data
    assert (seen["journal_mode"], seen["synchronous"], seen["mode"], seen["rows"]["runs"]) == ("wal", 2, "0o600", 1)
    assert re.search(r"^rows of runs +1$", refold(folder, "db", "info").out, re.M)


def test_check_reads_everything_and_names_what_is_wrong(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one"))
    assert refold(tmp_path, "run", file, "--name", "mine", "-q").code == 0
    assert refold(tmp_path, "db", "check") == (0, "", "1 run read, 0 problems\n")
    with sqlite3.connect(tmp_path / "refold.db") as db:
        db.execute("update facts set at = at + 1 where number = 2")
    db.close()
    done = refold(tmp_path, "db", "check")
    assert done.code == 5
    assert re.search(r"fact 2 of run [0-9a-f]+ is not what was written", done.out)


def test_rebuild_makes_the_rows_again(tmp_path: Path) -> None:
    file = playbook(tmp_path, "step: one\ninput: {a: 1}\ntool: {kind: noop, result: '{{ a }}'}")
    assert refold(tmp_path, "run", file, "--name", "mine", "-q").code == 0
    assert refold(tmp_path, "run", file, "--name", "later", "--detach", "-q").code == 0
    with sqlite3.connect(tmp_path / "refold.db") as db:
        db.execute("delete from runs")
        db.execute("delete from commands")
    db.close()
    done = refold(tmp_path, "runs", "show", "mine")
    assert done.code == 3
    assert refold(tmp_path, "db", "rebuild") == (0, "", "2 of 2 runs were rebuilt\n")
    assert refold(tmp_path, "runs", "show", "mine", "-o", "json").data["result"] == 1
    assert refold(tmp_path, "runs", "resume", "later", "-q") == (0, "1\n", "")


def test_a_database_of_another_program_is_refused_with_5(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "refold.db") as db:
        db.execute("create table mine (a)")
    db.close()
    done = refold(tmp_path, "run", playbook(tmp_path, noop("one")), "-q")
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("error: ")
    assert "another program" in done.err


def test_the_program_is_installed_as_refold() -> None:
    (script,) = [each for each in entry_points(group="console_scripts") if each.name == "refold"]
    assert script.value == "refold.cli.app:main"


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert refold(tmp_path, "--version") == (0, f"refold {__version__}\n", "")


def test_a_command_that_does_not_exist_is_a_usage_error_with_a_guess(tmp_path: Path) -> None:
    done = refold(tmp_path, "runs", "shwo")
    assert (done.code, done.out) == (2, "")
    assert "Did you mean 'show'" in done.err
    assert refold(tmp_path, "run").code == 2
    assert refold(tmp_path, "run", "x.yaml", "--nope").code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(tmp_path: Path, shell: str) -> None:
    assert "_REFOLD_COMPLETE" in refold(tmp_path, "completion", shell).out


def test_names_of_runs_are_completed(folder: Path) -> None:
    env = {"_REFOLD_COMPLETE": "bash_complete", "COMP_WORDS": "refold runs show mi", "COMP_CWORD": "3"}
    assert refold(folder, **env).out == "plain,mine\n"


def test_an_error_has_no_traceback_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert "Traceback" not in refold(tmp_path, "runs", "list").err
    for done in (refold(tmp_path, "--debug", "runs", "list"), refold(tmp_path, "runs", "list", REFOLD_DEBUG="1")):
        assert (done.code, "Traceback" in done.err) == (3, True)
        assert done.err.endswith("--db names another\n")


def test_looking_at_runs_loads_neither_an_event_loop_nor_a_drawing_library(folder: Path) -> None:
    code = (
        "import sys; from refold.cli.app import called; called(['runs', 'show', '-o', 'json']);"
        "names = ('asyncio', 'rich', 'yaml', 'refold.templates', 'httpx2');"
        "print([m for m in names if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True, check=True)
    assert done.stderr == b"[]\n"


def test_a_run_without_a_terminal_loads_no_drawing_library(folder: Path) -> None:
    code = (
        "import sys; from refold.cli.app import called; assert called(['run', 'play.yaml', '--db', 'x.db']) == 0;"
        "print([m for m in ('rich', 'httpx2', 'pydantic', 'typer') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True, check=True)
    assert done.stderr.endswith(b"[]\n")
    assert PROGRAM[0] == sys.executable


def test_a_backup_is_a_complete_copy_made_while_another_process_writes(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "echo x >> begun; test -e go || sleep 600", "two"), noop("two"))
    assert refold(tmp_path, "run", playbook(tmp_path, noop("a"), name="other.yaml"), "--name", "done").code == 0
    with started(tmp_path, "run", file, "--name", "open", "-q"):
        until((tmp_path / "begun").exists)
        done = refold(tmp_path, "db", "backup", "copy.db")
        assert done.code == 0, done.err
    assert "copy.db is a copy of refold.db" in done.err
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert refold(tmp_path, "db", "check", "--db", "copy.db").err == "2 runs read, 0 problems\n"
    (tmp_path / "go").touch()
    assert refold(tmp_path, "runs", "resume", "open", "--db", "copy.db", "-q").code == 0
    again = refold(tmp_path, "db", "backup", "copy.db")
    assert again.code == 4 and "a backup replaces no file" in again.err
    assert refold(tmp_path, "db", "backup", "nowhere/copy.db").code == 5
    assert not list(tmp_path.glob("*-unfinished"))


def test_vacuum_gives_the_space_of_removed_runs_back(tmp_path: Path) -> None:
    big = playbook(tmp_path, 'step: big\ntool: {kind: python, code: "result = [str(i) * 20 for i in range(20000)]"}')
    assert refold(tmp_path, "run", big, "--name", "big", "-q").code == 0
    assert refold(tmp_path, "runs", "delete", "big").code == 0
    before = refold(tmp_path, "db", "info", "-o", "json").data
    assert before["free"] > 1_000_000
    done = refold(tmp_path, "db", "vacuum")
    assert done.code == 0, done.err
    after = refold(tmp_path, "db", "info", "-o", "json").data
    assert after["free"] == 0
    assert after["size"] < before["size"] - 1_000_000
    assert refold(tmp_path, "db", "check").code == 0


def test_doctor_sees_that_plans_of_runs_are_gone(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, noop("one")), "--name", "mine", "-q").code == 0
    with closing(sqlite3.connect(tmp_path / "refold.db")) as file, file:
        file.execute("delete from plans")
    done = refold(tmp_path, "doctor", "-o", "json")
    found = {each["about"]: each for each in done.data}
    assert (done.code, found["plans"]["state"]) == (1, "error")
    assert found["plans"]["detail"].startswith("run mine follows a plan that is not in the file (1 such plans)")
