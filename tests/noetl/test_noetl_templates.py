"""Templates in NoETL files: types that stay, names that lead nowhere, and texts that are rendered once."""

from typing import Any

import pytest

from tests.noetl.house import House, errors, problems

THREE = """\
workload: {v: 0}
workflow:
  - {step: one, tool: {kind: noop, result: {v: "{{ v }}"}}, set: {ctx.v: "{{ output.v }}"}, next: {arcs: [{step: two,
      input: {v: "{{ one.v }}"}}]}}
  - {step: two, tool: {kind: python, input: {w: "{{ ctx.v }}"},
      code: "result = {'v': v, 'w': w, 'type': type(v).__name__}"}, next: {arcs: [{step: three}]}}
  - {step: three, tool: {kind: noop, result: ["{{ two.v }}", "{{ two.w }}", "{{ two.data.v }}", "{{ v }}",
      "{{ two.type }}"]}}
"""


@pytest.mark.parametrize(
    "value",
    [
        "007",
        "1e5",
        "",
        None,
        2**63,
        "true",
        "null",
        "[1]",
        "{a: 1}",
        0,
        False,
        1.0,
        [],
        {},
        "{{ 7*7 }}",
        "{% raw %}",
        " x ",
    ],
)
def test_a_value_keeps_its_type_through_three_steps(house: House, value: Any) -> None:
    found = house.play(THREE, {"v": value}).result
    assert found == [value, value, value, value, type(value).__name__]
    assert [type(each) for each in found[:4]] == [type(value)] * 4


def test_one_expression_keeps_its_type_and_a_longer_text_stays_text(house: House) -> None:
    text = """\
workload: {n: 5, none: null, yes: true, l: [1], m: {a: 1}}
workflow:
  - step: a
    tool:
      kind: noop
      result: ["{{ n }}", "n {{ n }}", "{{ n }}{{ n }}", "{{none}}", "x{{ none }}y", "{{ nothing }}",
          "x{{ nothing }}y", "{{ yes }}", "{{ l }}", "{{ m }}", "5", "{{ n ~ '' }}"]
"""
    assert house.play(text).result == [5, "n 5", "55", None, "xy", None, "xy", True, [1], {"a": 1}, "5", "5"]


def test_undefined_is_chainable_and_falsy(house: House) -> None:
    text = """\
workflow:
  - step: a
    next: {arcs: [{step: b, when: "{{ a.b.c.d }}"}, {step: c,
        when: "{{ not x.y and x.y is not defined and (x.y | default(3)) == 3 }}"}]}
  - {step: b}
  - {step: c, tool: {kind: noop, result: "{{ x.y[0].z }}"}}
"""
    seen = house.play(text)
    assert seen.lives["c"] == "completed" and seen.result is None


@pytest.mark.parametrize("name", ["items", "keys", "values", "get"])
def test_a_key_of_a_map_comes_before_its_method(house: House, name: str) -> None:
    text = f"""\
workflow:
  - {{step: a, tool: {{kind: noop, result: {{{name}: [1, 2], b: 3}}}}, next: {{arcs: [{{step: c,
      when: "{{{{ a.{name} | length == 2 }}}}"}}]}}}}
  - {{step: c, tool: {{kind: noop, result: "{{{{ a.{name} }}}}"}}}}
"""
    assert house.play(text).result == [1, 2]


def test_methods_of_a_map_are_there_when_no_key_has_their_name(house: House) -> None:
    text = """\
workload: {m: {a: 1}}
workflow: [{step: a, tool: {kind: noop, result: ["{{ m.items() | list }}", "{{ m.keys() | list }}",
    "{{ m.values() | list }}", "{{ m.get('b', 7) }}"]}}]
"""
    assert house.play(text).result == [[["a", 1]], ["a"], [1], 7]


def test_filters_and_tests_beyond_plain_jinja_work_as_in_noetl(house: House) -> None:
    text = """\
workload: {t: "a,b", m: {a: 1}, j: '{"x": [1]}'}
workflow:
  - step: a
    tool:
      kind: noop
      result:
        - "{{ 'hé' | b64encode }}"
        - "{{ 'aMOp' | b64decode }}"
        - "{{ m | tojson }}"
        - "{{ (j | fromjson).x }}"
        - "{{ t | split(',') }}"
        - "{{ m | keys | list }}"
        - "{{ m | values | list }}"
        - "{{ m | items | list }}"
        - "{{ m | get('a') }}"
        - "{{ t | safe }}"
        - "{{ [t is defined, q is undefined, none is none, t is string, 1 is number, [1] is sequence, m is mapping] }}"
"""
    assert house.play(text).result == [
        "aMOp", "hé", '{"a":1}', [1], ["a", "b"], ["a"], [1], [["a", 1]], 1, "a,b", [True] * 7,
    ]  # fmt: skip


def test_statements_are_rendered_as_text(house: House) -> None:
    text = """\
workload: {names: [a, b]}
workflow:
  - step: a
    tool:
      kind: noop
      result: |-
        {% for name in names -%}
        {{ loop.index0 }}{{ name }}{% if not loop.last %},{% endif %}
        {%- endfor %}
"""
    assert house.play(text).result == "0a,1b"


def test_a_rendering_is_never_rendered_again(house: House) -> None:
    text = """\
workload: {evil: "{{ 7*7 }}"}
workflow:
  - {step: a, tool: {kind: noop, result: "{{ evil }}"}, set: {ctx.e: "{{ output }}"}, next: {arcs: [{step: b}]}}
  - step: b
    tool:
      - {name: x, kind: noop, result: {t: "<{{ ctx.e }}>"}, set: {v: "{{ output.t }}"}}
      - {name: y, kind: python, input: {t: "{{ v }}"}, code: "result = {'t': t, 'in_code': '''{{ ctx.e }}'''}"}
"""
    found = house.play(text, {"evil": "{{ 7*7 }}"}).results["b"]["y"]
    assert found == {"t": "<{{ 7*7 }}>", "in_code": "{{ 7*7 }}"}


def test_code_and_sql_are_templates_like_any_other_text(house: House) -> None:
    text = """\
workload: {n: 3, table: t}
workflow:
  - {step: code, tool: {kind: python, code: "result = {{ n }} + 1"}, next: {arcs: [{step: sql}]}}
  - {step: sql, tool: {kind: duckdb, command: "SELECT {{ n }} + 1 AS m, '{{ table }}' AS t"}}
"""
    seen = house.play(text)
    assert seen.results["code"] == 4 and seen.results["sql"]["rows"] == [{"m": 4, "t": "t"}]


def test_a_template_error_in_a_tool_fails_the_step_with_the_key_and_the_expression(house: House) -> None:
    seen = house.play(
        'workflow: [{step: a, tool: {kind: http, url: "http://127.0.0.1:9/", headers: {x: "{{ 1 / 0 }}"}}}]'
    )
    assert seen.status == "failed" and seen.fault.kind == "expression"
    assert "headers" in seen.fault.message and "1 / 0" in seen.fault.message


def test_a_template_that_cannot_be_read_is_an_error_with_its_place() -> None:
    found = [
        each
        for each in problems('workflow: [{step: a, tool: {kind: noop, result: "{{ 1 + }}"}}]')
        if each.severity == "error"
    ]
    assert [each.code for each in found] == ["template-syntax"] and found[0].place.line == 4
    assert [
        code for code, _ in errors('workflow: [{step: a, next: {arcs: [{step: a, when: "{{ x | nofilter }}"}]}}]')
    ] != []


def test_tojson_takes_dates_and_decimals_of_a_database(house: House) -> None:
    text = """\
workflow:
  - {step: a, tool: {kind: duckdb,
      command: "SELECT DATE '2024-02-29' AS d, 1.10::DECIMAL(10,2) AS n, '6b1d2f3e-0000-4000-8000-000000000001'::UUID"},
      next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: noop, result: "{{ a.rows[0] | tojson }}"}}
"""
    found = house.play(text).result
    assert "2024-02-29" in found and "1.1" in found and "6b1d2f3e" in found
