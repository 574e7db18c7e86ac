"""Tests in the form: given what a run has done, when something happens, then this follows."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypedDict, Unpack

from refold.core.facts import StepSettled
from refold.core.outcomes import Sent
from refold.core.plan import START
from refold.core.state import FAILED, TERMINAL
from refold.errors import Conflict, InvalidValue, RunFailed
from refold.names import did_you_mean
from refold.python.definition import Definition, define, is_workflow
from refold.testing.bench.fakes import Called, Fake
from refold.testing.bench.run import Run, RunBench
from refold.testing.bench.switchboard import LET_THROUGH, Switchboard


class GivenBench(RunBench, Protocol):
    """The part of a bench that is needed here."""

    board: Switchboard

    def begin(self, workflow: Any, inputs: Sequence[Any], named: Mapping[str, Any], run: str) -> Run: ...

    def advance(self, span: str | float) -> None: ...


class Happens(TypedDict, total=False):
    """What can happen to a run; several things happen one after the other, in this order."""

    runs: str | Sequence[str]  # these steps really run
    outcome: Mapping[str, Any]  # what steps come to: a result, an exception, or events of a Python workflow
    signal: str  # comes, with `value`
    value: Any
    answer: Any  # to the question that is open
    decision: Mapping[str, str]  # options, by gates
    time: str | float  # passes


class Follows(TypedDict, total=False):
    """What is asserted."""

    issued: str | Sequence[str] | Mapping[str, Any]  # steps that are handed out now, perhaps with their inputs
    emitted: Any  # events that were sent since, in their order
    result: Any  # of the run, which is over
    waits_for: str | Sequence[str]  # pieces of what `waits` says
    failed: str  # a piece of why the run has failed
    status: str


class GivenRun:
    """A run of a workflow. Only steps with a given outcome are done; the others are handed out and stay so."""

    def __init__(self, bench: GivenBench, workflow: Any, inputs: Mapping[str, Any]) -> None:
        self._bench, self._workflow, self._inputs = bench, workflow, dict(inputs)
        self._definition: Definition | None = define(workflow) if is_workflow(workflow) else None
        self._held_steps = _HeldSteps()
        self._run: Run | None = None
        self._seen = 0  # facts before the last `when`

    def input(self, **inputs: Any) -> "GivenRun":
        self._not_begun("input")
        self._inputs |= inputs
        return self

    def has_done(self, step: str, result: Any = None, *, item: int | None = None) -> "GivenRun":
        """The step had this result, or failed with this exception; in a Python workflow it sent these events.

        A second call is for the next visit.
        """
        self._not_begun("has_done")
        self._check_step(step)
        self._held_steps.outcomes.setdefault((step, item), []).append(result)
        return self

    def event(self, *events: Any) -> "GivenRun":
        """These events were sent, instead of those that the first step would send."""
        if self._definition is None:
            raise InvalidValue("event", "only Python workflows have events")
        first, *others = (step.name for step in self._definition.plan.steps if START in step.accepts)
        for other in others:
            self.has_done(other)
        return self.has_done(first, list(events))

    def when(self, **happens: Unpack[Happens]) -> "GivenRun":
        """`runs`, `outcome`, `signal` (with `value`), `answer`, `decision`, `time`."""
        run = self.run
        self._seen = len(self._bench.store.facts(run.id))
        runs = happens.get("runs", ())
        for step in [runs] if isinstance(runs, str) else runs:
            self._settle(step, LET_THROUGH)
        for step, outcome in happens.get("outcome", {}).items():
            self._settle(step, outcome)
        if "signal" in happens:
            run.signal(happens["signal"], happens.get("value"))
        if "answer" in happens:
            run.answer(happens["answer"])
        for gate, option in happens.get("decision", {}).items():
            run.decide(gate, option)
        if "time" in happens:
            self._bench.advance(happens["time"])
        return self

    def then(self, **follows: Unpack[Follows]) -> "GivenRun":
        """`issued`, `emitted`, `result`, `waits_for`, `failed`, `status`. Raises AssertionError, with the history."""
        checks: dict[str, Callable[[Any], None]] = {
            "issued": self._check_issued,
            "emitted": self._check_emitted,
            "waits_for": self._check_waits,
            "status": lambda wanted: self._same("status", wanted, self.run.status),
            "failed": self._check_failed,
            "result": self._check_result,
        }
        assert self.run  # the run advances as far as it can before anything is checked
        for what, wanted in follows.items():
            checks[what](wanted)
        return self

    @property
    def run(self) -> Run:
        """The run, which starts when this is first used."""
        if self._run is None:
            id = f"given{len(self._bench.board.held_runs) + 1}"
            self._bench.board.held_runs[id] = self._held_steps
            self._run = self._bench.begin(self._workflow, (), self._inputs, id)
        return self._run

    def _not_begun(self, what: str) -> None:
        if self._run is not None:
            raise Conflict(f"`{what}` is for the past of a run, and this one has started: use `when(outcome=…)`")

    def _check_step(self, step: str) -> None:
        if self._definition is None:
            return
        plan = self._definition.plan
        known = [each.name for each in plan.steps]
        if step not in known:
            raise InvalidValue(step, f"{plan.name} has no such step: {did_you_mean(step, known)}")

    def _settle(self, step: str, outcome: Any) -> None:
        held = [each for each in self._held_steps.held if each.called.step == step]
        if not held:
            open = ", ".join(each.called.command for each in self._held_steps.held) or "none"
            raise AssertionError(f"step {step!r} is not handed out; those that are: {open}\n{self.run.story()}")
        self._bench.do(held[0].end(outcome))

    def _check_issued(self, wanted: str | Sequence[str] | Mapping[str, Any]) -> None:
        found = {each.called.step: each.called.input for each in self._held_steps.held}
        if isinstance(wanted, Mapping):
            self._same("issued", dict(wanted), {step: found[step] for step in found if step in wanted} or found)
            return
        names = sorted([wanted] if isinstance(wanted, str) else wanted)
        self._same("issued", names, sorted(each.called.step for each in self._held_steps.held))

    def _check_emitted(self, wanted: Any) -> None:
        self._same("emitted", wanted if isinstance(wanted, list) else [wanted], self._emitted())

    def _check_waits(self, wanted: str | Sequence[str]) -> None:
        for piece in [wanted] if isinstance(wanted, str) else wanted:
            if not any(piece in each for each in self.run.waits):
                self._differs("waits for", piece, self.run.waits)

    def _check_failed(self, wanted: str) -> None:
        if self.run.status != FAILED or wanted not in self.run.error:
            self._differs("failed", wanted, self.run.error or self.run.status)

    def _check_result(self, wanted: Any) -> None:
        if self.run.status not in TERMINAL:
            self._differs("result", wanted, f"the run is {self.run.status}; waits: {self.run.waits}")
        try:
            self._same("result", wanted, self.run.result())
        except RunFailed:
            self._differs("result", wanted, f"the run failed: {self.run.error}")

    def _emitted(self) -> list[Any]:
        facts = [fact for _, _, fact in self._bench.store.facts(self.run.id, self._seen)]
        sent = [each for fact in facts if isinstance(fact, StepSettled) for each in fact.report.events]
        return [self._event(each) for each in sent]

    def _event(self, sent: Sent) -> Any:
        assert self._definition is not None
        return self._definition.received(sent.type, sent.data)

    def _same(self, what: str, wanted: Any, found: Any) -> None:
        if wanted != found:
            self._differs(what, wanted, found)

    def _differs(self, what: str, wanted: Any, found: Any) -> None:
        raise AssertionError(f"{what}:\n  expected  {wanted!r}\n  but it is {found!r}\n{self.run.story()}")


class _Held:
    """A call that waits for the test to say what comes of it."""

    def __init__(self, called: Called) -> None:
        self.called = called
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def end(self, outcome: Any) -> None:
        self.outcome.set_result(outcome)


class _HeldSteps:
    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, int | None], list[Any]] = {}
        self.held: list[_Held] = []
        self.let_through: set[str] = set()  # commands that go on by themselves, however often they have to wait

    async def outcome(self, called: Called) -> Any:
        if called.command in self.let_through:
            return LET_THROUGH
        outcomes = self.outcomes.get((called.step, called.item)) or self.outcomes.get((called.step, None))
        if outcomes:
            return await _come(called, outcomes.pop(0) if called.item is None else outcomes[0])
        held = _Held(called)
        self.held.append(held)
        try:
            outcome = await held.outcome
        finally:
            self.held.remove(held)
        if outcome is LET_THROUGH:
            self.let_through.add(called.command)
        return await _come(called, outcome)


async def _come(called: Called, outcome: Any) -> Any:
    """An exception is raised; anything else is what came."""
    if outcome is LET_THROUGH or isinstance(outcome, list):
        return outcome
    return await Fake(called.step, outcome)(called)
