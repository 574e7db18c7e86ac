"""Migration of a run to another plan: whether it is possible, and how a log with several plans is folded."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from refold.core.decide.decision import Decision
from refold.core.facts import RunMigrated, RunStarted
from refold.core.fold import migrate as remapping
from refold.core.fold.apply import Record, fold
from refold.core.fold.events import open_requests, waiting
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Instant
from refold.core.pipeline import TaskPipeline
from refold.core.plan import START, Call, Child, Collect, Fail, Gate, Loop, Quality, Step, Wait, WorkerWork, is_body
from refold.core.state import RUNNING, RunState
from refold.errors import Corrupt

Graphs = Callable[[str], Graph]
"""Returns the graph of a plan, by the hash of the plan."""

FREE = (
    "items",
    "max_in_flight",
    "computed_max_in_flight",
    "on_item_error",
    "loose",
    "tolerate",
    "min_success",
)  # may change in a running loop


class Refusal(Struct, frozen=True):
    """A reason why a run cannot be migrated."""

    step: str  # empty if the reason concerns the whole plan
    why: str


def replay(graphs: Graphs, records: Sequence[Record], state: RunState) -> Graph:
    """Fold facts into the state, each with the plan of its time; return the graph of the newest plan."""
    if not state.plan:
        first = records[0][2] if records else None
        if not isinstance(first, RunStarted):
            raise Corrupt(f"the log of run {state.run} begins with {type(first).__name__}")
        state.plan = first.plan
    graph, begin = graphs(state.plan), 0
    for end, (number, at, fact) in enumerate(records):
        if isinstance(fact, RunMigrated):
            fold(graph, records[begin:end], state)
            if number != state.seq + 1:
                raise Corrupt(f"fact {number} follows fact {state.seq}")
            old, graph, begin = graph, graphs(fact.plan), end + 1
            migrated(old, graph, state, at, fact)
    fold(graph, records[begin:] if begin else records, state)
    return graph


def migrated(old: Graph, new: Graph, state: RunState, at: Instant, fact: RunMigrated) -> None:
    """Fold a RunMigrated fact. It is the only fact whose fold needs two graphs."""
    if state.life != RUNNING:
        raise Corrupt(f"RunMigrated of the run, which is {state.life}")
    state.seq, state.at, state.plan = state.seq + 1, at, fact.plan
    (remapping.carry_events if new.by_events else remapping.carry_arcs)(old, new, state)
    remapping.carry_commands(old, new, state)
    _carry_policies(old, new, state)


def _carry_policies(old: Graph, new: Graph, state: RunState) -> None:
    """Apply limits that differ between the plans. If they are equal, a limit raised for this run stays raised."""
    if not new.plan.computed:
        state.input = {**new.plan.defaults, **state.input}
    was, now = old.plan.budget, new.plan.budget
    for unit in {**was, **now}:
        if unit not in now:
            state.budget.pop(unit, None)
        elif was.get(unit) != now[unit]:
            state.budget[unit] = now[unit]
    if old.plan.timeout == new.plan.timeout:
        return
    if new.plan.timeout is None:
        state.deadline = None
    elif state.deadline is None or old.plan.timeout is None:
        state.deadline = (state.paused_at if state.paused else state.at) + round(new.plan.timeout * SECOND)
    else:
        state.deadline += round((new.plan.timeout - old.plan.timeout) * SECOND)


def migrate(d: Decision, new: Graph, fact: RunMigrated) -> None:
    """Record the migration; the caller has checked that there are no refusals.

    Python bodies that are running start over with the new code, and suspended ones when what they wait for has come.
    Other running commands finish as they were issued.
    """
    claimed_now = d.claimed_now()
    migrated(d.graph, new, d.state, d.now, fact)
    d.graph = new
    d.facts.append(fact)
    d.restarted = [command for command in restarting(new, d.state) if command in claimed_now]
    d.touch_open(claimed_now.difference(d.restarted))


def restarting(graph: Graph, state: RunState) -> list[str]:
    """Return the commands that are Python bodies: their code belongs to one plan."""
    return [command for command, opened in state.open.items() if is_body(graph.step(opened.step))]


def refusals(old: Graph, new: Graph, state: RunState) -> list[Refusal]:
    """Return why the run cannot be migrated, with one reason per step."""
    by_step: dict[str, Refusal] = {}
    for step, why in _of_the_whole(old, new, state):
        by_step.setdefault(step, Refusal(step, why))
    if not by_step:
        of_steps = _of_inboxes if old.by_events else remapping.misfits
        for step, why in (*_of_commands(old, new, state), *of_steps(old, new, state)):
            by_step.setdefault(step, Refusal(step, why))
    return list(by_step.values())


def _of_the_whole(old: Graph, new: Graph, state: RunState) -> Iterator[remapping.Misfit]:
    if old.by_events != new.by_events:
        kinds = {True: "events", False: "arcs"}
        yield "", f"its steps follow {kinds[old.by_events]}, and those of the new plan {kinds[new.by_events]}"
    if old.plan.language != new.plan.language:
        yield "", "the new plan is written in another language"
    if new.plan.computed and (missing := new.plan.defaults.keys() - state.input.keys()):
        yield "", f"inputs that the run does not have are computed when it starts: {', '.join(sorted(missing))}"


def _of_commands(old: Graph, new: Graph, state: RunState) -> Iterator[remapping.Misfit]:
    for command, opened in state.open.items():
        old_step = old.step(opened.step)
        if old_step.name not in new.index:
            yield old_step.name, f"{command} is open, and the new plan has no such step"
            continue
        why = _changed(old_step, new.step(new.index[old_step.name]))
        if why:
            yield old_step.name, f"{command} is open, and {why}"


def _changed(was: Step, now: Step) -> str:
    if _kind(was) != _kind(now):
        return f"it was {_kind(was)} and would be {_kind(now)}"
    if was.loop is not None and now.loop is not None and _shape(was.loop) != _shape(now.loop):
        return "its loop is running, and would become another loop"
    if isinstance(was.work, WorkerWork) and not is_body(was) and was.input != now.input:
        return "its input would differ from the input that it was issued with"
    return ""


def _kind(step: Step) -> str:
    match step.work:
        case Call() | TaskPipeline():
            kind = "code" if is_body(step) else f"a call of {step.work.tool}"
        case Wait():
            kind = "a wait"
        case Gate():
            kind = "a gate"
        case Quality():
            kind = "a quality check"
        case Child():
            kind = "a child run"
        case Fail():
            kind = "a failure"
    return f"{kind}{' for each item' * (step.loop is not None)}{' that is repeated' * (step.poll is not None)}"


def _shape(loop: Loop) -> list[object]:
    return [getattr(loop, name) for name in loop.__struct_fields__ if name not in FREE]


def _of_inboxes(old: Graph, new: Graph, state: RunState) -> Iterator[remapping.Misfit]:
    """Check that each step still takes the events that wait for it or that it is running for."""
    count = dict(waiting(old, state))
    opened = {old.name(command.step) for command in state.open.values()}
    for name in [name for name in old.index if name in count or name in opened]:
        reason = f"{count[name]} events wait for it" if name in count else "it is being run"
        if name not in new.index:
            yield name, f"{reason}, and the new plan has no such step"
            continue
        s, n = old.index[name], new.index[name]
        types = [type for type, takers in old.takers.items() if s in takers and n not in new.takers.get(type, ())]
        if types:
            yield name, f"{reason}, and it would no longer take {', '.join(types)}"
        elif _gathers(old.step(s).collect) != _gathers(new.step(n).collect):
            yield name, f"{reason}, and it would collect them in another way"
        else:
            of_step = (type for type, takers in old.takers.items() if s in takers)
            yield from ((name, f"{reason}, and {why}") for type in of_step for why in _reshaped(old, new, state, type))
    for request in open_requests(state):
        if not new.takers.get(request.asks.answer):
            asks = f"it has asked {request.asks.id!r}, and a person has to answer"
            yield request.step, f"{asks}; no step of the new plan would take {request.asks.answer}"
    for type, sender in state.untaken:
        if sender and sender not in new.index:
            yield sender, f"it has sent {type}, which no step took, and the new plan has no such step"


def _reshaped(old: Graph, new: Graph, state: RunState, type: str) -> Iterator[str]:
    """Return what a stored event would lose or lack in the new plan; it may gain fields with a default.

    Of a plan that was stored before plans named their code, the fields are not known.
    """
    was = next((each for each in old.plan.events if each.name == type), None)
    now = next((each for each in new.plan.events if each.name == type), None)
    if was is None or now is None or old.plan.code is None:
        return
    stored = was.field_names | state.input.keys() if type == START else was.field_names
    lacking, gone = sorted({*now.required} - stored), sorted(was.field_names - now.field_names)
    if lacking:
        yield f"{type} would need {', '.join(lacking)}, which it does not have: give a default"
    if gone:
        yield f"{type} would lose {', '.join(gone)}: keep the field until no run needs it"


def _gathers(collect: Collect | None) -> str | None:
    return None if collect is None else collect.by
