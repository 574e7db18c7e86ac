"""Python in NoETL files: how a result is given, and what the code finds."""

from pathlib import Path
from typing import Any

import pytest

from tests.noetl.house import House, reading


def run(house: House, code: str, keys: str = "", **input: Any) -> Any:
    body = "\n".join(f"        {line}" for line in code.splitlines())
    text = f"""\
workload: {{w: 1}}
workflow:
  - {{step: before, tool: {{kind: noop, result: {{b: 2}}}}, set: {{ctx.c: 3}}, next: {{arcs: [{{step: a}}]}}}}
  - step: a
    tool:
      kind: python
      code: |
{body}
      {keys}
"""
    return house.play(text, input)


@pytest.mark.parametrize(
    "code",
    [
        "result = 5",
        "def main():\n    return 5",
        "async def main():\n    return 5",
        "return 5",
        "def main():\n    return 9\nresult = 5",
    ],
)
def test_a_result_is_assigned_or_returned_and_main_is_not_called_if_it_was(house: House, code: str) -> None:
    assert run(house, code).result == 5


def test_without_a_result_it_is_what_was_printed(house: House) -> None:
    seen = run(house, "import sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert seen.result == {"stdout": "out\n", "stderr": "err\n"}


def test_printed_text_never_reaches_the_result(house: House) -> None:
    assert run(house, "print('noise')\nresult = 1").result == 1


def test_values_are_made_fit_for_json(house: House) -> None:
    code = (
        "import datetime, decimal, uuid\nresult = {'d': datetime.date(2024, 2, 29), "
        "'n': decimal.Decimal('1.10'), 't': (1,), 1: 'k'}"
    )
    found = run(house, code).result
    assert found["d"] == "2024-02-29" and float(found["n"]) == 1.1 and found["t"] == [1]


def test_the_code_finds_its_inputs_ids_and_modules(house: House) -> None:
    code = (
        "result = [x, args['x'], input_data['x'], execution_id, os.sep, json.dumps([1]), bool(uuid.uuid4()), "
        "datetime is not None]"
    )
    seen = run(house, code, "input: {x: 4}")
    assert seen.result == [4, 4, 4, seen.id, "/", "[1]", True, True]


def test_an_input_data_that_the_author_gives_wins(house: House) -> None:
    assert run(house, "result = [input_data, args]", "input: {input_data: {a: 1}}").result == [
        {"a": 1},
        {"input_data": {"a": 1}},
    ]


def test_context_is_a_read_only_map_of_the_scope(house: House) -> None:
    code = """\
result = [context['w'], context['workload']['w'], context['before']['b'], context['before']['data']['b'],
          context['ctx']['c'], context['execution_id'] == execution_id]
try:
    context['x'] = 1
    result.append('changed')
except TypeError:
    result.append('read only')
"""
    assert run(house, code).result == [1, 1, 2, 2, 3, True, "read only"]


def test_main_is_bound_by_name_from_inputs_then_context(house: House) -> None:
    code = "def main(x, w, context, y=7, **rest):\n    return [x, w, context['before']['b'], y, rest]"
    assert run(house, code, "input: {x: 4, z: 5}").result == [4, 1, 2, 7, {"z": 5}]


@pytest.mark.parametrize("signature", ["*args", "missing"])
def test_star_args_and_a_missing_parameter_are_errors(house: House, signature: str) -> None:
    seen = run(house, f"def main({signature}):\n    return 1")
    assert seen.status == "failed"


def test_libs_are_modules_and_names_of_modules_by_alias(house: House) -> None:
    libs = "libs: {m: math, D: {from: decimal, import: Decimal}}"
    assert run(house, "result = [m.floor(1.5), str(D('1.0'))]", libs).result == [1, "1.0"]
    for libs in ("{x: no_such_module}", "[no_such_module]"):
        missing = run(house, "result = 1", f"libs: {libs}")
        assert missing.status == "failed" and "no_such_module" in missing.fault.message


def test_a_list_of_libs_names_packages_that_must_be_there(house: House) -> None:
    assert run(house, "import xdist\nresult = math.floor(1.5)", "libs: [math, pytest-xdist]").result == 1


def test_one_tasks_globals_never_reach_another(house: House) -> None:
    text = """\
workflow:
  - step: a
    tool:
      - {name: one, kind: python, code: "leak = 1\\nresult = 1"}
      - {name: two, kind: python, code: "result = 'leak' in globals()"}
"""
    assert house.play(text).result["two"] is False


def test_an_exception_has_type_message_and_traceback(house: House) -> None:
    seen = run(house, "def main():\n    raise KeyError('gone')")
    assert (seen.fault.type, seen.status) == ("KeyError", "failed")
    assert "gone" in seen.fault.message and "line 2" in seen.fault.traceback


def test_a_name_that_is_bound_may_be_result(house: House) -> None:
    assert run(house, "result = {'again': result['n']}", "input: {result: {n: 1}}").result == {"again": 1}


def test_a_script_is_code_or_a_file_beside_the_playbook(house: House, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "hi.py").write_text("def main(name):\n    return 'hi ' + name\n")
    inline = "workflow: [{step: a, tool: {kind: python, script: {source: {type: inline, code: 'result = 3'}}}}]"
    assert house.play(inline).result == 3
    text = (
        'workload: {file: hi.py}\nworkflow: [{step: a, tool: {kind: python, script: {uri: "{{ file }}", '
        "source: {type: file}}, input: {name: you}}}]"
    )
    shown = house.do(house.run(reading(text, file=str(tmp_path / "play.yaml")).plan))
    assert shown.result == "hi you", shown.error
