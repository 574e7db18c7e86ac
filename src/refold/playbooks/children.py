"""Playbooks that start others, or Python workflows: each is read once, and no file leads back to one that led to it."""

import os
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from refold.core.pipeline import Started
from refold.core.plan import Child, Plan, plan_hash
from refold.errors import RefoldError
from refold.playbooks.inputs import check_given
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.playbooks.python_workflows import Code, Coded, check_coded
from refold.playbooks.reader.reading import Fields, Reading, Secrets
from refold.playbooks.reader.templates import holds_secret
from refold.playbooks.yaml.text import Node

Load = Callable[[str], bytes]
"""The text of a file; raises a RefoldError that says why not."""

SUFFIXES = (".yaml", ".yml")
DEEPEST = 100  # files that lead to one another
WRITTEN_SO = "a workflow in Python is written `module:Class`, seen from the folder of this file"
IDLE = {
    "queue": "give it to the steps of the child",
    "priority": "give it to the steps of the child",
}


class Readable(Protocol):
    """A playbook that was read."""

    @property
    def plan(self) -> Plan: ...


P = TypeVar("P", bound=Readable)


class Family(Generic[P]):
    """The files that are being read, from the first one down, and those that were."""

    def __init__(
        self,
        load: Load | None,
        read: Callable[[bytes, str, "Family[P]"], P],
        secrets: Secrets | None = None,
        code: Code | None = None,
    ) -> None:
        self.load, self._read, self.secrets, self._code = load, read, secrets, code
        self.above: list[str] = []
        self.known: dict[str, P] = {}
        self.coded: dict[str, Coded] = {}

    def child(self, reading: Reading, node: Node, file: str) -> tuple[str, Plan] | None:
        """The file as it is known here, and its plan; says what is wrong with it."""
        there = self._seen_from_here(file)
        if there in self.above:
            self._refuse_circle(reading, node, there)
            return None
        if there not in self.known and not self._get(reading, node, there):
            return None
        return there, self.known[there].plan

    def workflow(self, reading: Reading, node: Node) -> Coded | None:
        """The Python workflow that is named there; says what is wrong with it."""
        there = self._seen_from_here(node.value)
        if there not in self.coded:
            if self._code is None:
                message = f"`{there}` is code, which is not loaded from here"
                reading.at(node, "unreadable-child", message, "name a playbook")
                return None
            try:
                self.coded[there] = self._code(there)
            except RefoldError as error:
                reading.at(node, "unreadable-child", str(error), WRITTEN_SO)
                return None
        return self.coded[there]

    def is_itself(self, file: str) -> bool:
        return self._seen_from_here(file) == self.above[-1]

    def folder(self) -> str:
        """Of the file that is being read."""
        return os.path.abspath(os.path.dirname(self.above[-1]))

    def begin(self, file: str) -> None:
        self.above.append(os.path.normpath(file))

    def end(self) -> None:
        self.above.pop()

    def named(self, name: str) -> str:
        """The file beside this one that has the name."""
        files = [name + suffix for suffix in SUFFIXES]
        return next((file for file in files if self._is_there(self._seen_from_here(file))), files[0])

    def is_readable(self, file: str) -> bool:
        return self._is_there(self._seen_from_here(file))

    def _seen_from_here(self, file: str) -> str:
        return os.path.normpath(os.path.join(os.path.dirname(self.above[-1]), file))

    def _is_there(self, file: str) -> bool:
        try:
            return file in self.known or (self.load is not None and self.load(file) is not None)
        except RefoldError:
            return False

    def _get(self, reading: Reading, node: Node, file: str) -> bool:
        if self.load is None or len(self.above) >= DEEPEST:
            reading.at(node, "unreadable-child", f"`{file}` cannot be read from here", "put the steps into this file")
            return False
        try:
            self.known[file] = self._read(self.load(file), file, self)
        except InvalidPlaybook as error:
            first = next(each for each in error.problems if each.severity == "error")
            where = f"{file}:{first.place.line}:{first.place.column}"
            reading.at(node, "invalid-child", f"{where}: {first.message}", f"`refold validate {file}` says more")
            return False
        except RefoldError as error:
            reading.at(node, "unreadable-child", str(error), "a path is seen from the folder of this file")
            return False
        return True

    def _refuse_circle(self, reading: Reading, node: Node, there: str) -> None:
        circle = " > ".join([*self.above[self.above.index(there) :], there])
        reading.at(node, "circle", f"these playbooks start each other: {circle}", "a playbook may start only itself")


def names_code(text: str) -> bool:
    """Whether it is `module:Class`, with or without a folder before it, and no file."""
    module, sign, name = text.partition(":")
    words = [*module.rpartition("/")[2].split("."), *name.split(".")]
    return bool(sign) and not text.endswith(SUFFIXES) and all(word.isidentifier() for word in words)


def started_of(reading: Reading, family: Family[Any], keys: Mapping[str, Node]) -> Started:
    """A child that is one of several tasks of a step."""
    node = keys.get("path") or keys.get("name")
    if node is None or not isinstance(node.value, str):
        return Started(plan="")  # that was told
    if "path" in keys and names_code(node.value):
        coded = family.workflow(reading, node)
        return Started(plan="" if coded is None else plan_hash(coded.plans[0]), path=node.value)
    file = node.value if "path" in keys else family.named(node.value)
    found = None if family.is_itself(file) else family.child(reading, node, file)
    return Started(plan="" if found is None else plan_hash(found[1]), path=node.value)


def read_child(reading: Reading, step: Fields, family: Family[Any], keys: Mapping[str, Node]) -> Child:
    """The work of a step that starts a playbook."""
    for name, hint in IDLE.items():
        if name in step.node.nodes:
            reading.at_key(step.node, name, "no-effect", f"`{name}` has no effect on a child", hint)
    node = keys.get("path") or keys.get("name")
    if node is None or not isinstance(node.value, str):
        return Child()  # that was told
    if "path" in keys and names_code(node.value):
        return _read_coded(reading, step, family, node)
    file = node.value if "path" in keys else family.named(node.value)
    if family.is_itself(file):
        return Child()
    found = family.child(reading, node, file)
    if found is None:
        return Child()
    _check_inputs(reading, step, *found)
    return Child(plan=plan_hash(found[1]))


def _read_coded(reading: Reading, step: Fields, family: Family[Any], node: Node) -> Child:
    coded = family.workflow(reading, node)
    if coded is None:
        return Child()
    check_coded(reading, step, coded)
    return Child(plan=plan_hash(coded.plans[0]))


def read_body(reading: Reading, step: Fields, family: Family[Any]) -> Child | None:
    """The playbook of which each item of a loop is a run, if the loop names one."""
    loop: Fields | None = step.get("loop")
    if loop is None or "workflow" not in loop.told:
        return None
    node: Node = loop.node.nodes["workflow"]
    if "tool" in step.node.nodes:
        message = "each item is a run of `workflow`, and the step has a `tool` too"
        reading.at_key(loop.node, "workflow", "given-twice", message, "leave one of them out")
        return None
    if step.get("step") in reading.sealed:
        message = "what comes of a run is not stored encrypted"
        reading.at_key(step.node, "output", "no-effect", message, f"declare it in the steps of {node.value}")
    if holds_secret(step.get("input")):
        message = "a secret cannot be given to a run: its input is kept as it is"
        hint = f"let the steps of {node.value} name the secret themselves"
        reading.at_key(step.node, "input", "bad-secret", message, hint)
    return read_child(reading, step, family, {"path": node})


def _check_inputs(reading: Reading, step: Fields, file: str, plan: Plan) -> None:
    """What the child does not name in its workload it would never read."""
    holders = [holder for holder in (step.node, step.get("tool")) if holder is not None]
    given = [holder.nodes["input"] for holder in holders if "input" in holder.nodes]
    names = [(name, node.place_of(name)) for node in given if isinstance(node.value, dict) for name in node.nodes]
    named = list(dict.fromkeys([*plan.defaults, *(each.name for each in plan.inputs)]))
    check_given(reading, step, file, plan)
    loop: Fields | None = step.get("loop")
    if not names and loop is not None:
        names = [(loop.get("iterator", "item"), loop.node.place)]
    for name, place in names:
        if name not in named:
            known = ", ".join(f"`{each}`" for each in named)
            hint = f"its workload names {known}" if known else f"add `workload: {{{name}: …}}` to {file}"
            message = f"`{file}` has no input `{name}`"
            reading.say(Problem("unknown-input", message, place, hint, length=len(name)))
