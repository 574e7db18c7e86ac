"""Where steps run: in the folder in which their run was started, wherever it is resumed."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.program import refold

STEPS = """
- step: before
  tool: {kind: shell, command: [pwd]}
  next: ask
- step: ask
  tool: {kind: gate, prompt: Now}
  next: [sh, sub, py, script, rows, task, child]
- step: sh
  tool: {kind: shell, command: [pwd]}
- step: sub
  tool: {kind: shell, cwd: inner, command: [pwd]}
- step: py
  tool: {kind: python, code: "import os; result = os.getcwd()"}
- step: script
  tool: {kind: python, script: here.py}
- step: rows
  tool: {kind: sqlite, database: rows.db, commands: ["create table t (a int)", "insert into t values (7)"]}
- step: task
  tool:
    - {name: one, kind: shell, command: [pwd]}
- step: child
  tool: {kind: playbook, path: child.yaml}
"""
CHILD = """
- step: there
  tool: {kind: shell, command: [pwd]}
"""


def write(folder: Path, name: str, steps: str, more: str = "") -> str:
    head = f"apiVersion: refold/v1\nkind: Playbook\nmetadata: {{name: {name.removesuffix('.yaml')}}}\n{more}workflow:"
    (folder / name).write_text(head + steps.replace("\n", "\n  "), encoding="utf-8")
    return name


def started(home: Path) -> None:
    (home / "inner").mkdir(parents=True)
    (home / "here.py").write_text("import os\nresult = os.getcwd()\n")
    write(home, "child.yaml", CHILD)
    write(home, "main.yaml", STEPS)
    done = refold(home, "run", "main.yaml", "--name", "mine", "--until-waiting", "--db", "../refold.db")
    assert done.code == 0, done.err
    assert refold(home, "gates", "approve", "mine", "--db", "../refold.db").code == 0


def test_steps_run_in_the_folder_of_the_start_wherever_the_run_is_resumed(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other" / "deep"
    started(home)
    other.mkdir(parents=True)
    db = str(tmp_path / "refold.db")
    done = refold(other, "runs", "resume", "mine", "--db", db)
    assert done.code == 0, done.err
    steps = refold(other, "runs", "show", "mine", "--db", db, "-o", "json").data["steps"]
    found = {name: steps[name]["result"] for name in ("before", "sh", "sub", "py", "script", "task", "child")}
    assert found["before"]["stdout"] == found["sh"]["stdout"] == f"{home}\n"
    assert found["sub"]["stdout"] == f"{home}/inner\n"
    assert found["py"] == found["script"] == str(home)
    assert str(home) in json.dumps(found["task"]) and str(home) in json.dumps(found["child"])
    assert sqlite3.connect(home / "rows.db").execute("select a from t").fetchall() == [(7,)]
    assert list(other.iterdir()) == []


def test_a_folder_that_is_gone_is_a_clear_failure(tmp_path: Path) -> None:
    home = tmp_path / "home"
    started(home)
    home.rename(tmp_path / "moved")
    done = refold(tmp_path, "runs", "resume", "mine", "--until-waiting")
    assert done.code == 1
    error = refold(tmp_path, "runs", "show", "mine", "-o", "json").data["error"]
    assert error["kind"] == "no_folder"
    assert f"the run was started in {home}, and there is no such folder here: create it" in error["message"]


def test_reading_json_from_output_that_was_cut_says_so(tmp_path: Path) -> None:
    steps = """
- step: out
  tool: {kind: shell, script: "echo [1; yes ,1 | head -c 2000000; echo ]"}
  next: use
- step: use
  tool: {kind: noop, result: "{{ out.stdout | fromjson }}"}
"""
    assert refold(tmp_path, "run", write(tmp_path, "a.yaml", steps), "--name", "mine").code == 1
    error = refold(tmp_path, "runs", "show", "mine", "-o", "json").data["error"]
    assert "this is not all of the JSON: 951429 bytes were left out when it was printed" in error["message"]
    assert "raise `max_output` of that step, or let it write a `stdout_file`" in error["message"]


def test_a_detached_run_is_executed_in_the_folder_of_its_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write(home, "child.yaml", CHILD)
    assert refold(home, "run", "child.yaml", "--name", "mine", "--detach", "--db", "../refold.db").code == 0
    done = refold(tmp_path, "worker", "--until-idle", "--quiet")
    assert done.code == 0, done.err
    assert refold(tmp_path, "runs", "show", "mine", "-o", "json").data["result"]["stdout"] == f"{home}\n"


def test_duckdb_reads_files_of_the_folder_by_their_names(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "rows.csv").write_text("a\n4\n5\n")
    steps = """
- step: read
  tool: {kind: duckdb, query: "select sum(a) as s from 'rows.csv'"}
  next: copy
- step: copy
  tool:
    kind: transfer
    source: {type: csv, path: rows.csv}
    target: {type: duckdb, database: rows.duckdb, table: t}
  next: tell
- step: tell
  tool: {kind: noop, result: "{{ read.rows[0].s }} {{ copy.rows_transferred }} {{ run.folder }}"}
"""
    write(home, "sums.yaml", steps)
    assert refold(home, "run", "sums.yaml", "--name", "mine", "--detach", "--db", "../refold.db").code == 0
    assert refold(tmp_path, "worker", "--until-idle", "--quiet").code == 0
    assert refold(tmp_path, "runs", "show", "mine", "-o", "json").data["result"] == f"9 2 {home}"
    assert (home / "rows.duckdb").exists() and not (tmp_path / "rows.duckdb").exists()


WHY = """
- step: work
  tool: {kind: shell, script: "WORK"}
- step: alert
  tool: {kind: noop, result: "{{ run.error.kind }}: {{ run.error.message }} @{{ run.error.step }}"}
- step: log
  tool: {kind: noop, result: "{{ run.error.kind | default('fine') }}"}
"""


@pytest.mark.parametrize(
    ("work", "more", "alert"),
    [
        ("sleep 60", "timeout: 500ms\n", "timeout: no end after 0.5 s @"),
        ("exit 3", "", "exit: the script ended with exit code 3 @work"),
    ],
)
def test_a_finalizer_can_read_why_the_run_ends(tmp_path: Path, work: str, more: str, alert: str) -> None:
    file = write(tmp_path, "a.yaml", WHY.replace("WORK", work), f"{more}on_fail: [alert]\nalways: [log]\n")
    assert refold(tmp_path, "validate", file).out == "a.yaml: ok, 3 steps\n"
    assert refold(tmp_path, "run", file, "--name", "mine").code in (1, 124)
    steps = refold(tmp_path, "runs", "show", "mine", "-o", "json").data["steps"]
    assert steps["alert"]["result"] == alert and steps["log"]["result"] == alert.partition(":")[0]


def test_a_finalizer_can_read_that_the_budget_was_exceeded(tmp_path: Path) -> None:
    steps = WHY.replace('{kind: shell, script: "WORK"}', "{kind: python, code: \"context['usage'] = {'tokens': 9}\"}")
    steps = steps.replace("- step: alert", "  next: alert\n- step: alert").replace("alert\n- step", "more\n- step")
    steps += "- step: more\n  tool: {kind: noop}\n"
    budget = "budget: {tokens: 5, on_exceeded: fail}\non_fail: [alert]\nalways: [log]\n"
    assert refold(tmp_path, "run", write(tmp_path, "a.yaml", steps, budget), "--name", "mine").code == 1
    steps_shown = refold(tmp_path, "runs", "show", "mine", "-o", "json").data["steps"]
    assert steps_shown["alert"]["result"] == "budget: 9 tokens are used up, and the budget is 5 @"


def test_a_finalizer_can_read_that_the_run_was_cancelled_and_that_it_completed(tmp_path: Path) -> None:
    gate = WHY.replace('{kind: shell, script: "WORK"}', "{kind: gate, prompt: Now}")
    file = write(tmp_path, "a.yaml", gate, "on_fail: [alert]\nalways: [log]\n")
    for name in ("gone", "good"):
        assert refold(tmp_path, "run", file, "--name", name, "--until-waiting").code == 0
    assert refold(tmp_path, "runs", "cancel", "gone", "--reason", "no need").code == 0
    assert refold(tmp_path, "gates", "approve", "good").code == 0
    assert refold(tmp_path, "worker", "--until-idle", "--quiet").code == 0
    found = {name: refold(tmp_path, "runs", "show", name, "-o", "json").data["steps"] for name in ("gone", "good")}
    assert found["gone"]["log"]["result"] == "cancelled" and found["good"]["log"]["result"] == "fine"


def test_validate_knows_the_error_of_the_run(tmp_path: Path) -> None:
    wrong = WHY.replace("WORK", "echo {{ run.error }}").replace("run.error.message", "run.error.mesage")
    wrong = wrong.replace(" @{{", " {{ run.failures[0].error.message }}{{").replace(" | default('fine')", "")
    file = write(tmp_path, "a.yaml", wrong, "on_fail: [alert]\nalways: [log]\n")
    done = refold(tmp_path, "validate", file, "-o", "json")
    found = {(each["severity"], each["code"], each["message"].partition(",")[0]) for each in done.data}
    assert found >= {
        ("error", "unknown-name", "`run.error` has no `mesage`"),
        ("warning", "maybe-missing", "`run.error` is null when the run completes"),
        ("warning", "maybe-missing", "`run.failures` is empty when the run ends by its timeout"),
    }
