"""How steps follow each other: arcs, joins, dead paths and passes, as changes the fold makes to the state."""

from heapq import heappush

from refold.core.loops import Graph
from refold.core.state import DEAD, ENTERED, PENDING, SKIPPED, SPENT, TAKEN, UNRESOLVED, RunState, StepState


def begin(graph: Graph, state: RunState) -> None:
    """Nothing has happened yet; what the entry cannot reach is skipped, the entry may be entered."""
    state.steps = [StepState(unresolved=len(arcs), possible=graph.sources[s]) for s, arcs in enumerate(graph.into)]
    state.arcs = bytearray(len(graph.source))
    state.ever = bytearray(len(graph.source))
    state.members = [loop.members for loop in graph.loops]
    state.again = bytearray(len(graph.loops))
    state.unsettled = sum(graph.reached)
    for s, reached in enumerate(graph.reached):
        if not reached and s not in graph.finalizers:
            state.steps[s].life = state.steps[s].last = SKIPPED
    _make_ready(state, graph.entry, True)


def enter(graph: Graph, state: RunState, s: int) -> None:
    """Count a visit and use up the arcs that led here."""
    step = state.steps[s]
    step.life = ENTERED
    step.due = False
    step.visits += 1
    step.taken = 0
    marks = state.arcs
    for a in graph.into[s]:
        if marks[a] == TAKEN:
            marks[a] = SPENT
    state.visiting += 1


def settle(graph: Graph, state: RunState, s: int, life: str, taken: tuple[int, ...] = ()) -> None:
    """The step is done for this pass: decide each of its arcs, then its loop."""
    step = state.steps[s]
    step.life = life
    step.due = False
    if s in graph.finalizers:
        return
    state.unsettled -= 1
    for a in graph.out[s]:
        hit = a in taken
        if graph.back[a] >= 0:
            if hit:
                state.again[graph.back[a]] = 1
        elif graph.holder[a] >= 0:
            if hit:
                state.ever[a] = 1
        else:
            _resolve(graph, state, a, hit)
    _settle_member(graph, state, graph.loop_of[s])


def _settle_member(graph: Graph, state: RunState, loop: int) -> None:
    if loop >= 0:
        state.members[loop] -= 1
        if state.members[loop] == 0:
            state.over.append(loop)


def _resolve(graph: Graph, state: RunState, a: int, hit: bool) -> None:
    s = graph.target[a]
    step = state.steps[s]
    step.unresolved -= 1
    if step.life != PENDING:
        state.arcs[a] = SPENT if hit else DEAD  # absorbed
        return
    state.arcs[a] = TAKEN if hit else DEAD
    need = graph.need[s]
    if need == 0:
        step.taken += hit
        if step.unresolved == 0:
            _make_ready(state, s, step.taken > 0)
        return
    twins = graph.twins.get(a, ())
    if hit:
        step.taken += all(state.arcs[b] != TAKEN for b in twins)
    else:
        step.possible -= all(state.arcs[b] not in (UNRESOLVED, TAKEN) for b in twins)
    if step.taken >= need or step.possible < need:
        _make_ready(state, s, step.taken >= need)


def _make_ready(state: RunState, s: int, enters: bool) -> None:
    step = state.steps[s]
    if not step.due:
        step.due = True
        heappush(state.ready, 2 * s + enters)


def begin_pass(graph: Graph, state: RunState, loop: int) -> None:
    """The body is pending again; its head is entered without asking its join."""
    it = graph.loops[loop]
    marks = state.arcs
    for a in it.inside:
        marks[a] = UNRESOLVED
        state.ever[a] = 0
    for a in it.outside:
        if marks[a] != UNRESOLVED:
            marks[a] = DEAD
    for s in it.body:
        step = state.steps[s]
        step.life, step.due, step.taken = PENDING, False, 0
        step.unresolved = sum(marks[a] == UNRESOLVED for a in graph.into[s])
        if graph.need[s]:
            step.possible = len({graph.source[a] for a in graph.into[s] if marks[a] == UNRESOLVED})
    state.unsettled += len(it.body)
    for k in (loop, *it.inner):
        state.members[k] = graph.loops[k].members
        state.again[k] = 0
    _make_ready(state, it.head, True)


def leave_loop(graph: Graph, state: RunState, loop: int) -> None:
    """The loop is finished: resolve what it held, and count it as a settled member of the loop around it."""
    it = graph.loops[loop]
    for a in it.held:
        _resolve(graph, state, a, bool(state.ever[a]))
    _settle_member(graph, state, it.parent)
