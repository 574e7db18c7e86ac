"""A run moves to another plan: what stands in its way, and how its log is folded, each fact by the plan of its time."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from refold.core.decide.decision import Decision
from refold.core.facts import RunMigrated, RunStarted
from refold.core.fold import migrate as remapping
from refold.core.fold.apply import Record, fold
from refold.core.fold.events import waiting
from refold.core.graph import Graph
from refold.core.outcomes import SECOND, Instant
from refold.core.plan import Call, Child, Collect, Gate, Loop, Quality, Step, Wait, is_body
from refold.core.state import RUNNING, RunState
from refold.errors import Corrupt

Graphs = Callable[[str], Graph]
"""Graphs by the hashes of their plans."""

FREE = ("items", "window", "at_once", "failures", "loose", "tolerate", "min_success")  # of a loop that is going on


class Refusal(Struct, frozen=True):
    """Why a run cannot be moved."""

    step: str  # empty: it is about the plan as a whole
    why: str


def replay(graphs: Graphs, records: Sequence[Record], state: RunState) -> Graph:
    """Fold facts into the state, each by the plan of its time; returns the graph that counts from here on."""
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
    """The fold of this one fact, which knows two graphs."""
    if state.life != RUNNING:
        raise Corrupt(f"RunMigrated of the run, which is {state.life}")
    state.seq, state.at, state.plan = state.seq + 1, at, fact.plan
    (remapping.carry_events if new.by_events else remapping.carry_arcs)(old, new, state)
    remapping.carry_commands(old, new, state)
    _carry_policies(old, new, state)


def _carry_policies(old: Graph, new: Graph, state: RunState) -> None:
    """A limit that is another one counts from now on; one that somebody has raised meanwhile stays so."""
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
    """Say it; the caller has asked whether anything stands in the way. What is code starts over where the new code is;
    what else is at work ends as it was begun."""
    claimed_now = d.claimed_now()
    migrated(d.graph, new, d.state, d.now, fact)
    d.graph = new
    d.facts.append(fact)
    d.restarted = [command for command in restarting(new, d.state) if command in claimed_now]
    d.touch_open(claimed_now.difference(d.restarted))


def restarting(graph: Graph, state: RunState) -> list[str]:
    """Commands that are code, and so belong to one plan."""
    return [command for command, opened in state.open.items() if is_body(graph.step(opened.step))]


def refusals(old: Graph, new: Graph, state: RunState) -> list[Refusal]:
    """All that stands in the way, one reason for each step."""
    found: dict[str, Refusal] = {}
    for step, why in _of_the_whole(old, new, state):
        found.setdefault(step, Refusal(step, why))
    if not found:
        of_steps = _of_inboxes if old.by_events else remapping.misfits
        for step, why in (*_of_commands(old, new, state), *of_steps(old, new, state)):
            found.setdefault(step, Refusal(step, why))
    return list(found.values())


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
        was = old.step(opened.step)
        if was.name not in new.index:
            yield was.name, f"{command} is open, and the new plan has no such step"
            continue
        why = _changed(was, new.step(new.index[was.name]))
        if why:
            yield was.name, f"{command} is open, and {why}"


def _changed(was: Step, now: Step) -> str:
    if _kind(was) != _kind(now):
        return f"it was {_kind(was)} and would be {_kind(now)}"
    if was.loop is not None and now.loop is not None and _shape(was.loop) != _shape(now.loop):
        return "its loop is going on, and would be another one"
    if isinstance(was.work, Call) and not is_body(was) and was.input != now.input:
        return "what it was issued with would be something else"
    return ""


def _kind(step: Step) -> str:
    match step.work:
        case Call(tool=tool):
            kind = "code" if is_body(step) else f"a call of {tool}"
        case Wait():
            kind = "a wait"
        case Gate():
            kind = "a gate"
        case Quality():
            kind = "a judgement"
        case Child():
            kind = "a child run"
    return f"{kind}{' for each item' * (step.loop is not None)}{' that is repeated' * (step.poll is not None)}"


def _shape(loop: Loop) -> list[object]:
    return [getattr(loop, name) for name in loop.__struct_fields__ if name not in FREE]


def _of_inboxes(old: Graph, new: Graph, state: RunState) -> Iterator[remapping.Misfit]:
    """Events that wait for a step, or that it is run for, must be such that it takes them still."""
    count = dict(waiting(old, state))
    opened = {old.name(each.step) for each in state.open.values()}
    for name in [name for name in old.index if name in count or name in opened]:
        waits = f"{count[name]} events wait for it" if name in count else "it is being run"
        if name not in new.index:
            yield name, f"{waits}, and the new plan has no such step"
            continue
        s, n = old.index[name], new.index[name]
        lost = [type for type, takers in old.takers.items() if s in takers and n not in new.takers.get(type, ())]
        if lost:
            yield name, f"{waits}, and it would no longer take {', '.join(lost)}"
        elif _gathers(old.step(s).collect) != _gathers(new.step(n).collect):
            yield name, f"{waits}, and it would gather them in another way"
    for type, sender in state.untaken:
        if sender and sender not in new.index:
            yield sender, f"it has sent {type}, which nobody took, and the new plan has no such step"


def _gathers(collect: Collect | None) -> str | None:
    return None if collect is None else collect.by
