"""The state of a run on the graph of another plan: steps are the same by name, arcs by their place in their step.

What a run of arcs has come to must be in both graphs, with the same ways to it and from it; what lies ahead may be
anything. Of a run of events only the steps count, for nothing leads from one to another but events.
"""

from collections.abc import Iterator
from heapq import heapify

from msgspec import structs

from refold.core.fold import events, routing
from refold.core.graph import Graph
from refold.core.state import BYPASSED, CANCELLED, COMPLETED, FAILED, PENDING, SKIPPED, RunState, StepState

OVER = frozenset({COMPLETED, FAILED, SKIPPED, BYPASSED, CANCELLED})

Misfit = tuple[str, str]
"""A step, and what of it does not fit."""


def misfits(old: Graph, new: Graph, state: RunState) -> Iterator[Misfit]:
    """Where the graphs differ in what the run has come to."""
    if old.name(old.entry) != new.name(new.entry):
        yield old.name(old.entry), f"the run began with it, and the new plan begins with {new.name(new.entry)}"
    fixed = _fixed(old, state)
    for s in fixed:
        yield from _misfits_of(old, new, state, s)
    for head, body in _bodies(old, fixed).items():
        if _body(new, head) not in (body, frozenset()):
            yield head, "its loop has begun, and would be of other steps"
    names = {old.name(s) for s in fixed}
    for head in new.loop_by_head:
        if _body(new, head) & names and not _body(old, head):
            yield head, "steps that were visited would be in a loop that it begins"


def _misfits_of(old: Graph, new: Graph, state: RunState, s: int) -> Iterator[Misfit]:
    name, step = old.name(s), state.steps[s]
    n = new.index.get(name)
    been = "it was visited" if step.visits else "it was skipped" if step.life == SKIPPED else "its turn has come"
    if n is None:
        yield name, f"{been}, and the new plan has no such step"
    elif not new.reached[n] or n in new.finalizers:
        yield name, f"{been}, and in the new plan no arc leads to it"
    elif _sources(old, s) != _sources(new, n):
        led, leads = (", ".join(dict.fromkeys(each)) or "nothing" for each in (_sources(old, s), _sources(new, n)))
        yield name, f"{been}, and what leads to it would be {leads} instead of {led}"
    elif (step.life in OVER or old.loop_of[s] >= 0) and _ways(old, s) != _ways(new, n):
        yield name, f"{been}, and its arcs would be others"
    elif step.life == PENDING and old.step(s).join != new.step(n).join:
        yield name, f"{been}, and what it waits for would be counted in another way"


def carry_arcs(old: Graph, new: Graph, state: RunState) -> None:
    """Marks and counts of what the run has come to; those of what lies ahead are made anew."""
    fresh = RunState(run=state.run)
    routing.begin(new, fresh)
    to = {s: new.index[old.name(s)] for s in _fixed(old, state)}
    loops = {k: new.loop_by_head[old.name(loop.head)] for k, loop in enumerate(old.loops) if loop.head in to}
    arcs = {a: b for s, n in to.items() if _ways(old, s) == _ways(new, n) for a, b in _paired(old, new, s, n)}
    for s, n in to.items():
        fresh.steps[n] = state.steps[s]
        if fresh.alive:
            fresh.alive[new.rank[n]] = state.steps[s].life not in OVER or s in state.ended
    for a, b in arcs.items():
        fresh.arcs[b], fresh.ever[b] = state.arcs[a], state.ever[a]
    for k, m in loops.items():
        fresh.members[m], fresh.again[m] = state.members[k], state.again[k]
    fresh.over = [loops[k] for k in state.over]
    fresh.ready = [2 * to[entry >> 1] + (entry & 1) for entry in state.ready]
    heapify(fresh.ready)
    _keep_counts(old, new, state, fresh)
    for n in sorted({n for n, reached in enumerate(new.reached) if reached} - {*to.values()} - new.finalizers):
        routing.ask_again(new, fresh, n, False)
    for name in ("steps", "arcs", "ever", "members", "again", "alive", "over", "ready"):
        setattr(state, name, getattr(fresh, name))
    state.arc_inputs = {arcs[a]: given for a, given in state.arc_inputs.items() if a in arcs}
    state.ended = {to[s]: at for s, at in state.ended.items()}
    state.entered = {to[s]: None for s in state.entered}
    state.filling = {to[s]: None for s in state.filling}


def carry_events(old: Graph, new: Graph, state: RunState) -> None:
    was, to = state.steps, _places(old, new)
    state.steps = [was[old.index[name]] if name in old.index else StepState() for name in new.index]
    state.inboxes = {to[s]: inbox for s, inbox in state.inboxes.items() if s in to}
    events.ask_again(new, state)


def carry_commands(old: Graph, new: Graph, state: RunState) -> None:
    to = _places(old, new)
    for opened in state.open.values():
        opened.step = to[opened.step]
    state.cut = {to[s]: None for s in state.cut if s in to}
    if state.latest is not None:
        latest = state.latest
        state.latest = structs.replace(latest, step=to[latest.step]) if latest.step in to else None


def _places(old: Graph, new: Graph) -> dict[int, int]:
    return {s: new.index[name] for name, s in old.index.items() if name in new.index}


def _fixed(old: Graph, state: RunState) -> list[int]:
    """The steps that the run has come to, and all of a loop that it has come to."""
    found = {s for s in range(len(state.steps)) if _is_seen(old, state, s)}
    outermost: list[int] = []  # per loop; a loop comes before those inside it
    for loop, it in enumerate(old.loops):
        outermost.append(loop if it.parent < 0 else outermost[it.parent])
    for loop in sorted({outermost[old.loop_of[s]] for s in found if old.loop_of[s] >= 0}):
        found.update(old.loops[loop].steps())
    return sorted(found)


def _is_seen(old: Graph, state: RunState, s: int) -> bool:
    step = state.steps[s]
    if s in old.finalizers or not old.reached[s]:
        return False
    return bool(step.visits or step.due) or step.life != PENDING


def _bodies(graph: Graph, steps: list[int]) -> dict[str, frozenset[str]]:
    """Of the loops of these steps."""
    among = set(steps)
    heads = [graph.name(loop.head) for loop in graph.loops if loop.head in among]
    return {head: _body(graph, head) for head in heads}


def _body(graph: Graph, head: str) -> frozenset[str]:
    """The names of the steps in the loop of this head; empty if it has none."""
    loop = graph.loop_by_head.get(head)
    return frozenset() if loop is None else frozenset(map(graph.name, graph.loops[loop].steps()))


def _sources(graph: Graph, s: int) -> list[str]:
    return sorted(graph.name(graph.origin[a]) for a in graph.into[s])


def _ways(graph: Graph, s: int) -> list[tuple[str, str, str, str]]:
    """Its arcs: where each leads, what it listens to, and its part in a loop."""
    return [
        (graph.specs[a].to, graph.specs[a].on, _head(graph, graph.back[a]), _head(graph, graph.exit_of[a]))
        for a in graph.out[s]
    ]


def _head(graph: Graph, loop: int) -> str:
    return "" if loop < 0 else graph.name(graph.loops[loop].head)


def _paired(old: Graph, new: Graph, s: int, n: int) -> Iterator[tuple[int, int]]:
    return zip(old.out[s], new.out[n], strict=True)


def _keep_counts(old: Graph, new: Graph, state: RunState, fresh: RunState) -> None:
    """Visits of what runs at the end, if the run was reopened: their commands have numbers that must not come again."""
    for name in (old.name(s) for s in sorted(old.finalizers)):
        if name in new.index:
            fresh.steps[new.index[name]].visits = state.steps[old.index[name]].visits
