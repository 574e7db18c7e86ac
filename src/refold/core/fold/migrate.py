"""How the state of a run is carried over to the graph of another plan.

Steps are matched by name, and arcs by their position in their step. The part of the graph that a run has reached must
be equal in both plans, with the same arcs to it and from it; the rest may differ. In a workflow of events only the
steps must match, because it has no arcs.
"""

from collections.abc import Iterator
from heapq import heapify

from msgspec import structs

from refold.core.fold import events, routing
from refold.core.graph import Graph
from refold.core.state import BYPASSED, CANCELLED, COMPLETED, FAILED, PENDING, SKIPPED, RunState, StepState

OVER = frozenset({COMPLETED, FAILED, SKIPPED, BYPASSED, CANCELLED})

Misfit = tuple[str, str]
"""A step, and why it does not fit."""


def misfits(old: Graph, new: Graph, state: RunState) -> Iterator[Misfit]:
    """Return where the graphs differ in the part that the run has reached."""
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
    elif _origins(old, s) != _origins(new, n):
        led, leads = (", ".join(dict.fromkeys(each)) or "nothing" for each in (_origins(old, s), _origins(new, n)))
        yield name, f"{been}, and what leads to it would be {leads} instead of {led}"
    elif (step.life in OVER or old.loop_of[s] >= 0) and _arcs_of(old, s) != _arcs_of(new, n):
        yield name, f"{been}, and its arcs would be others"
    elif step.life == PENDING and old.step(s).join != new.step(n).join:
        yield name, f"{been}, and what it waits for would be counted in another way"


def carry_arcs(old: Graph, new: Graph, state: RunState) -> None:
    """Carry over the arcs, counts and loops that the run has reached; set up the others as at the start of a run."""
    fresh = RunState(run=state.run)
    routing.begin(new, fresh)
    to = {s: new.index[old.name(s)] for s in _fixed(old, state)}
    loops = {k: new.loop_by_head[old.name(loop.head)] for k, loop in enumerate(old.loops) if loop.head in to}
    arcs = {a: b for s, n in to.items() if _arcs_of(old, s) == _arcs_of(new, n) for a, b in _paired(old, new, s, n)}
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
    state.arc_inputs = {arcs[a]: inputs for a, inputs in state.arc_inputs.items() if a in arcs}
    state.ended = {to[s]: at for s, at in state.ended.items()}
    state.entered = {to[s]: None for s in state.entered}
    state.filling = {to[s]: None for s in state.filling}


def carry_events(old: Graph, new: Graph, state: RunState) -> None:
    was, to = state.steps, _new_numbers(old, new)
    state.steps = [was[old.index[name]] if name in old.index else StepState() for name in new.index]
    state.inboxes = {to[s]: inbox for s, inbox in state.inboxes.items() if s in to}
    events.ask_again(new, state)


def carry_commands(old: Graph, new: Graph, state: RunState) -> None:
    to = _new_numbers(old, new)
    for opened in state.open.values():
        opened.step = to[opened.step]
    state.cut = {to[s]: None for s in state.cut if s in to}
    if state.latest is not None:
        latest = state.latest
        state.latest = structs.replace(latest, step=to[latest.step]) if latest.step in to else None


def _new_numbers(old: Graph, new: Graph) -> dict[int, int]:
    return {s: new.index[name] for name, s in old.index.items() if name in new.index}


def _fixed(old: Graph, state: RunState) -> list[int]:
    """Return the steps that the run has reached, and all steps of the loops that it has reached."""
    steps = {s for s in range(len(state.steps)) if _is_reached(old, state, s)}
    outermost: list[int] = []  # per loop; a loop comes before those inside it
    for loop, it in enumerate(old.loops):
        outermost.append(loop if it.parent < 0 else outermost[it.parent])
    for loop in sorted({outermost[old.loop_of[s]] for s in steps if old.loop_of[s] >= 0}):
        steps.update(old.loops[loop].steps())
    return sorted(steps)


def _is_reached(old: Graph, state: RunState, s: int) -> bool:
    step = state.steps[s]
    if s in old.finalizers or not old.reached[s]:
        return False
    return bool(step.visits or step.due) or step.life != PENDING


def _bodies(graph: Graph, steps: list[int]) -> dict[str, frozenset[str]]:
    """Return the bodies of the loops whose heads are among these steps."""
    among = set(steps)
    heads = [graph.name(loop.head) for loop in graph.loops if loop.head in among]
    return {head: _body(graph, head) for head in heads}


def _body(graph: Graph, head: str) -> frozenset[str]:
    """Return the names of the steps in the loop of this head; empty if there is no such loop."""
    loop = graph.loop_by_head.get(head)
    return frozenset() if loop is None else frozenset(map(graph.name, graph.loops[loop].steps()))


def _origins(graph: Graph, s: int) -> list[str]:
    return sorted(graph.name(graph.origin[a]) for a in graph.into[s])


def _arcs_of(graph: Graph, s: int) -> list[tuple[str, str, str, str]]:
    """Return the arcs of a step: their targets, the outcomes that they listen to, and their roles in loops."""
    return [
        (graph.specs[a].to, graph.specs[a].on, _head(graph, graph.back[a]), _head(graph, graph.exit_of[a]))
        for a in graph.out[s]
    ]


def _head(graph: Graph, loop: int) -> str:
    return "" if loop < 0 else graph.name(graph.loops[loop].head)


def _paired(old: Graph, new: Graph, s: int, n: int) -> Iterator[tuple[int, int]]:
    return zip(old.out[s], new.out[n], strict=True)


def _keep_counts(old: Graph, new: Graph, state: RunState, fresh: RunState) -> None:
    """Keep the visit counts of finalizers, because a reopened run must not use the id of a command twice."""
    for name in (old.name(s) for s in sorted(old.finalizers)):
        if name in new.index:
            fresh.steps[new.index[name]].visits = state.steps[old.index[name]].visits
