"""Old forms of NoETL files: each is read, run as it was meant, and warned about with the modern form and its place."""

import pytest

from tests.noetl.house import House, problems, warnings

FORMS = {
    "next as a name": (
        "workflow: [{step: a, next: b}, {step: b, tool: {kind: noop, result: 1}}]",
        1,
        ["old-form"],
    ),
    "next as one arc": (
        "workflow: [{step: a, next: {step: b}}, {step: b, tool: {kind: noop, result: 1}}]",
        1,
        ["old-form"],
    ),
    "next as a list of names: all fire": (
        "workflow: [{step: a, next: [b, c]}, {step: b, tool: {kind: noop, result: 1}, next: d}, {step: c, "
        'tool: {kind: noop, result: 2}, next: d}, {step: d, tool: {kind: noop, result: "{{ b + c }}"}}]',
        3,
        ["old-form"] * 3,
    ),
    "next as a list of arcs: the first fires, with its args": (
        'workflow: [{step: a, next: [{step: b, when: "{{ 1 > 2 }}"}, {step: c, args: {n: 4}}, {step: d}]}, '
        '{step: b}, {step: c, tool: {kind: noop, result: "{{ n }}"}}, {step: d}]',
        4,
        ["old-form", "dead-arc", "old-form", "dead-arc"],
    ),
    "args of a step": (
        'workflow: [{step: a, args: {x: 1, y: 1}, input: {y: 2}, tool: {kind: noop, result: ["{{ x }}", "{{ y }}"]}}]',
        [1, 2],
        ["old-form"],
    ),
    "args of a tool": (
        'workflow: [{step: a, tool: {kind: python, args: {x: 1, y: 1}, input: {y: 2}, code: "result = [x, y]"}}]',
        [1, 2],
        ["old-form"],
    ),
    "a label around a task": (
        "workflow: [{step: a, tool: [{first: {kind: noop, result: 1}}, {second: {kind: noop, "
        'result: "{{ first + 1 }}"}}]}]',
        {"first": 1, "second": 2},
        ["old-form"] * 2,
    ),
    "a condition of a step": (
        'workflow: [{step: a, when: "{{ false }}", tool: {kind: noop, result: 1}, next: {arcs: [{step: b}]}}, '
        "{step: b, tool: {kind: noop, result: 2}}]",
        2,
        ["old-form"],
    ),
    "keys of a tool under spec": (
        'workflow: [{step: a, tool: {kind: python, spec: {code: "result = x", input: {x: 7}}}}]',
        7,
        ["old-form"] * 2,
    ),
    "set_ctx and set_iter of a rule": (
        "workflow: [{step: a, tool: [{kind: noop, spec: {policy: {rules: [{else: {do: continue, set_ctx: {x: 1}, "
        'set_iter: {y: 2}}}]}}}, {name: l, kind: noop, result: "{{ ctx.x + iter.y }}"}]}]',
        {"task_0": {"status": "ok", "message": None}, "l": 3},
        ["old-form"] * 2,
    ),
    "next_mode": (
        "workflow: [{step: a, spec: {next_mode: inclusive}, next: [{step: b}, {step: c}]}, {step: b, "
        "set: {b: 1}}, {step: c, tool: {kind: noop, result: 5}}]",
        5,
        ["old-form"] * 2,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_old_form_runs_as_it_was_meant_with_a_warning(house: House, name: str) -> None:
    text, result, codes = FORMS[name]
    seen = house.play(text)
    assert (seen.status, seen.result) == ("completed", result)
    assert [each.code for each in seen.warnings] == codes
    assert all(each.hint and each.place.line == 4 for each in seen.warnings)


def test_outcome_is_read_as_output_and_its_result_as_data(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool:
      kind: noop
      result: {n: 3}
      spec: {policy: {rules: [{when: "{{ outcome.status == 'ok' and outcome.result.n == 3 and outcome.data.n == 3 }}",
          then: {do: continue, set: {ctx.seen: true}}}]}}
"""
    assert house.play(text).ctx == {"seen": True}
    found = warnings(text)
    assert [code for code, _ in found] == ["old-form"] and "outcome" in found[0][1]


@pytest.mark.parametrize("name", ["url", "endpoint", "method", "params", "headers", "auth", "command"])
def test_every_key_that_older_files_write_under_spec_is_taken_from_there(name: str) -> None:
    tool = {
        "url": "kind: http, spec: {url: 'http://127.0.0.1'}",
        "endpoint": "kind: http, spec: {endpoint: 'http://127.0.0.1'}",
        "method": "kind: http, url: x, spec: {method: GET}",
        "params": "kind: http, url: x, spec: {params: {a: 1}}",
        "headers": "kind: http, url: x, spec: {headers: {a: b}}",
        "auth": "kind: http, url: x, spec: {auth: {bearer: x}}",
        "command": "kind: shell, spec: {command: 'true'}",
    }[name]
    found = problems(f"workflow: [{{step: a, tool: {{{tool}}}}}]")
    assert [(each.code, each.severity) for each in found] == [("old-form", "warning")]
    assert f"`{name}` beside `kind`" in found[0].hint


def test_a_tools_retry_block_is_warned_about_and_does_nothing(house: House) -> None:
    text = "workflow: [{step: a, tool: {kind: shell, command: exit 3, retry: {max_attempts: 5}}}]"
    found = problems(text)
    assert [each.code for each in found] == ["no-effect"] and "rules" in found[0].hint
    assert house.play(text).history.count("issued") == 1


def test_unknown_keys_of_a_tool_and_of_metadata_are_warned_about() -> None:
    text = "workflow: [{step: a, tool: {kind: shell, command: 'true', shel: zsh}}]"
    assert [(each.code, each.severity) for each in problems(text)] == [("unknown-key", "warning")]
