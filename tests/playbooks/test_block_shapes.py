"""Blocks as they are written: what is said of those that make no sense, and what people see of them."""

import pytest
from jsonschema import Draft202012Validator

from refold.playbooks import draw
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.playbooks.schema import schema
from refold.playbooks.yaml.text import read as read_yaml
from refold.sources.catalog import CATALOG as SOURCES
from refold.tools.catalog import CATALOG
from tests.playbooks.test_blocks import BAD, FAILING, HEAD, STUCK, WAITING, places, told, warned

VALIDATOR = Draft202012Validator(schema(CATALOG, SOURCES))

BROKEN = {
    "an arc out of a block": (
        'workflow: [{while: "{{ visit < 2 }}", do: [{step: a, next: b}]},\n  {step: b}]',
        [("leaves-block", 4, 60)],
    ),
    "an arc into a block": (
        'workflow: [{step: s, next: {arcs: [{step: w, when: "{{ visit < 2 }}"}, {step: a}]}},\n'
        '  {while: "{{ visit < 2 }}", name: w, do: [{step: a}]}]',
        [("enters-block", 4, 79), ("side-entry", 4, 79)],
    ),
    "an arc from one branch into another": (
        "workflow: [{parallel: p, branches: [[{step: a, next: b}],\n  [{step: b}]]}]",
        [("leaves-block", 4, 54)],
    ),
    "a block that nothing leads to": (
        'workflow: [{step: a},\n  {while: "{{ visit < 2 }}", do: [{step: b}, {step: c}]}, {step: d}]',
        [("unreachable-step", 5, 11)],
    ),
    "a name that a step has": (
        'workflow: [{if: "{{ visit < 2 }}", name: a, then: [{step: b}], next: c},\n  {step: c}, {step: a}]',
        [("duplicate-step", 5, 21), ("unreachable-step", 5, 21)],
    ),
    "more branches wanted than there are": (
        "workflow: [{parallel: p, branches: {a: [{step: a}]}, min_success: 2}]",
        [("out-of-range", 4, 67)],
    ),
    "fail_fast where nothing can fail": (
        "workflow: [{parallel: p, branches: {a: [{step: a}]}, min_success: 0, fail_fast: true}]",
        [("no-effect", 4, 70)],
    ),
    "a misspelt key": (
        "workflow: [{parallel: p, branches: {a: [{step: a}]}, fail_fats: true}]",
        [("unknown-key", 4, 54)],
    ),
    "a branch that is a map": ("workflow: [{parallel: p, branches: {a: {step: a}}}]", [("wrong-type", 4, 40)]),
    "a branch with a bad name": ("workflow: [{parallel: p, branches: {A: [{step: a}]}}]", [("bad-name", 4, 37)]),
    "no branches": ("workflow: [{parallel: p, branches: {}}]", [("wrong-type", 4, 36)]),
    "an empty body": ('workflow: [{while: "{{ visit < 2 }}", do: []}]', [("wrong-type", 4, 43)]),
    "no body": ('workflow: [{until: "{{ visit < 2 }}"}]', [("missing-key", 4, 12)]),
    "a step inside that runs at the end": (
        'always: [b]\nworkflow: [{if: "{{ visit < 2 }}", then: [{step: a}, {step: b}]}]',
        [("finalizer-block", 4, 10)],
    ),
    "a block that runs at the end": (
        'always: [w]\nworkflow: [{step: a}, {while: "{{ visit < 2 }}", name: w, do: [{step: b}]}]',
        [("finalizer-block", 4, 10)],
    ),
    "an unknown name in a condition": (
        'workflow: [{while: "{{ nosuch < 2 }}", do: [{step: b}]}]',
        [("unknown-name", 4, 24)],
    ),
    "what watches is not an expression": (
        'workflow: [{while: "{{ visit < 2 }}", do: [{step: b}], stuck_after: 2, stuck_on: b}]',
        [("wrong-type", 4, 82)],
    ),
}


@pytest.mark.parametrize(("text", "expected"), BROKEN.values(), ids=BROKEN)
def test_what_makes_no_sense_is_told_with_its_place(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert places(text) == expected


SHAPES = (
    "a misspelt key",
    "a branch that is a map",
    "a branch with a bad name",
    "no branches",
    "an empty body",
    "no body",
)


@pytest.mark.parametrize("name", SHAPES)
def test_the_schema_refuses_a_block_that_is_shaped_otherwise(name: str) -> None:
    assert not VALIDATOR.is_valid(read_yaml(HEAD + BROKEN[name][0], "f").value)


@pytest.mark.parametrize("text", [STUCK % (1, ""), FAILING % (BAD, BAD, "fail_fast: true"), WAITING % ("", BAD, BAD)])
def test_the_schema_takes_what_the_reader_takes(text: str) -> None:
    assert VALIDATOR.is_valid(read_yaml(HEAD + text, "f").value)


def test_a_block_is_drawn_with_readable_names_and_says_nothing_of_how_it_is_made() -> None:
    playbook = warned('workflow: [{while: "{{ visit < 2 }}", name: spin, max_iterations: 5, do: [{step: a}]}]')
    drawn = draw.draw(playbook.plan)
    assert "only if" not in drawn
    assert [line.split()[-1 if "·" not in line else 1] for line in drawn.splitlines() if "spin.begin" in line] == [
        "spin.begin"
    ]
    assert "spin.check  ·       → spin.pass if visit < 2" in drawn
    assert "↺ spin.check" in drawn
    assert "{{" not in draw.mermaid(playbook.plan).replace('{{"spin', "").replace('"}}', "")


def test_the_place_of_a_made_step_is_that_of_its_block() -> None:
    playbook = warned('workflow:\n  - while: "{{ visit < 2 }}"\n    do: [{step: a}]\n')
    assert playbook.places["steps.while_1.check"] == (5, 12)


def test_a_block_without_a_result_says_so_when_it_is_read() -> None:
    text = (
        'workflow: [{while: "{{ visit < 2 }}", name: spin, do: [{step: a}]},'
        ' {step: b, tool: {kind: noop, result: "{{ spin }}"}}]'
    )
    with pytest.raises(InvalidPlaybook) as refused:
        read(HEAD + text, "play.yaml", CATALOG)
    assert [each.hint for each in refused.value.problems] == [
        "`spin` is a block without a result of its own; read the steps inside it"
    ]


def test_blocks_that_would_be_made_of_too_many_arcs_are_refused() -> None:
    arcs = ",".join(['{step: x, on: failure, when: "{{ visit > 1 }}"}'] * 400)
    steps = ",".join(f"{{step: a{number}}}" for number in range(400))
    text = f'workflow: [{{while: "{{{{ visit < 2 }}}}", do: [{steps}], next: {{arcs: [{arcs}]}}}}, {{step: x}}]'
    assert [code for code, _ in told(text)] == ["too-large"]


def test_made_up_names_avoid_those_that_are_given() -> None:
    text = 'workflow: [{if: "{{ visit < 2 }}", then: [{step: if_1}]}, {if: "{{ visit < 2 }}", then: [{step: a}]}]'
    names = [step.name for step in warned(text).plan.steps]
    assert names == ["if_2.choose", "if_1", "if_3.choose", "a"]
