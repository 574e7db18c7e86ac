"""Playbooks that start workflows written in Python: how these are named, what the plan gets, and what is refused."""

from typing import Any

import pytest

from refold import Context, StartEvent, StopEvent, Workflow, flow, step
from refold.core.plan import Child, plan_hash
from refold.errors import NotFound
from refold.playbooks.children import names_code
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook
from refold.playbooks.python_workflows import PythonWorkflow
from refold.python.definition import define
from refold.python.load import describe
from refold.stages import Pipeline, Stage
from refold.tools.catalog import CATALOG


class Begin(StartEvent):
    count: int
    tags: list[str] = []  # noqa: RUF012


class Below(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


class Crawl(Workflow):
    children = (Below,)

    @step
    async def only(self, ev: Begin) -> StopEvent:
        return StopEvent(result=ev.count)


@flow
async def greet(ctx: Context, who: str, greeting: str = "hello") -> str:
    return f"{greeting} {who}"


@flow
async def takes_all(ctx: Context, **rest: Any) -> int:
    return len(rest)


line = Pipeline("line", [Stage("first", Below)])

WORKFLOWS = {"Crawl": Crawl, "greet": greet, "takes_all": takes_all, "line": line}


def find(target: str) -> PythonWorkflow:
    """All of them are in plays/shop.py."""
    module, _, name = target.partition(":")
    if module != "plays/shop" or name not in WORKFLOWS:
        raise NotFound(f"there is no {target}")
    return describe(define(WORKFLOWS[name], target))


def text(*steps: str) -> str:
    lines = "\n".join(f"  - {step}" for step in steps)
    return f"apiVersion: refold/v1\nkind: Playbook\nmetadata: {{name: top}}\nworkload: {{n: 1}}\nworkflow:\n{lines}\n"


def good(*steps: str) -> Playbook:
    return read(text(*steps), "plays/top.yaml", CATALOG, code=find)


def refused(*steps: str) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidPlaybook) as caught:
        good(*steps)
    return [(each.code, each.message, each.hint) for each in caught.value.problems]


def starts(name: str, more: str = "") -> str:
    return f'{{step: kid, tool: {{kind: playbook, path: "shop:{name}"}}{more}}}'


@pytest.mark.parametrize("name", ["Crawl", "greet", "takes_all", "line"])
def test_a_class_a_flow_and_a_pipeline_can_be_named_in_the_place_of_a_file(name: str) -> None:
    given = {"Crawl": ", input: {count: 3}", "greet": ", input: {who: Ada}"}.get(name, "")
    found = good(starts(name, given))
    assert found.plan.steps[0].work == Child(plan=define(WORKFLOWS[name]).hash)
    assert found.code == (f"plays/shop:{name}",)


def test_all_that_the_code_may_start_is_known_with_it() -> None:
    found = good(starts("Crawl", ", input: {count: 3}"))
    assert [(child.plan.name, child.file) for child in found.children] == [
        ("Crawl", "plays/shop:Crawl"),
        ("Below", "plays/shop:Crawl"),
    ]


def test_each_item_of_a_loop_can_be_a_run_of_code() -> None:
    found = good('{step: kid, loop: {in: [Ada], iterator: who, workflow: "shop:greet"}}')
    [kid] = found.plan.steps
    assert (kid.work, kid.input) == (Child(plan=define(greet).hash), {"who": "{{ who }}"})
    inside = good(
        '{step: kid, loop: {in: [Ada]}, tool: {kind: playbook, path: "shop:greet", input: {who: "{{ item }}"}}}'
    )
    assert inside.plan.steps[0].input == {"who": "{{ item }}"}


def test_one_of_several_tasks_can_start_code() -> None:
    tasks = '[{name: a, kind: noop}, {name: b, kind: playbook, path: "shop:greet", input: {who: Ada}}]'
    found = good(f"{{step: kid, tool: {tasks}}}")
    work: Any = found.plan.steps[0].work
    assert work.tasks[1].child.plan == define(greet).hash
    assert found.code == ("plays/shop:greet",)


def test_a_module_is_seen_from_the_file_that_names_it_and_asked_for_once() -> None:
    asked: list[str] = []

    def code(target: str) -> PythonWorkflow:
        asked.append(target)
        return describe(define(takes_all, target))

    below = text(starts("f", ", next: again"), '{step: again, tool: {kind: playbook, path: "../shop:f"}}')
    top = text("{step: a, tool: {kind: playbook, path: sub/below.yaml}, next: b}", starts("f").replace("kid", "b"))
    found = read(top, "plays/top.yaml", CATALOG, lambda file: below.encode(), code=code)
    assert asked == ["plays/sub/shop:f", "plays/shop:f"]
    assert found.code == tuple(asked)
    assert plan_hash(found.children[1].plan) == define(takes_all).hash


def test_code_is_not_asked_for_where_none_is_named() -> None:
    def code(target: str) -> PythonWorkflow:
        raise AssertionError(target)

    assert read(text("{step: a}"), "top.yaml", CATALOG, code=code).code == ()


@pytest.mark.parametrize(
    ("name", "is_code"),
    [
        ("shop:Crawl", True),
        ("shop.orders:Order.inner", True),
        ("../plays/shop:Crawl", True),
        ("shop:play.yaml", False),
        ("shop.yaml", False),
        ("shop", False),
        ("shop:", False),
        (":Crawl", False),
        ("shop:Crawl now", False),
        ("shop:Crawl/x", False),
        ("http://x/y:z", False),
    ],
)
def test_what_is_code_is_seen_from_its_name(name: str, is_code: bool) -> None:
    assert names_code(name) is is_code


def test_code_that_is_not_there_is_told_where_it_is_named() -> None:
    with pytest.raises(InvalidPlaybook) as caught:
        good(starts("Nothing"))
    [problem] = caught.value.problems
    assert problem.message == "there is no plays/shop:Nothing"
    assert (problem.code, problem.place.line, problem.place.column) == ("unreadable-child", 6, 46)
    assert problem.length == len('"shop:Nothing"')
    assert "module:Class" in problem.hint


def test_without_anybody_to_load_code_none_can_be_named() -> None:
    with pytest.raises(InvalidPlaybook, match="`plays/shop:Crawl` is code, which is not loaded from here"):
        read(text(starts("Crawl")), "plays/top.yaml", CATALOG)


def test_inputs_that_are_missing_or_unknown_are_told_by_name() -> None:
    assert refused(starts("greet", ", input: {whom: Ada}")) == [
        ("missing-input", "`plays/shop:greet` needs the input `who`", "add `input: {who: …}`"),
        ("unknown-input", "`plays/shop:greet` has no input `whom`", "did you mean `who`?"),
    ]
    assert refused(starts("Crawl")) == [
        ("missing-input", "`plays/shop:Crawl` needs the input `count`", "add `input: {count: …}`")
    ]
    [(code, message, _), _] = refused('{step: kid, loop: {in: [Ada], workflow: "shop:greet"}}')
    assert (code, message) == ("unknown-input", "`plays/shop:greet` has no input `item`")


def test_a_workflow_that_takes_any_input_gets_it_and_one_that_declares_its_inputs_takes_no_others() -> None:
    assert "a" in (good(starts("takes_all", ", input: {a: 1}")).plan.steps[0].input or {})
    [(code, message, _)] = refused(starts("Crawl", ", input: {count: 1, a: 2}"))
    assert (code, message) == ("unknown-input", "`plays/shop:Crawl` has no input `a`")


def test_a_value_that_is_written_out_is_held_against_what_is_declared() -> None:
    [(code, message, _)] = refused(starts("Crawl", ", input: {count: three}"))
    assert code == "wrong-input"
    assert message == "`plays/shop:Crawl` does not take this as `count`: int is declared, and this is a str"
    [(_, message, _)] = refused(starts("Crawl", ", input: {count: 3, tags: [a, 1]}"))
    assert message.endswith("`tags`: tags[1]: str is declared, and this is an int")
    assert good(starts("Crawl", ', input: {count: "{{ workload.n }}", tags: [a]}'))


def test_what_no_worker_takes_has_no_limit() -> None:
    [(code, _, hint)] = refused(starts("takes_all", ", limit: x"))
    assert (code, hint) == ("no-effect", "give it to the steps of the child")
