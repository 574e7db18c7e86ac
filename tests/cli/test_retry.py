"""`runs retry` and `dlq`: what failed for good is seen by its reason and tried again; files start other files."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import noop, playbook, refold, shell

FLAKY = shell("flaky", "echo tried >> flaky.txt\ntest -f mended", "last")


def tried(folder: Path) -> int:
    return len((folder / "flaky.txt").read_text().splitlines())


def test_a_failed_run_is_retried_here_and_finished_steps_are_not_repeated(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("first", "echo x >> first.txt", "flaky"), FLAKY, noop("last", result="done"))
    assert refold(tmp_path, "run", file, "--name", "one", "-q").code == 1
    assert refold(tmp_path, "runs", "retry", "one", "-q").code == 1
    (tmp_path / "mended").touch()
    done = refold(tmp_path, "runs", "retry", "one")
    assert (done.code, done.out.strip(), tried(tmp_path)) == (0, "done", 3)
    assert (tmp_path / "first.txt").read_text() == "x\n"
    assert "run reopened by ann: again flaky" in refold(tmp_path, "runs", "history", "one").out
    assert refold(tmp_path, "runs", "retry", "one").code == 4


def test_from_a_step_all_that_follows_is_done_again(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("first", "echo x >> first.txt", "flaky"), FLAKY, noop("last", result="done"))
    assert refold(tmp_path, "run", file, "--name", "one", "-q").code == 1
    (tmp_path / "mended").touch()
    assert refold(tmp_path, "runs", "retry", "one", "--from", "first", "-q").code == 0
    assert (tmp_path / "first.txt").read_text() == "x\nx\n"
    assert refold(tmp_path, "runs", "retry", "nobody").code == 3


def test_a_step_that_cannot_be_retried_from_is_told(tmp_path: Path) -> None:
    file = playbook(tmp_path, FLAKY, noop("last"))
    assert refold(tmp_path, "run", file, "--name", "one", "-q").code == 1
    assert "has no step 'nowhere'" in refold(tmp_path, "runs", "retry", "one", "--from", "nowhere").err
    assert "never reached step 'last'" in refold(tmp_path, "runs", "retry", "one", "--from", "last").err


@pytest.fixture
def failures(tmp_path: Path) -> Path:
    """Two runs that failed for one reason, one for another, and one whose failure was handled."""
    for name, code in (("a", 3), ("b", 3), ("c", 4)):
        file = playbook(tmp_path, shell("one", f"test -f mended || exit {code}"), name=f"{name}.yaml")
        assert refold(tmp_path, "run", file, "--name", name, "-q").code == 1
    handled = "step: one\ntool: {kind: shell, script: exit 3}\nnext: {arcs: [{step: two, on: failure}]}"
    assert refold(tmp_path, "run", playbook(tmp_path, handled, noop("two"), name="d.yaml"), "-q").code == 0
    return tmp_path


def groups(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = refold(folder, "dlq", "list", "-o", "json").data
    return found


def test_failures_are_grouped_by_their_reason_and_redriven(failures: Path) -> None:
    found = groups(failures)
    assert sorted((each["tool"], each["commands"], each["runs"]) for each in found) == [("shell", 3, 3)]
    [reason] = [each["fingerprint"] for each in found]
    shown = refold(failures, "dlq", "show", reason[:6], "-o", "json").data
    assert [each["name"] for each in shown] == ["c", "b", "a"]
    assert refold(failures, "dlq", "show", "zz").code == 3
    dry = refold(failures, "dlq", "redrive", reason, "--dry-run")
    assert dry.out.splitlines() == [f"{name}  would be retried" for name in "cba"] and len(groups(failures)) == 1
    (failures / "mended").touch()
    assert refold(failures, "dlq", "redrive", "--run", "a").out == "a  retried\n"
    assert [each["runs"] for each in groups(failures)] == [2]
    assert refold(failures, "runs", "resume", "a", "-q").code == 0
    assert refold(failures, "dlq", "redrive", "--all").code == 0
    assert groups(failures) == []
    assert refold(failures, "dlq", "redrive").code == 2
    assert refold(failures, "dlq", "list")[1:] == ("", "there is no dead letter\n")


def test_a_rebuild_finds_the_same_dead_letters(failures: Path) -> None:
    before = groups(failures)
    assert refold(failures, "db", "rebuild").code == 0
    assert groups(failures) == before != []


def family(folder: Path) -> str:
    leaf = shell("work", "test -f mended || exit 7")
    playbook(folder, leaf, name="leaf.yaml", more="workload: {n: 0}\n")
    middle = (
        "step: kid\nloop: {in: [1, 2], iterator: n, spec: {mode: parallel}}\ntool: {kind: playbook, path: leaf.yaml}"
    )
    playbook(folder, middle, name="middle.yaml")
    return playbook(folder, "step: kid\ntool: {kind: playbook, name: middle}", name="top.yaml")


def test_playbooks_start_playbooks_and_their_failures_go_on_with_the_first_one(tmp_path: Path) -> None:
    file = family(tmp_path)
    assert refold(tmp_path, "run", file, "--name", "top", "-q").code == 1
    assert [(each["commands"], each["runs"], each["tool"]) for each in groups(tmp_path)] == [(2, 2, "shell")]
    assert len(refold(tmp_path, "runs", "list", "--children", "-o", "json").data) == 4
    (tmp_path / "mended").touch()
    assert refold(tmp_path, "dlq", "redrive", "--all").out == "top  retried\n"
    assert refold(tmp_path, "runs", "resume", "top", "-q").code == 0
    assert refold(tmp_path, "runs", "show", "top", "-o", "json").data["steps"]["kid"]["visits"] == 2


def test_a_detached_run_has_its_children_with_it(tmp_path: Path) -> None:
    (tmp_path / "mended").touch()
    assert refold(tmp_path, "run", family(tmp_path), "--detach", "--name", "top", "-q").code == 0
    for file in ("top.yaml", "middle.yaml", "leaf.yaml"):
        (tmp_path / file).unlink()
    assert refold(tmp_path, "runs", "resume", "top", "-q").code == 0


def test_a_child_cannot_be_retried_by_itself(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", family(tmp_path), "--name", "top", "-q").code == 1
    child = next(row for row in refold(tmp_path, "runs", "list", "--children", "-o", "json").data if row["parent"])
    done = refold(tmp_path, "runs", "retry", child["id"])
    assert done.code == 4 and "retry that one" in done.err


SPENDS = "step: {name}\nnext: {to}\ntool: {{kind: python, code: \"context['usage']['tokens'] = 8\", isolation: inline}}"


def spending(folder: Path, exceeded: str, more: str = "") -> str:
    steps = [SPENDS.format(name="one", to="two"), SPENDS.format(name="two", to="three"), noop("three", result="done")]
    more += f"budget: {{tokens: 10, on_exceeded: {exceeded}}}\n"
    return playbook(folder, *steps, noop("sum_up", result="so far"), more=more)


def test_a_run_beyond_its_budget_pauses_says_why_and_goes_on_with_more(tmp_path: Path) -> None:
    file = spending(tmp_path, "pause", "always: [sum_up]\n")
    left = refold(tmp_path, "run", file, "--name", "dear")
    assert left.code == 6
    assert "run dear is paused by budget: 16 tokens are used up, and the budget is 10" in left.err
    assert "to continue: refold runs resume dear --budget tokens=LIMIT\n" in left.err
    assert "paused by budget" in refold(tmp_path, "runs", "why", "dear").out
    assert "tokens 16" in refold(tmp_path, "runs", "show", "dear").out
    spent = refold(tmp_path, "runs", "resume", "dear", "-q")
    assert spent.code == 4 and "16 tokens are used up, and the budget is 10" in spent.err
    assert refold(tmp_path, "runs", "resume", "dear", "--budget", "tokens=many").code == 2
    done = refold(tmp_path, "runs", "resume", "dear", "-q", "--budget", "tokens=20")
    assert (done.code, done.out.strip()) == (0, "done")


def test_a_run_beyond_its_budget_fails_or_goes_to_a_step(tmp_path: Path) -> None:
    failed = refold(tmp_path, "run", spending(tmp_path, "fail", "always: [sum_up]\n"), "--name", "dear", "-q")
    assert failed.code == 1 and "the budget is 10" in failed.err
    assert refold(tmp_path, "runs", "retry", "dear", "-q", "--budget", "tokens=50").out.strip() == "done"
    assert refold(tmp_path, "run", spending(tmp_path, "{goto: sum_up}"), "-q").out.strip() == "so far"


EACH = """\
step: fetch
loop: {in: [a, b, c], iterator: name, key: "{{ name }}", tolerate: 2}
tool: {kind: shell, command: [sh, -c, 'echo "$0" >> calls; test -f mended || test "$0" != b', "{{ name }}"]}
next: {NEXT}"""
TELL = """\
step: tell
tool: {kind: noop, result: "{{ fetch.stats }}"}"""


def tolerated(folder: Path, *behind: str) -> str:
    following = behind[0].splitlines()[0].removeprefix("step: ") if behind else "tell"
    return playbook(folder, EACH.replace("{NEXT}", following), *behind, TELL)


def run_json(folder: Path, name: str) -> Any:
    return refold(folder, "runs", "show", name, "-o", "json").data


STATS = {"total": 3, "success": 2, "failed": 1}
MENDED = {"total": 3, "success": 3, "failed": 0}


def test_redriving_tolerated_items_keeps_the_result_of_the_run(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", tolerated(tmp_path), "--name", "r").data == STATS
    (tmp_path / "mended").touch()
    redriven = refold(tmp_path, "dlq", "redrive", "--all")
    assert redriven.code == 0 and "refold runs resume --all" in redriven.err
    assert refold(tmp_path, "runs", "resume", "r").data == STATS
    seen = run_json(tmp_path, "r")
    assert (seen["status"], seen["result"], seen["steps"]["tell"]["visits"]) == ("completed", STATS, 1)
    assert [each["status"] for each in refold(tmp_path, "runs", "items", "r", "-o", "json").data] == ["completed"] * 3
    assert sorted((tmp_path / "calls").read_text().split()) == ["a", "b", "b", "c"]
    assert groups(tmp_path) == []


def test_redriving_with_follow_enters_the_steps_behind_the_loop_again(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", tolerated(tmp_path), "--name", "r").data == STATS
    (tmp_path / "mended").touch()
    assert refold(tmp_path, "dlq", "redrive", "--all", "--follow").code == 0
    assert refold(tmp_path, "runs", "resume", "r").data == MENDED
    assert run_json(tmp_path, "r")["steps"]["tell"]["visits"] == 2


def test_a_completed_run_is_retried_from_a_step_and_not_without_one(tmp_path: Path) -> None:
    assert refold(tmp_path, "run", tolerated(tmp_path), "--name", "r").data == STATS
    refused = refold(tmp_path, "runs", "retry", "r")
    assert refused.code == 4 and "--from STEP" in refused.err
    assert refold(tmp_path, "runs", "retry", "r", "--from", "tell", "-q").code == 0
    assert {name: step["visits"] for name, step in run_json(tmp_path, "r")["steps"].items()} == {"fetch": 1, "tell": 2}


GATE = "step: ask\ntool: {kind: gate, prompt: ok?}\nnext: tell"


def test_retrying_an_item_touches_nothing_but_the_item(tmp_path: Path) -> None:
    """A run that was rejected at its gate: the item is fetched, and the gate does not ask again."""
    file = tolerated(tmp_path, GATE)
    assert refold(tmp_path, "run", file, "--name", "r", "--until-waiting").code == 0
    early = refold(tmp_path, "runs", "retry", "r", "--step", "fetch", "--item", "b")
    assert early.code == 4 and "--follow" in early.err
    refold(tmp_path, "gates", "reject", "r")
    (tmp_path / "mended").touch()
    done = refold(tmp_path, "runs", "retry", "r", "--step", "fetch", "--item", "b")
    assert done.code == 1, "it stays what it was"
    seen = run_json(tmp_path, "r")
    assert (seen["status"], seen["error"]["step"]) == ("failed", "ask")
    assert {name: step["visits"] for name, step in seen["steps"].items()} == {"fetch": 2, "ask": 1, "tell": 0}
    history = refold(tmp_path, "runs", "history", "r").out
    assert "run reopened by ann: only items 1 of fetch, nothing that follows" in history


def test_with_follow_the_gate_behind_the_items_asks_again(tmp_path: Path) -> None:
    refold(tmp_path, "run", tolerated(tmp_path, GATE), "--name", "r", "--until-waiting")
    refold(tmp_path, "gates", "reject", "r")
    (tmp_path / "mended").touch()
    assert refold(tmp_path, "runs", "retry", "r", "--step", "fetch", "--item", "b", "--follow", "--detach").code == 0
    assert refold(tmp_path, "runs", "resume", "r", "--until-waiting").code == 0
    assert refold(tmp_path, "gates", "approve", "r").code == 0
    assert refold(tmp_path, "runs", "resume", "r").data == MENDED


def test_to_follow_needs_a_loop(tmp_path: Path) -> None:
    refold(tmp_path, "run", tolerated(tmp_path), "--name", "r", "-q")
    refused = refold(tmp_path, "runs", "retry", "r", "--follow")
    assert refused.code == 2 and "--step or --item" in refused.err
