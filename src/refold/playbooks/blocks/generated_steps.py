"""The steps that are generated for blocks: steps that only connect, checks that fail, and the end of branches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.core.plan import Arc, Call, Step
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.steps import StepDraft, Value
from refold.playbooks.yaml.text import Node


class Way(Struct, frozen=True):
    """An arc of the plan, with the fields it was read from."""

    fields: Fields
    arc: Arc


def way(at: Node, to: str, when: Any = None, on: Any = "success", set: Mapping[str, Any] | None = None) -> Way:
    node = Node(to, at.start, at.end)
    return Way(Fields(node, {"step": to, "on": on}), Arc(to=to, on=on, when=when, set=dict(set or {})))


def ways_of(draft: StepDraft) -> list[Way]:
    return [Way(fields, arc) for fields, arc in zip(draft.arcs, draft.step.arcs, strict=True)]


def with_ways(draft: StepDraft, ways: Iterable[Way], **changes: Any) -> StepDraft:
    """Return the same draft with other arcs."""
    every = list(ways)
    draft.step = structs.replace(draft.step, arcs=tuple(each.arc for each in every), **changes)
    draft.arcs = [each.fields for each in every]
    return draft


def router(block: str, name: str, at: Node, ways: Sequence[Way], **more: Any) -> StepDraft:
    """A step without work: it is bypassed, which takes no time and no worker, and its arcs are followed."""
    return _draft(block, Step(name=name, when=False, **more), at, ways)


def insistence(
    block: str,
    name: str,
    at: Node,
    error: str,
    keys: Mapping[str, Any],
    bound: Mapping[str, Any] | None = None,
    **more: Any,
) -> StepDraft:
    """A step that fails with the given message unless a condition holds."""
    work = Call(tool="assert", settings={"error": error})
    return _draft(
        block, Step(name=name, work=work, input={"$let": dict(bound or {}), "$in": dict(keys)}, **more), at, ()
    )


def _draft(block: str, step: Step, at: Node, ways: Sequence[Way]) -> StepDraft:
    name = Node(step.name, at.start, at.end)
    node = Node({"step": step.name}, at.start, at.end, nodes={"step": name}, keys={"step": at.start})
    draft = StepDraft(step.name, Fields(node, {"step": step.name}), step, [], frozenset(), "", [], block=block)
    return with_ways(draft, ways)


def otherwise(draft: StepDraft, on: str, ways: Sequence[Way]) -> list[Way]:
    """The arcs to take after an outcome for which the step takes no arc of its own."""
    own = [arc.when for arc in draft.step.arcs if arc.on in (on, "both")]
    if any(when in (None, True) for when in own):
        return []
    if draft.step.mode == "exclusive":
        return list(ways)
    found = []
    for each in ways:
        found.append(Way(each.fields, structs.replace(each.arc, when=_unless(own, each.arc.when))))
        own.append(each.arc.when)
        if each.arc.when in (None, True):
            break
    return found


def _unless(others: Sequence[Any], when: Any) -> Any:
    parts = [f"not ({expression(each)})" for each in others]
    parts += [f"({expression(when)})"] if when is not None else []
    return f"{{{{ {' and '.join(parts)} }}}}" if parts else None


def expression(condition: Any) -> str:
    """The expression of a condition, without its braces."""
    if isinstance(condition, bool) or condition is None:
        return "false" if condition is False else "true"
    return str(condition).strip()[2:-2].strip("-").strip()


def values_of(arcs: Iterable[Fields]) -> list[Value]:
    """The values of arcs that may contain templates."""
    return [Value(arc.node.nodes[key], "outcome") for arc in arcs for key in ("when", "set") if key in arc.values]


Catch = Callable[[str, Node], Sequence[Way]]


def used_up(block: str, most: int, at: Node) -> StepDraft:
    passes = f"{most:,} passes" if most > 1 else "1 pass"
    message = f"`{block}` has gone through {passes}, as many as `max_iterations` allows, and is not done"
    return insistence(block, f"{block}.limit", at, "max_iterations", {"that": False, "message": message})


def stuck(block: str, most: int, at: Node) -> StepDraft:
    passes = f"{most:,} passes in a row have" if most > 1 else "a pass has"
    keys = {"that": False, "message": f"`{block}` is stuck: {passes} changed nothing"}
    return insistence(block, f"{block}.stuck", at, "stuck", keys)


class Branching(Struct, frozen=True):
    """The branches of a parallel block: how their failures are recorded, and how the block ends."""

    block: str
    branches: list[str]
    enough: int  # branches that must go well
    fast: bool

    @property
    def too_many(self) -> int:
        return len(self.branches) - self.enough + 1

    @property
    def onward(self) -> str:
        """The arc of a branch that has completed."""
        return f"{self.block}.join" if self.fast else self.block

    @property
    def blank(self) -> dict[str, Any]:
        return {f"ctx.{self._key(each)}": {"branch": each, "failed": False, "error": None} for each in self.branches}

    def _key(self, branch: str) -> str:
        return f"{self.block}.failed.{branch}"

    def catch(self, branch: str) -> Catch:
        """Arcs that record a failure and end its branch."""
        to = f"{self.block}.{branch}.failed" if self.fast else self.block

        def caught(step: str, at: Node) -> Sequence[Way]:
            message = "{{ error.message | default(error.kind) }}"
            error = {"step": step, "kind": "{{ error.kind }}", "message": message}
            told = f"{branch} (`{step}`: {message})"
            noted = {"branch": branch, "failed": True, "error": error, "told": told}
            return [way(at, to, on="failure", set={f"ctx.{self._key(branch)}": noted})]

        return caught

    def between(self, at: Node) -> list[StepDraft]:
        """With `fail_fast`, one way to the verdict for branches that have all ended, one for too many failures.

        A failure leads to both, so that the first waits until no branch can fail any more.
        """
        if not self.fast:
            return []
        join = router(self.block, f"{self.block}.join", at, [way(at, self.block)])
        stops = self.too_many > 1
        soon = f"{self.block}.stop" if stops else self.block
        failed = [
            router(self.block, f"{self.block}.{each}.failed", at, [way(at, soon), way(at, join.name)], mode="inclusive")
            for each in self.branches
        ]
        stop = [router(self.block, soon, at, [way(at, self.block)], join=self.too_many)] if stops else []
        return [*failed, *stop, join]

    def verdict(self, at: Node) -> StepDraft:
        noted = {branch: f"ctx['{self._key(branch)}']" for branch in self.branches}
        wanted = f", and {self.enough} must go well" if self.enough < len(self.branches) else ""
        names = "map(attribute='branch') | list"
        failed = {
            "failed": f"{{{{ noted | selectattr('failed') | {names} }}}}",
            "errors": {branch: f"{{{{ {value}.error }}}}" for branch, value in noted.items()},
        }
        count = "noted | selectattr('failed') | list | length"
        keys = {
            "that": f"{{{{ {count} < {self.too_many} }}}}",
            "message": f"{{{{ {count} }}}} of {len(noted)} branches of `{self.block}` failed{wanted}:"
            " {{ noted | selectattr('failed') | map(attribute='told') | join('; ') }}",
            "result": {"succeeded": f"{{{{ noted | rejectattr('failed') | {names} }}}}", **failed},
            "data": failed,
        }
        bound = {"noted": [f"{{{{ {value} }}}}" for value in noted.values()]}
        join = "race" if self.fast else "all"
        return insistence(self.block, self.block, at, "branches_failed", keys, bound, join=join)


def branching(reading: Reading, fields: Fields, name: str, branches: list[str]) -> Branching:
    enough = fields.get("min_success", len(branches))
    if branches and enough > len(branches):
        message = f"`min_success` wants {enough} branches to go well, but there are {len(branches)}"
        reading.at(fields.node.nodes["min_success"], "out-of-range", message, "lower it, or leave it out")
        enough = len(branches)
    fast = fields.get("fail_fast", False)
    if fast and enough == 0:
        message = "`fail_fast` has no effect where no branch has to go well"
        reading.at_key(fields.node, "fail_fast", "no-effect", message, "leave it out, or raise `min_success`")
    return Branching(name, branches, enough, fast and enough > 0)
