"""Runs a workflow under many seeds of faults, and checks that it ends as it does without faults."""

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.core.faults import fault_text
from refold.core.plan import Plan
from refold.core.state import RunState
from refold.errors import InvalidValue
from refold.playbooks.playbook import Playbook
from refold.python.definition import define, with_children
from refold.python.load import load
from refold.runtime.children import check_inputs
from refold.testing.bench.recordings import Replay, read
from refold.testing.simulator.faults import Rates
from refold.testing.simulator.oracles import Violation
from refold.testing.simulator.user_workflow import Endless, Memo, Subject, WorkflowSimulation
from refold.wiring.playbook_files import playbook

CALM = Rates()
MORE = 50  # times the steps of the undisturbed run
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class TrialEnd(Struct, frozen=True):
    """How a run ended, as far as it must be the same in every seed."""

    status: str
    result: Any = None
    error: str = ""

    def __str__(self) -> str:
        return f"{self.status}, {self.error}" if self.error else f"{self.status} with {_cut(repr(self.result))}"


class Broken(Struct, frozen=True):
    """A guarantee that did not hold."""

    seed: int
    why: str
    history: tuple[str, ...]
    faults: dict[str, int]


class Simulated(Struct):
    """The result of all seeds."""

    workflow: str
    undisturbed: str
    seeds: int = 0
    faults: dict[str, int] = {}
    commits: int = 0  # of the undisturbed run; a process is killed at one of them in every seed
    compared: int = 0  # seeds whose result was compared with that of the run without faults
    excused: int = 0  # seeds in which a command was given up after too many losses, or ran out of its time
    any_result: bool = False  # results were not compared at all
    made_up: tuple[str, ...] = ()  # steps whose results were invented
    unrecorded: tuple[str, ...] = ()
    broken: Broken | None = None


class SimFailed(Violation):
    """A guarantee did not hold in a seed; `simulated` has the details."""

    def __init__(self, simulated: Simulated) -> None:
        self.simulated, broken = simulated, simulated.broken
        assert broken is not None
        lines = [f"seed {broken.seed}: {broken.why}", f"faults: {dict(broken.faults)}", *broken.history]
        super().__init__("\n".join(lines))


class SimulationOptions(Struct, frozen=True, kw_only=True):
    """The options of a simulation."""

    seeds: int = 200
    seed: int = 0  # the first
    replay: Sequence[str | os.PathLike[str]] = ()
    signals: Mapping[str, Any] = {}
    answer: Any = "yes"
    fake: Sequence[str] = ()
    any_result: bool = False  # the result may depend on order and time, and is not compared


def sim(
    workflow: Any, input: Mapping[str, Any] | None = None, asked: SimulationOptions | None = None, **inputs: Any
) -> Simulated:
    """Simulate all seeds. Raise SimFailed at the first seed in which a guarantee does not hold."""
    simulated = simulate_all(
        subject_of(workflow, {**(input or {}), **inputs}, asked or SimulationOptions()), asked or SimulationOptions()
    )
    if simulated.broken is not None:
        raise SimFailed(simulated)
    return simulated


def subject_of(workflow: Any, input: Mapping[str, Any], asked: SimulationOptions) -> Subject:
    replay = Replay([read(file) for file in asked.replay]) if asked.replay else None
    more = {"replay": replay, "signals": asked.signals, "answer": asked.answer, "faked": tuple(asked.fake)}
    if isinstance(workflow, str | os.PathLike):
        workflow = playbook(workflow)
    if isinstance(workflow, Playbook):
        check_inputs(workflow.plan, dict(input))
        children = tuple(child.plan for child in workflow.children)
        code = tuple(map(load, workflow.code))
        return Subject(workflow.plan.name, workflow.plan, dict(input), children, code=code, **more)
    if isinstance(workflow, Plan):
        return Subject(workflow.name, workflow, dict(input), **more)
    definition = define(workflow)
    children = tuple(each.plan for each in with_children(definition)[1:])
    definition.begun(input)
    subject = Subject(definition.plan.name, definition.plan, dict(input), (), workflow, definition, **more)
    return structs.replace(subject, children=children)


def simulate_all(
    subject: Subject, asked: SimulationOptions, each: Callable[[Simulated], None] = lambda simulated: None
) -> Simulated:
    """Simulate seed after seed, up to the first in which a guarantee does not hold; `each` is called after each."""
    memo = Memo()
    calm = _calm(subject, memo, asked.seed)
    simulated = Simulated(subject.name, str(calm.ended), commits=calm.commits, any_result=asked.any_result)
    simulated.broken = calm.broken
    for seed in range(asked.seed, asked.seed + asked.seeds) if simulated.broken is None else ():
        if memo.made_up and seed != asked.seed:
            calm = _calm(subject, memo, seed)
        simulated.broken = calm.broken or _trial(subject, memo, seed, calm, simulated)
        simulated.seeds += 1
        each(simulated)
        if simulated.broken is not None:
            break
    simulated.made_up = tuple(sorted(memo.made_up))
    simulated.unrecorded = () if subject.replay is None else tuple(subject.replay.missing)
    return simulated


class Calm(Struct, frozen=True):
    """The undisturbed run of a seed."""

    ended: TrialEnd
    commits: int = 1
    steps: int = 0  # of the loop
    broken: Broken | None = None


def _calm(subject: Subject, memo: Memo, seed: int) -> Calm:
    """Run without faults, and return how the run ends and with how many commits."""
    simulation = WorkflowSimulation(subject, memo, seed, CALM)
    try:
        simulation.trial(nodes=1)
        return Calm(_ended(simulation), simulation.watching.writes, simulation.loop.steps)
    except Violation as error:
        if isinstance(error, Endless) and (polls := simulation.polls_in_vain()):
            raise InvalidValue(
                f"the poll {', '.join(polls)}",
                "it looks again and again, and no result that is made up ends it: --replay gives those of a recording",
            ) from None
        why = f"even undisturbed, {error}"
        return Calm(TrialEnd("running"), broken=Broken(seed, why, tuple(simulation.story()), {}))
    finally:
        simulation.loop.close()


def _trial(subject: Subject, memo: Memo, seed: int, calm: Calm, simulated: Simulated) -> Broken | None:
    cut = random.Random(f"{seed}/cut").randint(2, max(calm.commits, 2))
    simulation = WorkflowSimulation(subject, memo, seed, None, cut)
    simulation.limit += MORE * calm.steps
    try:
        simulation.trial()
        if _is_excused(simulation):
            simulated.excused += 1
        elif not simulated.any_result:
            simulated.compared += 1
            ended = _ended(simulation)
            if ended != calm.ended:
                raise Violation(f"it ended as {ended}; undisturbed it ends as {calm.ended}")
    except Violation as error:
        return Broken(seed, str(error), tuple(simulation.story()), dict(simulation.faults.seen))
    finally:
        simulated.faults = dict(Counter(simulated.faults) + simulation.faults.seen)
        simulation.loop.close()
    return None


def _ended(simulation: WorkflowSimulation) -> TrialEnd:
    state: RunState = simulation.folded(simulation.run_id)
    result, error = _timeless(state.result), state.error
    if state.blob is not None:
        result = state.blob.hash
    if error is None:
        return TrialEnd(state.life, result)
    why = fault_text(error.fault) if error.fault is not None else error.why
    return TrialEnd(state.life, result, f"{error.step}: {why}" if error.step else why)


def _timeless(value: Any) -> Any:
    """The value without times, such as that of a decision, because they differ between seeds."""
    if isinstance(value, str):
        return MOMENT.sub("(a moment)", value)
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items()}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def _is_excused(simulation: WorkflowSimulation) -> bool:
    """Whether a command was given up because its workers kept dying, or ran out of time: that is not a defect."""
    for entries in simulation.store.logs.values():
        if any(b'"kind":"lost"' in entry.data or b'"timed_out"' in entry.data for entry in entries):
            return True
    return False


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[:most] + "…"
