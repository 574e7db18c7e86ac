"""A pipeline is decoded once for its plan, however many items and tries there are."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import convert

from refold.core import plan as plans
from refold.core.graph import prepare
from refold.core.pipeline import Rule, Task, TaskPipeline
from refold.core.plan import Call, Plan, Step, canonical, read_plan
from refold.playbooks.playbook import read as read_playbook
from refold.tools.catalog import CATALOG
from tests.tools.test_pipelines import HEAD, play


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Whatever was read."""
    found: list[Any] = []

    def counted(settings: Any, type: Any) -> Any:
        if type is TaskPipeline:
            found.append(settings)
        return convert(settings, type)

    monkeypatch.setattr(plans, "convert", counted)
    yield found


def test_items_and_tries_read_their_pipeline_once(read: list[Any]) -> None:
    text = """\
workflow:
  - step: a
    loop: {in: "{{ range(20) }}", iterator: n}
    tool:
      - name: one
        kind: noop
        result: {x: "{{ n + 1 / (_attempt - 1) }}"}
        spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 2, delay: 0}}]}}
      - {name: two, kind: noop, result: {y: "{{ one.x }}"}}
"""
    played = play(text)
    assert [each["y"] for each in played.result] == list(range(1, 21))
    assert len(read) == 1


def test_a_step_whose_result_has_a_schema_is_no_exception(read: list[Any]) -> None:
    text = """\
workflow:
  - step: a
    loop: {in: "{{ range(5) }}", iterator: n}
    tool: [{name: one, kind: noop, result: {x: "{{ n }}"}}, {name: two, kind: noop, result: {y: 1}}]
    output: {schema: {type: object, required: [y]}}
"""
    assert len(play(text).result) == 5
    assert len(read) == 1


def test_a_call_of_the_tool_is_a_pipeline_once_it_is_read() -> None:
    settings = {"tasks": [{"name": "a", "kind": "noop"}], "playbook": "p"}
    written = Plan(name="p", steps=(Step(name="s", work=Call(tool="pipeline", settings=settings)),))
    pipeline = TaskPipeline(tasks=(Task(name="a", kind="noop"),), playbook="p")
    read_back = read_plan(canonical(written))
    assert read_back.steps[0].work == pipeline
    assert (
        canonical(read_back) == canonical(written) == canonical(Plan(name="p", steps=(Step(name="s", work=pipeline),)))
    )


def test_a_plan_with_a_pipeline_keeps_its_bytes_and_its_hash() -> None:
    """The bytes are those of earlier versions: a database that they wrote opens, and its runs find their plans."""
    rule = Rule(when="{{ true }}", do="retry", attempts=5, delay=2.0)
    task = Task(name="a", kind="http", settings={"method": "GET"}, keys={"url": "{{ u }}"}, rules=(rule,))
    plan = Plan(name="p", steps=(Step(name="s", work=TaskPipeline(tasks=(task,), single=True, timeout=60.0)),))
    assert canonical(plan) == (
        b'{"name":"p","steps":[{"name":"s","work":{"settings":{"single":true,"tasks":[{"keys":{"url":"{{ u }}"},'
        b'"kind":"http","name":"a","rules":[{"attempts":5,"delay":2.0,"do":"retry","when":"{{ true }}"}],'
        b'"settings":{"method":"GET"}}],"timeout":60.0},"tool":"pipeline","type":"call"}}]}'
    )


def test_a_plan_that_is_read_and_stored_again_keeps_its_hash() -> None:
    """Also where a playbook spells out what is the default."""
    rule = "{do: continue, set: {ctx.a: 1}}"
    text = f"""\
workflow:
  - step: a
    tool:
      - name: one
        kind: noop
        spec: {{policy: {{on_unmatched: continue, rules: [{{when: "{{{{ true }}}}", then: {rule}}}]}}}}
      - {{name: two, kind: noop}}
"""
    data = canonical(read_playbook(HEAD + text, "p.yaml", CATALOG).plan)
    assert b'"do":"continue"' in data
    assert canonical(read_plan(data)) == data


def test_settings_that_are_no_pipeline_are_refused_when_the_plan_is_read() -> None:
    with pytest.raises(ValueError, match="nothing"):
        prepare(Plan(name="p", steps=(Step(name="s", work=Call(tool="pipeline", settings={"nothing": 1})),)))
