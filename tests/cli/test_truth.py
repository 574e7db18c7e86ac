"""What lists and `runs show` say of runs: who executes them, when steps ran, what they started, why they failed."""

import signal
from pathlib import Path
from typing import Any

from tests.cli.program import noop, playbook, refold, shell, started, until


def listed(folder: Path, *more: str) -> dict[str, Any]:
    return {run["name"]: run for run in refold(folder, "runs", "list", "-o", "json", *more).data}


def seen(folder: Path, name: str = "r") -> Any:
    return refold(folder, "runs", "show", name, "-o", "json").data


def test_a_run_that_nobody_executes_says_so_in_lists_with_the_command_that_helps(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("one", "exit 0"))
    refold(tmp_path, "run", file, "--detach", "--name", "left")
    refold(tmp_path, "run", file, "--name", "done", "-q")
    assert {name: (run["status"], run["served"]) for name, run in listed(tmp_path).items()} == {
        "left": ("queued", False),
        "done": ("completed", None),
    }
    table = refold(tmp_path, "runs", "list")
    assert "queued (no worker)" in table.out and "to execute: refold worker" in table.err
    shown = refold(tmp_path, "runs", "show", "left")
    assert "left  queued" in shown.out and "refold runs resume left, or refold worker" in shown.err
    assert list(listed(tmp_path, "--unserved")) == list(listed(tmp_path, "--status", "queued")) == ["left"]
    assert listed(tmp_path, "--status", "running") == {}


def test_a_run_whose_worker_was_killed_is_queued_and_served_by_nobody(tmp_path: Path) -> None:
    refold(tmp_path, "run", playbook(tmp_path, shell("slow", "touch began; sleep 600")), "--detach", "--name", "r")
    with started(tmp_path, "worker") as worker:
        until((tmp_path / "began").exists)
        assert (seen(tmp_path)["status"], seen(tmp_path)["steps"]["slow"]["status"]) == ("running", "running")
        assert listed(tmp_path)["r"]["served"] is True
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=60)
    assert (seen(tmp_path)["status"], seen(tmp_path)["steps"]["slow"]["status"]) == ("queued", "queued")
    assert listed(tmp_path)["r"]["served"] is False


def test_what_is_sent_to_a_run_that_nobody_executes_says_how_it_continues(tmp_path: Path) -> None:
    gate = "step: ask\ntool: {kind: gate, prompt: ok?}\nnext: after"
    file = playbook(tmp_path, gate, shell("after", "exit 0"))
    for name in ("a", "b"):
        refold(tmp_path, "run", file, "--name", name, "--until-waiting", "-q")
    assert "refold runs resume a, or refold worker" in refold(tmp_path, "gates", "approve", "a").err
    assert "refold runs resume b, or refold worker" in refold(tmp_path, "runs", "signal", "b", "hello").err


def test_steps_have_a_begin_an_end_and_a_duration(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("slow", "sleep 0.3", "quick"), noop("quick"))
    refold(tmp_path, "run", file, "--name", "r", "-q")
    steps = seen(tmp_path)["steps"]
    assert steps["slow"]["seconds"] >= 0.3 > steps["quick"]["seconds"] >= 0
    assert steps["slow"]["began_at"] < steps["slow"]["ended_at"] <= steps["quick"]["began_at"]
    head, slow = refold(tmp_path, "runs", "show", "r").out.splitlines()[-3:-1]
    assert head.split() == ["STEP", "STATUS", "VISITS", "TRIES", "BEGAN", "TOOK", "RESULT"]
    assert slow.split()[:2] == ["slow", "completed"] and " s " in slow


def test_who_watches_a_run_that_nobody_executes_is_told_how_it_continues(tmp_path: Path) -> None:
    refold(tmp_path, "run", playbook(tmp_path, noop("one")), "--detach", "--name", "left", "-q")
    watched = refold(tmp_path, "runs", "watch", "left", "--timeout", "0.1")
    how = "no process executes left; to execute it: refold runs resume left, or refold worker"
    assert watched.code == 124 and how in watched.err.splitlines()


def test_a_child_run_is_waited_for_by_its_name(tmp_path: Path) -> None:
    playbook(tmp_path, "step: go\ntool: {kind: wait, signal: go}", name="child.yaml")
    file = playbook(tmp_path, "step: sub\ntool: {kind: playbook, path: child.yaml}")
    left = refold(tmp_path, "run", file, "--name", "r", "--until-waiting")
    assert "sub: waits for run r.sub" in left.err.splitlines()
    assert "waits for run r.sub" in refold(tmp_path, "runs", "why", "r").out


def test_a_completed_step_has_no_old_error(tmp_path: Path) -> None:
    loop = "step: each\nloop: {in: [1, 2]}\ntool: {kind: shell, script: 'test -f mended'}"
    refold(tmp_path, "run", playbook(tmp_path, loop), "--name", "r", "-q")
    assert seen(tmp_path)["steps"]["each"]["error"]["kind"] == "items_failed"
    (tmp_path / "mended").touch()
    refold(tmp_path, "runs", "retry", "r", "-q")
    assert (seen(tmp_path)["status"], seen(tmp_path)["steps"]["each"]["error"]) == ("completed", None)
    assert "failed" not in refold(tmp_path, "runs", "show", "r").out


def test_the_error_of_a_loop_names_the_first_item_and_its_cause(tmp_path: Path) -> None:
    code = "{'a': 1}[input_data['n']]"
    loop = 'step: each\nloop: {in: [a, b, c], iterator: n}\ntool:\n  kind: python\n  input: {n: "{{ n }}"}\n'
    refold(tmp_path, "run", playbook(tmp_path, loop + f'  code: "{code}"'), "--name", "r", "-q")
    first = seen(tmp_path)["steps"]["each"]["error"]["first"]
    assert first["item"] == 1 and "'b'" in first["error"]["message"]
    shown = refold(tmp_path, "runs", "show", "r").out
    assert "2 of 3 items failed" in shown and "the first, 1: " in shown
    assert "Traceback (most recent call last)" in shown and "KeyError: 'b'" in shown


def test_the_traceback_of_a_step_is_shown(tmp_path: Path) -> None:
    file = playbook(tmp_path, "step: tb\ntool: {kind: python, code: \"{}['missing']\"}")
    refold(tmp_path, "run", file, "--name", "r", "-q")
    shown = refold(tmp_path, "runs", "show", "r").out
    assert "\ntb:\nTraceback (most recent call last)" in shown and "KeyError: 'missing'" in shown


def test_children_are_named_after_parent_and_step_and_shown_with_their_parent_alone(tmp_path: Path) -> None:
    playbook(tmp_path, noop("work"), name="leaf.yaml", more="workload: {n: 0}\n")
    loop = "loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}"
    kids = f"step: kids\n{loop}\ntool: {{kind: playbook, path: leaf.yaml}}"
    refold(tmp_path, "run", playbook(tmp_path, kids), "--name", "top", "-q")
    assert list(listed(tmp_path)) == ["top"]
    assert sorted(listed(tmp_path, "--children")) == ["top", "top.kids[0]", "top.kids[1]"]
    assert sorted(listed(tmp_path, "--parent", "top")) == ["top.kids[0]", "top.kids[1]"]
    assert listed(tmp_path, "--children")["top.kids[0]"]["parent"] == seen(tmp_path, "top")["id"]
    assert [each["name"] for each in seen(tmp_path, "top")["children"]] == ["top.kids[0]", "top.kids[1]"]
    assert "top.kids[1]" in refold(tmp_path, "runs", "show", "top").out
    assert seen(tmp_path, "top.kids[0]")["status"] == "completed"


def test_items_that_no_worker_executes_are_queued(tmp_path: Path) -> None:
    loop = "step: each\nloop: {in: [1, 2, 3], max_in_flight: 3}\ntool: {kind: shell, script: 'touch began; sleep 600'}"
    refold(tmp_path, "run", playbook(tmp_path, loop), "--detach", "--name", "r")
    with started(tmp_path, "worker", "--slots", "1"):
        until((tmp_path / "began").exists)
        statuses = [each["status"] for each in refold(tmp_path, "runs", "items", "r", "-o", "json").data]
        assert sorted(statuses) == ["queued", "queued", "running"]
        assert "1 running, 2 queued" in refold(tmp_path, "runs", "items", "r").out
        assert len(refold(tmp_path, "runs", "items", "r", "--state", "queued", "-o", "json").data) == 2
        items = seen(tmp_path)["steps"]["each"]["items"]
        assert (items["running"], items["queued"]) == (1, 2)


def test_a_list_finds_failed_runs_by_a_part_of_their_error(tmp_path: Path) -> None:
    for name, text in (("a", "disk is full"), ("b", "no route")):
        step = f"step: one\ntool: {{kind: assert, that: false, message: {text}}}"
        file = playbook(tmp_path, step, name=f"{name}.yaml")
        refold(tmp_path, "run", file, "--name", name, "-q")
    assert list(listed(tmp_path, "--error", "DISK")) == ["a"]
    assert listed(tmp_path, "--error", "disk", "--status", "completed") == {}


def test_a_run_that_fails_by_its_time_limit_says_why_and_a_cancelled_one_too(tmp_path: Path) -> None:
    slow = playbook(tmp_path, shell("slow", "sleep 600"), more="timeout: 1s\n")
    failed = refold(tmp_path, "run", slow, "--name", "late")
    assert failed.code == 124 and "run late: failed after" in failed.err and "no end after 1 s" in failed.err
    refold(tmp_path, "run", playbook(tmp_path, shell("one", "exit 0")), "--name", "r", "--detach")
    refold(tmp_path, "runs", "cancel", "r", "--reason", "not wanted")
    refold(tmp_path, "runs", "resume", "--all", "-q")
    assert seen(tmp_path)["cancel_reason"] == "not wanted"
    assert "not wanted" in refold(tmp_path, "runs", "show", "r").out
