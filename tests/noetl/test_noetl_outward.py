"""Artifacts, containers and MCP servers in NoETL files: their keys as NoETL spells them."""

import pytest
from msgspec import json

from tests.noetl.house import House, reading, warnings
from tests.tools.mcp_server import answer
from tests.tools.web import Answer, Asked, Site, says

Web = tuple[Site, str]
LARGE = "{kind: python, code: \"result = {'rows': ['x' * 1000] * 200, 'n': 5}\"}"


@pytest.mark.parametrize(
    "tool",
    [
        'kind: artifact, action: get, input: {result_ref: "{{ make._ref }}"}',
        'kind: artifact, result_ref: "{{ make._ref.ref }}"',
        'kind: resolve, input: {ref: "{{ make._ref }}"}',
        'kind: result_fetch, ref: "{{ make._uri }}", prefer: flight',
    ],
)
def test_a_large_result_is_read_by_its_reference(house: House, tool: str) -> None:
    text = (
        f"workflow: [{{step: make, tool: {LARGE}, next: {{arcs: [{{step: get}}]}}}}, {{step: get, tool: {{{tool}}}}}]"
    )
    seen = house.play(text)
    assert seen.status == "completed", seen.error
    assert (seen.result["n"], len(seen.result["rows"])) == (5, 200)


@pytest.mark.parametrize("name", ["endpoint", "url", "server_url", "base_url"])
def test_a_tool_of_an_mcp_server_is_called(house: House, site: Web, name: str) -> None:
    web, address = site

    def reply(asked: Asked) -> Answer:
        told = answer(json.decode(asked.body))
        return Answer(202) if told is None else says(told)

    web["/mcp"] = reply
    seen = house.play(
        f'workload: {{at: x}}\nworkflow: [{{step: a, tool: {{kind: mcp, {name}: "{{{{ at }}}}", method: tools/call,'
        ' tool: add, params: {a: 1, b: "{{ 2 + 3 }}"}}}]',
        {"at": f"{address}/mcp"},
    )
    assert seen.status == "completed", seen.error
    assert (seen.result["text"], seen.result["arguments"]) == ("6\nsum", {"a": 1, "b": 5})


def test_the_arguments_of_a_container_are_its_own() -> None:
    text = (
        "workflow: [{step: a, tool: {kind: container, image: busybox, command: [echo], args: [hi], timeout_seconds: 30,"
        " env: [{name: A, value: b}], namespace: x, restart_policy: Never}}]"
    )
    assert warnings(text) == [
        ("no-effect", "`namespace` has no effect here"),
        ("no-effect", "`restart_policy` has no effect here"),
    ]
    assert reading(text).plan.steps[0].name == "a"
