"""Values in the programs of NoETL files: literals where that is possible, and else refused with their place."""

from pathlib import Path

import pytest
from msgspec import structs

from refold.core.pipeline import TaskPipeline
from refold.playbooks.problems import InvalidPlaybook, Problem
from tests.noetl.house import House, problems, reading

EVIL = [
    "a'; drop table t; --",
    '"; import os; os.abort() #',
    "$(touch ran)",
    "a[$(touch ran)]",
    "\\",
    "x\ny",
    "{{ 7 }}",
]


def step(tool: str) -> str:
    return f"workload: {{x: 1, n: 3}}\nworkflow:\n  - step: a\n    tool: {tool}\n"


def said(tool: str) -> list[tuple[str, str]]:
    return [(each.severity, each.code) for each in problems(step(tool))]


def problem(tool: str) -> Problem:
    (found,) = problems(step(tool))
    return found


@pytest.mark.parametrize("value", EVIL)
def test_a_value_in_python_code_is_data(house: House, value: str) -> None:
    """It was code: what somebody gave as an input was run."""
    text = """\
workload: {v: x}
workflow:
  - step: a
    tool:
      kind: python
      code: |
        a = {{ v }}
        b = "x {{ v }} y"
        c = {{ workload | tojson }}
        d = f'{a} {{ v }}'
        result = [a, b, c, d, {{ [v, none, true, -1.5] }}]
"""
    found = house.play(text, {"v": value}).result
    assert found == [value, f"x {value} y", {"v": value}, f"{value} {value}", [value, None, True, -1.5]]


@pytest.mark.parametrize("value", EVIL)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_value_in_a_list_of_statements_is_data(house: House, kind: str, value: str) -> None:
    """It was spliced as text: `commands` as a list let a value end its quotes."""
    text = f"""\
workload: {{v: x}}
workflow:
  - step: a
    tool:
      kind: {kind}
      commands:
        - create table t (a text, b text)
        - insert into t values ('{{{{ workload.v }}}}', {{{{ v }}}})
        - select a, b, 'x {{{{ v }}}}' as c from t
"""
    assert house.play(text, {"v": value}).result["rows"] == [{"a": value, "b": value, "c": f"x {value}"}]


def test_one_value_can_stand_in_a_statement_twice(house: House) -> None:
    """A parameter for each of them would make two expressions of one."""
    query = "select i % {{ n }} as m, count(*) as c from range(7) r(i) group by i % {{ n }} order by 1"
    found = house.play(step(f'{{kind: duckdb, query: "{query}"}}')).result
    assert [row["c"] for row in found["rows"]] == [3, 2, 2]


def test_literals_have_types_where_parameters_had_none(house: House) -> None:
    query = "select round({{ 1.5 }}, 1) as a, E'{{ v }}' as b, $j${{ v | tojson }}$j$ as c, 5-{{ 0 - 3 }} as d"
    text = f'workload: {{v: x}}\nworkflow: [{{step: a, tool: {{kind: duckdb, query: "{query}"}}}}]'
    value = 'it\'s \\ "x"'
    (row,) = house.play(text, {"v": value}).result["rows"]
    assert row == {"a": 1.5, "b": value, "c": '"it\'s \\\\ \\"x\\""', "d": 8}


def test_commands_as_one_text_are_statements(house: House) -> None:
    text = step('{kind: sqlite, commands: "create table t (a int); insert into t values ({{ n }}); select a from t"}')
    assert house.play(text).result["rows"] == [{"a": 3}]


def test_parameters_and_literals_can_stand_in_one_statement(house: House) -> None:
    text = step('{kind: sqlite, query: "select $1 as a, {{ n }} as b", params: ["{{ x }}"]}')
    assert house.play(text, {"x": "it's"}).result["rows"] == [{"a": "it's", "b": 3}]


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ('{kind: shell, cmds: ["cat <<EOF", "{{ x }}", "EOF"]}', "here-document"),
        ('{kind: shell, command: "n={{ x }}; (( n > 5 ))"}', "computes with `n`"),
        ("{kind: shell, command: \"bash -c 'echo {{ x }}'\"}", "in a program for `bash`"),
        ('{kind: shell, command: "{{ x }}"}', "where a program is named"),
        ('{kind: shell, script: "eval {{ x }}"}', "`eval`"),
        ('{kind: shell, command: "echo {{ x }}", shell: fish}', "not for 'fish'"),
        ('{kind: sqlite, commands: ["select 1", "select 1 -- {{ x }}"]}', "in a comment"),
        ("{kind: duckdb, query: \"select /* /* */ '{{ x }}' */ 1\"}", "in a comment"),
        ("{kind: postgres, url: u, query: \"DO $$ BEGIN PERFORM '{{ x }}'; END $$\"}", "between dollar quotes"),
        ('{kind: python, code: "x = 1 # {{ x }}"}', "in a comment"),
        ('{kind: python, code: "{{ x }}"}', "the whole code"),
        ('{kind: python, script: {source: {type: inline, code: "x_{{ x }} = 1"}}}', "part of a longer name"),
        ('{kind: python, entry: "{{ x }}:f", code: "1"}', "cannot be computed"),
        (
            "{kind: transfer, source: {type: sqlite, query: \"select '{{ x }}'\"}, target: {type: csv, path: a}}",
            "no value may be put into the text of a statement",
        ),
        ('{kind: poll, until: true, check: {kind: shell, command: "echo {{ x }}"}}', "of a tool in a tool"),
    ],
)
def test_a_value_that_could_be_code_is_refused_before_the_run(tool: str, message: str) -> None:
    found = [each for each in problems(step(tool)) if each.severity == "error"]
    assert [each.message for each in found if message in each.message] and all(each.hint for each in found)


def test_a_refusal_shows_its_place_and_the_remedy() -> None:
    text = step('{kind: shell, cmds: ["echo a", "echo {{ n }}", "echo # {{ x }}"]}')
    with pytest.raises(InvalidPlaybook) as caught:
        reading(text)
    assert "play.yaml:7:66: error[bad-value]: a value stands in a comment" in str(caught.value)
    assert "\n    |" in str(caught.value) and "hint: take it out of the comment" in str(caught.value)


def test_what_statements_make_of_a_text_is_refused_in_the_run(house: House, tmp_path: Path) -> None:
    """Before it, nobody knows which of the arms is taken."""
    tool = '{kind: shell, command: "{% if n %}\\necho a # {{ x }}{% endif %}"}'
    seen = house.play(step(tool), {"x": f"\ntouch {tmp_path}/ran"})
    assert (seen.status, seen.fault.kind, seen.fault.retryable) == ("failed", "parse", False)
    assert "`command`: a value stands in a comment (line 2, column 10)" in seen.fault.message
    assert not (tmp_path / "ran").exists()


def test_a_name_that_is_none_is_refused_in_the_run(house: House) -> None:
    text = step('{kind: sqlite, query: "select * from {{ x }}"}')
    seen = house.play(text, {"x": "t; drop table t"})
    assert "cannot stand where a name stands" in seen.fault.message and seen.fault.retryable is False


@pytest.mark.parametrize(
    "tool",
    [
        '{kind: shell, command: [bash, -c, "echo {{ x }}"]}',
        '{kind: shell, command: [sudo, /bin/sh, -ec, "echo {{ x }}"]}',
        '{kind: shell, command: [python3, -c, "print({{ x }})"]}',
        '{kind: shell, command: [awk, "{{ x }}", file]}',
        '{kind: shell, command: [env, -S, "bash -c {{ x }}"]}',
        '{kind: container, image: i, command: [sh, -c, "echo {{ x }}"]}',
        '{kind: container, image: i, command: [sh], args: [-c, "echo {{ x }}"]}',
    ],
)
def test_a_value_in_the_program_of_an_interpreter_is_warned_about(tool: str) -> None:
    assert said(tool) == [("warning", "value-as-code")]
    assert problem(tool).place.line == 7


@pytest.mark.parametrize(
    "tool",
    [
        '{kind: shell, command: [bash, -c, "echo $1", sh, "{{ x }}"]}',
        '{kind: shell, command: [python3, work.py, "{{ x }}"]}',
        '{kind: shell, command: [env, -S, "echo a", "{{ x }}"]}',
        '{kind: shell, command: [echo, "{{ x }}"]}',
        '{kind: container, image: i, command: [sh, -c, "echo $0", "{{ x }}"]}',
    ],
)
def test_arguments_behind_a_program_are_not_warned_about(tool: str) -> None:
    assert said(tool) == []


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        ('[bash, -c, "echo {{ workload.x }}"]', ["value-as-code"]),
        ('[bash, -c, \'echo "$1"\', sh, "{{ workload.x }}"]', []),
        ('[env, -S, "bash -c {{ workload.x }}"]', ["value-as-code"]),
        ('[/usr/bin/env, -i, A=1, -u, B, "-vSbash -c {{ workload.x }}"]', ["value-as-code"]),
        ('[env, "--split-string=bash -c {{ workload.x }}"]', ["value-as-code"]),
        ('[env, -S, "bash -c", "{{ workload.x }}"]', ["value-as-code"]),
        ('[env, "-Sbash", -c, "{{ workload.x }}"]', ["value-as-code"]),
        ('[env, bash, -c, "{{ workload.x }}"]', ["value-as-code"]),
        ('[env, -S, "echo a", "{{ workload.x }}"]', []),
        ('[env, sort, -S, "{{ workload.x }}"]', []),
        ('[env, "A={{ workload.x }}", env]', []),
    ],
)
def test_refold_files_get_the_same_warning(command: str, warned: list[str]) -> None:
    text = f"""\
apiVersion: refold/v1
kind: Playbook
metadata: {{name: p}}
workload: {{x: a}}
workflow:
  - step: a
    tool: {{kind: shell, command: {command}}}
"""
    assert [each.code for each in problems(text)] == warned


def test_a_statement_that_is_one_value_is_warned_about(house: House) -> None:
    """Whole statements are written by other steps in published files; they are the author's own SQL."""
    assert said('{kind: sqlite, query: "{{ x }}"}') == [("warning", "value-as-code")]
    assert house.play(step('{kind: sqlite, query: "{{ x }}"}'), {"x": "select 5 as a"}).result["rows"] == [{"a": 5}]


def test_claims_of_rows_are_checked_too() -> None:
    text = """\
workload: {x: 1}
workflow:
  - step: a
    loop: {cursor: {kind: sqlite, claim: "select 1 -- {{ x }}"}, iterator: row}
    tool: {kind: noop}
"""
    assert "bad-value" in [each.code for each in problems(text)]


def test_a_plan_of_an_older_version_puts_its_values_in_as_literals(house: House) -> None:
    """It does not say of its code and its lists of statements that they are quoted."""
    text = """\
workload: {v: x}
workflow:
  - step: a
    tool:
      - {name: p, kind: python, code: "result = {{ v }}"}
      - {name: s, kind: sqlite, commands: ["create table t (a text)", "select '{{ v }}' as a"]}
"""
    plan = reading(text).plan
    step = plan.steps[0]
    assert isinstance(step.work, TaskPipeline) and all(task.quoted for task in step.work.tasks)
    tasks = tuple(structs.replace(task, quoted={}) for task in step.work.tasks)
    plan = structs.replace(plan, steps=(structs.replace(step, work=structs.replace(step.work, tasks=tasks)),))
    shown = house.do(house.run(plan, {"v": "'); import os; os.abort() #"}))
    assert shown.result["p"] == "'); import os; os.abort() #" or shown.result == {}, shown.error
    assert shown.result["s"]["rows"] == [{"a": "'); import os; os.abort() #"}]
