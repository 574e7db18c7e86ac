"""Rules of routing: which arcs a visit takes, and which steps are entered, bypassed or skipped."""

from contextlib import suppress
from typing import Any

from msgspec import Struct

from refold.core.commands import command_id, page_id
from refold.core.decide.decision import Decision
from refold.core.decide.ending import end_run
from refold.core.expressions import CannotEvaluate
from refold.core.facts import (
    Bypassed,
    Dropped,
    Entered,
    ItemsCancelled,
    ItemsGivenUp,
    LoopLeft,
    PagesGivenUp,
    PassBegan,
    SignalTaken,
    Skipped,
    StepFault,
    Took,
)
from refold.core.fold import routing, visits
from refold.core.fold.fanout import ITEMS_FAILED, failed_items, failure, was_cut
from refold.core.outcomes import Fault, fault_of_outcome
from refold.core.plan import Gate, Retry, Step, bare_key
from refold.core.read.loaded import key_of
from refold.core.read.template_scope import RunScope, with_output, with_sets
from refold.core.retry import may_retry
from refold.core.state import ASKED, BYPASSED, FAILED, ITEM_RUNNING, RUNNING, OpenCommand


def deliver_signals(d: Decision) -> None:
    """Give kept signals to the commands that wait for them, the oldest first.

    A parked command that a worker has claimed again gets none, because its body may take the signal itself. Nor does a
    call of a body that another call has woken: the body may have been waiting for the first of them only.
    """
    claimed_now = d.claimed_now() if d.state.deliverable else frozenset()
    for signal in list(d.state.deliverable):
        for waiter in list(d.state.waiting.get(signal, ())):  # a command may wait for several signals
            if signal in d.state.deliverable and waiter not in claimed_now and not _is_awake(d, waiter):
                d.record_moves()
                d.record_fact(SignalTaken(signal, waiter))


def _is_awake(d: Decision, waiter: str) -> bool:
    command, _, call = waiter.partition("#")
    return bool(call) and d.state.open[command].awake


def give_up_items(d: Decision) -> None:
    """Give up items and pages that failed and are not tried again."""
    items: dict[tuple[str, int], list[int]] = {}
    pages: list[PagesGivenUp] = []
    for command in d.state.judge:
        opened = d.state.open[command]
        fault = final_fault(d, command) if opened.item is not None or opened.page else None
        if fault is not None and opened.item is not None:
            items.setdefault((d.graph.name(opened.step), opened.visit), []).append(opened.item)
        elif fault is not None:
            pages.append(PagesGivenUp(d.graph.name(opened.step), opened.visit, opened.page, fault))
    for (name, visit), given_up in items.items():
        d.record_moves()
        d.record_fact(ItemsGivenUp(name, visit, tuple(given_up)))
        _halt(d, name, visit, given_up[0])
    for page in pages:
        if page_id(page.step, page.visit, page.page) in d.state.open:
            d.record_moves()
            d.record_fact(page)


def _halt(d: Decision, name: str, visit: int, failed: int) -> None:
    """Cancel the running items and the pending page of a loop whose policy is to halt at the first failure."""
    s = d.graph.index[name]
    loop, fan = d.graph.step(s).loop, d.state.steps[s].fan
    if loop is None or fan is None or loop.on_item_error != "halt":
        return
    begun = tuple(item for item, life in enumerate(fan.status) if life == ITEM_RUNNING)
    page = fan.pulls.page if fan.pulls is not None and fan.pulls.life == ASKED else 0
    if begun or page or was_cut(fan):
        d.record_fact(ItemsCancelled(name, visit, begun, halts=f"item {failed} failed", page=page))


def end_visits(d: Decision) -> None:
    """Choose the arcs of every visit that has ended, in the order in which the visits ended."""
    ended_visits: list[tuple[int, int, Fault | None]] = [(seq, s, None) for s, seq in d.state.ended.items()]
    for command, seq in d.state.judge.items():
        opened = d.state.open[command]
        fault = final_fault(d, command)
        if opened.item is None and not opened.page and fault is not None:
            ended_visits.append((seq, opened.step, fault))
    for _, s, fault in sorted(ended_visits, key=lambda ended_visit: ended_visit[0]):
        if fault is not None:
            end_visit(d, s, fault)
        else:
            _end_worked(d, s)


def final_fault(d: Decision, command: str) -> Fault | None:
    """Return why a command failed, or None if it did not fail or is tried again."""
    opened = d.state.open[command]
    fault = fault_of_outcome(opened.report) if opened.report is not None else None
    return None if fault is None or may_go_on(d, opened, fault) else fault


def may_go_on(d: Decision, opened: OpenCommand, fault: Fault) -> bool:
    """Whether a failed command is tried again. An ending run retries nothing except its current finalizer."""
    if visits.stops(d.graph, d.state, opened.step):
        return False
    return may_retry(policy_of(d, opened), opened.attempt, fault)


def policy_of(d: Decision, opened: OpenCommand) -> Retry:
    """Return the retry policy of a command; the pages of a source have a policy of their own."""
    step = d.graph.step(opened.step)
    return step.loop.source.retry if opened.page and step.loop and step.loop.source else step.retry


def route(d: Decision) -> None:
    """Resolve the arcs of ended visits, then finished passes, then ready steps in file order, until none is left."""
    state = d.state
    if state.judge:
        end_visits(d)
    while state.ended or (state.life == RUNNING and (state.failures or state.over or state.ready)):
        if state.ended:
            end_visits(d)
        elif state.failures:
            end_run(d, FAILED, state.failures[0])
        elif state.over:
            _finish_pass(d, state.over[0])
        else:
            _enter_or_skip(d, *divmod(state.ready[0], 2))


def _enter_or_skip(d: Decision, s: int, enters: int) -> None:
    if enters:
        enter_step(d, s)
    else:
        d.move(Skipped((d.graph.name(s),)))


def _end_worked(d: Decision, s: int) -> None:
    """End a visit whose work is done. A fan-out may have failed, or may have been stopped before its end."""
    step = d.state.steps[s]
    fan = step.fan if d.graph.step(s).loop is not None and step.life != BYPASSED else None
    loop = d.graph.step(s).loop
    if fan is None or loop is None:
        end_visit(d, s, None)
    elif fan.fault is not None:
        end_visit(d, s, fan.fault)
    elif was_cut(fan) and not fan.failed:
        d.move(Dropped((d.graph.name(s),)))
    else:
        why = failure(loop, fan, lambda item: key_of(fan, d.loaded, item) if loop.key is not None else str(item))
        end_visit(d, s, Fault(ITEMS_FAILED, why, data=failed_items(fan)[:1000]) if why else None)


def _finish_pass(d: Decision, loop: int) -> None:
    head = d.graph.name(d.graph.loops[loop].head)
    d.move(PassBegan(head) if d.state.again[loop] else LoopLeft(head))


def enter_step(d: Decision, s: int) -> None:
    """Enter a step, or bypass it if its `when` does not hold."""
    step = d.graph.step(s)
    visit = d.state.steps[s].visits + 1
    if visit > step.visit_limit:
        end_run(d, FAILED, StepFault(step.name, visit, "visit limit"))
        return
    try:
        alone = d.state.kept is not None  # it was entered before, and only its items run again
        may_enter = step.when is None or alone or d.evaluate.truth(step.when, d.scope({"visit": visit}))
    except CannotEvaluate as error:
        _enter(d, s, visit)
        end_visit(d, s, Fault("expression", str(error), retryable=False))
        return
    if may_enter:
        _enter(d, s, visit)
    else:
        d.move(Bypassed(step.name, visit))
        _drop_losers(d, s)


def _enter(d: Decision, s: int, visit: int) -> None:
    d.move(Entered(d.graph.name(s), visit))
    _drop_losers(d, s)


def _drop_losers(d: Decision, s: int) -> None:
    """Drop the steps that could only lead into this race, which has just been won."""
    if s in d.graph.race_losers and d.state.kept is None:
        losers = routing.unsettled_among(d.graph, d.state, d.graph.race_losers[s])
        if losers:
            d.move(Dropped(tuple(map(d.graph.name, losers))))


class ChosenArcs(Struct, frozen=True):
    """The arcs that a visit takes, the context keys that it sets or appends to, and the inputs per arc for the next
    visits."""

    arcs: tuple[int, ...] = ()
    sets: dict[str, Any] = {}
    inputs: dict[int, dict[str, Any]] = {}
    appends: dict[str, list[Any]] = {}


NOTHING = ChosenArcs()


def end_visit(d: Decision, s: int, fault: Fault | None) -> None:
    """Evaluate the arcs that listen to this outcome, once. An expression that fails turns success into failure."""
    visit, chosen = d.state.steps[s].visits, NOTHING
    try:
        chosen = _choose(d, s, fault)
        wrong = None if fault is not None or chosen.arcs else _no_match(d, s)
    except CannotEvaluate as error:
        wrong = Fault(error.kind, str(error), retryable=False)
    if wrong is not None and fault is None:
        fault, chosen = wrong, NOTHING
        with suppress(CannotEvaluate):  # the first error is recorded; a second one leaves the failure unhandled
            chosen = _choose(d, s, fault)
    opened = d.state.open.get(command_id(d.graph.name(s), visit))
    reported = opened is not None and opened.report is not None and fault_of_outcome(opened.report) is not None
    quiet = fault is None and not chosen.arcs and d.graph.step(s).no_match == "quiet"
    unreported = None if reported else fault
    d.move(Took(d.graph.name(s), visit, chosen.arcs, chosen.sets, unreported, chosen.inputs, quiet, chosen.appends))


def _no_match(d: Decision, s: int) -> Fault | None:
    """Return the fault of a visit that succeeded but takes no arc, if the step must take one."""
    step = d.graph.step(s)
    if step.no_match != "fail" or not any(arc.on in ("success", "both") for arc in step.arcs):
        return None
    return Fault("no_match", f"none of the arcs of {step.name!r} matches", retryable=False)


def _choose(d: Decision, s: int, fault: Fault | None) -> ChosenArcs:
    step = d.graph.step(s)
    bypassed = d.state.steps[s].life == BYPASSED
    scope = with_output(d.scope({"visit": d.state.steps[s].visits}), s, fault)
    sets = {} if fault is not None or bypassed else {**_patch(d, step, scope), **_rendered(d, step.set, scope)}
    scope = with_sets(scope, sets)
    listens: tuple[str, ...] = ("failure", "both") if fault is not None else ("success", "both")
    if fault is None and not bypassed and _goes_elsewhere(d, s):
        listens = ("timeout",)
    appends: dict[str, list[Any]] = {}
    if fault is None and not bypassed:
        _append(d, appends, step.append, scope)
    taken: list[int] = []
    for position, arc in enumerate(step.arcs):
        if arc.on in listens and (arc.when is None or d.evaluate.truth(arc.when, scope)):
            taken.append(position)
            if step.mode == "exclusive":
                break
    inputs = {}
    for position in taken:
        arc = step.arcs[position]
        if arc.input:
            inputs[position] = d.evaluate.value(arc.input, scope)
        sets.update(_rendered(d, arc.set, scope))
        scope = with_sets(scope, sets)
        _append(d, appends, arc.append, scope)
    return ChosenArcs(tuple(taken), sets, inputs, appends)


def _append(d: Decision, appends: dict[str, list[Any]], templates: dict[str, Any], scope: RunScope) -> None:
    """Render the lists that are added to lists in the context. Templates of the same visit do not see them there."""
    for key, template in templates.items():
        values = d.evaluate.value(template, scope)
        if not isinstance(values, list):
            raise CannotEvaluate(f"append.{key}: a {type(values).__name__} is not a list")
        if values:
            appends.setdefault(bare_key(key), []).extend(values)


def _patch(d: Decision, step: Step, scope: RunScope) -> dict[str, Any]:
    """Return the keys of the context that the result of the visit decides."""
    value = {} if step.patch is None else d.evaluate.value(step.patch, scope)
    if not isinstance(value, dict):
        raise CannotEvaluate(f"a patch is a map, not a {type(value).__name__}")
    return value


def _goes_elsewhere(d: Decision, s: int) -> bool:
    """Whether this is a gate without a decision in time that has arcs for this case."""
    work = d.graph.step(s).work
    return isinstance(work, Gate) and work.on_timeout == "goto" and d.state.steps[s].result["option"] is None


def _rendered(d: Decision, sets: dict[str, Any], scope: RunScope) -> dict[str, Any]:
    """Render all values of one `set` before the first of them is written."""
    return {bare_key(key): d.evaluate.value(template, scope) for key, template in sets.items()}
