"""The real program with NoETL files: killed in the midst of a pipeline, and with children that nobody waits for."""

import os
import signal
import subprocess
from pathlib import Path

from tests.cli.program import PROGRAM, environment, refold, started, until
from tests.noetl.house import HEAD

CRASH = (
    HEAD
    + """\
workload: {folder: x}
workflow:
  - {step: first, tool: {kind: shell, command: "echo first >> {{ folder }}/log"}, next: {arcs: [{step: work}]}}
  - step: work
    tool:
      - {name: once, kind: shell, command: "echo once >> {{ folder }}/log", set: {ctx.once: true}}
      - name: often
        kind: shell
        command: "echo try {{ _attempt }} >> {{ folder }}/log; test -e {{ folder }}/go"
        spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 400,
            delay: 0.3}}]}}
    next: {arcs: [{step: last}]}
  - {step: last, tool: {kind: shell, command: "echo last {{ ctx.once }} >> {{ folder }}/log"}}
"""
)


def lines(folder: Path) -> list[str]:
    file = folder / "log"
    return file.read_text().splitlines() if file.exists() else []


def test_a_killed_run_repeats_no_finished_step_and_goes_on_counting_its_tries(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text(CRASH)
    command = [*PROGRAM, "run", "play.yaml", "--name", "it", "-i", f"folder={tmp_path}", "-q"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL) as running:
        until(lambda: "try 4" in lines(tmp_path))
        os.kill(running.pid, signal.SIGKILL)
    before = lines(tmp_path)
    (tmp_path / "go").touch()
    done = refold(tmp_path, "runs", "resume", "it", "-q")
    after = lines(tmp_path)
    assert done.code == 0, done.err
    assert [after.count("first"), after.count("once"), after.count("last true")] == [1, 1, 1]
    tries = [int(line.split()[1]) for line in after if line.startswith("try")]
    assert len(tries) > sum(line.startswith("try") for line in before)
    assert tries == sorted(tries) and tries[-1] >= 4  # it goes on where it was; a try that was cut off may come again


TASKS = (
    HEAD
    + """\
workload: {folder: x}
workflow:
  - step: work
    tool:
      - name: claim
        kind: shell
        command: "echo claim >> {{ folder }}/log; seq 50000 | tr -d '[:space:]' | head -c 100000"
      - name: note
        kind: python
        input: {text: "{{ claim.stdout }}"}
        code: "result = {'size': len(text)}"
        set: {ctx.size: "{{ output.data.size }}"}
      - {name: fetch, kind: shell, command: "echo fetch >> {{ folder }}/log; test -e {{ folder }}/go || sleep 60"}
      - {name: save, kind: shell, command: "echo save {{ note.size }} {{ claim.stdout | length }} >> {{ folder }}/log"}
    next: {arcs: [{step: last}]}
  - {step: last, tool: {kind: shell, command: "echo last {{ ctx.size }} >> {{ folder }}/log"}}
"""
)


def test_finished_tasks_of_a_list_are_not_done_again_after_a_crash(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text(TASKS)
    with started(tmp_path, "run", "play.yaml", "--name", "it", "-i", f"folder={tmp_path}", "-q") as running:
        until(lambda: "fetch" in lines(tmp_path))
        running.kill()
    (tmp_path / "go").touch()
    done = refold(tmp_path, "runs", "resume", "it", "-q")
    assert done.code == 0, done.err
    assert lines(tmp_path) == ["claim", "fetch", "fetch", "save 100000 100000", "last 100000"]


def test_refold_run_stays_until_children_that_nobody_waits_for_have_ended(tmp_path: Path) -> None:
    child = "workload: {f: x}\nworkflow: [{step: a, tool: {kind: shell, command: 'sleep 0.7; echo done > {{ f }}'}}]"
    (tmp_path / "child.yaml").write_text(HEAD + child)
    parent = f"workflow: [{{step: p, tool: {{kind: playbook, path: child, input: {{f: {tmp_path}/end}}}}}}]"
    (tmp_path / "play.yaml").write_text(HEAD + parent)
    done = refold(tmp_path, "run", "play.yaml", "-q")
    assert done.code == 0, done.err
    assert done.data["status"] == "started" and (tmp_path / "end").read_text() == "done\n"


def test_validate_says_what_is_old_and_run_runs_it(tmp_path: Path) -> None:
    (tmp_path / "play.yaml").write_text(
        HEAD + "workflow: [{step: a, next: b}, {step: b, tool: {kind: noop, result: 3}}]\n"
    )
    said = refold(tmp_path, "validate", "play.yaml")
    assert said.code == 0 and "old form" in said.out + said.err
    done = refold(tmp_path, "run", "play.yaml", "-q")
    assert done.code == 0 and done.data == 3
