"""Declared inputs and results: held against what is written before a run, and against what comes during it."""

import asyncio
from typing import Any

import pytest

from refold.core.plan import Input, Plan, canonical, read_plan
from refold.errors import InvalidValue, NotFound, RunFailed
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.ports import ToolCall
from refold.templates import Templates
from refold.tools.catalog import CATALOG
from refold.wiring import open_engine

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: declared}\n"
ONE = "workflow: [{step: a, tool: {kind: shell, script: x}}]\n"


def loaded(text: str, **files: str) -> Playbook:
    def load(file: str) -> bytes:
        name = file.removesuffix(".yaml")
        if name not in files:
            raise NotFound(f"there is no file {file}")
        return (HEAD + files[name]).encode()

    return read(HEAD + text, "play.yaml", CATALOG, load)


def problems(text: str, **files: str) -> tuple[Problem, ...]:
    try:
        return loaded(text, **files).warnings
    except InvalidPlaybook as refused:
        return refused.problems


def told(text: str, **files: str) -> list[tuple[str, int, int]]:
    assert all(each.hint for each in problems(text, **files))
    return [(f"{each.severity} {each.code}", *each.place) for each in problems(text, **files)]


def run(playbook: Playbook, result: Any = None, **input: Any) -> Any:
    async def shell(call: ToolCall) -> Any:
        return result

    async def running() -> Any:
        async with open_engine({"shell": shell}, evaluate=Templates()) as engine:
            for child in playbook.children:
                await engine.register(child.plan)
            return await asyncio.wait_for(engine.run(playbook.plan, input), 60)

    return asyncio.run(running())


INPUTS = """\
inputs:
  city: {type: string, minLength: 2, required: true}
  days: integer
workload: {days: 3}
"""


def test_inputs_are_read_with_their_schemas() -> None:
    plan = loaded(INPUTS + ONE).plan
    city = Input(name="city", schema={"type": "string", "minLength": 2}, required=True)
    assert plan.inputs == (city, Input(name="days", schema={"type": "integer"}))
    assert read_plan(canonical(plan)).inputs == plan.inputs


def test_a_run_without_a_required_input_is_not_started() -> None:
    with pytest.raises(InvalidValue, match="input `city`: `declared` needs it, and it is not given"):
        run(loaded(INPUTS + ONE))


def test_an_input_of_the_wrong_type_is_refused_by_name_with_its_path() -> None:
    with pytest.raises(InvalidValue, match=r"input `city`: .*: city: 5 is not of type 'string'"):
        run(loaded(INPUTS + ONE), city=5)
    nested = "inputs: {db: {type: object, properties: {ports: {type: array, items: {type: integer}}}}}\n"
    with pytest.raises(InvalidValue, match=r"db.ports\[1\]: 'x' is not of type 'integer'"):
        run(loaded(nested + ONE), db={"ports": [1, "x"]})


def test_what_fits_is_taken_and_what_is_not_declared_is_not_looked_at() -> None:
    assert run(loaded(INPUTS + ONE), "done", city="Oslo", days=1, more=[1]) == "done"


CHILD = INPUTS + "workflow: [{step: b, tool: {kind: noop, result: '{{ city }}'}}]\n"
STARTS = "workload: {place: 5}\nworkflow:\n  - step: go\n    input: %s\n    tool: {kind: playbook, path: child.yaml}\n"

GIVEN = {
    "what is needed is missing": ("{days: 1}", [("error missing-input", 8, 18)]),
    "it cannot fit": ("{city: 5}", [("error wrong-input", 7, 19)]),
    "something deep inside cannot fit": ("{city: Oslo, days: [1]}", [("error wrong-input", 7, 31)]),
    "nobody knows it": ("{city: Oslo, dys: 1}", [("error unknown-input", 7, 25)]),
    "it is computed": ('{city: "{{ place }}"}', []),
    "all is well": ("{city: Oslo, days: 2}", []),
}


@pytest.mark.parametrize(("given", "expected"), GIVEN.values(), ids=GIVEN)
def test_what_a_child_is_given_is_held_against_what_it_declares(
    given: str, expected: list[tuple[str, int, int]]
) -> None:
    assert told(STARTS % given, child=CHILD) == expected


def test_a_child_that_is_given_what_does_not_fit_fails_by_name() -> None:
    playbook = loaded(STARTS % '{city: "{{ place }}"}', child=CHILD)
    with pytest.raises(RunFailed) as failed:
        run(playbook)
    assert failed.value.error.step == "go"
    assert "city: 5 is not of type 'string'" in failed.value.error.fault.message
    assert run(playbook, place="Oslo") == "Oslo"


def test_the_item_of_a_loop_is_what_a_child_is_given() -> None:
    text = "workflow: [{step: go, loop: {in: [Oslo], iterator: city}, tool: {kind: playbook, path: child.yaml}}]"
    assert told(text, child=CHILD) == []


BAD = {
    "a default that does not fit": ("inputs: {days: integer}\nworkload: {days: x}\n", [("error wrong-input", 5, 18)]),
    "required, with a default": (
        "inputs: {days: {type: integer, required: true}}\nworkload: {days: 1}\n",
        [("warning no-effect", 4, 42)],
    ),
    "no type": ("inputs: {days: integr}\n", [("error bad-schema", 4, 16)]),
    "no JSON Schema": ("inputs: {days: {type: integr}}\n", [("error bad-schema", 4, 23)]),
    "a number": ("inputs: {days: 5}\n", [("error wrong-type", 4, 16)]),
    "no name": ("inputs: {a-b: string}\n", [("error bad-name", 4, 10)]),
    "a template": ("inputs: {days: {const: '{{ 1 }}'}}\n", [("error bad-schema", 4, 24)]),
    "no map": ("inputs: [days]\n", [("error wrong-type", 4, 9)]),
}


@pytest.mark.parametrize(("text", "expected"), BAD.values(), ids=BAD)
def test_what_is_wrong_with_declared_inputs_is_told(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert told(text + ONE) == expected


def test_a_declared_input_can_be_read_and_a_misspelt_one_is_told() -> None:
    text = (
        "inputs: {city: {type: string, required: true}}\nworkflow: [{step: a, tool: {kind: noop, result: '{{ %s }}'}}]"
    )
    assert told(text % "city") == told(text % "workload.city") == []
    assert [each.hint for each in problems(text % "workload.cty")] == ["did you mean `workload.city`?"]


def test_an_input_that_nobody_has_to_give_is_read_with_a_warning() -> None:
    text = "inputs: {city: string}\nworkflow: [{step: a, %s}]"
    for read_as in ("city", "workload.city", "input.city"):
        found = problems(text % f"tool: {{kind: noop, result: '{{{{ {read_as} }}}}'}}")
        assert [(each.severity, each.code) for each in found] == [("warning", "maybe-missing")], read_as
        assert found[0].message == "a run may be started without `city`"
    assert told(text % "tool: {kind: noop, result: \"{{ city | default('Oslo') }}\"}") == []
    assert told(text % "input: {city: Oslo}, tool: {kind: noop, result: '{{ city }} {{ input.city }}'}") == []
    assert told("workload: {city: Oslo}\n" + text % "tool: {kind: noop, result: '{{ city }}'}") == []


OUTPUT = """\
workflow:
  - step: a
    tool: {kind: shell, script: x}
    output:
      schema: {type: object, properties: {id: {type: integer}}, required: [id]}
    next: {arcs: [{step: b, on: failure, set: {ctx.why: "{{ error }}"}}]}
  - {step: b, tool: {kind: noop, result: "{{ ctx.why }}"}}
"""


def test_a_result_that_fits_is_the_result() -> None:
    assert run(loaded(OUTPUT), {"id": 5, "more": 1}) == {"id": 5, "more": 1}


def test_a_result_that_does_not_fit_is_a_failure_that_names_the_place() -> None:
    error = run(loaded(OUTPUT), {"id": "5"})
    assert error["kind"] == "schema"
    assert error["message"] == "the result does not fit its schema: result.id: '5' is not of type 'integer'"
    assert error["data"] == [{"path": "$.id", "message": "'5' is not of type 'integer'"}]
    assert run(loaded(OUTPUT), None)["kind"] == "schema"


def test_each_item_of_a_loop_is_held_against_the_schema() -> None:
    text = OUTPUT.replace("    output:", "    loop: {in: [1, 2]}\n    output:")
    assert run(loaded(text), {"id": "5"})["kind"] == "items_failed"
    assert run(loaded(text), {"id": 5}) == [{"id": 5}] * 2


def test_the_tool_does_not_see_the_schema_of_its_result() -> None:
    playbook = loaded(OUTPUT)
    seen: list[Any] = []

    async def shell(call: ToolCall) -> Any:
        seen.append(dict(call.settings))
        return {"id": 1}

    async def running() -> None:
        async with open_engine({"shell": shell}, evaluate=Templates()) as engine:
            await asyncio.wait_for(engine.run(playbook.plan, {}), 60)

    asyncio.run(running())
    assert seen == [{"script": "x"}]


def test_a_promise_that_nobody_keeps_is_told() -> None:
    text = "workflow: [{step: a, tool: {kind: wait, seconds: 1}, output: {schema: {type: object}}}]"
    assert told(text) == [("error no-effect", 4, 54)]
    text = "workflow: [{step: a, output: {schema: {type: objct}}}]"
    assert told(text) == [("error bad-schema", 4, 46)]
    assert problems(text)[0].hint == "did you mean `object`?"


def test_a_plan_without_schemas_is_the_plan_it_was() -> None:
    assert b"inputs" not in canonical(Plan(name="p", steps=()))
