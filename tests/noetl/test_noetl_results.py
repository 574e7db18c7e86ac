"""Results of NoETL steps: large ones, references to them, and names for what stands in them."""

import pytest

from tests.noetl.house import House, errors, warnings

LARGE = """\
workload: {size: 200000}
workflow:
  - {step: big, tool: {kind: python, code: "result = {'id': 7, 'text': 'x' * {{ size }}, 'deep': {'list': [1, 2]}}"},
      next: {arcs: [{step: look}]}}
  - step: look
    tool: {kind: noop, result: ["{{ big._ref is defined }}", "{{ big.id }}", "{{ big.deep.list[1] }}",
        "{{ big.data.text | length }}"]}
"""


def test_every_field_of_a_large_result_can_be_read_and_only_a_large_one_has_a_reference(house: House) -> None:
    assert house.play(LARGE).result == [True, 7, 2, 200_000]
    assert house.play(LARGE, {"size": 10}).result == [False, 7, 2, 10]


def test_a_reference_names_the_run_the_step_and_where_it_is_kept(house: House) -> None:
    text = LARGE.replace('["{{ big._ref is defined }}"', '["{{ big._ref }}", "{{ big._uri }}", "{{ big._store }}"')
    seen = house.play(text)
    ref, uri, store, *_ = seen.result
    assert uri == ref["ref"] and uri.startswith(f"noetl://execution/{seen.id}/result/big/") and store == ref["store"]
    assert ref["kind"] == "result_ref" and ref["meta"]["bytes"] > 200_000


@pytest.mark.parametrize(
    "tool",
    [
        'kind: artifact, action: get, input: {result_ref: "{{ big._ref }}"}',
        'kind: artifact, action: get, input: {uri: "{{ big._uri }}"}',
        'kind: resolve, input: {ref: "{{ big._ref }}"}',
        'kind: result_fetch, ref: "{{ big._ref.ref }}"',
    ],
)
def test_a_reference_is_resolved_to_what_it_stands_for(house: House, tool: str) -> None:
    text = LARGE.split("  - step: look")[0] + (
        f"  - {{step: look, tool: {{{tool}}}, next: {{arcs: [{{step: end}}]}}}}\n"
        '  - {step: end, tool: {kind: noop, result: ["{{ look.id }}", "{{ look.text | length }}"]}}\n'
    )
    assert house.play(text).result == [7, 200_000]


def test_a_reference_that_cannot_be_read_is_a_retryable_error(house: House) -> None:
    ref = "noetl://execution/none/result/big/" + "0" * 64
    text = f'workflow: [{{step: a, tool: {{kind: artifact, action: get, input: {{result_ref: "{ref}"}}}}}}]'
    seen = house.play(text)
    assert seen.status == "failed" and seen.fault.kind == "missing_reference"
    assert (seen.fault.code, seen.fault.retryable) == ("REFERENCE_NOT_AVAILABLE", True)


SELECT = """\
workflow:
  - step: a
    tool: {kind: noop, result: {rows: [{id: 1}, {id: 2}], meta: {"a b": x}}TOOL}
    OUTPUT
    set: {ctx.first: "{{ output.first }}"}
    next: {arcs: [{step: b, when: "{{ a.first == 1 }}"}]}
  - step: b
    tool: {kind: noop, result: ["{{ a.first }}", "{{ a.ids }}", "{{ a.x }}", "{{ a.rows[0].id }}", "{{ a.nothing }}"]}
"""
PATHS = """{select: [{path: "$.rows[0].id", as: first}, {path: "rows[*].id", as: ids}, {path: "$['meta']['a b']",
    as: x}, {path: $.no.way, as: nothing}]}"""


def test_select_names_what_stands_at_a_path(house: House) -> None:
    for text in (
        SELECT.replace("TOOL", "").replace("OUTPUT", f"output: {PATHS}"),
        SELECT.replace("TOOL", f", output: {PATHS}").replace("    OUTPUT\n", ""),
    ):
        seen = house.play(text)
        assert seen.result == [1, [1, 2], "x", 1, None] and seen.ctx == {"first": 1}
        assert "first" not in seen.results["a"]  # it is not part of the data


def test_select_of_a_task_is_read_by_the_tasks_after_it(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool:
      - {name: one, kind: noop, result: [{id: 5}], output: {select: [{path: "$[0].id", as: id}]}}
      - {name: two, kind: noop, result: "{{ one.id }}"}
"""
    assert house.play(text).result["two"] == 5


def test_output_select_needs_nothing_because_all_fields_can_be_read(house: House) -> None:
    text = "workflow: [{step: a, tool: {kind: noop, result: {id: 1, b: 2}}, output: {output_select: [id]}}]"
    assert warnings(text) == [] and house.play(text).result == {"id": 1, "b": 2}


def test_where_a_result_is_stored_is_no_business_of_a_playbook() -> None:
    keys = "{store: {kind: kv, ttl: 1h}, inline_max_bytes: 10, preview_max_bytes: 10, scope: execution, as: x}"
    found = warnings(f"workflow: [{{step: a, tool: {{kind: noop}}, output: {keys}}}]")
    assert [code for code, _ in found] == ["no-effect"] * 5
    spec = f"workflow: [{{step: a, spec: {{result: {keys}}}, tool: {{kind: noop}}}}]"
    assert [code for code, _ in warnings(spec)] == ["no-effect"] * 5


def test_accumulate_is_refused_with_what_to_write_instead() -> None:
    text = "workflow: [{step: a, tool: {kind: noop, output: {accumulate: {enabled: true, strategy: append}}}}]"
    assert errors(text) == [("unsupported", "results are not accumulated")]
    assert errors(text.replace("enabled: true", "enabled: false")) == []


def test_a_path_that_cannot_be_read_is_refused() -> None:
    text = 'workflow: [{step: a, tool: {kind: noop}, output: {select: [{path: "$..id", as: x}]}}]'
    assert [code for code, _ in errors(text)] == ["unsupported"]
