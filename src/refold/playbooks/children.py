"""Playbooks that start other playbooks or Python workflows: each file is read once, and circles are refused."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from refold.core.pipeline import Started
from refold.core.plan import Child, Plan, plan_hash
from refold.errors import NotFound, RefoldError
from refold.playbooks.inputs import check_given
from refold.playbooks.problems import InvalidPlaybook, Problem
from refold.playbooks.python_workflows import FindWorkflow, PythonWorkflow, check_python_inputs
from refold.playbooks.reader.reading import Fields, Reading, Secrets
from refold.playbooks.reader.templates import holds_secret
from refold.playbooks.yaml.text import Node

Load = Callable[[str], bytes]
"""Returns the text of a file; raises a RefoldError with the reason if it cannot."""

SUFFIXES = (".yaml", ".yml")
SEEN_FROM = "a path is relative to the folder of this file"
DEEPEST = 100  # files that lead to one another
WRITTEN_SO = "write a Python workflow as `module:Class`, relative to the folder of this file"
IDLE = {
    "limit": "give it to the steps of the child",
}


class Readable(Protocol):
    """A playbook that was read."""

    @property
    def plan(self) -> Plan: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...


P = TypeVar("P", bound=Readable)


class ChildReader(Generic[P]):
    """Reads child playbooks. It knows the files that are being read, from the first one down, and those that were."""

    def __init__(
        self,
        load: Load | None,
        read: Callable[[bytes, str, "ChildReader[P]"], P],
        secrets: Secrets | None = None,
        code: FindWorkflow | None = None,
    ) -> None:
        self.load, self._read, self.secrets, self._code = load, read, secrets, code
        self.above: list[str] = []
        self.in_circles: set[str] = set()  # files that start each other
        self.playbooks: dict[str, P] = {}
        self.identity = ""  # of a `.wf` file: the identity that its caller has given it
        self._broken: dict[str, InvalidPlaybook] = {}
        self.python_workflows: dict[str, PythonWorkflow] = {}

    def child(self, reading: Reading, node: Node, file: str, seen_from: str = SEEN_FROM) -> tuple[str, Plan] | None:
        """The path of the file and its plan; problems are reported, and None is returned."""
        there = self._seen_from_here(file)
        if there in self.above:
            self._refuse_circle(reading, node, there)
            return None
        if there not in self.playbooks and not self._get(reading, node, there, seen_from):
            return None
        return there, self.playbooks[there].plan

    def workflow(self, reading: Reading, node: Node) -> PythonWorkflow | None:
        """The Python workflow that the node names; problems are reported, and None is returned."""
        there = self._seen_from_here(node.value)
        if there not in self.python_workflows:
            if self._code is None:
                message = f"`{there}` is code, which is not loaded from here"
                reading.at(node, "unreadable-child", message, "name a playbook")
                return None
            try:
                self.python_workflows[there] = self._code(there)
            except RefoldError as error:
                reading.at(node, "unreadable-child", str(error), WRITTEN_SO)
                return None
        return self.python_workflows[there]

    def is_itself(self, file: str) -> bool:
        return self._seen_from_here(file) == self.above[-1]

    def folder(self) -> str:
        """The folder of the file that is being read."""
        return os.path.abspath(os.path.dirname(self.above[-1]))

    def begin(self, file: str) -> None:
        self.above.append(os.path.normpath(file))

    def end(self) -> None:
        self.above.pop()

    def get(self, file: str, identity: str = "") -> P:
        """Return what a file holds, which is read once for each identity. Raises RefoldError, and InvalidPlaybook with
        its problems."""
        if self.load is None or len(self.above) >= DEEPEST:
            raise NotFound(f"`{file}` cannot be read from here")
        key = f"{file}#as {identity}" if identity else file
        if key in self._broken:
            raise self._broken[key]
        if key not in self.playbooks:
            before, self.identity = self.identity, identity
            try:
                self.playbooks[key] = self._read(self.load(file), file, self)
            except InvalidPlaybook as error:
                self._broken[key] = error
                raise
            finally:
                self.identity = before
        return self.playbooks[key]

    def circle(self, there: str) -> str:
        """Return the files that start each other, down to this one, and note them."""
        files = self.above[self.above.index(there) :]
        self.in_circles.update(files)
        return " > ".join([*files, there])

    def named(self, name: str, suffixes: Sequence[str] = SUFFIXES) -> str:
        """The file next to this one that has the name."""
        files = [name + suffix for suffix in suffixes]
        return next((file for file in files if self._is_there(self._seen_from_here(file))), files[0])

    def is_readable(self, file: str) -> bool:
        return self._is_there(self._seen_from_here(file))

    def text(self, file: str) -> str | None:
        """The text of a file, named relative to the file that is being read; None if it cannot be read."""
        try:
            return None if self.load is None else self.load(self._seen_from_here(file)).decode()
        except (RefoldError, UnicodeError, OSError):
            return None

    def _seen_from_here(self, file: str) -> str:
        return os.path.normpath(os.path.join(os.path.dirname(self.above[-1]), file))

    def _is_there(self, file: str) -> bool:
        try:
            return file in self.playbooks or (self.load is not None and self.load(file) is not None)
        except RefoldError:
            return False

    def _get(self, reading: Reading, node: Node, file: str, seen_from: str) -> bool:
        if self.load is None or len(self.above) >= DEEPEST:
            reading.at(node, "unreadable-child", f"`{file}` cannot be read from here", "put the steps into this file")
            return False
        try:
            self.get(file)
        except InvalidPlaybook as error:
            first = next(each for each in error.problems if each.severity == "error")
            where = f"{file}:{first.place.line}:{first.place.column}"
            reading.at(node, "invalid-child", f"{where}: {first.message}", f"`refold validate {file}` says more")
            return False
        except RefoldError as error:
            reading.at(node, "unreadable-child", str(error), seen_from)
            return False
        return True

    def _refuse_circle(self, reading: Reading, node: Node, there: str) -> None:
        message = f"these playbooks start each other: {self.circle(there)}"
        reading.at(node, "circle", message, "a playbook may start only itself")


def names_code(text: str) -> bool:
    """Whether the text is `module:Class`, with or without a folder before it, and not a file."""
    module, sign, name = text.partition(":")
    words = [*module.rpartition("/")[2].split("."), *name.split(".")]
    return bool(sign) and not text.endswith(SUFFIXES) and all(word.isidentifier() for word in words)


def started_of(reading: Reading, child_reader: ChildReader[Any], keys: Mapping[str, Node]) -> Started:
    """The start of a child that is one of several tasks of a step."""
    node = keys.get("path") or keys.get("name")
    if node is None or not isinstance(node.value, str):
        return Started(plan="")  # the problem was reported
    if "path" in keys and names_code(node.value):
        workflow = child_reader.workflow(reading, node)
        return Started(plan="" if workflow is None else plan_hash(workflow.plans[0]), path=node.value)
    file = node.value if "path" in keys else child_reader.named(node.value)
    found = None if child_reader.is_itself(file) else child_reader.child(reading, node, file)
    return Started(plan="" if found is None else plan_hash(found[1]), path=node.value)


def read_child(reading: Reading, step: Fields, child_reader: ChildReader[Any], keys: Mapping[str, Node]) -> Child:
    """The work of a step that starts a playbook."""
    for name, hint in IDLE.items():
        if name in step.node.nodes:
            reading.at_key(step.node, name, "no-effect", f"`{name}` has no effect on a child", hint)
    node = keys.get("path") or keys.get("name")
    if node is None or not isinstance(node.value, str):
        return Child()  # the problem was reported
    if "path" in keys and names_code(node.value):
        return _read_coded(reading, step, child_reader, node)
    file = node.value if "path" in keys else child_reader.named(node.value)
    if child_reader.is_itself(file):
        return Child()
    found = child_reader.child(reading, node, file)
    if found is None:
        return Child()
    _check_inputs(reading, step, *found)
    return Child(plan=plan_hash(found[1]))


def _read_coded(reading: Reading, step: Fields, child_reader: ChildReader[Any], node: Node) -> Child:
    workflow = child_reader.workflow(reading, node)
    if workflow is None:
        return Child()
    check_python_inputs(reading, step, workflow)
    return Child(plan=plan_hash(workflow.plans[0]))


def read_body(reading: Reading, step: Fields, child_reader: ChildReader[Any]) -> Child | None:
    """The playbook that is run for each item of a loop, if the loop names one."""
    loop: Fields | None = step.get("loop")
    if loop is None or "workflow" not in loop.values:
        return None
    node: Node = loop.node.nodes["workflow"]
    if "tool" in step.node.nodes:
        message = "each item runs `workflow`, but the step has a `tool` too"
        reading.at_key(loop.node, "workflow", "given-twice", message, "leave one of them out")
        return None
    if step.get("step") in reading.sealed:
        message = "the result of a run is not stored encrypted"
        reading.at_key(step.node, "output", "no-effect", message, f"declare it in the steps of {node.value}")
    if holds_secret(step.get("input")):
        message = "a secret cannot be passed to a run: the input of a run is stored unencrypted"
        hint = f"let the steps of {node.value} name the secret themselves"
        reading.at_key(step.node, "input", "bad-secret", message, hint)
    return read_child(reading, step, child_reader, {"path": node})


def _check_inputs(reading: Reading, step: Fields, file: str, plan: Plan) -> None:
    """Report inputs that the child does not declare: it would never read them."""
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
