"""Handing out work: rendered inputs, fan-outs, windows, further tries."""

from collections.abc import Iterator
from typing import Any

from refold.core import fanout
from refold.core.commands import child_id, command_id
from refold.core.decision import Decision
from refold.core.expressions import CannotEvaluate
from refold.core.facts import (
    SECOND,
    Entered,
    Failed,
    FanOutEntered,
    Fault,
    ItemsIssued,
    ItemsRetried,
    ItemsSettled,
    Report,
    StepIssued,
)
from refold.core.plan import Call, Child, Gate, Step, Wait
from refold.core.retry import delay, fault_of
from refold.core.routing_rules import end_visit, may_go_on
from refold.core.state import FanOut, OpenCommand
from refold.core.view import capture

END_OF_TIME = 1 << 62  # an instant must fit into 64 bits


def issue_entered(d: Decision) -> None:
    """Every step entered in this turn goes to a worker, to a child, or to the world."""
    issued: list[StepIssued | FanOutEntered] = []
    faults: dict[int, Fault] = {}
    for s in d.state.entered:
        try:
            issued.append(_issue(d, s))
        except CannotEvaluate as error:
            faults[s] = Fault("expression", str(error), retryable=False)
    for s, fault in faults.items():
        end_visit(d, s, fault)
    entered = tuple(move.step for move in d.moves if isinstance(move, Entered))
    plain = len(entered) == len(d.moves) and entered == tuple(fact.step for fact in issued)
    if plain and not any(_ends_at_once(fact) for fact in issued[:-1]):
        d.moves.clear()  # the facts that follow say it all
    d.tell_moves()
    for fact in issued:
        d.say(fact)


def _ends_at_once(fact: StepIssued | FanOutEntered) -> bool:
    """A loop without items settles when it is entered; those behind it in the log must have been entered before."""
    return isinstance(fact, FanOutEntered) and fact.count == 0


def _issue(d: Decision, s: int) -> StepIssued | FanOutEntered:
    step = d.graph.step(s)
    visit = d.state.steps[s].visits
    if step.loop is not None:
        return _enter_fan_out(d, step, visit)
    match step.work:
        case Call():
            return StepIssued(step.name, visit, input=_render(d, step.input, visit))
        case Child():
            child = child_id(d.state.run, command_id(step.name, visit))
            return StepIssued(step.name, visit, input=_render(d, step.input, visit), child=child)
        case Gate(prompt=prompt, timeout=timeout):
            until = None if timeout is None else d.now + round(timeout * SECOND)
            return StepIssued(step.name, visit, input=_render(d, prompt, visit), until=until)
        case Wait():
            return _issue_wait(d, step.name, step.work, visit)


def _render(d: Decision, template: Any, visit: int) -> Any:
    return None if template is None else d.evaluate.value(template, d.view({"visit": visit}))


def _issue_wait(d: Decision, name: str, wait: Wait, visit: int) -> StepIssued:
    moments = []
    seconds, until, signal = (_render(d, template, visit) for template in (wait.seconds, wait.until, wait.signal))
    for value, offset, unit in ((seconds, d.now, SECOND), (until, 0, 1)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value * unit) < END_OF_TIME:
            raise CannotEvaluate(f"{value!r} is no time to wait for")
        moments.append(offset + round(value * unit))
    if not moments and not signal:
        raise CannotEvaluate("there is nothing to wait for: neither a time nor a signal")
    return StepIssued(name, visit, until=min(moments, default=None), signal=str(signal or ""))


def _enter_fan_out(d: Decision, step: Step, visit: int) -> FanOutEntered:
    assert step.loop is not None
    items = d.evaluate.value(step.loop.items, d.view({"visit": visit}))
    if not isinstance(items, (list, tuple)):
        raise CannotEvaluate(f"a {type(items).__name__} is no list to loop over")
    captured = {} if step.loop.sequential else _captured(d, step, visit)
    inline, blob = d.box(list(items))
    return FanOutEntered(step.name, visit, len(items), inline, blob, captured)


def _captured(d: Decision, step: Step, visit: int) -> dict[str, Any]:
    if step.loop is None or step.input is None:
        return {}
    own = frozenset({step.loop.name, "iter", "loop", "visit"})
    return capture(d.view({"visit": visit}), d.evaluate.paths(step.input), own)


def fill_windows(d: Decision) -> None:
    for s in list(d.state.filling):
        fan = d.state.steps[s].fan
        step = d.graph.step(s)
        assert fan is not None and step.loop is not None
        _load_items(d, fan)
        count = fanout.room(d.graph, s, fan)
        visit = d.state.steps[s].visits
        captured = _captured(d, step, visit) if step.loop.sequential else None
        first = fan.next
        d.tell_moves()
        d.say(ItemsIssued(step.name, visit, first, count, captured))
        unfit = tuple(_unfit(d, step, visit, range(first, first + count)))
        if unfit:
            d.say(ItemsSettled(step.name, visit, unfit))


def _load_items(d: Decision, fan: FanOut) -> None:
    """What is missing is asked for before anything is said."""
    if fan.blob is not None:
        d.loaded.blob(fan.blob)


def _unfit(d: Decision, step: Step, visit: int, items: range) -> Iterator[Report]:
    """Items whose input has no value fail like any other, and the rest go on."""
    if step.input is None:
        return
    for item in items:
        try:
            d.input_of(command_id(step.name, visit, item))
        except CannotEvaluate as error:
            yield Report(1, Failed(Fault("expression", str(error), retryable=False)), item=item)


def try_again(d: Decision) -> None:
    """Failed tries whose policy allows another: what is left to judge once the rest has been routed."""
    items: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for command in list(d.state.judge):
        opened = d.state.open[command]
        fault = fault_of(opened.report) if opened.report is not None else None
        if fault is None or not may_go_on(d, opened, fault):
            continue
        name = d.graph.name(opened.step)
        attempt, not_before = opened.attempt + 1, _not_before(d, opened, fault)
        d.tell_moves()
        if opened.item is not None:
            items.setdefault((name, opened.visit), []).append((opened.item, attempt, not_before))
            continue
        child = child_id(d.state.run, command, attempt) if opened.child else ""
        d.say(StepIssued(name, opened.visit, attempt, not_before=not_before, child=child))
    for (name, visit), again in items.items():
        fan = d.state.steps[d.graph.index[name]].fan
        assert fan is not None
        _load_items(d, fan)
        d.say(ItemsRetried(name, visit, tuple(again)))


def _not_before(d: Decision, opened: OpenCommand, fault: Fault) -> int:
    policy = d.graph.step(opened.step).retry
    chance = d.chance() if policy.jitter else 0.0
    wait = delay(policy, opened.attempt, fault, chance)
    return d.now + wait if wait else 0
