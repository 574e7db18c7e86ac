"""Which steps can have run when a run comes to another."""

from collections.abc import Iterator
from functools import cached_property

from refold.authoring.sketch import Sketch

ROUNDS = 100  # loops inside loops, at most; of what is deeper nothing is said


class Order:
    """Computed when it is first asked for; sets of steps are the bits of a number."""

    def __init__(self, sketch: Sketch) -> None:
        self._steps = [draft.step for draft in sketch.drafts]
        self._index = {step.name: s for s, step in enumerate(self._steps)}
        self._final = {name for name, _ in sketch.finalizers()}

    def may_precede(self, source: str, target: str) -> bool:
        """Whether an arc leads from one to the other, over whatever is between them."""
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
        """Every step, sources before targets but for arcs that go back."""
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
