"""What the tests of the core share: a run whose state is always what its log says, and short ways to write plans."""

from typing import Any

from refold.core import codec
from refold.core.expressions import Evaluate
from refold.core.facts import Fact
from refold.core.plan import Arc, Plan, Step
from refold.testing import core
from refold.testing.core import Scripted, Then, started

__all__ = ["Given", "Then", "chain", "plan", "start", "step"]


class Given(core.Given):
    """Templates are scripts here; after every turn the log alone, and a snapshot, must give the same state."""

    def __init__(self, plan: Plan, *facts: Fact, evaluate: Evaluate | None = None, run: str = "run") -> None:
        super().__init__(plan, *facts, evaluate=evaluate if evaluate is not None else Scripted(), run=run)

    def when(self, *facts: Fact, after: float = 0.0) -> Then:
        then = super().when(*facts, after=after)
        assert self.replayed() == self.state
        assert codec.decode_snapshot(codec.encode_snapshot(self.state)) == self.state
        assert [codec.decode_fact(codec.encode_fact(fact)) for _, _, fact in self.log] == [each[2] for each in self.log]
        return then


def start(plan: Plan, **input: Any) -> Given:
    """A run of this plan that has taken its first turn."""
    run = Given(plan)
    run.when(started(plan, **input))
    return run


def plan(*steps: Step, **more: Any) -> Plan:
    return Plan(name="plan", steps=steps, **more)


def step(name: str, *to: str | Arc, **more: Any) -> Step:
    return Step(name=name, arcs=tuple(Arc(to=each) if isinstance(each, str) else each for each in to), **more)


def chain(*names: str) -> Plan:
    return plan(*(step(name, *names[i + 1 : i + 2]) for i, name in enumerate(names)))
