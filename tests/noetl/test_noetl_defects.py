"""What went wrong elsewhere, as rules: what the other files of this folder do not show already."""

from pathlib import Path
from typing import Any

import pytest

from refold.core.pipeline import TaskPipeline
from refold.errors import Conflict
from refold.playbooks.playbook import read
from refold.tools.catalog import CATALOG
from tests.noetl.house import House, errors, problems, reading, whole
from tests.tools.web import Site, says

Web = tuple[Site, str]


def test_a_step_whose_tool_failed_never_counts_as_completed(house: House) -> None:
    text = """\
workflow:
  - {step: a, tool: {kind: http, url: "http://127.0.0.1:9/"}, next: {arcs: [{step: b,
      when: "{{ output.status == 'error' }}"}]}}
  - {step: b, tool: {kind: noop, result: "{{ steps.a.status }}"}}
"""
    seen = house.play(text)
    assert seen.lives["a"] == "failed" and seen.result == "failed"


def test_a_run_does_not_complete_while_a_retry_waits(house: House, tmp_path: Path) -> None:
    text = """\
workload: {f: x}
workflow:
  - {step: start, next: {spec: {mode: inclusive}, arcs: [{step: quick}, {step: slow}]}}
  - {step: quick, tool: {kind: noop, result: quick}}
  - step: slow
    tool:
      kind: shell
      command: "echo x >> {{ f }}; test $(wc -l < {{ f }}) -ge 2"
      spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, delay: 0.5}}]}}
"""
    seen = house.play(text, {"f": str(tmp_path / "n")})
    assert seen.lives["slow"] == "completed" and seen.result["exit_code"] == 0


@pytest.mark.parametrize("steps", [1, 3])
def test_nothing_depends_on_the_names_of_steps_tasks_and_fields(house: House, steps: int) -> None:
    """Names that mean something elsewhere, as names of steps."""
    names = ["result", "status", "data", "output", "step", "loop", "end", "start", "ctx_x", "item"][: steps * 3]
    chain = ", ".join(
        f"{{step: {name}, tool: [{{name: result, kind: noop, result: {{status: x, error: y, data: {at}}}}}], "
        f"next: {{arcs: [{{step: {then}}}]}}}}"
        for at, (name, then) in enumerate(zip(names, [*names[1:], "over"], strict=True))
    )
    seen = house.play(f"workflow: [{chain}, {{step: over, tool: {{kind: noop, result: 1}}}}]")
    assert (seen.status, seen.result) == ("completed", 1)
    assert seen.results["status"] == {
        "result": {"status": "x", "error": "y", "data": 1},
        "status": "x",
        "error": "y",
        "data": 1,
    }


def test_items_are_neither_lost_nor_run_twice_under_concurrency(house: House, tmp_path: Path) -> None:
    text = """\
workload: {f: x}
workflow:
  - step: a
    loop: {in: 40, iterator: n, spec: {mode: parallel, max_in_flight: 8}}
    tool: {kind: shell, command: "echo {{ n }} >> {{ f }}"}
"""
    seen = house.play(text, {"f": str(tmp_path / "n")})
    assert seen.status == "completed"
    assert sorted(map(int, (tmp_path / "n").read_text().split())) == list(range(40))


def test_a_side_effect_has_a_key_that_is_the_same_in_every_try_and_another_for_each_item_and_visit(
    house: House, site: Web
) -> None:
    web, address = site
    seen: dict[str, int] = {}

    def flaky(asked: Any) -> Any:
        key = asked.headers["idempotency-key"]
        seen[key] = seen.get(key, 0) + 1
        return says({}, 500 if seen[key] == 1 else 200)

    web["/a"] = flaky
    text = f"""\
workflow:
  - step: a
    loop: {{in: 3, iterator: n, spec: {{mode: parallel}}}}
    tool:
      kind: http
      url: "{address}/a"
      method: POST
      spec: {{policy: {{rules: [{{when: "{{{{ output.error.retryable }}}}", then: {{do: retry, attempts: 3,
          delay: 0.01}}}}]}}}}
    set: {{ctx.n: "{{{{ (ctx.n | default(0)) + 1 }}}}"}}
    next: {{arcs: [{{step: a, when: "{{{{ ctx.n < 2 }}}}"}}]}}
"""
    assert house.play(text).status == "completed"
    assert len(seen) == 6 and set(seen.values()) == {2}


def test_the_same_key_gives_the_first_execution(house: House) -> None:
    plan = reading("workload: {n: 0}\nworkflow: [{step: a, tool: {kind: noop, result: '{{ n }}'}}]").plan
    first = house.do(house.engine.options(key="noetl-same").start(plan, {"n": 1})).id
    second = house.do(house.engine.options(key="noetl-same").start(plan, {"n": 2})).id
    assert first == second and house.do(house.engine.result(first)) == 1


def test_a_second_run_of_the_same_id_is_refused(house: House) -> None:
    plan = reading("workflow: [{step: a}]").plan
    run = house.do(house.engine.start(plan)).id
    with pytest.raises(Conflict):
        house.do(house.engine.options(run=run).start(plan))


def test_conditions_are_expressions_and_no_texts_to_compare(house: House) -> None:
    text = """\
workload: {n: 10}
workflow:
  - {step: a, next: {arcs: [{step: b, when: "{{ n > 9 and '10' != n and n in [1, 10] }}"}, {step: c}]}}
  - {step: b}
  - {step: c}
"""
    assert house.play(text).lives["b"] == "completed"


def test_dates_numbers_and_ids_of_a_database_arrive_as_values(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool:
      kind: duckdb
      command: |
        SELECT TIMESTAMP '2024-02-29 12:00:00' AS at, 12.50::DECIMAL(9,2) AS price,
          '6b1d2f3e-0000-4000-8000-000000000001'::UUID AS id, NULL AS gone, [1, 2] AS l
    next: {arcs: [{step: b}]}
  - {step: b, tool: {kind: python, input: {row: "{{ a.rows[0] }}"}, code: "result = row"}}
"""
    row = house.play(text).result
    assert row["at"].startswith("2024-02-29") and float(row["price"]) == 12.5 and row["id"].startswith("6b1d2f3e")
    assert row["gone"] is None and row["l"] == [1, 2]


def test_a_fork_with_many_branches_is_no_trouble(house: House) -> None:
    arcs = ", ".join(f"{{step: s{n}}}" for n in range(30))
    steps = ", ".join(
        f"{{step: s{n}, tool: {{kind: noop, result: {n}}}, next: {{arcs: [{{step: end}}]}}}}" for n in range(30)
    )
    text = (
        f"workflow: [{{step: a, next: {{spec: {{mode: inclusive}}, arcs: [{arcs}]}}}}, {steps}, {{step: end, "
        f'tool: {{kind: noop, result: "{{{{ s0 + s29 }}}}"}}}}]'
    )
    seen = house.play(text)
    assert seen.result == 29 and seen.steps["end"]["visits"] == 1


def test_statements_of_sql_are_read_by_the_names_that_published_files_use(house: House) -> None:
    text = """\
workflow:
  - {step: a, tool: {kind: duckdb, command: "SELECT 7 AS n"}, next: {arcs: [{step: b,
      when: "{{ a.command_0.rows[0].n == 7 }}"}]}}
  - {step: b, tool: {kind: noop, result: ["{{ a.command_0.rows[0].n }}", "{{ a.data.command_0.row_count }}"]}}
"""
    assert house.play(text).result[0] == 7


def test_older_files_read_what_an_arc_gives_as_args(house: House) -> None:
    text = """\
workflow:
  - {step: a, next: {arcs: [{step: b, args: {n: 5}}]}}
  - {step: b, tool: {kind: python, args: {m: "{{ args.n }}", k: "{{ args.n + 1 }}"}, code: "result = [m, k]"}}
"""
    assert house.play(text).result == [5, 6]


def test_a_path_that_names_a_default_of_the_workload_is_that_default(house: House) -> None:
    text = (
        'workload: {child: kid}\nworkflow: [{step: a, tool: {kind: playbook, path: "{{ workload.child }}", '
        "return_result: true}}]"
    )
    seen = house.play(text, files={"kid.yaml": "workflow: [{step: a, tool: {kind: noop, result: 9}}]"})
    assert seen.result == 9 and [each.code for each in seen.warnings] == ["fixed-path"]


def test_set_ctx_of_a_step_is_read_with_a_warning(house: House) -> None:
    seen = house.play("workflow: [{step: a, set_ctx: {x: 1}, set: {ctx.y: 2}}]")
    assert seen.ctx == {"x": 1, "y": 2} and [each.code for each in seen.warnings] == ["old-form"]


def test_python_code_that_names_the_context_runs_behind_a_loop(house: House) -> None:
    seen = house.play("""\
workflow:
  - {step: a, loop: {in: [1, 2], iterator: n}, tool: {kind: noop, result: 1}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: python, code: "result = context['a']['stats']  # of the context"}}
""")
    assert seen.result == {"total": 2, "success": 2, "failed": 0}


def test_a_result_that_is_the_context_has_nothing_of_the_engine(house: House) -> None:
    seen = house.play("""\
workload: {city: Oslo}
workflow:
  - {step: a, tool: {kind: noop, result: "{{ context }}"}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: noop, result: "{{ a }}"}}
""")
    assert seen.result["city"] == "Oslo" and seen.result["workload"] == {"city": "Oslo"}
    assert not {"$playbook", "config", "input"} & seen.result.keys()


def test_python_code_reads_the_rows_of_a_statement_under_its_number(house: House) -> None:
    seen = house.play("""\
workflow:
  - {step: s, tool: {kind: duckdb, command: "select 1 as i"}, next: {arcs: [{step: b}]}}
  - step: b
    tool:
      kind: python
      input: {r: "{{ s }}", rows: "{{ s.command_0.rows }}"}
      code: "result = [r.get('command_0', {}).get('rows'), rows, r['rows']]"
""")
    assert seen.result == [[{"i": 1}]] * 3


def test_a_statement_has_its_number_wherever_its_result_is_read(house: House) -> None:
    """The number is a name for the result, which is stored once."""
    seen = house.play("""\
workflow:
  - step: s
    tool:
      - name: q
        kind: duckdb
        command: "select 1 as i"
        spec:
          policy: {rules: [{else: {then: {do: continue, set: {ctx.rule: "{{ output.data.command_0.row_count }}"}}}}]}
        set: {ctx.task: "{{ output.command_0.row_count }}"}
      - name: p
        kind: python
        input: {q: "{{ q }}", n: "{{ q.command_0.row_count }}", before: "{{ _prev.command_0.row_count }}"}
        code: "result = [q['command_0']['row_count'], q.get('command_3')['row_count'], 'command_1' in q, n, before]"
    next:
      arcs:
        - {step: b, when: "{{ output.data.q.command_0.row_count == 1 }}", set: {ctx.arc: "{{ s.q.command_0.rows }}"}}
  - step: b
    tool: {kind: python, code: "result = [context['s']['q']['command_0']['row_count'], context['ctx']]"}
""")
    assert seen.results["s"]["p"] == [1, 1, True, 1, 1] and "command_0" not in seen.results["s"]["q"]
    assert seen.result == [1, {"rule": 1, "task": 1, "arc": [{"i": 1}]}]


def test_names_of_a_result_are_the_same_beside_the_whole_result(house: House) -> None:
    seen = house.play("""\
workflow:
  - step: a
    tool: {kind: python, code: "result = {'x': 'x' * 100_000, 'rows': [{'id': 7}]}"}
    output: {select: [{path: "$.rows[*].id", as: ids}]}
    next: b
  - step: b
    tool: {kind: python, code: "raise ValueError('why')"}
    next: {arcs: [{step: c, when: "{{ event.name == 'step.failed' }}"}]}
  - step: c
    loop: {in: [1], iterator: n}
    tool:
      kind: python
      input:
        a: "{{ a }}"
        b: "{{ b }}"
        names: ["{{ a._ref is defined }}", "{{ a.ids }}", "{{ a.data.rows }}", "{{ a.status }}", "{{ b.status }}"]
        why: "{{ b.error.message }}"
        all: "{{ iter }}"
        last: "{{ iter._last }}"
      code: "result = [sorted(a), b, names, why, last]"
""")
    assert seen.result["results"][0] == [
        ["rows", "x"],
        None,
        [True, [7], [{"id": 7}], "ok", "error"],
        "why",
        True,
    ]


def test_a_request_may_take_as_long_as_its_task_says() -> None:
    for key in ("timeout: 60", "timeout_seconds: 60", "spec: {timeout: 60}"):
        text = f'workflow: [{{step: a, tool: {{kind: http, url: "http://127.0.0.1/", {key}}}}}]'
        work = reading(text).plan.steps[0].work
        assert isinstance(work, TaskPipeline) and work.tasks[0].keys["timeout"] == 60


def test_a_map_of_data_is_sent_as_a_form_if_the_headers_say_so(house: House, site: Web) -> None:
    web, address = site
    web["/form"] = says({"ok": True})
    house.play(f"""\
workflow:
  - step: a
    tool:
      kind: http
      method: POST
      url: "{address}/form"
      headers: {{Content-Type: application/x-www-form-urlencoded}}
      data: {{a: 1, b: x y, c: [2, 3], d: null}}
""")
    assert web.asked[-1].body == b"a=1&b=x+y&c=2&c=3"


def test_a_module_below_a_package_can_be_imported_by_name(house: House) -> None:
    libs = "{request: {from: urllib, import: request}}"
    code = "code: 'result = request.__name__'"
    seen = house.play(f"workflow: [{{step: a, tool: {{kind: python, libs: {libs}, {code}}}}}]")
    assert seen.result == "urllib.request"


def test_a_default_that_names_itself_is_the_value_that_is_given(house: House) -> None:
    text = """\
workload: {u: "{{ u }}", v: "{{ v | default('d') }}"}
workflow: [{step: a, tool: {kind: noop, result: "{{ u }}-{{ v }}"}}]
"""
    assert house.play(text, {"u": "x"}).result == "x-d"
    assert house.play(text, {"u": "x", "v": "y"}).result == "x-y"
    assert house.play(text).result == "-d"


def test_defaults_of_policies_may_be_time_limits_in_short() -> None:
    text = """\
executor: {spec: {policy: {defaults: {timeout_s: 30}}}}
workflow:
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: noop}, spec: {policy: {lifecycle: {timeout_s: 5}}}}
"""
    assert [step.timeout for step in reading(text).plan.steps] == [30, 5]
    other = text.replace("timeout_s: 30", "http_timeout_s: 10")
    assert not errors(other) and [each.code for each in problems(other)] == ["unknown-key"]


def test_an_else_may_stand_next_to_its_then(house: House) -> None:
    seen = house.play("""\
workflow:
  - step: a
    tool:
      kind: python
      code: "raise ValueError('no')"
      spec:
        policy:
          rules:
            - when: "{{ output.status == 'ok' }}"
              then: {do: fail}
            - else:
              then: {do: continue}
""")
    assert seen.status == "completed"


def test_a_hint_about_results_of_a_loop_is_read() -> None:
    loop = "{in: [1], iterator: n, spec: {mode: sequential, policy: {results: {keep: all}}}}"
    text = f"workflow: [{{step: a, loop: {loop}, tool: {{kind: noop}}}}]"
    assert not errors(text)


def test_a_file_of_noetl_that_is_not_a_playbook_is_named_as_what_it_is() -> None:
    found = problems("apiVersion: noetl.io/v1\nkind: Subscription\nmetadata: {name: s}\n")
    assert [each.hint.partition(",")[0] for each in found] == ["NoETL's kind `Subscription` is not a playbook"]
    assert found[0].message == "`noetl.io/v1` is not a language that Refold can read"
    found = problems("apiVersion: noetl.io/v2\nkind: Agent\nmetadata: {name: s}\nspec: {}\n")
    assert [each.hint.partition(",")[0] for each in found] == ["NoETL's kind `Agent` is not a playbook"]


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("jobs/copy", "jobs/copy.yaml"),
        ("jobs/copy", "jobs/copy/copy.yaml"),
        ("jobs/copy", "../copy/copy.yaml"),
        ("jobs/copy", "copy/copy.yaml"),
        ("other/copy", "../other/copy.yaml"),
        ("other/copy", "../other/copy/copy.yaml"),
        ("other/copy", "../../other/copy/copy.yaml"),
    ],
)
def test_a_child_is_found_by_its_path_in_the_layouts_of_published_files(house: House, path: str, file: str) -> None:
    child = "workflow: [{step: a, tool: {kind: noop, result: copied}}]"
    text = f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: p, path: jobs/parent}}
workflow: [{{step: p, tool: {{kind: playbook, path: {path}, return_step: a}}}}]
"""
    assert house.play(text, files={file: child}).result == "copied"


def test_a_statement_may_stand_in_a_file_next_to_the_playbook(house: House) -> None:
    text = "workflow: [{step: a, tool: {kind: duckdb, script: {uri: sql/one.sql, source: {type: file}}}}]"
    files = {"jobs/sql/one.sql": b"select 1 as i"}
    work = read(whole(text), "jobs/play.yaml", CATALOG, lambda name: files[name]).plan
    assert isinstance(work.steps[0].work, TaskPipeline)
    assert "select 1 as i" in str(work.steps[0].work.tasks[0])
    assert [code for code, _ in errors(text)] == ["unreadable-script"]
    up = text.replace("sql/one.sql", "../one.sql")
    assert [code for code, _ in errors(up, {"../one.sql": "x"})] == ["unreadable-script"]
    far = text.replace("type: file", "type: gcs")
    assert [code for code, _ in errors(far)] == ["unsupported"]


@pytest.mark.parametrize(
    ("limits", "resources"),
    [
        ("{cpu: 500m, memory: 512Mi}", {"cpus": 0.5, "memory": "512m"}),
        ("{cpu: 2, memory: 1G}", {"cpus": 2, "memory": "1g"}),
        ("{memory: 1Gi}", {"memory": "1g"}),
    ],
)
def test_limits_of_a_container_are_read_in_the_words_of_kubernetes(limits: str, resources: dict[str, Any]) -> None:
    given = f"{{limits: {limits}, requests: {{cpu: 1}}}}"
    text = f"workflow: [{{step: a, tool: {{kind: container, image: x, resources: {given}}}}}]"
    work = reading(text).plan.steps[0].work
    assert isinstance(work, TaskPipeline) and work.tasks[0].keys["resources"] == resources
