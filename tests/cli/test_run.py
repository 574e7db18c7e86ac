"""`refold run`: what it prints where, what it leaves behind, and its exit codes."""

from pathlib import Path

import pytest
from msgspec import json

from tests.cli.program import noop, playbook, refold, shell

KEYS = [
    "id",
    "name",
    "workflow",
    "status",
    "key",
    "labels",
    "parent",
    "cancel_reason",
    "continued_by",
    "continues",
    "result",
    "error",
    "steps",
    "usage",
    "queueing",
    "created_at",
    "ended_at",
]
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


def test_the_result_is_on_stdout_and_progress_on_stderr(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", "two"), noop("two", result="{sum: 3}"))
    done = refold(tmp_path, "run", file, "--name", "mine")
    assert (done.code, done.data) == (0, {"sum": 3})
    assert done.err.splitlines()[1:3] == ["one: completed", "two: completed"]
    assert done.err.splitlines()[-1].startswith("run mine: completed after ")
    assert (tmp_path / "refold.db").exists()


def test_a_result_that_is_text_is_printed_as_it_is(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", result="'äöü {}'"))
    assert refold(tmp_path, "run", file, "-q") == (0, "äöü {}\n", "")


def test_a_failed_run_says_what_and_where_and_ends_with_1(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", "two"), shell("two", "echo broken >&2; exit 3"))
    done = refold(tmp_path, "run", file, "--name", "mine")
    assert (done.code, done.out) == (1, "")
    assert "two: failed: " in done.err
    assert "broken" in done.err
    assert "    play.yaml:8:11\n    8 |   - step: two\n" in done.err
    assert done.err.endswith("more: refold runs show mine\n")


def test_a_step_that_waits_for_its_next_try_is_one_line_and_not_also_one_of_the_run(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "exit 3") + "\nretry: {attempts: 2, delay: 0.2s}")
    err = refold(tmp_path, "run", file, "--name", "mine").err
    assert "one: try 2" in err and "run mine: failed" in err
    assert "run mine: waiting" not in err and "run mine: running" not in err


def test_a_failure_in_python_names_the_class_and_the_line(tmp_path: Path) -> None:
    file = playbook(tmp_path, "step: one\ntool:\n  kind: python\n  code: |\n    data = {}\n    result = data['id']")
    done = refold(tmp_path, "run", file, "--name", "mine", "--progress", "tree")
    assert done.code == 1
    assert "    KeyError: 'id'\n    line 2: result = data['id']\n" in done.err
    lines = refold(tmp_path, "run", file, "--name", "other")
    assert "one: failed: KeyError: 'id'\n    line 2: result = data['id']\n    play.yaml:" in lines.err
    assert "error     step one: KeyError: 'id'" in refold(tmp_path, "runs", "show", "mine").out
    assert "one/1 failed on try 1: KeyError: 'id'" in refold(tmp_path, "runs", "history", "mine").out


def test_an_input_that_nothing_reads_is_told(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", result="'{{ who }}'"), more="workload: {who: Ada}\n")
    done = refold(tmp_path, "run", file, "-i", "whom=Bo")
    assert (done.code, done.out) == (0, "Ada\n")
    assert done.err.startswith("warning: `play` has no input `whom`: did you mean `who`?\n")
    assert "warning" not in refold(tmp_path, "run", file, "-i", "who=Bo").err


def test_a_part_of_an_input_is_refused_with_what_to_write(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", result="'{{ db.host }}'"), more="workload: {db: {host: a}}\n")
    done = refold(tmp_path, "run", file, "-q", "-i", "db.host=b")
    assert (done.code, done.out) == (2, "") and "-i 'db={…}'" in done.err


def test_quiet_says_only_what_is_wrong(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "exit 3"))
    done = refold(tmp_path, "run", file, "-q")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: step one: ")
    assert done.err.count("\n") == 1


def test_json_is_one_object_with_these_keys(tmp_path: Path) -> None:
    flaky = shell("bad", "test -f ok || { touch ok; exit 1; }", more="retry: {attempts: 2}")
    loop = 'step: each\nloop: {in: [1, 2]}\ntool: {kind: noop, result: "{{ item * 2 }}"}\nnext: bad'
    file = playbook(tmp_path, noop("one", "each", "7"), loop, flaky)
    done = refold(tmp_path, "run", file, "-o", "json", "--name", "mine", "-q")
    assert done.code == 0
    seen = done.data
    assert list(seen) == KEYS
    assert (seen["name"], seen["workflow"], seen["status"], seen["error"], seen["usage"]) == (
        "mine",
        "play",
        "completed",
        None,
        {},
    )
    assert seen["result"]["exit_code"] == 0
    times = ("began_at", "ended_at", "seconds")
    one, each = (
        {name: value for name, value in seen["steps"][step].items() if name not in times} for step in ("one", "each")
    )
    assert one == {"status": "completed", "visits": 1, "attempts": 1, "result": 7, "error": None}
    assert each == {"status": "completed", "visits": 1, "attempts": 2, "result": [2, 4], "error": None}
    bad = seen["steps"]["bad"]
    assert (bad["attempts"], bad["status"], bad["error"]) == (2, "completed", None)
    assert seen["created_at"] < seen["ended_at"]
    shown = {**seen, "served": None, "children": []}
    assert refold(tmp_path, "runs", "show", seen["id"], "-o", "json").data == shown
    lines = refold(tmp_path, "runs", "show", "-o", "jsonl").out.splitlines()
    assert [json.decode(line) for line in lines] == [shown]


def test_json_of_a_failed_run_has_its_error(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "exit 3"))
    done = refold(tmp_path, "run", file, "-o", "json")
    assert (done.code, done.data["status"], done.data["result"]) == (1, "failed", None)
    error = done.data["error"]
    assert (error["step"], error["visit"], error["kind"]) == ("one", 1, "exit")
    assert error["message"] == done.data["steps"]["one"]["error"]["message"]


def test_a_playbook_with_mistakes_is_not_run_and_leaves_nothing_behind(tmp_path: Path) -> None:
    file = playbook(tmp_path, "step: one\ntol: {kind: noop}")
    done = refold(tmp_path, "run", file)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("play.yaml:6:5: error[unknown-key]: ")
    assert "did you mean `tool`?" in done.err
    assert [each.name for each in tmp_path.iterdir()] == ["play.yaml"]


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    playbook(tmp_path, noop("one"))
    done = refold(tmp_path, "run", "plya.yaml")
    assert (done.code, done.err) == (3, "error: there is no file plya.yaml; did you mean play.yaml?\n")


def test_inputs_are_json_or_text(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 0, "c": [1]}')
    file = playbook(tmp_path, 'step: one\ntool: {kind: noop, result: "{{ [workload.a, workload.b, workload.c] }}"}')
    done = refold(tmp_path, "run", file, "-i", "a=1", "-i", "b=ann", "--input-file", "in.json", "-q")
    assert (done.code, done.data) == (0, [1, "ann", [1]])
    done = refold(tmp_path, "run", file, "-i", "a")
    assert (done.code, "key=value" in done.err) == (2, True)


def test_the_same_key_is_the_same_run(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "echo ran >> ran"))
    first = refold(tmp_path, "run", file, "--key", "k", "-o", "json", "-q")
    second = refold(tmp_path, "run", file, "--key", "k", "-o", "json", "-q")
    assert (first.code, second.code) == (0, 0)
    assert first.data == second.data
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_a_dry_run_says_what_would_run_and_touches_nothing(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", "two"), noop("two"), more="workload: {a: 1, b: 2}\n")
    done = refold(tmp_path, "run", file, "--dry-run", "-i", "b=3")
    assert (done.code, done.out) == (0, 'play: 2 steps would run with {"a":1,"b":3}\n  one\n  two\n')
    seen = refold(tmp_path, "run", file, "--dry-run", "-o", "json").data
    assert (list(seen), seen["steps"]) == (["workflow", "plan", "input", "steps"], ["one", "two"])
    assert [each.name for each in tmp_path.iterdir()] == ["play.yaml"]


def test_a_detached_run_waits_for_somebody_and_resume_executes_it(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "echo ran >> ran", "two"), noop("two", result="5"))
    done = refold(tmp_path, "run", file, "--detach", "--name", "later")
    assert done.code == 0
    assert done.out.startswith("later  ")
    how = "start `refold worker`, or refold runs resume later"
    assert done.err == f"no worker is running: {how}\n"
    assert not (tmp_path / "ran").exists()
    why = refold(tmp_path, "runs", "why", "later", "-o", "json").data
    assert [(each["step"], each["kind"]) for each in why["reasons"]] == [("one", "no_worker"), ("two", "join")]
    assert why["reasons"][1]["sources"] == ["one"]
    resumed = refold(tmp_path, "runs", "resume")
    assert (resumed.code, resumed.out) == (0, "5\n")
    assert resumed.err.startswith("continuing later (")
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_it_serves_only_its_own_run(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one"))
    assert refold(tmp_path, "run", file, "--detach", "--name", "other", "-q").code == 0
    assert refold(tmp_path, "run", file, "--name", "mine", "-q").code == 0
    rows = refold(tmp_path, "runs", "list", "-o", "json").data
    assert {row["name"]: row["status"] for row in rows} == {"mine": "completed", "other": "queued"}


def test_a_run_that_runs_out_of_time_ends_with_124(tmp_path: Path) -> None:
    file = playbook(tmp_path, "step: one\ntool: {kind: wait, seconds: 60}", more="timeout: 0.2s\n")
    done = refold(tmp_path, "run", file, "-q")
    assert (done.code, done.err) == (124, "error: no end after 0.2 s\n")


def test_progress_for_machines_is_a_json_object_a_line(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "exit 1"))
    done = refold(tmp_path, "run", file, "--progress", "json")
    lines = [json.decode(line) for line in done.err.splitlines()]
    assert [(line.get("step"), line["status"]) for line in lines][-2:] == [("one", "failed"), (None, "failed")]
    assert all(line["run"] and line["at"] for line in lines)


def test_a_generated_name_is_workflow_and_two_words(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one"))
    name = refold(tmp_path, "run", file, "-o", "json", "-q").data["name"]
    assert name.startswith("play-")
    assert name.count("-") == 2
    assert refold(tmp_path, "runs", "show", name).code == 0


@pytest.mark.parametrize(("env", "coloured"), [({}, False), ({"FORCE_COLOR": "1"}, True)])
def test_colours_go_only_where_they_are_wanted(tmp_path: Path, env: dict[str, str], coloured: bool) -> None:
    done = refold(tmp_path, "run", "none.yaml", **env)
    assert ("\x1b[31merror:" in done.err) is coloured
    assert "\x1b" not in refold(tmp_path, "run", "none.yaml", **env, NO_COLOR="1").err
    assert "\x1b" not in refold(tmp_path, "--color", "never", "run", "none.yaml", **env).err


def test_the_playbook_may_come_over_a_pipe(tmp_path: Path) -> None:
    file = playbook(tmp_path, "step: one\ntol: {}")
    done = refold(tmp_path, "validate", "-", stdin=(tmp_path / file).read_text())
    assert (done.code, done.out) == (2, "<stdin>: 1 error\n")
    assert done.err.startswith("<stdin>:6:5: error[unknown-key]: ")
