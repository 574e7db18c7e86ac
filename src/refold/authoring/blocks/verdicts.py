"""How blocks come to fail: loops that go on for too long or change nothing, and too few branches that went well."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from refold.authoring.blocks.ways import Way, insistence, router, way
from refold.authoring.reading import Fields, Reading
from refold.authoring.steps import Draft
from refold.authoring.yaml_text import Node

Catch = Callable[[str, Node], Sequence[Way]]


def used_up(block: str, most: int, at: Node) -> Draft:
    passes = f"{most:,} passes" if most > 1 else "1 pass"
    message = f"`{block}` has gone through {passes}, as many as `max_iterations` allows, and is not done"
    return insistence(block, f"{block}.limit", at, "max_iterations", {"that": False, "message": message})


def stuck(block: str, most: int, at: Node) -> Draft:
    passes = f"{most:,} passes in a row have" if most > 1 else "a pass has"
    keys = {"that": False, "message": f"`{block}` is stuck: {passes} changed nothing"}
    return insistence(block, f"{block}.stuck", at, "stuck", keys)


class Branching(Struct, frozen=True):
    """The branches of a parallel block: what is noted of their failures, and what is made of it."""

    block: str
    branches: list[str]
    enough: int  # branches that must go well
    fast: bool

    @property
    def too_many(self) -> int:
        return len(self.branches) - self.enough + 1

    @property
    def onward(self) -> str:
        """Where a branch leads when it went well."""
        return f"{self.block}.join" if self.fast else self.block

    @property
    def blank(self) -> dict[str, Any]:
        return {f"ctx.{self._key(each)}": {"branch": each, "failed": False, "error": None} for each in self.branches}

    def _key(self, branch: str) -> str:
        return f"{self.block}.failed.{branch}"

    def catch(self, branch: str) -> Catch:
        """A failure is noted, and ends its branch."""
        to = f"{self.block}.{branch}.failed" if self.fast else self.block

        def caught(step: str, at: Node) -> Sequence[Way]:
            message = "{{ error.message | default(error.kind) }}"
            error = {"step": step, "kind": "{{ error.kind }}", "message": message}
            told = f"{branch} (`{step}`: {message})"
            noted = {"branch": branch, "failed": True, "error": error, "told": told}
            return [way(at, to, on="failure", set={f"ctx.{self._key(branch)}": noted})]

        return caught

    def between(self, at: Node) -> list[Draft]:
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

    def verdict(self, at: Node) -> Draft:
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
