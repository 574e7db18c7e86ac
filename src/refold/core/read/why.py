"""Why the steps of a run wait: the reasons as data, and as short texts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, structs

from refold.core.commands import RATE, SOURCE_TOOL, child_name, rate_limit
from refold.core.fold.events import open_requests, runs_out, timer_key
from refold.core.fold.gates import most_votes
from refold.core.fold.waits import due_at
from refold.core.graph import Graph
from refold.core.outcomes import ANSWER, QUEUE, Instant
from refold.core.pipeline import TaskPipeline
from refold.core.plan import BODY, Call, Child, CodeIdentity, Gate, Step, WorkerWork, is_body
from refold.core.read.budget import PAUSED_BY_BUDGET, over_budget, over_budget_text
from refold.core.state import (
    ENTERED,
    ISSUED,
    ITEM_WAITING,
    PENDING,
    RUNNING,
    TERMINAL,
    UNRESOLVED,
    FanOut,
    OpenCommand,
    OpenRequest,
    RunState,
)

SHORT = 12  # characters of the hash of a plan that are shown


class Holder(Struct, frozen=True):
    """The worker that has claimed a command, and when its lease ends unless it is extended."""

    worker: str
    until: Instant


class WorkerView(Struct, frozen=True):
    """What the log of a run does not say about workers and leases."""

    held: Mapping[str, Holder] = {}  # leases of this run, by command
    elsewhere: Sequence[Holder] = ()  # leases of other runs
    workers: Sequence[str] | None = None  # live workers; None: unknown
    tools: Mapping[str, frozenset[str]] = {}  # worker -> its tools, if it has listed them
    plans: Mapping[str, str] = {}  # plans whose code workers have: hash -> name
    codes: Mapping[str, CodeIdentity] = {}  # which code that is, by the same hashes; older plans have none
    queues: Mapping[str, frozenset[str]] = {}  # worker -> its queues, if it does not serve all
    limits: Mapping[str, Instant | None] = {}  # those that allow nothing now, and when a rate allows more
    item_limits: Mapping[str, str] = {}  # of items whose limits differ, by command, as far as they are known


class Reason(Struct, frozen=True, omit_defaults=True):
    """Why a step or a command waits. The kinds, and the fields that each of them has:

    running (worker, until, note: what it waits for on a cluster)   slot (worker, until, note: the code it needs)
    no_worker (note: as well)
    no_code (note: as well, sources: plans of that workflow whose code workers have, places: where, run)
    no_tool (note: which)
    limit (note: which, until: when its rate allows more)   rate (until)
    no_queue (note: which)   paused (by, since, note)   backoff (until)
    batch (count, signal: the group, until, note: how many events are wanted)
    parked (until, signal, note)   timer (until)   signal (signal, until)   gate (until, assignee, note, count:
    approvals that are missing if several are wanted)   poll (until, note)   child (run, name, until)   window (count)
    order (count: items that depend on others)
    join (sources)   loop (sources: the head)   final
    stuck (note: the error, no step): nothing is decided until the error is gone
    """

    step: str
    kind: str
    visit: int = 0
    item: int | None = None
    attempt: int = 0
    until: Instant | None = None
    since: Instant | None = None
    worker: str = ""
    by: str = ""
    assignee: str = ""
    signal: str = ""
    run: str = ""
    name: str = ""  # of that run
    sources: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    count: int = 0
    note: str = ""


def reasons(graph: Graph, state: RunState, now: Instant, world: WorkerView | None = None) -> list[Reason]:
    """Return the reasons in the order of the steps; a step that has ended has none."""
    if state.life in TERMINAL:
        return []
    by_step: dict[str, list[Reason]] = {name: [] for name in graph.index}
    for reason in of_commands(graph, state, now, world if world is not None else WorkerView()):
        by_step.setdefault(reason.step, []).append(reason)  # a request may be of a step that a new plan lacks
    of_waiting = _of_inbox if graph.by_events else _of_step
    for s in range(len(graph.plan.steps)):
        by_step[graph.name(s)].extend(of_waiting(graph, state, s))
    return [reason for step_reasons in by_step.values() for reason in step_reasons]


def of_commands(graph: Graph, state: RunState, now: Instant, world: WorkerView) -> Iterator[Reason]:
    """Return the reasons of open commands only; the cost does not depend on the size of the graph."""
    for command in state.open:
        yield from _of_command(graph, state, command, now, world)
    if state.requests and state.life == RUNNING:
        yield from map(partial(_of_request, state), open_requests(state))


def _of_request(state: RunState, request: OpenRequest) -> Reason:
    """Return why a request is open: its step has completed, and a person has to answer."""
    where: dict[str, Any] = {"step": request.step, "visit": request.visit}
    if state.paused:
        return Reason(kind="paused", by=state.paused_by, since=state.paused_at, note=_spent(state), **where)
    return Reason(kind="signal", signal=f"{ANSWER}{request.asks.id}", note=f"request:{request.asks.id}", **where)


def _of_command(graph: Graph, state: RunState, command: str, now: Instant, world: WorkerView) -> Iterator[Reason]:
    opened = state.open[command]
    where: dict[str, Any] = {
        "step": graph.name(opened.step),
        "visit": opened.visit,
        "item": opened.item,
        "attempt": opened.attempt,
    }
    holder = world.held.get(command)
    if holder is not None:
        yield Reason(kind="running", worker=holder.worker, until=holder.until, **where)
    elif state.paused:
        yield Reason(kind="paused", by=state.paused_by, since=state.paused_at, note=_spent(state), **where)
    elif opened.calls and opened.held:
        for key, call in sorted(opened.calls.items()):
            kind = "child" if call.child else "signal" if call.signal else "timer"
            owner = f"{command}#{key}"
            child = state.children.get(owner, "")
            name = child_name(state.name or state.run[:8], owner) if child else ""
            yield Reason(kind=kind, signal=call.signal, until=call.until, run=child, name=name, note=key, **where)
    else:
        reason = _waits(graph, opened, now, where)
        if reason.kind == "child":
            reason = structs.replace(reason, name=child_name(state.name or state.run[:8], command))
        yield _placed(graph, state, command, world, reason) if reason.kind == "slot" else reason


def _placed(graph: Graph, state: RunState, command: str, world: WorkerView, reason: Reason) -> Reason:
    """Return why a command that may be claimed is not: the able workers are busy, or there are none.

    A Python body can run only on a worker that has its code.
    """
    opened = state.open[command]
    step = graph.step(opened.step)
    limit = "" if opened.page else world.item_limits.get(command) or _limit_of(state, step, opened)
    if limit in world.limits:
        kind, note = ("rate", "") if limit.startswith(RATE) else ("limit", limit)
        return structs.replace(reason, kind=kind, note=note, until=world.limits[limit])
    queue = step.queue or state.queueing.queue or QUEUE
    tool = _tool(step, opened, state.plan)
    able = _able(world, tool)
    idle, able = able, None if able is None else [each for each in able if _serves(world, each, queue)]
    coded = is_body(step) and not opened.page
    note = f"{graph.plan.name} {state.plan[:SHORT]}" if coded else ""
    if able is not None and not able:
        if not world.workers:
            return structs.replace(reason, kind="no_worker", note=note)
        if idle:
            return structs.replace(reason, kind="no_queue", note=queue)
        if not coded:
            return structs.replace(reason, kind="no_tool", note=tool)
        others = [plan for plan in world.plans if _may_follow(graph, world, plan)]
        sources = tuple(plan[:SHORT] for plan in others)
        places = tuple(world.codes[plan].name if plan in world.codes else "" for plan in others)
        run = state.name or state.run
        return structs.replace(reason, kind="no_code", note=note, sources=sources, places=places, run=run)
    busy = [each for each in (*world.held.values(), *world.elsewhere) if able is None or each.worker in able]
    if not busy:
        return structs.replace(reason, note=note)
    first = min(busy, key=lambda holder: holder.until)
    return structs.replace(reason, worker=first.worker, until=first.until, note=note)


def _limit_of(state: RunState, step: Step, opened: OpenCommand) -> str:
    """Return the limit of a command; that of an item only if it is the same for all items."""
    if step.loop is not None and step.loop.rate is not None:
        return rate_limit(state.run, step.name, opened.visit)
    same = "" if has_limit_of_its_own(step, opened) else step.limit
    return opened.limit or same or ("" if step.limit is not None else state.queueing.limit)


def has_limit_of_its_own(step: Step, opened: OpenCommand) -> bool:
    """Whether this is an item whose limit follows from an expression."""
    is_plain = step.limit is None or (isinstance(step.limit, str) and "{" not in step.limit)
    return opened.item is not None and not opened.page and not is_plain


def _may_follow(graph: Graph, world: WorkerView, plan: str) -> bool:
    """Whether another plan may be a later version of the same workflow: its code has the same identity. Of an older run
    nothing but the name of its workflow is known."""
    if world.plans[plan] != graph.plan.name:
        return False
    return graph.plan.code is None or world.codes.get(plan) in (None, graph.plan.code)


def _tool(step: Step, opened: OpenCommand, plan: str) -> str:
    if opened.page:
        return SOURCE_TOOL
    assert isinstance(step.work, WorkerWork)
    return f"{BODY}:{plan}" if is_body(step) else step.work.tool


def _able(world: WorkerView, tool: str) -> list[str] | None:
    """Return the live workers that have a tool; None if that is not known."""
    if world.workers is None:
        return None
    return [worker for worker in world.workers if worker not in world.tools or tool in world.tools[worker]]


def _serves(world: WorkerView, worker: str, queue: str) -> bool:
    return worker not in world.queues or queue in world.queues[worker]


def no_code(reason: Reason) -> str:
    """Return the text of a `no_code` reason, with what to do about it."""
    name, _, plan = reason.note.rpartition(" ")
    problem = f"no live worker has the code of plan {plan} ({name})"
    if not reason.sources:
        return f"{problem}; start one that has it"
    if len(reason.sources) == 1:
        how = f"`refold runs migrate {reason.run} --to {reason.sources[0]}`"
        return f"{problem}; workers have {reason.sources[0]}: migrate with {how}"
    named = zip(reason.sources, reason.places or ("",) * len(reason.sources), strict=True)
    having = ", ".join(f"{source} ({place})" if place else source for source, place in named)
    how = f"`refold runs migrate {reason.run} --to PLAN`"
    return f"{problem}; workers have {having}: migrate with {how}, to the plan of its own code"


def _waits(graph: Graph, opened: OpenCommand, now: Instant, where: dict[str, Any]) -> Reason:
    step = graph.step(opened.step)
    looks_at = opened.until if opened.until is not None else opened.not_before
    if opened.page:
        return _of_call(opened, now, where)
    match step.work:
        case _ if step.poll is not None and looks_at > now:
            return Reason(kind="poll", until=looks_at, note=str(step.poll.until), **where)
        case Gate(min_approvals=wanted):
            missing = wanted - most_votes(opened.progress or ())
            return Reason(
                kind="gate",
                until=due_at(opened),
                assignee=opened.assignee,
                count=missing if wanted > 1 else 0,
                note="" if opened.input is None else str(opened.input),
                **where,
            )
        case Child() if not opened.child:
            return Reason(kind="backoff", until=opened.not_before, **where)
        case Child():
            return Reason(kind="child", run=opened.child, until=opened.deadline, **where)
        case Call() | TaskPipeline():
            return _of_call(opened, now, where)
        case _:
            names = ", ".join(filter(None, (opened.signal, *opened.signals)))
            return Reason(kind="signal" if names else "timer", signal=names, until=due_at(opened), **where)


def _of_call(opened: OpenCommand, now: Instant, where: dict[str, Any]) -> Reason:
    if opened.signal:
        until = opened.not_before or None
        return Reason(kind="parked", signal=opened.signal, until=until, note=opened.reason, **where)
    if opened.not_before > now:
        kind = "backoff" if opened.attempt > 1 and not opened.reason else "parked"
        return Reason(kind=kind, until=opened.not_before, note=opened.reason, **where)
    return Reason(kind="slot", **where)


def _spent(state: RunState) -> str:
    over = over_budget(state) if state.paused_by == PAUSED_BY_BUDGET else None
    return over_budget_text(*over) if over is not None else ""


def _of_inbox(graph: Graph, state: RunState, s: int) -> Iterator[Reason]:
    """Return why events wait for a step: others are taken first, or a batch is not complete."""
    inbox, collect = state.inboxes.get(s), graph.step(s).collect
    if inbox is None or state.outcome:
        return
    count = len(inbox.waiting) - inbox.head
    if count:
        yield Reason(graph.name(s), "window", count=count, note="events")
    for group, refs in inbox.groups.items():
        wanted = collect.n if collect is not None else 0
        note = f"{state.ctx.get(wanted, wanted) if isinstance(wanted, str) else wanted}"
        until = runs_out(graph, state, timer_key(graph.name(s), group)) if s in graph.collects_with_timeout else None
        yield Reason(graph.name(s), "batch", count=len(refs), signal=group, until=until, note=note)


def _of_step(graph: Graph, state: RunState, s: int) -> Iterator[Reason]:
    step, name = state.steps[s], graph.name(s)
    if step.fan is not None and step.life == ISSUED and not state.outcome:
        yield from _of_items(step.fan, name, step.visits)
    if s in graph.finalizers:
        if step.life == PENDING:
            yield Reason(name, "final")
        return
    if step.life == ENTERED and state.paused:
        yield Reason(name, "paused", visit=step.visits, by=state.paused_by, since=state.paused_at, note=_spent(state))
    if step.life != PENDING or state.outcome:
        return
    unresolved = [a for a in graph.into[s] if state.arcs[a] == UNRESOLVED]
    loops = [graph.exit_of[a] for a in unresolved if graph.exit_of[a] >= 0]
    if loops and len(loops) == len(unresolved):
        yield Reason(name, "loop", sources=tuple(dict.fromkeys(graph.name(graph.loops[loop].head) for loop in loops)))
    elif unresolved:
        yield Reason(name, "join", sources=tuple(dict.fromkeys(graph.name(graph.origin[a]) for a in unresolved)))


def _of_items(fan: FanOut, name: str, visit: int) -> Iterator[Reason]:
    """Return why items have not begun: the window is full, or they depend on other items."""
    free = fan.count - fan.next + len(fan.todo)
    blocked = sum(fan.status[item] == ITEM_WAITING for item, left in fan.order.left.items() if left) if fan.order else 0
    if free:
        yield Reason(name, "window", visit=visit, count=free)
    if blocked:
        yield Reason(name, "order", visit=visit, count=blocked)


def briefly(graph: Graph, state: RunState, world: WorkerView | None = None) -> dict[str, str]:
    """Return why each open command has not ended, and why each request is open, as a short text."""
    texts = {command: _reason(graph, state, opened) for command, opened in state.open.items()}
    if state.life == RUNNING:
        texts |= {
            f"{each.step}/{each.visit} request {each.asks.id}": "waits for the answer of a person"
            for each in open_requests(state)
        }
    if world is not None:
        for command in state.open:
            for reason in _of_command(graph, state, command, state.at, world):
                if reason.kind == "no_code":
                    texts[command] = no_code(reason)
                elif reason.kind == "no_queue":
                    texts[command] = f"no live worker serves the queue {reason.note!r}"
    return texts


def _reason(graph: Graph, state: RunState, opened: OpenCommand) -> str:
    match graph.step(opened.step).work:
        case _ if opened.page:
            return _call_reason(opened, "")
        case Gate():
            return "waits for a decision"
        case Child() if opened.child:
            return f"waits for run {opened.child}"
        case Child():
            return f"try {opened.attempt}, not before {opened.not_before}"
        case Call() | TaskPipeline():
            whose = f" that have {graph.plan.name} {state.plan[:12]}" if is_body(graph.step(opened.step)) else ""
            return _call_reason(opened, whose)
        case _:
            waits = [f"signal {signal!r}" for signal in (opened.signal, *opened.signals) if signal]
            waits += [f"time {opened.until}"] if opened.until is not None else []
            return "waits for " + " or ".join(waits)


def _call_reason(opened: OpenCommand, whose: str) -> str:
    because = f": {opened.reason}" if opened.reason else ""
    if opened.held and opened.calls:
        return "suspended until " + ", ".join(sorted(opened.calls))
    if opened.signal:
        return f"parked until signal {opened.signal!r}" + because
    if opened.not_before:
        return f"try {opened.attempt}, not before {opened.not_before}" + because
    return f"try {opened.attempt} is with the workers{whose}"
