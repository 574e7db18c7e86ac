"""A `.wf` program whose process is killed at a commit goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.failpoints import AFTER, BEFORE, die_at_commit
from tests.crash.interrupted import Figures
from tests.crash.processes import scratch
from tests.wf.killed import interrupt, large, uninterrupted
from tests.wf.programs import lay_out
from tests.wf.test_vectors import CASES, program_of

KILLS = [case for case in CASES if "kill" in case]
AGENT = """\
import json, os, sys, time
name, folder = sys.argv[1], sys.argv[2]
with open(os.path.join(folder, "calls"), "a") as calls:
    calls.write(name + "\\n")
calls = open(os.path.join(folder, "calls")).read().split()
plan = json.load(open(os.path.join(folder, "plan.json")))
if len(calls) == plan["kill"]:
    time.sleep(600)  # until the process is killed
ended = os.path.join(folder, "ended-" + name)
number = os.path.getsize(ended) if os.path.exists(ended) else 0
open(ended, "a").write("x")
answers = plan["agents"].get(name, [{}])
print("<<<FLOW_OUTPUT>>>" + json.dumps(answers[min(number, len(answers) - 1)]) + "<<<END_FLOW_OUTPUT>>>")
"""


def kill_at_commits(when: str, first: int, step: int) -> Figures:
    figures = Figures()
    with scratch() as folder:
        playbook = large(folder / "project")
        expected = uninterrupted(folder / "run", playbook)
        n = first
        while interrupt(folder / "run", playbook, partial(die_at_commit, n, when), expected, figures):
            n += step
    print(f"killed {when} commits {first}, {first + step} ... {n - step}: {figures}")
    return figures


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_a_commit_of_a_large_program_changes_nothing_in_the_end(when: str) -> None:
    assert kill_at_commits(when, 2 if when == BEFORE else 6, 9).kills >= 3


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_any_commit_of_a_large_program_changes_nothing_in_the_end(when: str) -> None:
    assert kill_at_commits(when, 1, 1).kills >= 30


@pytest.mark.parametrize("case", KILLS, ids=[each["name"] for each in KILLS])
def test_a_program_that_was_killed_in_a_call_makes_that_call_again_and_no_other(
    case: dict[str, Any], tmp_path: Path
) -> None:
    made = {**case.get("given", {}).get("agents", {})}
    (tmp_path / "plan.json").write_text(json.dumps({"kill": case["given"].get("kill", case["kill"]), "agents": made}))
    (tmp_path / "agent.py").write_text(AGENT)
    command = [sys.executable, str(tmp_path / "agent.py"), "{{ agent }}", str(tmp_path)]
    file = lay_out(program_of(case), tmp_path / "project", {"*": {"kind": "shell", "command": command}})
    refold = [sys.executable, "-m", "refold.cli"]
    database = ["--db", str(tmp_path / "runs.db")]
    first = subprocess.Popen([*refold, "run", str(file), *database, "-q"], start_new_session=True)
    calls = tmp_path / "calls"
    while not (calls.exists() and len(calls.read_text().split()) == case["kill"]):
        assert first.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    again = subprocess.run([*refold, "runs", "resume", *database, "-o", "json", "-q"], capture_output=True, text=True)
    seen = json.loads(again.stdout)
    assert seen["status"] == case["want"]["status"], again.stderr
    assert calls.read_text().split() == case["want"]["calls"]
