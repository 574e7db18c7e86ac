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
