"""Arcs that are never taken, joins that never fire, and what a tool wants of its step: known before the run."""

import pytest

from refold.playbooks.checks.graph import constant
from refold.playbooks.key_types import READERS
from refold.playbooks.language.playbook import TABLES
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.playbooks.reader.reading import Reading, ReadingOptions
from refold.playbooks.yaml import text as yaml_text
from refold.tools.catalog import CATALOG

HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: arcs}\n"
WAIT = "tool: {kind: wait, seconds: 1}"


def problems(text: str, secrets: list[str] | None = None) -> tuple[Problem, ...]:
    try:
        return read(HEAD + text, "play.yaml", CATALOG, secrets=lambda: secrets).warnings
    except InvalidPlaybook as refused:
        return refused.problems


def told(text: str) -> list[tuple[str, int, int]]:
    assert all(each.hint for each in problems(text))
    return [(f"{each.severity} {each.code}", *each.place) for each in problems(text)]


def arc(arc: str, step: str = WAIT) -> str:
    return f"workflow: [{{step: a, {step}, next: {{arcs: [\n{arc}, {{step: c}}]}}}}, {{step: b}}, {{step: c}}]"


DEAD = {
    "plainly false": (arc("{step: b, when: false}"), [("warning dead-arc", 5, 17)]),
    "false as a template": (arc('{step: b, when: "{{ false }}"}'), [("warning dead-arc", 5, 17)]),
    "a comparison of constants": (arc('{step: b, when: "{{ 1 == 2 }}"}'), [("warning dead-arc", 5, 17)]),
    "a text that says no": (arc("{step: b, when: \"{{ 'no' }}\"}"), [("warning dead-arc", 5, 17)]),
    "behind one that always holds": (
        arc('{step: b, when: "{{ 1 < 2 }}"}').replace("{step: c}]}", "\n{step: c}]}"),
        [("warning dead-arc", 6, 8)],
    ),
    "a failure where nothing can fail": (
        arc("{step: b, on: failure}", "desc: a place to branch"),
        [("warning dead-arc", 5, 15)],
    ),
    "a status that never is": (
        arc("{step: b, when: \"{{ output.status == 'failed' }}\"}"),
        [("warning never-holds", 5, 39)],
    ),
    "the same the other way round": (
        arc("{step: b, when: \"{{ 'success' != output.status }}\"}"),
        [("warning never-holds", 5, 22)],
    ),
    "a block that is never done": (
        'workflow: [{if: "{{ 1 > 2 }}", then: [{step: b}]}]',
        [("warning never-holds", 4, 17)],
    ),
    "a loop that never begins": ("workflow: [{while: false, do: [{step: b}]}]", [("warning never-holds", 4, 20)]),
}


@pytest.mark.parametrize(("text", "expected"), DEAD.values(), ids=DEAD)
def test_an_arc_that_is_never_taken_is_told_where_it_stands(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert told(text) == expected


ALIVE = {
    "a condition that depends": arc('{step: b, when: "{{ visit == 1 }}"}'),
    "a failure of what computes": arc("{step: b, on: failure}", 'set: {ctx.x: "{{ visit }}"}'),
    "a failure of what has a time limit": arc("{step: b, on: failure}", "timeout: 1s"),
    "a status that may be": arc("{step: b, when: \"{{ output.status == 'error' }}\"}"),
    "a loop without end but for its limit": "workflow: [{while: true, max_iterations: 3, do: [{step: b}]}, {step: c}]",
}


@pytest.mark.parametrize("text", ALIVE.values(), ids=ALIVE)
def test_an_arc_that_may_be_taken_is_left_alone(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (None, True),
        (True, True),
        (False, False),
        ("{{ 2 > 1 and not false }}", True),
        ("{{ [] }}", False),
        ("{{ visit }}", None),
        ("{{ 1 / 0 }}", None),
        ("{{ range(3) }}", None),
        ("{{ nosuch( }}", None),
        (["{{ 1 }}"], None),
    ],
)
def test_what_is_the_same_in_every_run_is_computed_before_it(condition: object, holds: bool | None) -> None:
    assert constant(condition) is holds


def test_a_join_does_not_count_arcs_that_are_never_taken() -> None:
    text = (
        "workflow: [{step: a, next: [b, c]}, {step: b, next: {arcs: [{step: d, when: %s}]}}, {step: c, next: d},\n"
        "  {step: d, join: {at_least: 2}}]"
    )
    assert [code for code, _, _ in told(text % "'{{ 1 > 2 }}'")] == ["warning dead-arc", "error join-never"]
    assert told(text % "'{{ visit > 2 }}'") == []


def test_a_join_does_not_count_steps_that_are_never_entered() -> None:
    text = (
        "workflow: [{step: a, next: {spec: {mode: inclusive}, arcs: [{step: b, when: false}, {step: c}]}},\n"
        "  {step: b, next: x}, {step: x, next: d}, {step: c, next: d}, {step: d, join: {at_least: 2}}]"
    )
    assert ("error join-never", 5, 79) in told(text)


@pytest.mark.parametrize(("strict", "severity"), [(True, "error"), (False, "warning")])
def test_what_a_run_would_just_skip_is_an_error_only_in_the_strict_language(strict: bool, severity: str) -> None:
    reading = Reading("a", TABLES, READERS, ReadingOptions(strict=strict))
    reading.useless(yaml_text.read("a", "f"), "unreachable-step", "nothing leads here", "take it away")
    assert [each.severity for each in reading.problems] == [severity]


def python(code: str, input: str = "{}") -> str:
    lines = "".join(f"        {line}\n" for line in code.splitlines())
    return f"workflow:\n  - step: a\n    input: {input}\n    tool:\n      kind: python\n      code: |\n{lines}"


def test_a_parameter_of_main_that_nothing_binds_is_a_missing_input() -> None:
    found = problems(python("import os\ndef main(city, days, /, *, unit='C'):\n    return 1", "{city: Oslo}"))
    assert found == ()  # by position: the tool itself refuses that
    text = python("import os\ndef main(city, days, *, unit, sort='up', **more):\n    return 1", "{city: Oslo}")
    assert told(text) == [("error missing-input", 11, 24), ("error missing-input", 11, 33)]
    assert problems(text)[0].message == "main() needs 'days', and the input of the step does not have it"


BOUND = {
    "by the input": python("def main(city):\n    return city", "{city: Oslo}"),
    "by what code is always offered": python("def main(context, input, step, attempt):\n    return 1"),
    "by a default": python("async def main(city='Oslo'):\n    return city"),
    "in code that gives its result otherwise": python("def main(city):\n    return city\nresult = main(1)"),
    "in a function inside": python("def other():\n    def main(x):\n        return x\nreturn 1"),
    "by the item of a loop": python("def main(item, loop_index):\n    return item").replace(
        "    input: {}", "    loop: {in: [1]}"
    ),
    "by the input of the tool": python("def main(city):\n    return city").replace(
        "      kind: python", "      kind: python\n      input: {city: Oslo}"
    ),
}


@pytest.mark.parametrize("text", BOUND.values(), ids=BOUND)
def test_parameters_that_are_bound_are_left_alone(text: str) -> None:
    assert told(text) == []


SECRET = """\
workflow:
  - step: a
    tool:
      kind: http
      url: https://x.test
      headers: {x-token: {secret: tokn}}
"""


def test_a_secret_that_no_provider_has_is_told() -> None:
    found = problems(SECRET, ["token"])
    assert ("unknown-secret", (9, 35)) in [(each.code, each.place) for each in found]
    assert "did you mean `token`?" in [each.hint for each in found]


def test_secrets_are_not_checked_where_it_is_not_known_which_there_are() -> None:
    assert [each.code for each in problems(SECRET) if each.code == "unknown-secret"] == []
    assert [each.code for each in problems(SECRET, ["tokn"]) if each.code == "unknown-secret"] == []


def test_a_secret_in_a_template_is_found_where_its_name_stands() -> None:
    text = SECRET.replace("{secret: tokn}", '"Bearer {{ secrets.tokn }}"')
    found = [each for each in problems(text, ["token"]) if each.code == "unknown-secret"]
    assert [(each.place, each.length) for each in found] == [((9, text.splitlines()[5].index("tokn") + 1), 4)]


UNBOUND = """\
workload: {a: 1}
workflow:
  - step: x
    tool: {kind: python, code: "CODE"}
    set: {ctx.c: 1}
    next: y
  - step: y
    input: {a: "{{ a }}"}
    tool: {kind: python, code: "CODE"}
"""


def test_code_that_reads_a_name_of_the_run_without_being_given_it_is_told() -> None:
    found = [each for each in problems(UNBOUND.replace("CODE", "return a + c")) if each.code == "unbound-name"]
    assert [(each.place.line, each.message.split("`")[1], each.severity) for each in found] == [
        (7, "a", "warning"),
        (7, "c", "warning"),
        (12, "c", "warning"),
    ]
    assert found[0].hint == 'add `input: {a: "{{ a }}"}`'


@pytest.mark.parametrize(
    "code",
    ["a = 2; return a", "import a; return a", "return [a for a in (1, 2)]", "return (lambda a: a)(1)", "return b"],
)
def test_names_that_the_code_binds_itself_are_its_own(code: str) -> None:
    assert [each for each in problems(UNBOUND.replace("CODE", code)) if each.code == "unbound-name"] == []
