"""Mistakes that people make who know other engines: one problem each, with a hint that says what to write."""

import pytest

from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.tools.catalog import CATALOG

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: a}\n"
STEPS = "workflow:\n  - {step: a, tool: {kind: noop}}\n"


def problems(text: str) -> list[Problem]:
    try:
        return list(read(HEAD + text, "a.yaml", CATALOG).warnings)
    except InvalidPlaybook as error:
        return list(error.problems)


def step(keys: str) -> str:
    return f"workflow:\n  - {{step: a, {keys}}}\n"


def result(template: str) -> str:
    return step(f'tool: {{kind: noop, result: "{template}"}}')


MISTAKES = {
    "a function for the time": (result("{{ now() }}"), "write `{{ now }}`, without brackets"),
    "a filter with a slip": (result("{{ run.id | tojsn }}"), "docs/howto/templates.md lists all filters"),
    "a statement": (result("{% for x in [1] %}x{% endfor %}"), "run a step for each item with `loop`"),
    "another function": (result("{{ uuid() }}"), "code goes into a step of the tool `python`"),
    "the environment": (result("{{ env.TOKEN }}"), "`{secret: token}` is REFOLD_SECRET_TOKEN"),
    "bash": (step("tool: {kind: bash, script: ls}"), "write `kind: shell`"),
    "docker": (step("tool: {kind: docker, image: x}"), "write `kind: container`"),
    "approval": (step("tool: {kind: approval}"), "write `kind: gate`"),
    "sleep": (step("tool: {kind: sleep}"), "write `kind: wait`"),
    "a tool with a slip": (step("tool: {kind: pyton, code: x}"), "did you mean `python`?"),
    "needs": (STEPS + "  - {step: b, needs: a, tool: {kind: noop}}\n", "write `next` in the step before"),
    "depends_on": (STEPS + "  - {step: b, depends_on: [a], tool: {kind: noop}}\n", "write `next` in the step before"),
    "retries": (STEPS + "  - {step: b, retries: 3, tool: {kind: noop}}\n", "write `retry: {attempts: …}`"),
    "if": (step("if: x, tool: {kind: noop}"), "write `when`"),
    "run": ("workflow:\n  - {step: a, run: ls}\n", "write `tool: {kind: shell, script: …}`"),
    "uses": ("workflow:\n  - {step: a, uses: x}\n", "write `tool: {kind: …}`"),
    "env of a step": (step("env: {A: b}, tool: {kind: noop}"), "write `env` in `tool`"),
    "id of a step": ("workflow:\n  - {id: a, tool: {kind: noop}}\n", "write `step`"),
    "schedule": ("schedule: daily\n" + STEPS, "with `kind: Schedule`; see `refold schedules create`"),
    "cron": ("cron: '* * * * *'\n" + STEPS, "with `kind: Schedule`; see `refold schedules create`"),
    "steps": ("steps:\n  - {step: a, tool: {kind: noop}}\n", "write `workflow`"),
    "jobs": ("jobs:\n  - {step: a, tool: {kind: noop}}\n", "write `workflow`"),
    "env of a playbook": ("env: {A: b}\n" + STEPS, "write `env` in the tool of a step"),
    "a list of steps for on_failure": (
        "on_failure: [b]\n" + STEPS + "  - {step: b, tool: {kind: noop}}\n",
        "the steps that run after a failure are `on_fail: [b]`",
    ),
    "a step in next": (
        "workflow:\n  - {step: a, tool: {kind: noop}, next: {step: b}}\n  - {step: b, tool: {kind: noop}}\n",
        "write `next: {arcs: [{step: …}]}`",
    ),
    "a variable of a shell in an address": (
        step('tool: {kind: http, url: "http://x/${TOKEN}"}'),
        "{{ secrets.token }}, which is REFOLD_SECRET_TOKEN",
    ),
    "code without a result that is read": (
        "workflow:\n  - {step: a, tool: {kind: python, code: x = 1}, next: b}\n"
        '  - {step: b, tool: {kind: noop, result: "{{ a }}"}}\n',
        "write `result = …` in the code",
    ),
    "as in a loop": (step("loop: {in: [1], as: x}, tool: {kind: noop}"), "write `iterator`"),
    "parallel in a loop": (step("loop: {in: [1], parallel: 4}, tool: {kind: noop}"), "write `max_in_flight`"),
    "loop.item": (step("loop: {in: [1]}, tool: {kind: noop, result: '{{ loop.item }}'}"), "the item is called `item`"),
    "with_items": (step("with_items: [1], tool: {kind: noop}"), "write `loop: {in: …}`"),
    "wait for": (step("tool: {kind: wait, for: 5m}"), "write `seconds`"),
    "wait until a span": (step("tool: {kind: wait, until: 5m}"), "write `seconds: 5m`"),
    "a keychain of stored secrets": (
        "keychain: [{name: tok, kind: secret}]\n" + STEPS,
        "write `{secret: NAME}` where it is used",
    ),
    "a keychain of one secret": ("keychain: [{secret: tok}]\n" + STEPS, "write `{secret: NAME}` where it is used"),
    "a function for secrets": (result("{{ secret('tok') }}"), "write `{{ secrets.name }}`"),
    "an expression of GitHub": (result("${{ run.id }}"), "write `{{ … }}`"),
    "cmd": (step("tool: {kind: shell, cmd: ls}"), "write `command`"),
    "a file of Python code": (step("tool: {kind: python, file: a.py}"), "write `script`"),
    "sql": (step("tool: {kind: sqlite, database: a.db, sql: select 1}"), "write `query`"),
    "a query of an address": (step("tool: {kind: http, url: 'http://x', query: {a: 1}}"), "write `params`"),
    "a body that is a map": (step("tool: {kind: http, method: POST, url: 'http://x', body: {a: 1}}"), "write `json`"),
    "the message of a gate": (step("tool: {kind: gate, message: ready}"), "write `prompt`"),
    "the file of a playbook": (step("tool: {kind: playbook, file: x.yaml}"), "write `path`"),
    "code of a step": ("workflow:\n  - {step: a, code: result = 1}\n", "write `tool: {kind: python, code: …}`"),
    "continue_on_error": (step("continue_on_error: true, tool: {kind: noop}"), "[{step: …, on: failure}]"),
    "on_error of a step": (step("on_error: b, tool: {kind: noop}"), "[{step: …, on: failure}]"),
    "on_success": (step("on_success: b, tool: {kind: noop}"), "write `next`"),
    "a worker of a step": (step("worker: gpu, tool: {kind: noop}"), "write `queue`"),
    "try": ("workflow:\n  - try: [{step: x, tool: {kind: noop}}]\n", "[{step: …, on: failure}]"),
    "count of tries": (step("retry: {count: 3}, tool: {kind: noop}"), "write `attempts`"),
    "interval of tries": (step("retry: {attempts: 3, interval: 5s}, tool: {kind: noop}"), "write `delay`"),
    "finally": ("finally: [a]\n" + STEPS, "write `always`"),
    "variables": ("variables: {a: 1}\n" + STEPS, "write `workload`"),
    "parameters": ("parameters: {a: 1}\n" + STEPS, "write `inputs`"),
    "concurrency": ("concurrency: 3\n" + STEPS, "`refold limits set`"),
    "params in a template": (result("{{ params.x }}"), "write `workload`"),
    "inputs in a template": (result("{{ inputs.x }}"), "write `workload`"),
    "len": (result("{{ len([1]) }}"), "| length"),
    "two ampersands": (step('when: "{{ true && true }}", tool: {kind: noop}'), "write `and`"),
    "one equals sign": (step('when: "{{ 1 = 1 }}", tool: {kind: noop}'), "write `==`"),
    "a question mark": (result("{{ true ? 1 : 2 }}"), "{{ a if condition else b }}"),
    "a list for parallel": (
        "workflow:\n  - parallel: [a, b]\n" + STEPS.partition("\n")[2],
        "write `parallel: name`, and the steps as `branches:",
    ),
    "a list of steps for parallel": (
        "workflow:\n  - parallel: [{step: a, tool: {kind: noop}}]\n",
        "write `parallel: name`, and the steps as `branches:",
    ),
    "a block with steps": (
        "workflow:\n  - block: x\n    steps: [{step: a, tool: {kind: noop}}]\n",
        "write its steps into the list",
    ),
    "a block for each item": (
        "workflow:\n  - foreach: x\n    in: [1]\n    do: [{step: a, tool: {kind: noop}}]\n",
        "several steps for each item are a playbook of their own",
    ),
    "an f-string": (result("{{ f'x{run.id}' }}"), "templates have no f-strings"),
    "the result of a noop that has none": (
        "workflow:\n  - {step: a, tool: {kind: noop}, next: b}\n"
        '  - {step: b, tool: {kind: noop, result: "{{ a.result.x }}"}}\n',
        "`a` is the result itself: write `a.x`",
    ),
    "a result in a result": (
        "workflow:\n  - {step: a, tool: {kind: noop, result: {x: 1}}, next: b}\n"
        '  - {step: b, tool: {kind: noop, result: "{{ a.result.x }}"}}\n',
        "`a` is the result itself: write `a.x`",
    ),
    "a slip in the result of a noop": (
        "workflow:\n  - {step: a, tool: {kind: noop, result: {total: 1}}, next: b}\n"
        '  - {step: b, tool: {kind: noop, result: "{{ a.totl }}"}}\n',
        "did you mean `a.total`?",
    ),
    "a name with an accent": ("workflow:\n  - {step: prüfe, tool: {kind: noop}}\n", "for example `prufe`"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_usual_mistake_is_one_problem_with_a_hint_that_helps(mistake: str) -> None:
    text, hint = MISTAKES[mistake]
    found = problems(text)
    assert len(found) == 1, [(each.code, each.message) for each in found]
    assert hint in found[0].hint and found[0].place.line >= 4


def test_code_that_sets_its_result_or_is_not_read_is_no_problem() -> None:
    read_it = '  - {step: b, tool: {kind: noop, result: "{{ a }}"}}\n'
    for code in ("result = 1", "def main(): return 1", "return 1"):
        assert problems(f'workflow:\n  - {{step: a, tool: {{kind: python, code: "{code}"}}, next: b}}\n{read_it}') == []
    assert problems(step('tool: {kind: python, code: "x = 1"}')) == []


def test_a_file_that_begins_with_a_byte_order_mark_is_read() -> None:
    whole = (HEAD + STEPS).encode("utf-8-sig")
    assert read(whole, "a.yaml", CATALOG).plan.name == "a"
    with pytest.raises(InvalidPlaybook) as caught:
        read("\ufeff" + HEAD + "x: 1\n" + STEPS, "a.yaml", CATALOG)
    assert caught.value.problems[0].place == (4, 1)
