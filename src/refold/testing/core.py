"""Given facts, when decided, then facts: tests of a workflow without engine, store or time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.core import codec
from refold.core.commands import Command, Held, Letter
from refold.core.decide.decision import Decision
from refold.core.decide.rules import decide
from refold.core.expressions import CannotEvaluate, Evaluate, Missing, Path, TemplateScope, Values, step_into, unaliased
from refold.core.facts import Fact, ItemsSettled, Move, Routed, RunStarted, StepIssued, StepSettled
from refold.core.fold.apply import Record, fold
from refold.core.graph import analyse
from refold.core.outcomes import SECOND, Failed, Fault, Instant, Outcome, Report, Succeeded
from refold.core.plan import Plan, plan_hash
from refold.core.state import RunState
from refold.wiring import language

NOON: Instant = 1_800_000_000 * SECOND


class Then(Struct, frozen=True):
    """A decision: facts, and the commands, timers and letters that follow from them."""

    facts: tuple[Fact, ...]
    commands: tuple[Command, ...]  # handed out in this turn
    gone: tuple[str, ...]  # commands that are over or withdrawn
    held: tuple[str, ...]
    timers: Mapping[str, Instant | None]
    letters: tuple[Letter, ...]
    state: RunState


class Given:
    """A run of this plan with these facts, all at noon."""

    def __init__(self, plan: Plan, *facts: Fact, evaluate: Evaluate | None = None, run: str = "run") -> None:
        self.plan, self.graph = plan, analyse(plan)
        self.evaluate = language(plan.language) if plan.language else evaluate if evaluate is not None else Values()
        self.state = RunState(run=run)
        self.chance: Callable[[], float] = lambda: 0.5
        self.claimed: frozenset[str] = frozenset()
        self.refuses: Callable[[str], Fault | None] = lambda plan: None
        self.misfit: Callable[[str, dict[str, Any]], Fault | None] = lambda plan, input: None
        self.due: tuple[str, ...] = ()
        self.log: list[Record] = []
        self.blobs: dict[str, bytes] = {}
        past = Decision(self.graph, self.state, NOON, self.evaluate, self.chance)
        for fact in facts:
            past.record_fact(fact)
        self._note(past)

    def when_decided(self, after: float = 0.0) -> Then:
        """Decide at this number of seconds after noon."""
        return self.when(after=after)

    def when_due(self, *commands: str, after: float = 0.0) -> Then:
        """These children are due to start."""
        self.due = commands
        return self.when(after=after)

    def when(self, *facts: Fact, after: float = 0.0) -> Then:
        """One turn: these facts come in, and the rest is decided."""
        d = Decision(self.graph, self.state, NOON + round(after * SECOND), self.evaluate, self.chance)
        d.claimed = lambda: self.claimed
        d.refuses, d.misfit = self.refuses, self.misfit
        d.due, self.due = dict.fromkeys(self.due), ()
        for fact in facts:
            d.record_fact(fact)
        while True:
            try:
                decide(d)
                orders, timers = d.commands(), d.timers()
                break
            except Missing as missing:
                d.loaded.facts.update({number: self.log[number - 1][2] for number in missing.facts})
                d.loaded.blobs.update({hash: codec.unbox(self.blobs[hash]) for hash in missing.blobs})
        self._note(d)
        return Then(
            facts=tuple(d.facts[len(facts) :]),
            commands=tuple(order for order in orders.values() if isinstance(order, Command)),
            gone=tuple(command for command, order in orders.items() if order is None),
            held=tuple(command for command, order in orders.items() if isinstance(order, Held)),
            timers=timers,
            letters=tuple(d.letters),
            state=self.state,
        )

    def replayed(self) -> RunState:
        """The state, folded from the log only."""
        return fold(self.graph, self.log, RunState(run=self.state.run))

    def _note(self, d: Decision) -> None:
        first = len(self.log) + 1
        self.log.extend((number, d.now, fact) for number, fact in enumerate(d.facts, first))
        self.blobs.update(d.blobs)


def started(plan: Plan, **input: Any) -> RunStarted:
    return RunStarted(plan_hash(plan), input)


def issued(step: str, visit: int = 1, attempt: int = 1, **more: Any) -> StepIssued:
    return StepIssued(step, visit, attempt, **more)


def routed(*moves: Move) -> Routed:
    return Routed(moves)


def reported(
    step: str, outcome: Outcome, visit: int = 1, attempt: int = 1, item: int | None = None, **more: Any
) -> Fact:
    """A report of any outcome, with the other fields that a report can have: writes, usage, worker."""
    return _settled(step, visit, Report(attempt, outcome, item, **more))


def succeeded(step: str, result: Any = None, visit: int = 1, attempt: int = 1, item: int | None = None) -> Fact:
    return reported(step, Succeeded(result), visit, attempt, item)


def failed(
    step: str, kind: str = "error", visit: int = 1, attempt: int = 1, item: int | None = None, **more: Any
) -> Fact:
    return reported(step, Failed(Fault(kind, **more)), visit, attempt, item)


def _settled(step: str, visit: int, report: Report) -> Fact:
    if report.item is None:
        return StepSettled(step, visit, report)
    return ItemsSettled(step, visit, (report,))


class Scripted:
    """`{"script": [...]}` is a value per visit, `{"path": [...]}` the value at a path; everything else is itself."""

    def names(self, view: TemplateScope) -> TemplateScope:
        return view

    def value(self, template: Any, view: TemplateScope) -> Any:
        match template:
            case {"script": [*values]} if values:
                return self._checked(values[min(view["visit"], len(values)) - 1])
            case {"path": [str() as first, *rest]}:
                return self._look_up(view, first, rest)
            case {"equal": [left, right]}:
                return self.value(left, view) == self.value(right, view)
            case dict():
                return {key: self.value(each, view) for key, each in template.items()}
            case list():
                return [self.value(each, view) for each in template]
            case _:
                return template

    def truth(self, template: Any, view: TemplateScope) -> bool:
        return bool(self.value(template, view))

    def paths(self, template: Any) -> Sequence[Path]:
        match template:
            case {"path": [*names]}:
                return [tuple(names)]
            case {"script": _}:
                return []
            case dict():
                return [path for each in template.values() for path in self.paths(each)]
            case list():
                return [path for each in template for path in self.paths(each)]
            case _:
                return []

    def _checked(self, value: Any) -> Any:
        if value == "error":
            raise CannotEvaluate("the script says so")
        return value

    def _look_up(self, view: TemplateScope, first: str, rest: list[str]) -> Any:
        try:
            value = view[first]
            for name in rest:
                value = step_into(value, name)
        except (KeyError, TypeError, IndexError):
            raise CannotEvaluate(f"{'.'.join([first, *rest])!r} is not defined") from None
        value = unaliased(value)
        return dict(value) if isinstance(value, Mapping) else value  # as it is now: the run's own tables go on
