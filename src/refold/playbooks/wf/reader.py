"""Reads a `.wf` file: its text to a plan, with the plans of its `always` block and of the workflows that it calls."""

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, structs

from refold.core.plan import Child, Plan, Step, plan_hash
from refold.errors import RefoldError
from refold.playbooks.bindings import Bindings
from refold.playbooks.children import ChildReader
from refold.playbooks.problems import InvalidPlaybook, Place, Problem, in_order
from refold.playbooks.wf.agents import Agents
from refold.playbooks.wf.checks import Checker
from refold.playbooks.wf.compile import Compiler, constants_of, reserved_names
from refold.playbooks.wf.nodes import ChildCall, File, Scalar
from refold.playbooks.wf.parser import Parser, ParsingStopped
from refold.playbooks.wf.project import Project
from refold.playbooks.wf.reading import TooMany, WfReading
from refold.playbooks.wf.tokens import BROKEN, broken, words_of

SUFFIX = ".wf"
UNBOUND = ("unbound", "unknown-agent", "unknown-gate", "unknown-provider")  # all names of a run are told at once
DEEPEST = 6  # workflows in a chain of calls
OTHER_BREAKS = str.maketrans(dict.fromkeys("\x85\u2028\u2029", " "))


class WfRead(Struct, frozen=True):
    """What became of a file; `inner` are the plans of its `always` block."""

    plan: Plan
    source: str
    places: Mapping[str, Place]
    warnings: tuple[Problem, ...]
    unbound: tuple[Problem, ...]
    metadata: Mapping[str, Any]
    inner: tuple[Plan, ...]


def read_wf(
    text: str, file: str, child_reader: ChildReader[Any], bindings: Callable[[], Bindings], gh: bool | None = None
) -> WfRead:
    """Raise InvalidPlaybook with every error and warning that was found."""
    source = text.removeprefix("\ufeff")
    shown = source.replace("\r\n", "\n").replace("\r", " ").translate(OTHER_BREAKS)
    reading = WfReading(source, file, child_reader, bindings)
    read = None
    try:
        parsed = parse(reading)
        if parsed is not None:
            read = _Reader(reading, parsed, shutil.which("gh") is not None if gh is None else gh).read()
    except TooMany:
        pass
    problems = in_order(reading.problems)
    if read is None or reading.failed():
        raise InvalidPlaybook(
            in_order([*reading.problems, *reading.unbound, *reading.unbound_in_children]), file, shown
        )
    plan, inner, places = read
    metadata = _metadata(parsed) if parsed is not None else {}
    return WfRead(plan, shown, places, problems, in_order(reading.unbound), metadata, inner)


def parse(reading: WfReading) -> File | None:
    """Read words and grammar; a problem that ends the reading is reported."""
    words = words_of(reading.source)
    for at, message, hint in words.old:
        reading.report("old-form", message, at, at + 1, hint, "warning")
    parser = Parser(words.tokens, reading.report)
    try:
        return parser.file()
    except ParsingStopped as stopped:
        token = stopped.token
        if token.kind == BROKEN:
            reading.problems.append(broken(token, reading.source, reading.place(token.at)))
        else:
            reading.report(stopped.code, stopped.message, token.at, max(token.end, token.at + 1), stopped.hint)
        return None


def _metadata(file: File) -> dict[str, Any]:
    """Return what the runs are labelled with."""
    meta = file.meta
    labels: dict[str, Any] = {"group": meta["group"]} if meta.get("group") else {}
    if meta.get("targets"):
        labels["targets"] = ",".join(each.text for each in meta["targets"])
    texts: dict[str, Any] = {key: meta[key] for key in ("title", "description") if key in meta}
    return {"name": file.name, **texts, **({"labels": labels} if labels else {})}


class _Reader:
    """Checks and compiles one file that was parsed."""

    def __init__(self, reading: WfReading, file: File, gh: bool) -> None:
        self.reading, self.file, self.gh = reading, file, gh
        self.project = Project(reading.file, file.name, reading.child_reader.load)
        self._plans: dict[tuple[str, str], Plan | None] = {}

    def read(self) -> tuple[Plan, tuple[Plan, ...], dict[str, Place]]:
        file, variables = self.file, self.reading.bindings.variables
        self.reading.inputs = [each.name.text for each in file.inputs]
        Checker(self.reading, file, self._steps_of_child, variables).check(file)
        agents = Agents(self.reading, self.project, reserved_names(variables))
        constants = constants_of(file, variables)
        main = Compiler(self.reading, agents, self._child, self.gh)
        plan = main.plan(file, file.body, file.name, constants)
        places = {f"steps.{name}": self.reading.place(at) for name, at in main.places.items()}
        if not file.finally_body:
            return plan, (), places
        last = Compiler(self.reading, agents, self._child, self.gh)
        without = structs.replace(file, inputs=[])
        always = structs.replace(last.plan(without, file.finally_body, f"{file.name}.always", constants), result=None)
        name = main.free("always")
        step = Step(name=name, work=Child(plan=plan_hash(always)), input={"$always": {}})
        places[f"steps.{name}"] = self.reading.place(file.finally_at)
        return structs.replace(plan, steps=(*plan.steps, step), always=(name,)), (always,), places

    def _steps_of_child(self, node: ChildCall) -> list[str]:
        plan = self._child(node.name, node.keys.get("as", ""))
        return [] if plan is None else list(plan.result["$run_result"]["keys"])

    def _child(self, name: Scalar, identity: str) -> Plan | None:
        """Return the plan of another workflow. Problems are reported where it is named first."""
        key = name.text, identity or self.reading.child_reader.identity
        if key not in self._plans:
            self._plans[key] = self._find(name, key[1])
        return self._plans[key]

    def _find(self, name: Scalar, identity: str) -> Plan | None:
        reader, at = self.reading.child_reader, self.reading.at
        there = self.project.workflow(name.text) if "/" not in name.text else None
        if there is None:
            hint = f"it is looked for as {name.text}{SUFFIX} in the folder of this file and in .conductor/workflows"
            at(name, "unreadable-child", f"there is no workflow `{name.text}`", hint)
            return None
        there = os.path.normpath(there)
        if there in reader.above:
            circle = reader.circle(there)
            at(name, "circle", f"these workflows call each other: {circle}", "a workflow calls no workflow above it")
            return None
        before = set(reader.playbooks)
        try:
            plan: Plan = reader.get(there, identity).plan
            self._note_unbound(name, [reader.playbooks[key] for key in reader.playbooks if key not in before])
        except InvalidPlaybook as error:
            first = next(each for each in error.problems if each.severity == "error")
            others = [each.message for each in error.problems if each.code in UNBOUND and each is not first]
            where = f"{there}:{first.place.line}:{first.place.column}: {'; '.join([first.message, *others])}"
            code = "circle" if {there, reader.above[-1]} <= reader.in_circles else "invalid-child"
            at(name, code, where, f"`refold validate {there}` says more")
            return None
        except (RefoldError, OSError) as error:
            at(name, "unreadable-child", str(error))
            return None
        height = 1 + self._height(plan)
        if height > DEEPEST:
            message = f"this would be a chain of {height} workflows that call each other, and {DEEPEST} are allowed"
            at(name, "too-deep", message, "put the steps of one of them into another")
            return None
        return plan

    def _note_unbound(self, name: Scalar, read: list[Any]) -> None:
        """Note what nothing answers for in a workflow that was read, and in those below it."""
        for each in read:
            for problem in each.unbound:
                where = f"{each.file}:{problem.place.line}:{problem.place.column}: {problem.message}"
                noted = self.reading.problem(problem.code, where, name.at, name.end, problem.hint, "warning")
                self.reading.unbound_in_children.append(noted)

    def _height(self, plan: Plan) -> int:
        """Return how many workflows the longest chain has that begins with this one."""
        plans = {plan_hash(each.plan): each.plan for each in self.reading.child_reader.playbooks.values()}
        heights: dict[str, int] = {}

        def height(plan: Plan) -> int:
            tallest = 0
            for step in plan.steps:
                if isinstance(step.work, Child) and step.work.plan in plans:
                    hash, inner = step.work.plan, plans[step.work.plan]
                    if hash not in heights:
                        heights[hash] = height(inner)
                    tallest = max(tallest, heights[hash] - (1 if step.name in plan.always else 0))
            return 1 + tallest

        return height(plan)
