"""`runs items`: what became of each; items that are retried, redriven and cancelled, by number and by key."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from tests.cli.program import Done, noop, playbook, refold, started, until

SHIP = """\
step: ship
loop:
  in: [{id: a, n: 1}, {id: b, n: 0}, {id: c, n: 2, needs: b}, {id: d, n: 3}]
  key: "{{ item.id }}"
  order: {after: "{{ item.needs | default([]) }}"}
  max_in_flight: 2
tool:
  kind: shell
  command: [sh, -c, 'echo $1 >> ran; test $0 != 0 || test -f mended', '{{ item.n }}', '{{ item.id }}']
"""


def ran(folder: Path) -> list[str]:
    return (folder / "ran").read_text().split()


def rows(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = refold(folder, "runs", "items", *arguments, "-o", "jsonl")
    assert done.code == 0, done.err
    return [json.decode(line) for line in done.out.splitlines()]


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """One completed, one failed, one skipped because of that, one completed."""
    assert refold(tmp_path, "run", playbook(tmp_path, SHIP), "--name", "one", "-q").code == 1
    return tmp_path


def test_a_table_has_counts_keys_states_tries_and_what_came_of_each(shipped: Path) -> None:
    lines = refold(shipped, "runs", "items", "one", "ship").out.splitlines()
    assert lines[0] == "ship: 4 items, 2 completed, 1 failed, 1 skipped"
    table = [line.split() for line in lines[2:]]
    assert table[0] == ["ITEM", "KEY", "STATUS", "TRIES", "VALUE", "RESULT"]
    assert [line[:3] for line in table[1:]] == [
        ["0", "a", "completed"],
        ["1", "b", "failed"],
        ["2", "c", "skipped"],
        ["3", "d", "completed"],
    ]
    assert lines[4].endswith("sh ended with exit code 1")


def test_a_run_tells_how_many_items_of_its_loops_have_come_to_what(shipped: Path) -> None:
    steps = json.decode(refold(shipped, "runs", "show", "one", "-o", "json").out)["steps"]
    assert steps["ship"]["items"] == {
        "count": 4,
        "completed": 2,
        "failed": 1,
        "running": 0,
        "queued": 0,
        "skipped": 1,
        "cancelled": 0,
        "more": False,
        "rate": 0.0,
        "left": None,
    }


def test_items_are_chosen_by_their_state_and_told_one_a_line(shipped: Path) -> None:
    [failed] = rows(shipped, "one", "ship", "--state", "failed")
    assert (failed["item"], failed["key"], failed["tries"], failed["value"]) == (1, "b", 1, {"id": "b", "n": 0})
    assert (failed["result"], failed["error"]["kind"]) == (None, "exit")
    assert [each["item"] for each in rows(shipped, "one", "--state", "failed", "--state", "skipped")] == [1, 2]
    assert [each["status"] for each in rows(shipped, "one", "-n", "2")] == ["completed", "failed"]
    assert refold(shipped, "runs", "items", "one", "--state", "odd").code == 2


def test_a_failed_item_is_retried_by_its_key_and_takes_along_those_that_waited(shipped: Path) -> None:
    (shipped / "mended").touch()
    assert refold(shipped, "runs", "retry", "one", "--item", "b", "-q").code == 0
    assert ran(shipped) == [*ran(shipped)[:3], "b", "c"] and sorted(ran(shipped)[:3]) == ["a", "b", "d"]
    assert {each["status"] for each in rows(shipped, "one")} == {"completed"}


def test_what_a_halt_cut_off_is_cancelled_and_goes_on_with_what_failed(tmp_path: Path) -> None:
    halts = SHIP.replace("  max_in_flight: 2", "  max_in_flight: 1\n  on_item_error: halt")
    assert refold(tmp_path, "run", playbook(tmp_path, halts), "--name", "one", "-q").code == 1
    head = refold(tmp_path, "runs", "items", "one").out.splitlines()[0]
    assert head == "ship: 4 items, 1 completed, 1 failed, 1 skipped, 1 cancelled"
    assert [each["item"] for each in rows(tmp_path, "one", "--state", "cancelled")] == [3]
    (tmp_path / "mended").touch()
    assert refold(tmp_path, "runs", "retry", "one", "--item", "b", "-q").code == 0
    assert ran(tmp_path) == ["a", "b", "b", "c", "d"]


def test_what_cannot_be_chosen_is_told(shipped: Path) -> None:
    def refused(*arguments: str) -> tuple[int, str]:
        done = refold(shipped, "runs", *arguments)
        return done.code, done.err.strip()

    assert refused("retry", "one", "--item", "a") == (4, "error: item 0 has completed")
    assert refused("retry", "one", "--item", "x") == (
        3,
        "error: no item has the key 'x'; `refold runs items` shows them",
    )
    assert refused("retry", "one", "--step", "nope") == (3, "error: 'play' has no list loop 'nope'; loops are ship")
    assert refused("items", "one", "nope") == (3, "error: 'play' has no list loop 'nope'; loops are ship")
    assert refused("cancel", "one", "--item", "b") == (4, "error: run one is failed")
    code, why = refused("retry", "one", "--item", "b", "--from", "ship")
    assert code == 2 and "chosen with --step and --item alone" in why
    code, why = refused("cancel", "one", "--step", "ship")
    assert code == 2 and "--step goes with --item" in why
    assert len(ran(shipped)) == 3


TWO = """\
step: {name}
loop: {{in: [0, 1], tolerate: 1}}
tool: {{kind: shell, command: [sh, -c, 'test $0 != 0 || test -f mended', '{{{{ item }}}}']}}
next: {then}
"""


def test_with_several_loops_one_must_be_named_and_without_keys_items_are_numbers(tmp_path: Path) -> None:
    file = playbook(tmp_path, TWO.format(name="up", then="down"), TWO.format(name="down", then="end"), noop("end"))
    assert refold(tmp_path, "run", file, "--name", "two", "-q").code == 0
    done = refold(tmp_path, "runs", "items", "two")
    assert (done.code, done.err.strip()) == (4, "error: say which step: up, down")
    assert refold(tmp_path, "runs", "retry", "two", "--item", "0").err.strip() == "error: say which step: up, down"
    done = refold(tmp_path, "runs", "retry", "two", "--step", "down", "--item", "x")
    assert (done.code, "'x' is not a number, and the items of this loop have no keys" in done.err) == (2, True)
    done = refold(tmp_path, "runs", "retry", "two", "--step", "down", "--item", "7")
    assert (done.code, done.err.strip()) == (3, "error: there is no item 7; there are 2, and the first is 0")
    (tmp_path / "mended").touch()
    assert refold(tmp_path, "runs", "retry", "two", "--step", "down", "--item", "0", "-q").code == 0
    assert [each["status"] for each in rows(tmp_path, "two", "down")] == ["completed", "completed"]
    assert [each["status"] for each in rows(tmp_path, "two", "up")] == ["failed", "completed"], "no other was touched"
    assert refold(tmp_path, "run", playbook(tmp_path, noop("end")), "--name", "none", "-q").code == 0
    assert "has no list loop, so there are no items" in refold(tmp_path, "runs", "items", "none").err


KIDS = """\
step: kids
loop: {source: {kind: range, stop: 6}, key: "k{{ item }}", max_in_flight: 3, workflow: kid.yaml}
input: {n: "{{ item }}"}
"""
KID = """\
step: nap
tool: {kind: shell, command: [sh, -c, 'test $0 -lt 2 || until test -f go; do sleep 0.05; done', '{{ n }}']}
"""


def test_while_a_loop_goes_on_its_rate_what_is_left_and_the_runs_of_its_items_are_told(tmp_path: Path) -> None:
    playbook(tmp_path, KID, name="kid.yaml", more="inputs: {n: {type: integer, required: true}}\n")
    with started(tmp_path, "run", playbook(tmp_path, KIDS), "--name", "one", "-q") as process:
        until((tmp_path / "refold.db").exists)
        until(lambda: "2 completed, 3 running" in refold(tmp_path, "runs", "items", "one").out)
        head, *table = refold(tmp_path, "runs", "items", "one").out.splitlines()
        assert head.startswith("kids: 6 items, 2 completed, 3 running, 1 waiting, ")
        assert " per second, " in head and head.endswith(" left")
        running = rows(tmp_path, "one", "--state", "running")
        assert [each["key"] for each in running] == ["k2", "k3", "k4"]
        for each in running:
            assert refold(tmp_path, "runs", "show", each["run"], "-o", "json").data["status"] == "running"
            assert any(each["run"][:8] in line for line in table)
        assert refold(tmp_path, "runs", "cancel", "one", "--item", "k3", "--item", "k5").code == 0
        until(lambda: refold(tmp_path, "runs", "show", running[1]["run"], "-o", "json").data["status"] == "cancelled")
        again = refold(tmp_path, "runs", "cancel", "one", "--item", "k3")
        assert (again.code, again.err.strip()) == (4, "error: item 3 of 'kids' is over already")
        done = refold(tmp_path, "runs", "cancel", "one", "--item", "k0")
        assert (done.code, done.err.strip()) == (4, "error: item 0 has completed")
        (tmp_path / "go").touch()
        assert process.wait(60) == 0
    assert [each["status"] for each in rows(tmp_path, "one")] == [
        *["completed"] * 3,
        "cancelled",
        "completed",
        "cancelled",
    ]
    assert [bool(each.get("run")) for each in rows(tmp_path, "one")][:3] == [True] * 3, "lineage stays"


MANY = """\
step: ship
loop: {source: {kind: range, stop: 1000}, iterator: n, key: "o{{ n }}", max_in_flight: 64, tolerate: 1%}
input: {n: "{{ n }}"}
tool:
  kind: python
  isolation: inline
  code: |
    import os
    with open("ran", "a") as file:
        file.write(f"{n}\\n")
    if n in (7, 500, 999) and not os.path.exists("mended"):
        raise ValueError("no such order")
    result = n
next: tell
"""
TELL = "step: tell\ntool: {kind: noop, result: \"{{ ship.failed | map(attribute='key') | join(' ') }}\"}"


@pytest.mark.parametrize("way", ["redrive", "retry"])
def test_three_of_a_thousand_may_fail_are_named_and_only_they_are_run_again(tmp_path: Path, way: str) -> None:
    done = refold(tmp_path, "run", playbook(tmp_path, MANY, TELL), "--name", "one")
    assert (done.code, done.out.strip()) == (0, "o7 o500 o999")
    failed = rows(tmp_path, "one", "ship", "--state", "failed")
    assert [(each["item"], each["key"], each["error"]["message"]) for each in failed] == [
        (number, f"o{number}", "no such order") for number in (7, 500, 999)
    ]
    assert len(ran(tmp_path)) == 1000
    [group] = refold(tmp_path, "dlq", "list", "-o", "json").data
    assert (group["commands"], group["runs"]) == (3, 1)
    (tmp_path / "mended").touch()
    assert _again(tmp_path, way, group["fingerprint"]).code == 0
    assert sorted(map(int, ran(tmp_path)[1000:])) == [7, 500, 999]
    assert rows(tmp_path, "one", "--state", "failed") == []
    assert refold(tmp_path, "dlq", "list", "-o", "json").data == []
    shown = refold(tmp_path, "runs", "items", "one", "-n", "1").out
    assert shown.startswith("ship: 1000 items, 1000 completed\n")


def _again(folder: Path, way: str, fingerprint: str) -> Done:
    if way == "retry":
        return refold(folder, "runs", "retry", "one", "--step", "ship", "-q")
    assert refold(folder, "dlq", "redrive", fingerprint).out == "one  retried\n"
    return refold(folder, "runs", "resume", "one", "-q")


def test_a_run_that_fails_in_a_loop_says_why_its_first_item_failed(tmp_path: Path) -> None:
    code = "raise ValueError(f'no disk {n}')"
    step = f'step: a\nloop: {{in: [1, 2], iterator: n}}\ntool: {{kind: python, isolation: inline, code: "{code}"}}'
    done = refold(tmp_path, "run", playbook(tmp_path, step), "--name", "r", "-q")
    assert done.code == 1 and "2 of 2 items failed: 0, 1; item 0: ValueError: no disk 1" in done.err
    assert "because   item 0: ValueError: no disk 1" in refold(tmp_path, "runs", "show", "r").out
