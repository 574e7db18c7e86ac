"""Rules that issue work: steps with their inputs, items of fan-outs, further tries."""

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Any

from refold.core.commands import child_id, command_id
from refold.core.decide.decision import Decision, starts_at
from refold.core.decide.routing import end_visit, may_go_on, policy_of
from refold.core.decide.sources import name_items, pull, source_of
from refold.core.decide.waits import issue_gate, issue_quality, issue_wait, rendered
from refold.core.expressions import CannotEvaluate
from refold.core.facts import Entered, FanOutEntered, ItemsIssued, ItemsRetried, ItemsSettled, PageAsked, StepIssued
from refold.core.fold import fanout
from refold.core.fold.routing import ARC_INPUTS, arc_inputs_of, with_arc_inputs
from refold.core.outcomes import Failed, Fault, Report, fault_of_outcome
from refold.core.pipeline import TaskPipeline
from refold.core.plan import Call, Child, Fail, Gate, Quality, Step, Wait
from refold.core.queueing import lane_name
from refold.core.read.loaded import item_value
from refold.core.read.template_scope import capture
from refold.core.retry import delay
from refold.core.state import FanOut, OpenCommand


class CannotStart(Exception):
    """The work of a step cannot begin, for the reason in the fault."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(fault.message)


def issue_entered(d: Decision) -> None:
    """Issue every step that was entered: to a worker, to a child run, or to the engine."""
    issued: list[StepIssued | FanOutEntered] = []
    faults: dict[int, Fault] = {}
    for s in d.state.entered:
        try:
            issued.append(_issue(d, s))
        except CannotEvaluate as error:
            faults[s] = Fault(error.kind, str(error), retryable=False)
        except CannotStart as error:
            faults[s] = error.fault
    for s, fault in faults.items():
        end_visit(d, s, fault)
    entered = [move.step for move in d.moves if isinstance(move, Entered)]
    plain = len(entered) == len(d.moves) and entered == [fact.step for fact in issued]
    if plain and (len(issued) < 2 or not any(_ends_immediately(d, fact) for fact in issued[:-1])):
        d.moves.clear()  # the facts that follow imply them
    d.record_moves()
    for fact in issued:
        d.record_fact(fact)


def _ends_immediately(d: Decision, fact: StepIssued | FanOutEntered) -> bool:
    """Whether the fact of an issue also ends the visit, as of a loop without items.

    The steps after it in the log must then have been entered by a fact before it.
    """
    if isinstance(fact, FanOutEntered):
        return fact.redo or (fact.count == 0 and fact.source is None) or bool(fact.after)
    return isinstance(d.graph.step(d.graph.index[fact.step]).work, Quality)


def _issue(d: Decision, s: int) -> StepIssued | FanOutEntered:
    step = d.graph.step(s)
    visit = d.state.steps[s].visits
    if step.loop is not None:
        return _enter_fan_out(d, step, visit)
    match step.work:
        case Call() | TaskPipeline():
            share, limit = _lane(d, step, visit)
            return StepIssued(step.name, visit, input=_input(d, step, visit), share=share, limit=limit)
        case Child(plan=plan):
            fault = d.refuses(plan or d.state.plan)
            if fault is not None:
                raise CannotStart(fault)
            child = child_id(d.state.run, command_id(step.name, visit))
            share, limit = _lane(d, step, visit)
            return StepIssued(step.name, visit, input=_input(d, step, visit), child=child, share=share, limit=limit)
        case Gate():
            return issue_gate(d, step, step.work, visit)
        case Wait():
            return issue_wait(d, step, step.work, visit)
        case Quality():
            return issue_quality(d, step, step.work, visit)
        case Fail(kind=kind, message=message, data=data):
            why = str(rendered(d, message, visit))
            fault = Fault(str(rendered(d, kind, visit)), why, retryable=False, data=rendered(d, data, visit))
            raise CannotStart(fault)


def _lane(d: Decision, step: Step, visit: int) -> tuple[str, str]:
    """The share and the limit of a step, recorded with it: later its templates might give other values."""
    if step.share is None and step.limit is None:
        return "", ""
    arc_inputs = _arc_inputs(d, step)
    share, limit = (rendered(d, each, visit, arc_inputs) for each in (step.share, step.limit))
    return lane_name("share", share), lane_name("limit", limit)


def _input(d: Decision, step: Step, visit: int) -> Any:
    if not d.state.arc_inputs:
        return rendered(d, step.input, visit)
    arc_inputs = _arc_inputs(d, step)
    return with_arc_inputs(rendered(d, step.input, visit, arc_inputs), arc_inputs)


def _arc_inputs(d: Decision, step: Step) -> dict[str, Any]:
    return arc_inputs_of(d.graph, d.state, d.graph.index[step.name]) if d.state.arc_inputs else {}


def _enter_fan_out(d: Decision, step: Step, visit: int) -> FanOutEntered:
    assert step.loop is not None
    state = d.state.steps[d.graph.index[step.name]]
    if state.redo and state.fan is not None and state.fan.visit == visit - 1:
        return FanOutEntered(step.name, visit, state.fan.count, redo=True, only=state.only)
    arc_inputs, loop = _arc_inputs(d, step), step.loop
    window = (
        0
        if loop.computed_max_in_flight is None
        else fanout.window(rendered(d, loop.computed_max_in_flight, visit, arc_inputs))
    )
    captured = {} if loop.sequential else _captured(d, step, visit)
    if loop.source is not None:
        source = source_of(d, loop, visit, arc_inputs)
        return FanOutEntered(step.name, visit, 0, capture=captured, window=window, source=source)
    named = name_items(d, loop, fanout.listed(rendered(d, loop.items, visit, arc_inputs), step), visit)
    inline, blob = d.box(named.items)
    return FanOutEntered(
        step=step.name,
        visit=visit,
        count=len(named.items),
        items=inline,
        blob=blob,
        capture=captured,
        window=window,
        keys=named.keys,
        after=named.after,
        left_out=len(named.left_out),
    )


def _captured(d: Decision, step: Step, visit: int) -> dict[str, Any]:
    templates = [each for each in (step.input, step.share, step.limit) if each is not None]
    if step.loop is None or not templates:
        return {}
    own = frozenset({step.loop.iterator, "iter", "loop", "loop_index", "visit"})
    arc_inputs = _arc_inputs(d, step)
    scope = d.evaluate.names(d.scope({"visit": visit, ARC_INPUTS: arc_inputs} if arc_inputs else {"visit": visit}))
    paths = [path for each in templates for path in d.evaluate.paths(each)]
    return capture(scope, paths, own) | ({ARC_INPUTS: arc_inputs} if arc_inputs else {})


def fill_windows(d: Decision) -> None:
    for s in list(d.state.filling):
        fan = d.state.steps[s].fan
        step = d.graph.step(s)
        assert fan is not None and step.loop is not None
        pull(d, s, fan)
        count = fanout.room(d.graph, s, fan) if s in d.state.filling else 0
        if count < 1:
            continue
        visit = d.state.steps[s].visits
        captured = _captured(d, step, visit) if step.loop.sequential else None
        chosen = tuple(nsmallest(count, fan.todo))
        first = chosen[0] if chosen else fan.next
        _load_items(d, fan, chosen or range(first, first + count))
        d.record_moves()
        d.record_fact(ItemsIssued(step.name, visit, first, count, captured, chosen))
        unfit = tuple(_unfit(d, step, visit, chosen or range(first, first + count)))
        if unfit:
            d.record_fact(ItemsSettled(step.name, visit, unfit))


def _load_items(d: Decision, fan: FanOut, items: Iterable[int]) -> None:
    """Load the values of items before any fact is recorded; raises Missing."""
    if fan.blob is not None:
        d.loaded.blob(fan.blob)
    elif fan.pulls is not None:
        for item in items:
            item_value(fan, d.loaded, item)


def _unfit(d: Decision, step: Step, visit: int, items: Iterable[int]) -> Iterator[Report]:
    """Report items whose input cannot be computed, or whose child cannot start, as failed."""
    refused = d.refuses(step.work.plan or d.state.plan) if isinstance(step.work, Child) else None
    if refused is not None:
        yield from (Report(1, Failed(refused), item=item) for item in items)
    plain = step.input is None and step.share is None and step.limit is None
    if (plain and not isinstance(step.work, Child)) or refused is not None:
        return
    for item in items:
        command = command_id(step.name, visit, item)
        try:
            d.input_of(command)
            d.queueing_of(command)
        except CannotEvaluate as error:
            yield Report(1, Failed(Fault("expression", str(error), retryable=False)), item=item)
            continue
        misfit = d.misfit_of(command, step.work.plan or d.state.plan) if isinstance(step.work, Child) else None
        if misfit is not None:
            yield Report(1, Failed(misfit), item=item)


def try_again(d: Decision) -> None:
    """Issue failed commands again whose policy allows it. Final failures have been routed before."""
    items: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for command in list(d.state.judge):
        opened = d.state.open[command]
        fault = fault_of_outcome(opened.report) if opened.report is not None else None
        if fault is None or not may_go_on(d, opened, fault):
            continue
        name = d.graph.name(opened.step)
        attempt, not_before = opened.attempt + 1, _not_before(d, opened, fault)
        d.record_moves()
        if opened.item is not None:
            items.setdefault((name, opened.visit), []).append((opened.item, attempt, not_before))
            continue
        if opened.page:
            d.record_fact(PageAsked(name, opened.visit, opened.page, attempt, not_before))
            continue
        starts_now = opened.child and not not_before
        child = child_id(d.state.run, command, attempt) if starts_now else ""
        d.record_fact(StepIssued(name, opened.visit, attempt, not_before=not_before, child=child))
    for (name, visit), retries in items.items():
        fan = d.state.steps[d.graph.index[name]].fan
        assert fan is not None
        _load_items(d, fan, [item for item, _, _ in retries])
        d.record_fact(ItemsRetried(name, visit, tuple(retries)))


def _not_before(d: Decision, opened: OpenCommand, fault: Fault) -> int:
    policy = policy_of(d, opened)
    chance = d.chance() if policy.jitter else 0.0
    wait = delay(policy, opened.attempt, fault, chance)
    return d.now + wait if wait else 0


def start_waiting_children(d: Decision) -> None:
    """Start the next try of child runs whose delay is over."""
    for command in list(d.due):
        opened = d.state.open.get(command)
        if opened is not None and starts_at(d.graph, opened) is not None:
            _start_waiting_child(d, command, opened)
        del d.due[command]


def _start_waiting_child(d: Decision, command: str, opened: OpenCommand) -> None:
    name, fan = d.graph.name(opened.step), d.state.steps[opened.step].fan
    if opened.item is None:
        d.record_moves()
        d.record_fact(
            StepIssued(name, opened.visit, opened.attempt, child=child_id(d.state.run, command, opened.attempt))
        )
        return
    assert fan is not None
    _load_items(d, fan, [opened.item])
    d.record_moves()
    d.record_fact(ItemsRetried(name, opened.visit, ((opened.item, opened.attempt, 0),)))
