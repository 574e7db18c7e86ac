"""Scopes: which names a template can read, depending on where it is."""

from collections.abc import Collection

from msgspec import Struct

from refold.core.plan import bare_key
from refold.names import did_you_mean, meant
from refold.playbooks.draft import PlaybookDraft
from refold.playbooks.steps import Scope, StepDraft

Path = tuple[str, ...]

PARTS = {
    "run": ("id", "name", "started_at", "counts", "failures"),
    "output": ("status", "data", "error"),
    "loop": ("index", "count"),
}
EVERYWHERE = ("ctx", "input", "run", "steps", "visit", "workload")
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
    "env": "pass it as an input of the run",
    "payload": "write `workload`",
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
        return Unknown(path[:2], f"there is no `{first}.{second}`", self._part_hint(first, second, parts))

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

    def _part_hint(self, first: str, second: str, parts: Collection[str]) -> str:
        if first == "output":
            return f"write `output.data.{second}`"
        guess = meant(second, parts)
        if guess:
            return f"did you mean `{first}.{guess}`?"
        if first in ("workload", "input"):
            return f"add `{second}` with its default to `workload`"
        if first == "ctx":
            return f"no step sets it; write `set: {{ctx.{second}: …}}` where it becomes known"
        return did_you_mean(second, sorted(parts))
