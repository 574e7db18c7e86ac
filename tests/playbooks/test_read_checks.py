"""Paths in templates: what is known of results and inputs before the run, and which steps can have run."""

import pytest

from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.tools.catalog import CATALOG

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: read}\n"


def problems(text: str) -> tuple[Problem, ...]:
    try:
        return read(HEAD + text, "play.yaml", CATALOG).warnings
    except InvalidPlaybook as refused:
        return refused.problems


def said(text: str) -> list[tuple[str, str]]:
    return [(f"{each.severity} {each.code}", each.message) for each in problems(text)]


def reading(source: str, path: str, more: str = "") -> str:
    """A step, and another behind it that reads its result."""
    use = f'{{step: use, tool: {{kind: noop, result: "{{{{ {path} }}}}"}}}}'
    return f"{more}workflow: [{{step: fetch, {source}, next: use}},\n {use}]"


SHELL = "tool: {kind: shell, command: [ls]}"
OWNER = "{type: object, properties: {name: {type: string}}, additionalProperties: false}"
SCHEMA = f"{{type: object, properties: {{id: {{type: integer}}, tags: {{type: array}}, owner: {OWNER}}}}}"
PROMISED = f"tool: {{kind: python, code: 'return 1'}}, output: {{schema: {SCHEMA}}}"
CLOSED = PROMISED.replace(
    "{type: object, properties: {id", "{type: object, additionalProperties: false, properties: {id"
)

WRONG = {
    "a key that the tool does not give": (reading(SHELL, "fetch.stdot"), "error", "`fetch` has no `stdot`"),
    "the same by the long name": (reading(SHELL, "steps.fetch.stdot"), "error", "`steps.fetch` has no `stdot`"),
    "what a fan-out does not have": (
        reading(f"{SHELL}, loop: {{in: [1]}}", "fetch.stdout"),
        "error",
        "`fetch` has no `stdout`",
    ),
    "a name inside a list": (
        reading(f"{SHELL}, loop: {{in: [1]}}", "fetch.results.first"),
        "error",
        "`fetch.results` is a list and has no `first`",
    ),
    "a gate's answer": (reading("tool: {kind: gate}", "fetch.choice"), "error", "`fetch` has no `choice`"),
    "what a schema closes": (reading(CLOSED, "fetch.idd"), "error", "`fetch` has no `idd`"),
    "what a schema leaves open": (reading(PROMISED, "fetch.idd"), "warning", "nothing says that `fetch` has `idd`"),
    "deep inside a schema": (reading(PROMISED, "fetch.owner.nam"), "error", "`fetch.owner` has no `nam`"),
    "inside a number": (reading(PROMISED, "fetch.id.x"), "error", "`fetch.id` is a number and has no `x`"),
    "with a default": (reading(SHELL, "fetch.stdot | default(1)"), "warning", "`fetch` has no `stdot`"),
    "a nested default": (
        "workload: {db: {hosts: [a], port: 1}}\n" + reading(SHELL, "workload.db.hots"),
        "warning",
        "nothing says that `workload.db` has `hots`",
    ),
    "a nested default by its bare name": (
        "workload: {db: {hosts: [a], port: 1}}\n" + reading(SHELL, "db.hots"),
        "warning",
        "nothing says that `db` has `hots`",
    ),
    "a declared input that is closed": (
        "inputs: {db: {type: object, required: true, properties: {host: {}}, additionalProperties: false}}\n"
        + reading(SHELL, "db.hots"),
        "error",
        "`db` has no `hots`",
    ),
    "the outcome of the step itself": (
        f'workflow: [{{step: fetch, {SHELL}, set: {{ctx.x: "{{{{ output.data.code }}}}"}}}}]',
        "error",
        "`output.data` has no `code`",
    ),
    "the result of a parallel block": (
        "workflow: [{parallel: both, branches: [[{step: a}]]},\n"
        ' {step: use, tool: {kind: noop, result: "{{ both.losers }}"}}]',
        "error",
        "`both` has no `losers`",
    ),
}


@pytest.mark.parametrize(("text", "severity", "message"), WRONG.values(), ids=WRONG)
def test_a_path_into_what_is_not_there_is_told(text: str, severity: str, message: str) -> None:
    assert said(text) == [(f"{severity} unknown-name", message)]
    assert all(each.hint for each in problems(text))


def test_what_was_probably_meant_is_offered_where_the_name_stands() -> None:
    text = "workload: {db: {hosts: [a]}}\n" + reading(SHELL, "workload.db.hots")
    found = problems(text)[0]
    assert found.hint == "did you mean `workload.db.hosts`?"
    assert (found.place, found.length) == ((6, text.splitlines()[2].index("hots") + 1), 4)
    found = problems(reading(PROMISED, "fetch.owner.nam"))[0]
    assert found.hint == "did you mean `fetch.owner.name`?"


RIGHT = {
    "what the tool gives": reading(SHELL, "fetch.stdout | upper"),
    "what is open": reading("tool: {kind: http, url: https://x.test}", "fetch.data.items.first.name"),
    "what nobody knows": reading("tool: {kind: python, code: 'return 1'}", "fetch.whatever.it.is"),
    "a schema of alternatives": reading(
        "tool: {kind: python, code: 'return 1'}, output: {schema: {anyOf: [{type: object}]}}", "fetch.a.b"
    ),
    "a name that ctx has too": reading(f"{SHELL}, set: {{ctx.fetch: 1}}", "fetch.anything"),
    "an input of the step with the name of another": (
        "workload: {db: {host: a}}\nworkflow: [{step: a, input: {db: 1},"
        ' tool: {kind: noop, result: "{{ db.port }} {{ input.db.port }}"}}]'
    ),
    "a poll that runs a tool": reading(
        'tool: {kind: poll, every: 1s, until: "{{ output.data.stdout }}", check: {kind: shell, command: [ls]}}',
        "fetch.stdout",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_a_path_that_may_be_there_is_left_alone(text: str) -> None:
    assert problems(text) == ()


def test_a_step_that_cannot_have_run_before_is_told() -> None:
    text = """\
workflow:
  - {step: a, next: [b, c]}
  - {step: b, tool: {kind: noop, result: "{{ c }}"}}
  - {step: c, tool: {kind: noop, result: "{{ steps.a }} {{ b | default(1) }}"}}
"""
    found = problems(text)
    assert [(each.severity, each.code, each.place) for each in found] == [("warning", "not-before", (6, 46))]
    assert found[0].message == "nothing makes sure that `c` has run before `b`"


ORDERED = {
    "over other steps": 'workflow: [{step: a, next: b}, {step: b, next: c}, {step: c, when: "{{ a }}"}]',
    "in a loop, from below": (
        'workflow: [{step: a, tool: {kind: noop, result: "{{ b }}"}, next: b},'
        ' {step: b, next: {arcs: [{step: a, when: "{{ visit < 3 }}"}]}}]'
    ),
    "its own result": 'workflow: [{step: a, next: {arcs: [{step: b, when: "{{ a }}"}]}}, {step: b}]',
    "at the end": 'always: [z]\nworkflow: [{step: a}, {step: z, when: "{{ a }}"}]',
    "through a block": ('workflow: [{if: "{{ visit == 1 }}", then: [{step: a}]}, {step: b, when: "{{ a }}"}]'),
}


@pytest.mark.parametrize("text", ORDERED.values(), ids=ORDERED)
def test_a_step_that_may_have_run_before_is_left_alone(text: str) -> None:
    assert problems(text) == ()


def test_what_runs_only_at_the_end_has_not_run_before() -> None:
    assert [code for code, _ in said('always: [z]\nworkflow: [{step: a, when: "{{ z }}"}, {step: z}]')] == [
        "warning not-before"
    ]


def test_long_chains_are_looked_through_in_no_time() -> None:
    """A step that reads the first one, at the end of thousands: sets of steps, not walks."""
    count = 3000
    steps = [f'{{step: s{n}, when: "{{{{ s0 }}}}", next: s{n + 1}}}' for n in range(1, count)]
    text = f"workflow: [{{step: s0, next: s1}}, {', '.join(steps)}, {{step: s{count}}}]"
    assert problems(text) == ()


@pytest.mark.parametrize("kind", ["shell", "wait", "gate", "quality"])
def test_the_keys_of_a_result_are_those_that_the_page_on_the_tool_names(kind: str) -> None:
    info = CATALOG[kind]
    assert info.result_keys and all(key in info.result for key in info.result_keys)
