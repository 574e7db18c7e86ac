"""A workflow under many seeds: processes die, leases are lost, reports come late, and it must end as if undisturbed."""

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
from refold.playbooks.playbook import Playbook
from refold.python.definition import define, with_children
from refold.python.load import load
from refold.runtime.children import check_inputs
from refold.testing.bench.recordings import Replay, read
from refold.testing.simulator.faults import Rates
from refold.testing.simulator.oracles import Violation
from refold.testing.simulator.user_workflow import Memo, Stand, Subject
from refold.wiring.playbook_files import playbook

CALM = Rates()
MORE = 50  # times the steps of the undisturbed run
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Ended(Struct, frozen=True):
    """How a run ended, as far as it must be the same in every seed."""

    status: str
    result: Any = None
    error: str = ""

    def __str__(self) -> str:
        return f"{self.status}, {self.error}" if self.error else f"{self.status} with {_cut(repr(self.result))}"


class Broken(Struct, frozen=True):
    """A promise that was broken."""

    seed: int
    why: str
    history: tuple[str, ...]
    faults: dict[str, int]


class Simulated(Struct):
    """What came of all seeds."""

    workflow: str
    undisturbed: str
    seeds: int = 0
    faults: dict[str, int] = {}
    commits: int = 0  # of the undisturbed run; a process is killed at one of them in every seed
    compared: int = 0  # seeds whose result was held against the undisturbed one
    excused: int = 0  # seeds in which a command was given up after too many losses, or ran out of its time
    any_result: bool = False  # results were not compared at all
    made_up: tuple[str, ...] = ()  # steps whose results nobody has computed
    unrecorded: tuple[str, ...] = ()
    broken: Broken | None = None


class SimFailed(Violation):
    """A seed broke a promise; `simulated` has it all."""

    def __init__(self, simulated: Simulated) -> None:
        self.simulated, broken = simulated, simulated.broken
        assert broken is not None
        lines = [f"seed {broken.seed}: {broken.why}", f"faults: {dict(broken.faults)}", *broken.history]
        super().__init__("\n".join(lines))


class Asked(Struct, frozen=True, kw_only=True):
    """How to simulate."""

    seeds: int = 200
    seed: int = 0  # the first
    replay: Sequence[str | os.PathLike[str]] = ()
    signals: Mapping[str, Any] = {}
    answer: Any = "yes"
    fake: Sequence[str] = ()
    any_result: bool = False  # it may depend on order and time


def sim(workflow: Any, input: Mapping[str, Any] | None = None, asked: Asked | None = None, **inputs: Any) -> Simulated:
    """Raises SimFailed at the first seed that breaks a promise; else tells what was tried."""
    simulated = simulate_all(subject_of(workflow, {**(input or {}), **inputs}, asked or Asked()), asked or Asked())
    if simulated.broken is not None:
        raise SimFailed(simulated)
    return simulated


def subject_of(workflow: Any, input: Mapping[str, Any], asked: Asked) -> Subject:
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
    subject: Subject, asked: Asked, each: Callable[[Simulated], None] = lambda simulated: None
) -> Simulated:
    """Seed after seed, up to the first that breaks a promise; `each` is told of every one."""
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

    ended: Ended
    commits: int = 1
    steps: int = 0  # of the loop
    broken: Broken | None = None


def _calm(subject: Subject, memo: Memo, seed: int) -> Calm:
    """Without any fault: how it ends, and with how many commits."""
    stand = Stand(subject, memo, seed, CALM)
    try:
        stand.trial(nodes=1)
        return Calm(_ended(stand), stand.watching.writes, stand.loop.steps)
    except Violation as error:
        why = f"even undisturbed, {error}"
        return Calm(Ended("running"), broken=Broken(seed, why, tuple(stand.story()), {}))
    finally:
        stand.loop.close()


def _trial(subject: Subject, memo: Memo, seed: int, calm: Calm, simulated: Simulated) -> Broken | None:
    cut = random.Random(f"{seed}/cut").randint(2, max(calm.commits, 2))
    stand = Stand(subject, memo, seed, None, cut)
    stand.limit += MORE * calm.steps
    try:
        stand.trial()
        if _is_excused(stand):
            simulated.excused += 1
        elif not simulated.any_result:
            simulated.compared += 1
            ended = _ended(stand)
            if ended != calm.ended:
                raise Violation(f"it ended as {ended}; undisturbed it ends as {calm.ended}")
    except Violation as error:
        return Broken(seed, str(error), tuple(stand.story()), dict(stand.faults.seen))
    finally:
        simulated.faults = dict(Counter(simulated.faults) + stand.faults.seen)
        stand.loop.close()
    return None


def _ended(stand: Stand) -> Ended:
    state: RunState = stand.folded(stand.run_id)
    result, error = _timeless(state.result), state.error
    if state.blob is not None:
        result = state.blob.hash
    if error is None:
        return Ended(state.life, result)
    why = fault_text(error.fault) if error.fault is not None else error.why
    return Ended(state.life, result, f"{error.step}: {why}" if error.step else why)


def _timeless(value: Any) -> Any:
    """Without moments, such as that of a decision: they depend on time, of course."""
    if isinstance(value, str):
        return MOMENT.sub("(a moment)", value)
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items()}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def _is_excused(stand: Stand) -> bool:
    """A command was given up because its workers kept dying, or one ran out of its time: that is no defect."""
    for entries in stand.store.logs.values():
        if any(b'"kind":"lost"' in entry.data or b'"timed_out"' in entry.data for entry in entries):
            return True
    return False


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[:most] + "…"
