"""The tool `agent` in NoETL files: bound as in any other file; NoETL's own agents of frameworks are refused."""

from typing import Any

import pytest

from refold.core.pipeline import Task
from refold.playbooks.bindings import Bindings
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook
from refold.tools.catalog import CATALOG
from tests.noetl.house import House, errors, problems, whole

SCHEMA = "{type: object, properties: {verdict: {enum: [pass, fail]}}, required: [verdict]}"
REVIEW = f"""\
workload: {{change: rm}}
workflow:
  - step: review
    tool:
      kind: agent
      agent: reviewer
      prompt: "Safe? {{{{ workload.change }}}}"
      schema: {SCHEMA}
    next:
      arcs:
        - {{step: apply, when: "{{{{ output.data.output.verdict == 'pass' }}}}"}}
        - {{step: refuse}}
  - {{step: apply, tool: {{kind: noop, result: "{{{{ review }}}}"}}}}
  - {{step: refuse, tool: {{kind: noop, result: refused}}}}
"""
ANSWER = """\
def main(prompt, retry_error):
    if retry_error is None:
        return 'I think so'
    assert 'no JSON value' in retry_error
    return '{"verdict": "pass"}'
"""


def bound(text: str, **codes: str) -> Playbook:
    """The file, with agents that are answered by Python code."""
    agents = {name: Task(name=name, kind="python", settings={"code": code}) for name, code in codes.items()}
    return read(whole(text), "play.yaml", CATALOG, bindings=lambda: Bindings(agents=agents))


def result_of(house: House, playbook: Playbook) -> Any:
    return house.do(house.engine.run(playbook.plan))


def test_a_bound_agent_answers_and_a_reply_that_does_not_fit_is_fed_back(house: House) -> None:
    found = result_of(house, bound(REVIEW, reviewer=ANSWER))
    assert found == {"text": '{"verdict": "pass"}', "output": {"verdict": "pass"}, "tries": 2}


def test_agents_in_a_list_in_a_loop_and_in_the_workbook_read_what_other_tools_read(house: House) -> None:
    text = """\
workbook:
  - {name: ask, tool: {kind: agent, agent: echo, prompt: "{{ who }}"}}
workflow:
  - step: each
    loop: {in: [a, b], iterator: letter}
    tool:
      - {name: told, kind: agent, agent: echo, input: {more: "!"}, prompt: "{{ letter }}{{ more }}", set: {ctx.was: x}}
      - {name: end, kind: noop, result: "{{ told.text }}"}
    next: {arcs: [{step: last}]}
  - step: last
    tool: {kind: workbook, name: ask, input: {who: me}}
    next: {arcs: [{step: out}]}
  - {step: out, tool: {kind: noop, result: "{{ [each.results, last.text, ctx.was] }}"}}
"""
    letters, told, was = result_of(house, bound(text, echo="def main(prompt):\n    return '<' + prompt + '>'"))
    assert ([each["end"] for each in letters], told, was) == (["<a!>", "<b!>"], "<me>", "x")


def test_a_rule_of_the_policy_tries_the_agent_again_after_its_own_tries(house: House) -> None:
    text = REVIEW.replace(
        "      kind: agent\n",
        "      kind: agent\n      tries: 1\n      spec: {policy: {rules: "
        "[{when: \"{{ output.error.kind == 'schema' }}\", then: {do: retry, attempts: 2, delay: 0}}]}}\n",
    ).replace("Safe? {{ workload.change }}", "{{ _attempt }}. time")
    answer = "def main(prompt):\n    return {'verdict': 'pass' if prompt.startswith('2') else 'maybe'}"
    assert result_of(house, bound(text, reviewer=answer))["output"] == {"verdict": "pass"}


def test_names_that_are_not_bound_are_reported_together_before_the_run_with_the_shortest_way_to_bind_them() -> None:
    text = REVIEW.replace("{kind: noop, result: refused}", "[{kind: agent, agent: writer, prompt: x}]")
    with pytest.raises(InvalidPlaybook) as told:
        bound(text)
    assert [each.message for each in told.value.problems] == [
        "no tool is bound to the agent `reviewer`",
        "no tool is bound to the agent `writer`",
    ]
    assert all("--agent PROGRAM" in each.hint for each in told.value.problems)


@pytest.mark.parametrize(
    ("tool", "hint"),
    [
        ("framework: langchain, entrypoint: 'm:build', payload: {a: 1}", 'entry: "MODULE:FUNCTION"'),
        ("entrypoint: 'm:call', entrypoint_mode: callable", 'entry: "m:call"'),
        ("framework: noetl, entrypoint: agents/triage", "{kind: playbook, path: agents/triage}"),
    ],
)
def test_an_agent_of_a_framework_is_refused_once_with_what_to_write_instead(tool: str, hint: str) -> None:
    for form in (f"{{kind: agent, {tool}}}", f"[{{name: x, kind: agent, {tool}}}]"):
        (found,) = problems(f"workflow: [{{step: a, tool: {form}}}]")
        assert (found.code, found.severity) == ("unsupported-tool", "error") and hint in found.hint


def test_an_agent_without_a_prompt_and_one_with_an_unknown_key_are_refused() -> None:
    by = "kind: agent, by: {kind: noop}"
    assert [code for code, _ in errors(f"workflow: [{{step: a, tool: {{{by}}}}}]")] == ["missing-key"]
    assert [code for code, _ in errors(f"workflow: [{{step: a, tool: {{{by}, promt: x}}}}]")] == ["unknown-key"]
