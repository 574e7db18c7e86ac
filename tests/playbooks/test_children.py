"""Playbooks that start playbooks: what is read, what the plan gets, and what is refused."""

import pytest

from refold.core.plan import Child, plan_hash
from refold.errors import NotFound
from refold.playbooks.playbook import Playbook, read
from refold.playbooks.problems import InvalidPlaybook
from refold.tools.catalog import CATALOG


def text(name: str, *steps: str, workload: str = "{n: 1}") -> bytes:
    lines = "\n".join(f"  - {step}" for step in steps)
    head = f"apiVersion: refold/v1\nkind: Playbook\nmetadata: {{name: {name}}}\nworkload: {workload}\n"
    return f"{head}workflow:\n{lines}\n".encode()


LEAF = text("leaf", "{step: a}")


def family(top: bytes, **files: bytes) -> Playbook:
    """`top` is plays/top.yaml; the others stand where their names say, with / for __."""
    found = {f"plays/{name.replace('__', '/')}.yaml": data for name, data in files.items()}

    def load(file: str) -> bytes:
        if file not in found:
            raise NotFound(f"there is no file {file}")
        return found[file]

    return read(top, "plays/top.yaml", CATALOG, load)


def refused(top: bytes, **files: bytes) -> list[tuple[str, str]]:
    with pytest.raises(InvalidPlaybook) as caught:
        family(top, **files)
    return [(each.code, each.message) for each in caught.value.problems]


def starts(path: str, more: str = "") -> str:
    return f"{{step: kid, tool: {{kind: playbook, path: {path}}}{more}}}"


def test_a_step_that_starts_a_playbook_has_its_hash_and_gives_its_input() -> None:
    found = family(text("top", starts("leaf.yaml", ', input: {n: "{{ workload.n }}"}')), leaf=LEAF)
    [child] = found.children
    [step] = found.plan.steps
    assert (child.plan.name, child.file) == ("leaf", "plays/leaf.yaml")
    assert (step.work, step.input) == (Child(plan=plan_hash(child.plan)), {"n": "{{ workload.n }}"})


def test_a_path_is_seen_from_the_file_that_names_it_and_each_file_is_read_once() -> None:
    deep = text("deep", starts("../leaf.yaml"))
    top = text("top", starts("sub/deep.yaml", ", next: b"), "{step: b, tool: {kind: playbook, name: leaf}}")
    found = family(top, sub__deep=deep, leaf=LEAF)
    assert [child.file for child in found.children] == ["plays/leaf.yaml", "plays/sub/deep.yaml"]
    leaf, below = (Child(plan=plan_hash(child.plan)) for child in found.children)
    assert [step.work for step in found.plan.steps] == [below, leaf]


def test_a_playbook_may_start_itself() -> None:
    found = family(text("top", starts("./top.yaml")))
    assert (found.plan.steps[0].work, found.children) == (Child(), ())


def test_playbooks_that_start_each_other_are_refused() -> None:
    assert refused(text("top", starts("b.yaml")), b=text("b", starts("top.yaml"))) == [
        (
            "invalid-child",
            "plays/b.yaml:6:46: these playbooks start each other: plays/top.yaml > plays/b.yaml > plays/top.yaml",
        )
    ]


def test_a_child_that_is_not_there_or_not_good_is_told_where_it_is_named() -> None:
    assert refused(text("top", starts("leaf.yaml"))) == [("unreadable-child", "there is no file plays/leaf.yaml")]
    [(code, message)] = refused(text("top", starts("leaf.yaml")), leaf=text("leaf", "{step: a, nex: b}"))
    assert code == "invalid-child" and "plays/leaf.yaml:6:" in message and "`nex`" in message


def test_without_anybody_to_get_files_a_child_cannot_be_read() -> None:
    with pytest.raises(InvalidPlaybook, match="unreadable-child"):
        read(text("top", starts("leaf.yaml")), "top.yaml", CATALOG)


def test_an_input_that_the_workload_of_the_child_does_not_name_is_refused() -> None:
    assert refused(text("top", starts("leaf.yaml", ", input: {m: 1, n: 2}")), leaf=LEAF) == [
        ("unknown-input", "`plays/leaf.yaml` has no input `m`")
    ]
    assert refused(text("top", starts("leaf.yaml", ", loop: {in: [1]}")), leaf=LEAF) == [
        ("unknown-input", "`plays/leaf.yaml` has no input `item`")
    ]


def test_a_loop_gives_its_item_to_each_child_unless_there_is_an_input() -> None:
    looped = family(text("top", starts("leaf.yaml", ", loop: {in: [1, 2], iterator: n}")), leaf=LEAF)
    assert looped.plan.steps[0].input == {"n": "{{ n }}"}
    given = family(text("top", starts("leaf.yaml", ', loop: {in: [1]}, input: {n: "{{ item + 1 }}"}')), leaf=LEAF)
    assert given.plan.steps[0].input == {"n": "{{ item + 1 }}"}


def test_what_no_worker_takes_has_no_limit() -> None:
    codes = [code for code, _ in refused(text("top", starts("leaf.yaml", ", queue: q, limit: x")), leaf=LEAF)]
    assert codes == ["no-effect"]


def test_exactly_one_of_path_and_name_is_given() -> None:
    for keys in ("", ", path: leaf.yaml, name: leaf"):
        [(code, _)] = refused(text("top", f"{{step: a, tool: {{kind: playbook{keys}}}}}"), leaf=LEAF)
        assert code == "bad-tool"
