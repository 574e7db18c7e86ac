"""`refold gates …` and `refold runs signal`: what waits for people, and how it goes on."""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import PROGRAM, environment, noop, playbook, refold

ASK = """
step: ask
tool:
  kind: gate
  prompt: "Ship {{ run.name }}?"
  options: {approve: Ship it, reject: Not yet}
  assignee: release-team
  timeout: 1h
next: done
"""
DONE = noop("done", result='"{{ ask }}"')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asks = playbook(tmp_path, ASK, DONE)
    assert refold(tmp_path, "run", asks, "--detach", "--name", "one", "-q").code == 0
    return tmp_path


def gates(folder: Path, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = refold(folder, "gates", "list", "-o", "json", *options).data
    return found


def test_the_list_shows_what_is_asked_of_whom_and_until_when(folder: Path) -> None:
    [gate] = gates(folder)
    told = {key: gate[key] for key in ("name", "gate", "visit", "type", "prompt", "assignee", "on_timeout")}
    assert told == {
        "name": "one",
        "gate": "ask",
        "visit": 1,
        "type": "approval",
        "prompt": "Ship one?",
        "assignee": "release-team",
        "on_timeout": "fail",
    }
    assert gate["options"] == {"approve": "Ship it", "reject": "Not yet"} and gate["refuse"] == ["reject"]
    assert gate["deadline"].endswith("Z") and (gate["min_approvals"], gate["approvals"]) == (1, [])
    heads, line = refold(folder, "gates", "list").out.splitlines()
    assert heads.split() == ["RUN", "GATE", "VISIT", "ASSIGNEE", "APPROVALS", "UNTIL", "PROMPT"]
    assert line.startswith("one  ask") and line.endswith("Ship one?")


def test_the_list_has_the_newest_first_and_can_be_shortened(folder: Path) -> None:
    assert refold(folder, "run", "play.yaml", "--detach", "--name", "two", "-q").code == 0
    assert refold(folder, "runs", "pause", "two").code == 0
    assert [gate["name"] for gate in gates(folder)] == ["two", "one"]
    assert [gate["name"] for gate in gates(folder, "-n", "1")] == ["two"]
    assert refold(folder, "runs", "cancel", "two").code == 0
    assert [gate["name"] for gate in gates(folder)] == ["one"]


def test_a_gate_can_be_looked_at(folder: Path) -> None:
    shown = refold(folder, "gates", "show", "one").out
    assert "prompt     Ship one?" in shown and "assignee   release-team" in shown
    assert "option     approve  Ship it\noption     reject  Not yet  (refuses)\n" in shown
    assert refold(folder, "gates", "show", "one", "ask", "-o", "json").data == gates(folder)[0]
    assert refold(folder, "gates", "show", "one", "nobody").code == 3
    assert refold(folder, "gates", "show", "nobody").code == 3


def test_why_names_the_gate_with_its_prompt_its_assignee_and_its_deadline(folder: Path) -> None:
    shown = refold(folder, "runs", "why", "one").out
    assert "waits for a decision of release-team, until " in shown and ": Ship one?" in shown
    [reason] = [
        each for each in refold(folder, "runs", "why", "one", "-o", "json").data["reasons"] if each["kind"] == "gate"
    ]
    assert (reason["assignee"], reason["note"]) == ("release-team", "Ship one?") and reason["until"].endswith("Z")


def test_an_approval_lets_the_run_go_on_with_what_was_said(folder: Path) -> None:
    done = refold(folder, "gates", "approve", "one", "--feedback", "fine", "-o", "json")
    assert (done.code, done.data["option"], done.data["decided"]) == (0, "approve", True)
    assert gates(folder) == []
    result = refold(folder, "runs", "resume", "one", "-q", "-o", "json").data["result"]
    assert (result["by"], result["option"], result["feedback"]) == ("ann", "approve", "fine")


def test_a_rejection_fails_the_step_with_who_and_why(folder: Path) -> None:
    assert refold(folder, "gates", "reject", "one", "--by", "bob", "--feedback", "too early").code == 0
    error = refold(folder, "runs", "show", "one", "-o", "json").data["error"]
    assert (error["kind"], error["message"]) == ("rejected", "reject by bob: too early")
    assert error["data"]["feedback"] == "too early"


def test_who_comes_second_is_told_who_was_first(folder: Path) -> None:
    assert refold(folder, "gates", "approve", "one", "--by", "bob").code == 0
    for gate in ((), ("ask",)):
        late = refold(folder, "gates", "reject", "one", *gate)
        assert late.code == 4 and "gate 'ask' (visit 1) was decided by bob at 2" in late.err
    unknown = refold(folder, "gates", "approve", "one", "nobody")
    assert unknown.code == 3


def test_two_who_decide_at_the_same_moment_do_not_both_win(folder: Path) -> None:
    people = [
        subprocess.Popen(
            [*PROGRAM, "gates", verb, "one", "--by", by],
            cwd=folder,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        for verb, by in (("approve", "ann"), ("reject", "bob"))
    ]
    told = [person.communicate(timeout=60)[1] for person in people]
    assert sorted(person.returncode for person in people) == [0, 4], told
    winner, loser = (0, 1) if people[0].returncode == 0 else (1, 0)
    assert f"decided by {('ann', 'bob')[winner]} at" in told[loser]


FORM = """
step: ask
tool:
  kind: gate
  type: review
  options: [ship, hold]
  min_approvals: 2
  form: {type: object, properties: {n: {type: integer}}, required: [n]}
"""


def test_a_form_is_filled_in_key_by_key_and_an_option_can_be_chosen(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", playbook(tmp_path, FORM), "--detach", "--name", "r", "-q").code == 0
    wrong = refold(tmp_path, "gates", "approve", "r", "-i", "n=x")
    assert wrong.code == 2 and "feedback.n: 'x' is not of type 'integer'" in wrong.err
    assert refold(tmp_path, "gates", "approve", "r", "-i", "n=1", "--feedback", "x").code == 2
    first = refold(tmp_path, "gates", "approve", "r", "-i", "n=1", "--option", "hold", "--by", "bob", "-o", "json").data
    assert not first["decided"] and [each["by"] for each in first["approvals"]] == ["bob"]
    assert "1 of 2 approvals" in refold(tmp_path, "gates", "approve", "r", "-i", "n=2").err
    assert refold(tmp_path, "gates", "reject", "r").code == 4, "no option of a review refuses"
    assert refold(tmp_path, "gates", "approve", "r", "--option", "perhaps", "--by", "eve").code == 4
    assert refold(tmp_path, "gates", "approve", "r", "--option", "hold", "--by", "eve", "-i", "n=3").code == 0
    result = refold(tmp_path, "runs", "show", "r", "-o", "json").data["result"]
    assert (result["option"], result["feedback"], len(result["approvals"])) == ("hold", {"n": 3}, 3)


CHOOSE = """
step: ask
tool: {kind: gate, choices: "{{ workload.names }}"}
next: tell
"""
TELL = """
step: tell
tool: {kind: noop, result: "{{ ask.choices | join(', ') }}"}
"""


def test_several_of_the_choices_that_a_gate_has_computed_can_be_taken(tmp_path: Path) -> None:
    file = playbook(tmp_path, CHOOSE, TELL)
    given = ("-i", 'names={"a": "Ada", "b": "Bo"}')
    assert refold(tmp_path, "run", file, *given, "--detach", "--name", "r", "-q").code == 0
    assert gates(tmp_path)[0]["choices"] == {"a": "Ada", "b": "Bo"}
    assert "choice     a  Ada" in refold(tmp_path, "gates", "show", "r").out
    wrong = refold(tmp_path, "gates", "approve", "r", "--choose", "c")
    assert wrong.code == 4 and "no choice 'c': its choices are a, b" in wrong.err
    assert refold(tmp_path, "gates", "reject", "r", "--choose", "a").code == 4
    assert refold(tmp_path, "gates", "approve", "r", "--choose", "b", "--choose", "a").code == 0
    assert "decided: approve, b, a" in refold(tmp_path, "runs", "history", "r").out
    done = refold(tmp_path, "runs", "resume", "r", "-q")
    assert done.code == 0 and "b, a" in done.out


def test_of_several_gates_one_must_be_named(tmp_path: Path) -> None:
    steps = ["step: fork\nnext: [a, b]", *(f"step: {name}\ntool: {{kind: gate}}" for name in "ab")]
    assert refold(tmp_path, "run", playbook(tmp_path, *steps), "--name", "r", "-q", "--detach").code == 0
    resumed = subprocess.Popen([*PROGRAM, "runs", "resume", "r", "-q"], cwd=tmp_path, env=environment())
    try:
        while len(gates(tmp_path)) < 2:
            time.sleep(0.05)
        which = refold(tmp_path, "gates", "approve", "r")
        assert which.code == 4 and "name one: a, b" in which.err
        for name in "ab":
            assert refold(tmp_path, "gates", "approve", "r", name).code == 0
        assert resumed.wait(60) == 0
    finally:
        resumed.kill()
        resumed.wait()


def test_a_signal_ends_a_wait_with_its_value(tmp_path: Path) -> None:
    waits = playbook(tmp_path, "step: wait\ntool: {kind: wait, signal: [paid, refused], seconds: 1h}")
    for number, (given, value) in enumerate(
        {("-i", "amount=7"): {"amount": 7}, ('{"a": [1]}',): {"a": [1]}, ("soon",): "soon", (): None}.items()
    ):
        name = f"r{number}"
        assert refold(tmp_path, "run", waits, "--detach", "--name", name, "-q").code == 0
        assert refold(tmp_path, "runs", "signal", name, "refused", *given).code == 0
        shown = refold(tmp_path, "runs", "show", name, "-o", "json").data
        assert shown["result"] == {"by": "signal", "signal": "refused", "value": value}


def test_a_signal_that_comes_early_is_kept_and_one_that_comes_late_is_refused(tmp_path: Path) -> None:
    waits = playbook(tmp_path, noop("first", "wait"), "step: wait\ntool: {kind: wait, signal: go}")
    assert refold(tmp_path, "run", waits, "--detach", "--name", "r", "-q").code == 0
    told = refold(tmp_path, "runs", "signal", "r", "go", "1", "-o", "json")
    assert told.data == {"name": "r", "signal": "go", "value": 1}
    assert refold(tmp_path, "runs", "resume", "r", "-q", "-o", "json").data["result"]["value"] == 1
    late = refold(tmp_path, "runs", "signal", "r", "go")
    assert late.code == 4 and "completed" in late.err
    assert refold(tmp_path, "runs", "signal", "nobody", "go").code == 3
    assert refold(tmp_path, "runs", "signal", "r", "go", "1", "-i", "a=1").code == 2
