"""Checks of templates: their syntax, and what they read.

Which names a template can read depends on where it is: on its scope. Each path that it reads must be valid, exist, and
have a value at that point of the run.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from refold.core.pipeline import TaskPipeline
from refold.core.plan import Call, Gate, Quality, Wait, bare_key
from refold.names import WORDS, did_you_mean, meant
from refold.playbooks.problems import Problem, Severity
from refold.playbooks.reader.reading import Reading
from refold.playbooks.reader.templates import templates_in
from refold.playbooks.steps import PlaybookDraft, Scope, StepDraft
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node
from refold.templates import Use, problem_of, uses_of
from refold.tool_api import ToolInfo

Path = tuple[str, ...]

PARTS = {
    "run": ("id", "name", "started_at", "folder", "counts", "failures", "error"),
    "output": ("status", "data", "error"),
    "loop": ("index", "count"),
    "schedule": ("id", "planned", "previous", "backfill"),
}
EVERYWHERE = ("ctx", "input", "now", "run", "schedule", "steps", "visit", "workload")
OUTCOME = ("error", "output")
ITEM = ("iter", "loop")
ELSEWHERE = {
    "output": "`output` can be read in `set` and on arcs, when the step has ended",
    "error": "`error` can be read in `set` and on arcs, when the step has ended",
    "iter": "`iter` can be read in `input` and in the keys of a tool, in a step that loops",
    "loop": "`loop` can be read in `input` and in the keys of a tool, in a step that loops",
    "secrets": "a secret can be read in `input` and in the keys of a tool, where it stays out of the log",
    "keychain": "write `{secret: name}` in `input` or in a key of the tool",
    "event": "write `on: failure` on the arc, and read `output.status` or `error`",
    "vars": "write `ctx`, and `set: {ctx.name: …}` on a step",
    "env": "pass it as an input of the run, or as a secret: `{secret: token}` is REFOLD_SECRET_TOKEN",
    "payload": "write `workload`",
    "inputs": "write `workload`, or the name of the input alone",
    "params": "write `workload`, or the name of the input alone",
    "parameters": "write `workload`, or the name of the input alone",
    "args": "write `workload`, or the name of the input alone",
    "trigger": "write `workload` for an input, and `schedule` for the schedule that started the run",
    "context": "write `ctx`",
    "matrix": "the item of a loop has the name that `iterator` gives it, or `item`",
    "execution_id": "write `run.id`",
}


class Unknown(Struct, frozen=True):
    """A part of a path that is not valid, and a hint."""

    path: Path  # up to and with that part
    message: str
    hint: str


class Names:
    """The names that the whole playbook defines."""

    def __init__(self, playbook: PlaybookDraft) -> None:
        self.steps = {name for name in playbook.names() if "." not in name}  # a dot: made for a block
        self.inputs: set[str] = set(playbook.plan.defaults).union(each.name for each in playbook.plan.inputs)
        self.declared = not {"workload", "inputs"}.isdisjoint(playbook.fields.values)
        self.ctx: set[str] = set()
        for draft in playbook.drafts:
            self.ctx.update(map(bare_key, draft.step.set))
            self.ctx |= draft.sets
            for arc in draft.step.arcs:
                self.ctx.update(key for key in map(bare_key, arc.set) if "." not in key)

    def unknown(self, path: Path, draft: StepDraft, scope: Scope) -> Unknown | None:
        """The problem with a path in a template of this step, if there is one."""
        first, second = path[0], path[1] if len(path) > 1 else None
        if not self._is_readable(first, draft, scope):
            hint = self._hint(first, draft, scope)
            return Unknown(path[:1], f"`{first}` is not defined here", hint)
        if second is None or self._is_own(first, draft, scope):
            return None
        parts = self._parts(first, draft, scope)
        if parts is None or second in parts:
            return None
        return Unknown(path[:2], f"there is no `{first}.{second}`", self._part_hint(first, second, parts, draft))

    def _is_readable(self, name: str, draft: StepDraft, scope: Scope) -> bool:
        if name in EVERYWHERE or self._is_own(name, draft, scope):
            return True
        if name in OUTCOME:
            return scope == "outcome"
        if name in ITEM:
            return bool(draft.iterator) and (scope in ("input", "tool") or (scope == "key" and name == "iter"))
        return name in self.ctx or name in self.steps or name in self.inputs

    def _is_own(self, name: str, draft: StepDraft, scope: Scope) -> bool:
        """Whether the path begins with the item of a loop or the step's input; anything below these is allowed."""
        if scope == "tool" and name in draft.bound:
            return True
        return name == draft.iterator and scope in ("key", "input", "tool")

    def _parts(self, name: str, draft: StepDraft, scope: Scope) -> Collection[str] | None:
        """The names that may follow the dot; None if they are not known before a run."""
        match name:
            case "ctx":
                return self.ctx
            case "steps":
                return self.steps
            case "workload":
                return self.inputs if self.declared else None
            case "input":
                bound = draft.bound if scope == "tool" else frozenset()
                return self.inputs | bound if self.declared else None
            case "iter":
                return (draft.iterator, "index") if scope == "key" else (draft.iterator, "index", "count")
            case "schedule" if name in self.ctx or name in self.steps or name in self.inputs:
                return None  # something of the playbook has this name, and comes first
            case _:
                return PARTS.get(name)

    def _hint(self, name: str, draft: StepDraft, scope: Scope) -> str:
        if scope == "source" and (name == draft.iterator or name in ITEM):
            return "a source is asked before there is an item"
        if scope == "source" and name in ("secrets", "keychain"):
            return "write `{secret: name}` as the value of a key that may be secret"
        if name == draft.iterator:
            return "the item of a loop can be read in `input`, the keys of the tool, and `key` and `after` of the loop"
        if name in draft.bound and scope != "tool":
            return "names of `input` can be read in the keys of the tool only"
        if name in ELSEWHERE:
            return ELSEWHERE[name]
        own = [*draft.bound] if scope == "tool" else []
        known = [*own, *([draft.iterator] if draft.iterator else []), *sorted(self.inputs | self.ctx | self.steps)]
        guess = meant(name, [*known, *EVERYWHERE])
        if guess:
            return f"did you mean `{guess}`?"
        return f"declare it with its default in `workload`, or set `ctx.{name}` in a step before"

    def _part_hint(self, first: str, second: str, parts: Collection[str], draft: StepDraft) -> str:
        if first == "output":
            return f"write `output.data.{second}`"
        if first in ("loop", "iter") and draft.iterator and second in ("item", "value", "element", draft.iterator):
            return f"the item is called `{draft.iterator}`"
        guess = meant(second, parts)
        if guess:
            return f"did you mean `{first}.{guess}`?"
        if first in ("workload", "input"):
            return f"add `{second}` with its default to `workload`"
        if first == "ctx":
            return f"no step sets it; write `set: {{ctx.{second}: …}}` where it becomes known"
        return did_you_mean(second, sorted(parts))


TYPE_WORDS = {
    "string": "text",
    "integer": "a number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
}
EITHER = ("$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "if", "patternProperties", "dependentSchemas")


class Shape(Struct, frozen=True):
    """What is known of a value. `keys` is None if it may have any keys; if it is not `sure`, it may have others too."""

    keys: Mapping[str, "Shape | None"]
    sure: bool = True
    kind: str = "a map"


class Gap(Struct, frozen=True):
    """The first name of a path that does not exist, and what is known of the value before it."""

    at: int
    shape: Shape


LIST = Shape({}, kind="a list")
STATS = Shape(dict.fromkeys(("total", "success", "failed", "skipped", "cancelled")))
FAN_OUT = Shape({"results": LIST, "items": LIST, "stats": STATS, "failed": LIST})
FAULT_KEYS = ("kind", "message", "type", "traceback", "code", "retryable", "retry_after", "data")
RUN_ERROR = Shape(dict.fromkeys((*FAULT_KEYS, "step")))
VERDICT = Shape({"succeeded": LIST, "failed": LIST, "errors": None})


def gap(shape: Shape | None, names: Sequence[str]) -> Gap | None:
    for at, name in enumerate(names):
        if shape is None:
            return None
        if name not in shape.keys:
            return Gap(at, shape)
        shape = shape.keys[name]
    return None


def of_schema(schema: Any) -> Shape | None:
    """The keys that a JSON Schema defines; None if it leaves them open."""
    if not isinstance(schema, Mapping) or any(word in schema for word in EITHER):
        return None
    kind = schema.get("type", "object" if "properties" in schema else None)
    if kind in TYPE_WORDS:
        return Shape({}, kind=TYPE_WORDS[kind])
    if kind != "object" or "properties" not in schema:
        return None
    keys = {name: of_schema(each) for name, each in schema["properties"].items()}
    return Shape(keys, sure=schema.get("additionalProperties") is False)


def of_default(value: Any) -> Shape | None:
    """The shape of a default; the input of a run may have other keys too."""
    if not isinstance(value, dict) or not value:
        return None
    return Shape({name: of_default(each) for name, each in value.items()}, sure=False)


def of_result(draft: StepDraft, catalog: Mapping[str, ToolInfo]) -> Shape | None:
    """The shape of the result of a step."""
    step = draft.step
    if step.loop is not None:
        return FAN_OUT
    if step.result is not None:
        return of_schema(step.result)
    if draft.block and draft.name == draft.block:
        return VERDICT
    match step.work:
        case Call(tool="noop"):
            return _of_noop(draft)
        case Call() | TaskPipeline():
            return _of_tool(step.work.tool, catalog)
        case Wait() if step.poll is not None:
            return Shape({"by": None})
        case Gate() | Wait() | Quality():
            return _of_tool(type(step.work).__name__.lower(), catalog)
        case _:
            return None


def _of_noop(draft: StepDraft) -> Shape | None:
    """The shape of what stands under `result`, which is the whole result; without it, that of the step's input."""
    given = draft.step.input.get("$in")
    if draft.block or given is None or "message" in given:
        return None
    if "result" in given:
        return _of_literal(given["result"])
    return _of_literal(draft.step.input["$let"]) or Shape({}, kind="an empty map")


def _of_literal(value: Any) -> Shape | None:
    if not isinstance(value, dict) or any(str(name).startswith("$") or "{" in str(name) for name in value):
        return None
    return Shape({str(name): _of_literal(each) for name, each in value.items()})


def _of_tool(kind: str, catalog: Mapping[str, ToolInfo]) -> Shape | None:
    info = catalog.get(kind)
    return Shape(dict.fromkeys(info.result_keys)) if info is not None and info.result_keys else None


ROUNDS = 100  # loops inside loops, at most; of what is deeper nothing is said


class StepOrder:
    """Which steps lead to which; computed when first needed. Sets of steps are the bits of a number."""

    def __init__(self, playbook: PlaybookDraft) -> None:
        self._steps = [draft.step for draft in playbook.drafts]
        self._index = {step.name: s for s, step in enumerate(self._steps)}
        self._final = {name for name, _ in playbook.finalizers()}

    def may_precede(self, source: str, target: str) -> bool:
        """Whether arcs lead from one step to the other, directly or through other steps."""
        if source not in self._index or target not in self._index or target in self._final:
            return True
        if source in self._final:
            return False
        return bool(self._before[self._index[target]] >> self._index[source] & 1)

    @cached_property
    def _before(self) -> list[int]:
        into: list[list[int]] = [[] for _ in self._steps]
        for s, step in enumerate(self._steps):
            for arc in step.arcs:
                if arc.to in self._index:
                    into[self._index[arc.to]].append(s)
        before = [0] * len(into)
        order = list(self._walk())
        for _ in range(ROUNDS):
            changed = False
            for s in order:
                found = before[s]
                for source in into[s]:
                    found |= before[source] | 1 << source
                changed = changed or found != before[s]
                before[s] = found
            if not changed:
                return before
        return [-1] * len(into)

    def _walk(self) -> Iterator[int]:
        """All steps, sources before targets, except for arcs that go back."""
        done: list[int] = []
        met = [False] * len(self._steps)
        for first in range(len(self._steps)):
            path = [] if met[first] else [(first, iter(self._targets(first)))]
            met[first] = True
            while path:
                s, targets = path[-1]
                for to in targets:
                    if not met[to]:
                        met[to] = True
                        path.append((to, iter(self._targets(to))))
                        break
                else:
                    done.append(s)
                    path.pop()
        return reversed(done)

    def _targets(self, s: int) -> list[int]:
        return [self._index[arc.to] for arc in self._steps[s].arcs if arc.to in self._index]


BLOCK = "`{}` is a block without a result of its own; read the steps inside it"


class PathProblem(Struct, frozen=True):
    """The problem with a path, and how many of its names it concerns."""

    path: Path
    code: str
    message: str
    hint: str
    severity: Severity = "error"


RUN_ERROR_PATH = ("run", "error")
FIRST_FAILURE = re.compile(r"run\.failures *(?:\[|\| *(?:first|last)\b)")
TAKEN = frozenset((*EVERYWHERE, *OUTCOME, *ITEM))


class Reads:
    def __init__(self, playbook: PlaybookDraft, names: Names, catalog: Mapping[str, ToolInfo]) -> None:
        self.names, self.order = names, StepOrder(playbook)
        self._drafts = {draft.name: draft for draft in playbook.drafts}
        self._blocks, self._catalog = playbook.blocks, catalog
        self._inputs: dict[str, Shape | None] = {
            name: of_default(each) for name, each in playbook.plan.defaults.items()
        }
        declared_only = [each for each in playbook.plan.inputs if each.name not in playbook.plan.defaults]
        self._final = {name for name, _ in playbook.finalizers()}
        self._always = {name for name, _ in playbook.fields.get("always", ())}
        self._optional = {each.name for each in declared_only if not each.required} - {*self._drafts}
        for declared in playbook.plan.inputs:
            self._inputs[declared.name] = of_schema(declared.schema) or self._inputs.get(declared.name)

    def finding(self, path: Path, draft: StepDraft, scope: Scope) -> PathProblem | None:
        if self._is_plain(path, draft, scope):
            return None
        unknown = self.names.unknown(path, draft, scope)
        if unknown is not None:
            hint = BLOCK.format(path[0]) if path[0] in self._blocks else unknown.hint
            return PathProblem(unknown.path, "unknown-name", unknown.message, hint)
        step, begin = self._step(path, draft, scope)
        if step is not None and not self._may_have_run(step, draft, scope):
            message = f"nothing makes sure that `{step.name}` has run before `{draft.block or draft.name}`"
            hint = f"no arc leads from `{step.name}` to here; lead one, or write `| default(…)`"
            return PathProblem(path[:begin], "not-before", message, hint, "warning")
        if path[:2] == RUN_ERROR_PATH and draft.name not in self._final:
            message = f"`run.error` is null in `{draft.block or draft.name}`, which runs before the run ends"
            return PathProblem(
                path[:2], "not-before", message, "read it in the steps of `on_fail` and `always`", "warning"
            )
        if path[:2] == RUN_ERROR_PATH and len(path) > 2 and draft.name in self._always:
            message = "`run.error` is null when the run completes"
            return PathProblem(
                path[:3], "maybe-missing", message, "write `| default(…)`, or `run.error is none`", "warning"
            )
        if step is not None and step is not draft and _sets_no_result(step):
            message = f"the code of `{step.name}` sets no `result`, so that its result is null"
            return PathProblem(path[:begin], "no-result", message, "write `result = …` in the code", "warning")
        missing = self._missing(path, draft, scope) if self._optional else None
        shape, begin = self._shape(path, step, begin, draft, scope)
        return missing or (None if shape is None else self._gap(path, shape, begin, step))

    def _is_plain(self, path: Path, draft: StepDraft, scope: Scope) -> bool:
        """Whether a path is certainly valid: a name bound to the tool, or an input that always exists."""
        if path[0] == "workload" and len(path) == 2:
            return path[1] in self.names.inputs and path[1] not in self._optional
        return scope == "tool" and path[0] in draft.bound

    def _missing(self, path: Path, draft: StepDraft, scope: Scope) -> PathProblem | None:
        """Whether it is an input that a run may be started without."""
        length = 2 if path[0] in ("workload", "input") else 1
        name = path[length - 1] if len(path) >= length else ""
        is_own = scope == "tool" and name in draft.bound
        if name not in self._optional or is_own or (length == 1 and not self._is_bare(name, draft)):
            return None
        hint = f"give `{name}` a default in `workload`, or write `required: true`"
        return PathProblem(path[:length], "maybe-missing", f"a run may be started without `{name}`", hint, "warning")

    def _step(self, path: Path, draft: StepDraft, scope: Scope) -> tuple[StepDraft | None, int]:
        """The step whose result a path reads, and how many names of the path lead to it."""
        if path[0] == "steps" and len(path) > 1:
            return self._drafts.get(path[1]), 2
        if path[:2] == ("output", "data") and scope == "outcome":
            return draft, 2
        if self._is_bare(path[0], draft) and path[0] not in self.names.inputs:
            return self._drafts.get(path[0]), 1
        return None, 0

    def _is_bare(self, name: str, draft: StepDraft) -> bool:
        """Whether a name can only mean a step or an input."""
        taken = name in TAKEN or name == draft.iterator or name in draft.bound
        return not taken and name not in self.names.ctx

    def _may_have_run(self, step: StepDraft, draft: StepDraft, scope: Scope) -> bool:
        if step is draft and scope == "outcome":
            return True
        return self.order.may_precede(step.name, draft.name)

    def _shape(
        self, path: Path, step: StepDraft | None, begin: int, draft: StepDraft, scope: Scope
    ) -> tuple[Shape | None, int]:
        """The shape of the value that a path leads to, and how many of its names lead there."""
        if path[:2] == RUN_ERROR_PATH:
            return RUN_ERROR, 2
        if step is not None:
            return of_result(step, self._catalog), begin
        if path[0] in ("workload", "input") and len(path) > 1:
            is_own = path[0] == "input" and scope == "tool" and path[1] in draft.bound
            return None if is_own else self._inputs.get(path[1]), 2
        if self._is_bare(path[0], draft) and path[0] not in self._drafts:
            return self._inputs.get(path[0]), 1
        return None, 0

    def _gap(self, path: Path, shape: Shape, begin: int, step: StepDraft | None) -> PathProblem | None:
        found = gap(shape, path[begin:])
        if found is None:
            return None
        end = begin + found.at
        before, name = ".".join(path[:end]), path[end]
        guess = meant(name, found.shape.keys)
        if name == "result" and step is not None and end == begin:
            hint = f"`{before}` is the result itself: write `{'.'.join((*path[:end], *path[end + 1 :]))}`"
        elif guess:
            hint = f"did you mean `{before}.{guess}`?"
        elif found.shape.keys:
            hint = did_you_mean(name, found.shape.keys)
        else:
            hint = f"`{before}` is {found.shape.kind}"
        if not found.shape.sure:
            message = f"nothing says that `{before}` has `{name}`"
            return PathProblem(path[: end + 1], "unknown-name", message, hint, "warning")
        has = "has no" if found.shape.keys else f"is {found.shape.kind} and has no"
        return PathProblem(path[: end + 1], "unknown-name", f"`{before}` {has} `{name}`", hint)


def _sets_no_result(draft: StepDraft) -> bool:
    """Return whether the code of a step certainly has no result."""
    work = draft.step.work
    code = work.settings.get("code") if isinstance(work, Call) and work.tool == "python" else None
    return isinstance(code, str) and re.search(r"\bresult\b|\bdef +main\b|\breturn\b", code) is None


EXPECTED = ("not-before", "maybe-missing")  # what a default or a test takes care of
DOLLAR = re.compile(r"\$\{\{[^{}]*\}\}")
"""Matches an expression as GitHub writes it."""
F_STRING = re.compile(r"""\{\{(?:[^{}]*[\s(\[,~+|])?[fF]['"]""")
"""Matches a text with a prefix as Python has it."""
FIX = "fix the template; this is where it stops making sense"
HINTS = (
    ("there is no function 'now'", "write `{{ now }}`, without brackets: it is a text such as 2026-01-31T12:00:00Z"),
    ("there is no function 'len'", "write `{{ x | length }}`"),
    ("there is no function 'secret'", "write `{{ secrets.name }}`, or `{secret: name}` as a whole value"),
    ("there is no function", "templates have filters and no functions; code goes into a step of the tool `python`"),
    ("there is no filter", "docs/howto/templates.md lists all filters; code goes into a step of the tool `python`"),
    ("`{% … %}` has no place", "run a step for each item with `loop`, or make the text in a step of the tool `python`"),
    ("'&' has no meaning", "write `and`"),
    ("'?' has no meaning", "write `{{ a if condition else b }}`"),
    ("'!' has no meaning", "write `not`"),
    ("`=` stands where", "write `==` to compare"),
)
"""Hints for messages that begin so."""

_PATH = r"[a-zA-Z_]\w*(?:\.[a-zA-Z_]\w*)*"
_SUM = rf"(?:{_PATH}|\d{{1,9}})(?: *[-+*] *(?:{_PATH}|\d{{1,9}}))*"
SIMPLE = re.compile(rf"\{{\{{ *({_SUM}(?: *(?:==|!=|<=?|>=?) *(?:{_SUM}|'[^'\\{{}}]*'))?) *\}}\}}", re.ASCII)
"""Matches a path, or a sum or a comparison of paths: certainly valid syntax, and its names are found quickly."""
NAMED = re.compile(rf"'[^']*'|\d+|({_PATH})", re.ASCII)


def check_templates(reading: Reading, playbook: PlaybookDraft, names: Names) -> None:
    if playbook.plan.language == "noetl":
        _check_syntax(reading, playbook)
        return
    reads, has_forms = Reads(playbook, names, reading.catalog), "$let" in reading.source
    for draft in playbook.drafts:
        for value in draft.values:
            for node in templates_in(value.node):
                if DOLLAR.fullmatch(node.value):
                    message = "the `$` stays in front of the value"
                    reading.warn(node, "dollar", message, "leave it out: write `{{ … }}`")
                if not _is_plainly_good(node.value, reads, draft, value.scope):
                    _check(reading, node, reads, draft, value.scope)
        if has_forms:
            _let_forms(reading, draft)


def _check_syntax(reading: Reading, playbook: PlaybookDraft) -> None:
    """In NoETL files an undefined name is not an error; a template that cannot be parsed is one."""
    for key, node in playbook.fields.node.nodes.items():
        if key not in ("metadata", "executor"):
            for each in templates_in(node):
                _is_broken(reading, each, "chainable")


def _is_plainly_good(text: str, reads: Reads, draft: StepDraft, scope: Scope) -> bool:
    """Whether a template is certainly valid: most are texts with a few known paths, which is quick to see."""
    expressions = SIMPLE.findall(text)
    if text.count("{") != 2 * len(expressions):
        return False
    for path in (path for each in expressions for path in NAMED.findall(each) if path):
        names_in_it = tuple(path.split("."))
        if names_in_it[0] in WORDS or reads.finding(names_in_it, draft, scope) is not None:
            return False
    return True


def _check(reading: Reading, node: Node, reads: Reads, draft: StepDraft, scope: Scope) -> None:
    if _is_broken(reading, node):
        return
    first = FIRST_FAILURE.search(node.value)
    if first is not None and "default" not in node.value:
        place = place_inside(reading.source, node, 1, 1)
        message = "`run.failures` is empty when the run ends by its timeout, its budget or a cancellation"
        reading.say(Problem("maybe-missing", message, place, "read `run.error`, which is there then too", "warning"))
    for use in uses_of(node.value):
        found = reads.finding(use.path, draft, scope)
        if found is not None and not (use.soft and found.code in EXPECTED):
            _say(reading, node, use, found)


def _is_broken(reading: Reading, node: Node, undefined: str = "strict") -> bool:
    problem = problem_of(node.value, undefined)
    if problem is None:
        return False
    place = place_inside(reading.source, node, problem.line, problem.column)
    hint = next((hint for beginning, hint in HINTS if problem.message.startswith(beginning)), problem.hint or FIX)
    if F_STRING.search(node.value):
        hint = "templates have no f-strings; write the text around `{{ … }}`, or join with `~`: `{{ 'x' ~ run.id }}`"
    reading.at_place(place, "template-syntax", problem.message, hint)
    return True


def _say(reading: Reading, node: Node, use: Use, found: PathProblem) -> None:
    """Report a path; where a default or a test handles a missing value, it is only a warning."""
    place = place_inside(reading.source, node, use.line, use.column + _before_last(node, use, found.path))
    severity: Severity = "warning" if use.soft else found.severity
    length = len(found.path[-1])
    reading.say(Problem(found.code, found.message, place, found.hint, severity, length))


def _before_last(node: Node, use: Use, path: Path) -> int:
    """The distance from the beginning of the path to its last part."""
    line = node.value.split("\n")[use.line - 1][use.column - 1 :]
    at = len(path[0]) if len(path) > 1 else 0
    for name in path[1:]:
        found = re.compile(rf"\W{re.escape(name)}(?!\w)").search(line, at)
        if found is None:
            return 0
        at = found.end()
    return at - len(path[-1]) if len(path) > 1 else 0


def _let_forms(reading: Reading, draft: StepDraft) -> None:
    """Refuse the keys that the engine itself uses in the input of a step."""
    todo = [value.node for value in draft.values]
    while todo:
        node = todo.pop()
        if isinstance(node.value, dict) and node.value.keys() == {"$let", "$in"}:
            message = "a map of exactly `$let` and `$in` has a meaning of its own"
            reading.at(node, "reserved-form", message, "add a key, or name one of them otherwise")
        inside = node.nodes.values() if isinstance(node.nodes, dict) else node.nodes
        todo.extend(each for each in inside if each.nodes)
