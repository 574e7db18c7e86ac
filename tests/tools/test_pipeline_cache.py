"""A pipeline is read once for its step, however many items and tries there are, and not kept for ever."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import convert

from refold.core.pipeline import Task, TaskPipeline
from refold.tools.pipeline import tool as pipeline_tool
from refold.tools.pipeline.tool import CACHED_PIPELINES, PipelineCache
from tests.tools.test_pipelines import play


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Whatever was read."""
    found: list[Any] = []

    def counted(settings: Any, type: Any) -> Any:
        if type is TaskPipeline:
            found.append(settings)
        return convert(settings, type)

    monkeypatch.setattr(pipeline_tool, "convert", counted)
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


def settings(name: str = "a") -> dict[str, Any]:
    return {"tasks": [{"name": name, "kind": "noop"}], "playbook": name}


def test_a_pipeline_is_known_by_what_it_was_read_from(read: list[Any]) -> None:
    pipelines, given = PipelineCache(), settings()
    known = pipelines.of(given)
    assert known == TaskPipeline(tasks=(Task(name="a", kind="noop"),), playbook="a")
    assert pipelines.of(given) is known and pipelines.of({**given}) is known
    assert pipelines.of({**given, "playbook": "b"}).playbook == "b"
    assert pipelines.of({"tasks": given["tasks"]}).playbook == ""
    assert pipelines.of(settings()) is not known
    assert len(read) == 4


def test_no_more_are_kept_than_so_many_and_the_one_used_last_is(read: list[Any]) -> None:
    pipelines, often = PipelineCache(3), settings("often")
    for n in range(10):
        pipelines.of(settings(str(n)))
        pipelines.of(often)
    assert len(pipelines) == 3 and len(read) == 11
    many = PipelineCache()
    for n in range(CACHED_PIPELINES + 10):
        many.of(settings(str(n)))
    assert len(many) == CACHED_PIPELINES


def test_what_cannot_be_read_is_not_kept() -> None:
    pipelines = PipelineCache()
    for _ in range(2):
        with pytest.raises(ValueError, match="nothing"):
            pipelines.of({"nothing": 1})
    assert len(pipelines) == 0
