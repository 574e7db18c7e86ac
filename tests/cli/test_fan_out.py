"""Fan-out on the command line: every key of a loop does what it says, with the real program."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import playbook, refold

TELL = """\
step: tell
tool: {kind: noop, result: {stats: "{{ ship.stats }}", failed: "{{ ship.failed }}", all: "{{ ship.items }}"}}
"""
WORK = "tool: {kind: python, isolation: inline, code: \"result = 12 // item['n']\"}"
ORDERS = """\
in:
  - {id: a, n: 1, needs: [b]}
  - {id: b, n: 2}
  - {id: c, n: 0}
  - {id: d, n: 3, needs: c}
  - {id: e, n: 4, needs: [a, d]}
  - {id: f, n: 6, needs: null}
  - {id: b, n: 5}
"""
ORDERED = f"{ORDERS}key: '{{{{ item.id }}}}'\norder: {{after: '{{{{ item.needs | default([]) }}}}'}}\n"


def ship(loop: str, work: str = WORK) -> str:
    lines = loop.strip().replace("\n", "\n  ")
    return f"step: ship\nloop:\n  {lines}\n{work}\nnext: {{arcs: [{{step: tell, on: both}}]}}"


def told(folder: Path, loop: str, work: str = WORK) -> dict[str, Any]:
    """What came of the items, whatever came of the step."""
    done = refold(folder, "run", playbook(folder, ship(loop, work), TELL), "-o", "json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.data
    return {**found["result"], "step": found["steps"]["ship"]}


def states(found: dict[str, Any]) -> str:
    return " ".join(each["status"] for each in found["all"])


def test_items_wait_for_others_by_their_keys_and_go_without_what_failed(tmp_path: Path) -> None:
    log = "tool: {kind: shell, command: [sh, -c, 'echo $1 >> log; test $1 != c', sh, '{{ item.id }}']}"
    found = told(tmp_path, f"{ORDERED}max_in_flight: 3\non_item_error: skip_dependents\n", log)
    assert states(found) == "completed completed failed skipped skipped completed"  # and the second b was left out
    assert found["stats"] == {"total": 6, "success": 3, "failed": 1, "skipped": 2}
    assert [(each["item"], each["key"]) for each in found["failed"]] == [(2, "c")]
    ran = (tmp_path / "log").read_text().split()
    assert sorted(ran) == ["a", "b", "c", "f"] and ran.index("b") < ran.index("a")
    assert found["step"]["status"] == "failed" and found["step"]["error"]["kind"] == "items_failed"


def test_a_circle_is_refused_by_name_or_dropped(tmp_path: Path) -> None:
    circle = "in: [{id: a, n: 1, needs: b}, {id: b, n: 2, needs: a}]\nkey: '{{ item.id }}'\n"
    found = told(tmp_path, circle + "order: {after: '{{ item.needs }}'}\n")
    assert found["step"]["error"]["message"] == "items wait for each other: a -> b -> a"
    found = told(tmp_path, circle + "order: {after: '{{ item.needs }}', on_cycle: drop}\n")
    assert (found["step"]["status"], states(found)) == ("completed", "completed completed")


@pytest.mark.parametrize(
    ("keys", "status"),
    [
        ("tolerate: 1", "completed"),
        ("tolerate: 25%", "completed"),
        ("tolerate: 24%", "failed"),
        ("min_success: 3", "completed"),
        ("min_success: 80%", "failed"),
    ],
)
def test_some_may_fail_and_some_must_not(tmp_path: Path, keys: str, status: str) -> None:
    found = told(tmp_path, f"in: [{{n: 1}}, {{n: 0}}, {{n: 2}}, {{n: 3}}]\n{keys}\n")
    assert (found["step"]["status"], states(found)) == (status, "completed failed completed completed")
    assert [each["item"] for each in found["failed"]] == [1]


def test_the_first_failure_may_halt_the_loop(tmp_path: Path) -> None:
    work = "tool: {kind: shell, command: [sh, -c, 'test $1 = 1 && exit 1; sleep 60', sh, '{{ item }}']}"
    found = told(tmp_path, "in: [0, 1, 2, 3]\nmax_in_flight: 2\non_item_error: halt\n", work)
    assert (found["step"]["status"], states(found)) == ("failed", "cancelled failed cancelled cancelled")


def test_retry_and_timeout_are_for_each_item(tmp_path: Path) -> None:
    script = "echo x >> tries$1; test $(cat tries$1 | wc -l) -gt $2"
    work = f"tool: {{kind: shell, command: [sh, -c, '{script}', sh, '{{{{ item }}}}', '{{{{ item }}}}']}}"
    found = told(tmp_path, "in: [1, 7, 2]\nmax_in_flight: 3\nretry: {attempts: 3}\n", work)
    assert states(found) == "completed failed completed"
    assert [len((tmp_path / f"tries{item}").read_text().split()) for item in (1, 7, 2)] == [2, 3, 3]
    found = told(tmp_path, "in: [1, 2]\ntimeout: 200ms\n", "tool: {kind: shell, command: [sleep, '60']}")
    assert [each["error"]["kind"] for each in found["failed"]] == ["timeout", "timeout"]


ONE = """\
apiVersion: refold/v1
kind: Playbook
metadata: {name: one}
inputs: {n: {type: integer, required: true}}
workflow:
  - step: half
    input: {n: "{{ n }}"}
    tool: {kind: python, isolation: inline, code: "result = n // 2"}
"""


def test_each_item_may_be_a_run_of_another_playbook(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(ONE)
    found = told(
        tmp_path, "in: [4, x, 6]\nmax_in_flight: 2\nworkflow: one.yaml\ntolerate: 1\n", 'input: {n: "{{ item }}"}'
    )
    assert (states(found), found["step"]["status"]) == ("completed failed completed", "completed")
    assert [each["result"] for each in found["all"]] == [2, None, 3]
    assert found["failed"][0]["error"]["kind"] == "schema"
    runs = refold(tmp_path, "runs", "list", "--children", "-o", "json").data
    assert sorted(each["workflow"] for each in runs) == ["one", "one", "play"]


def test_the_rows_of_a_file_are_items_page_by_page(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = "".join(f"{n},{max(n - 1, 0) or ''}\n" for n in range(1, 8))
    (tmp_path / "data" / "rows.csv").write_text(f"n,needs\n{rows}")
    loop = (
        "source: {kind: csv, path: '{{ run.name }}.csv', page: 3, types: {n: integer}}\nmax_in_flight: '{{ 1 + 1 }}'\n"
    )
    file = playbook(tmp_path / "data", ship(loop), TELL)
    done = refold(tmp_path, "run", f"data/{file}", "--name", "rows", "-o", "json")
    assert done.data["result"]["stats"] == {"total": 7, "success": 7, "failed": 0}
    assert done.data["steps"]["ship"]["result"] == [12, 6, 4, 3, 2, 2, 1]
    ordered = loop + "key: '{{ item.n }}'\norder: {after: '{{ item.needs }}'}\n"
    file = playbook(tmp_path / "data", ship(ordered.replace("{{ run.name }}", "rows")), TELL)
    assert refold(tmp_path, "run", f"data/{file}", "-o", "json").data["result"]["stats"]["success"] == 7


def test_a_source_that_cannot_be_read_fails_its_step(tmp_path: Path) -> None:
    found = told(tmp_path, "source: {kind: jsonl, path: gone.jsonl, retry: {attempts: 1}}\n")
    assert found["step"]["status"] == "failed" and "gone.jsonl cannot be read" in found["step"]["error"]["message"]


def test_what_is_wrong_with_a_source_is_told_before_the_run(tmp_path: Path) -> None:
    file = playbook(tmp_path, ship("source: {kind: cvs, path: rows.csv}\n"), TELL)
    done = refold(tmp_path, "run", file)
    assert done.code == 2 and "play.yaml:7:22: error[unknown-source]: there is no source `cvs`" in done.err
    assert "did you mean `csv`?" in done.err
    assert "loop.source" in refold(tmp_path, "schema").out
