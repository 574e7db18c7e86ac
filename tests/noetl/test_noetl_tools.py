"""Other tools in NoETL files: what they give, and values that are put into their texts."""

from pathlib import Path

import pytest

from tests.noetl.house import House, warnings

EVIL = ["a'; echo pwned; '", '"; echo pwned; "', "$(echo pwned)", "`echo pwned`", "x\ny", "*", "' OR 1=1 --", "\\"]


def test_noop_gives_its_result_or_its_message(house: House) -> None:
    assert house.play("workflow: [{step: a, tool: {kind: noop, message: hi}}]").result == {
        "status": "ok",
        "message": "hi",
    }
    assert house.play("workflow: [{step: a, tool: {kind: noop, result: [1]}}]").result == [1]


def test_shell_gives_its_code_and_what_it_printed(house: House) -> None:
    text = "workflow: [{step: a, tool: {kind: shell, command: 'echo out; echo err >&2', env: {X: y}}}]"
    found = house.play(text).result
    assert (found["exit_code"], found["stdout"], found["stderr"]) == (0, "out\n", "err\n")


def test_lines_of_a_shell_run_one_after_the_other_until_one_fails(house: House, tmp_path: Path) -> None:
    text = """\
workload: {folder: x}
workflow:
  - {step: a, tool: {kind: shell, cmds: ["X=1", "pwd", "echo $X $Y"], cwd: "{{ folder }}", env: {Y: "2"}},
      next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: shell, cmds: [echo before, "false", echo after]}}
"""
    seen = house.play(text, {"folder": str(tmp_path)})
    assert seen.results["a"]["stdout"] == f"{tmp_path}\n1 2\n"
    assert seen.lives["b"] == "failed" and "after" not in str(seen.fault.data)


def test_a_list_is_a_program_and_its_arguments(house: House) -> None:
    text = (
        'workload: {v: x}\nworkflow: [{step: a, tool: {kind: shell, command: [printf, "%s|", "{{ v }}", "a {{ v }}"]}}]'
    )
    assert house.play(text, {"v": "$(id); 'q'"}).result["stdout"] == "$(id); 'q'|a $(id); 'q'|"


@pytest.mark.parametrize("value", EVIL)
def test_a_value_in_a_shell_command_is_data(house: House, value: str) -> None:
    text = """\
workload: {v: x}
workflow: [{step: a, tool: {kind: shell, command: "printf '%s' {{ v }}; printf '|%s' '{{ v }}' \\"{{ v }}\\""}}]
"""
    assert house.play(text, {"v": value}).result["stdout"] == f"{value}|{value}|{value}"


@pytest.mark.parametrize("value", EVIL)
def test_a_value_in_sql_is_data(house: House, value: str) -> None:
    text = """\
workload: {v: x, n: 3}
workflow: [{step: a, tool: {kind: duckdb, command: "SELECT '{{ v }}' AS a, 'x{{ v }}y' AS b, {{ n }} + 1 AS c"}}]
"""
    found = house.play(text, {"v": value}).result
    assert found["rows"] == [{"a": value, "b": f"x{value}y", "c": 4}]
    assert found["columns"] == ["a", "b", "c"] and found["row_count"] == 1


def test_several_statements_give_the_result_of_the_last(house: House, tmp_path: Path) -> None:
    text = """\
workload: {db: x}
workflow:
  - step: a
    tool:
      kind: duckdb
      db_path: "{{ db }}"
      command: |
        CREATE TABLE t (n INTEGER, name VARCHAR);
        INSERT INTO t VALUES (1, '{{ execution_id }}');
        SELECT n, name FROM t;
    next: {arcs: [{step: b}]}
  - {step: b, tool: {kind: duckdb, database: "{{ db }}", query: "SELECT count(*) AS n FROM t", as_objects: false}}
"""
    seen = house.play(text, {"db": str(tmp_path / "x.duckdb")})
    assert seen.results["a"]["rows"] == [{"n": 1, "name": seen.id}] and seen.result["rows"] == [[1]]


def test_hints_of_tools_are_warned_about() -> None:
    text = "workflow: [{step: a, tool: {kind: shell, command: 'true', capture: true}}]"
    assert [code for code, _ in warnings(text)] == ["no-effect"]
    policies = "executor: {spec: {policy: {results: {a: 1}, limits: {b: 2}}}}\n"
    spec = "workflow: [{step: a, spec: {policy: {emit: {c: 3}}}, next: {spec: {policy: {d: 4}}, arcs: []}}]"
    assert [code for code, _ in warnings(policies + spec)] == ["no-effect"] * 4


def test_a_list_of_templates_can_be_looped_over(house: House) -> None:
    text = (
        'workload: {n: 5}\nworkflow: [{step: a, loop: {in: ["{{ n }}", 2], iterator: m}, tool: {kind: noop, '
        'result: "{{ m + 1 }}"}}]'
    )
    assert house.play(text).result["results"] == [6, 3]
