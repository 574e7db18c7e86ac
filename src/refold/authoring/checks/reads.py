"""What a template reads, path by path: whether it means something, is there, and can have come to be."""

from collections.abc import Mapping

from msgspec import Struct

from refold.authoring.checks.order import Order
from refold.authoring.checks.scopes import EVERYWHERE, ITEM, OUTCOME, Names, Path
from refold.authoring.checks.shapes import Shape, gap, of_default, of_result, of_schema
from refold.authoring.names import did_you_mean, meant
from refold.authoring.problems import Severity
from refold.authoring.sketch import Sketch
from refold.authoring.steps import Draft, Scope
from refold.descriptions import ToolInfo

BLOCK = "`{}` is a block without a result of its own; read the steps inside it"


class Finding(Struct, frozen=True):
    """What is wrong with a path, up to and with the last of its names that is given here."""

    path: Path
    code: str
    message: str
    hint: str
    severity: Severity = "error"


TAKEN = frozenset((*EVERYWHERE, *OUTCOME, *ITEM))


class Reads:
    def __init__(self, sketch: Sketch, names: Names, catalog: Mapping[str, ToolInfo]) -> None:
        self.names, self.order = names, Order(sketch)
        self._drafts = {draft.name: draft for draft in sketch.drafts}
        self._blocks, self._catalog = sketch.blocks, catalog
        self._inputs: dict[str, Shape | None] = {name: of_default(each) for name, each in sketch.plan.defaults.items()}
        declared_only = [each for each in sketch.plan.inputs if each.name not in sketch.plan.defaults]
        self._optional = {each.name for each in declared_only if not each.required} - {*self._drafts}
        for declared in sketch.plan.inputs:
            self._inputs[declared.name] = of_schema(declared.schema) or self._inputs.get(declared.name)

    def finding(self, path: Path, draft: Draft, scope: Scope) -> Finding | None:
        if self._is_plain(path, draft, scope):
            return None
        unknown = self.names.unknown(path, draft, scope)
        if unknown is not None:
            hint = BLOCK.format(path[0]) if path[0] in self._blocks else unknown.hint
            return Finding(unknown.path, "unknown-name", unknown.message, hint)
        step, begin = self._step(path, draft, scope)
        if step is not None and not self._may_have_run(step, draft, scope):
            message = f"nothing makes sure that `{step.name}` has run before `{draft.block or draft.name}`"
            hint = f"no arc leads from `{step.name}` to here; lead one, or write `| default(…)`"
            return Finding(path[:begin], "not-before", message, hint, "warning")
        missing = self._missing(path, draft, scope) if self._optional else None
        shape, begin = self._shape(path, step, begin, draft, scope)
        return missing or (None if shape is None else self._gap(path, shape, begin))

    def _is_plain(self, path: Path, draft: Draft, scope: Scope) -> bool:
        """What most paths are: bound to the tool, or an input that is always there."""
        if path[0] == "workload" and len(path) == 2:
            return path[1] in self.names.inputs and path[1] not in self._optional
        return scope == "tool" and path[0] in draft.bound

    def _missing(self, path: Path, draft: Draft, scope: Scope) -> Finding | None:
        """An input that a run may be started without."""
        length = 2 if path[0] in ("workload", "input") else 1
        name = path[length - 1] if len(path) >= length else ""
        is_own = scope == "tool" and name in draft.bound
        if name not in self._optional or is_own or (length == 1 and not self._is_bare(name, draft)):
            return None
        hint = f"give `{name}` a default in `workload`, or write `required: true`"
        return Finding(path[:length], "maybe-missing", f"a run may be started without `{name}`", hint, "warning")

    def _step(self, path: Path, draft: Draft, scope: Scope) -> tuple[Draft | None, int]:
        """The step whose result a path reads, and how many names stand for it."""
        if path[0] == "steps" and len(path) > 1:
            return self._drafts.get(path[1]), 2
        if path[:2] == ("output", "data") and scope == "outcome":
            return draft, 2
        if self._is_bare(path[0], draft) and path[0] not in self.names.inputs:
            return self._drafts.get(path[0]), 1
        return None, 0

    def _is_bare(self, name: str, draft: Draft) -> bool:
        """Whether a name can only be that of a step or an input."""
        taken = name in TAKEN or name == draft.iterator or name in draft.bound
        return not taken and name not in self.names.ctx

    def _may_have_run(self, step: Draft, draft: Draft, scope: Scope) -> bool:
        if step is draft and scope == "outcome":
            return True
        return self.order.may_precede(step.name, draft.name)

    def _shape(
        self, path: Path, step: Draft | None, begin: int, draft: Draft, scope: Scope
    ) -> tuple[Shape | None, int]:
        """What is known of a value, and how many names lead to it."""
        if step is not None:
            return of_result(step, self._catalog), begin
        if path[0] in ("workload", "input") and len(path) > 1:
            is_own = path[0] == "input" and scope == "tool" and path[1] in draft.bound
            return None if is_own else self._inputs.get(path[1]), 2
        if self._is_bare(path[0], draft) and path[0] not in self._drafts:
            return self._inputs.get(path[0]), 1
        return None, 0

    def _gap(self, path: Path, shape: Shape, begin: int) -> Finding | None:
        found = gap(shape, path[begin:])
        if found is None:
            return None
        end = begin + found.at
        before, name = ".".join(path[:end]), path[end]
        guess = meant(name, found.shape.keys)
        if guess:
            hint = f"did you mean `{before}.{guess}`?"
        elif found.shape.keys:
            hint = did_you_mean(name, found.shape.keys)
        else:
            hint = f"`{before}` is {found.shape.kind}"
        if not found.shape.sure:
            message = f"nothing says that `{before}` has `{name}`"
            return Finding(path[: end + 1], "unknown-name", message, hint, "warning")
        has = "has no" if found.shape.keys else f"is {found.shape.kind} and has no"
        return Finding(path[: end + 1], "unknown-name", f"`{before}` {has} `{name}`", hint)
