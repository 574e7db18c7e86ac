"""Rules for work that no worker does: waits, gates, quality checks, and polls until a condition holds."""

from collections.abc import Mapping
from typing import Any

from refold.core.decide.decision import Decision
from refold.core.decide.routing import end_visit
from refold.core.expressions import CannotEvaluate
from refold.core.facts import StepIssued, StepSettled
from refold.core.fold.routing import ARC_INPUTS
from refold.core.fold.visits import stops
from refold.core.outcomes import SECOND, Fault, Report, Succeeded
from refold.core.plan import Gate, Quality, Step, Wait, WorkerWork
from refold.core.read.template_scope import with_output
from refold.core.times import END_OF_TIME, instant

NOTHING: dict[str, Any] = {}


def issue_wait(d: Decision, step: Step, wait: Wait, visit: int) -> StepIssued:
    if step.poll is not None:
        return StepIssued(step.name, visit, until=d.now)  # the condition is looked at immediately
    seconds, until, signal = (rendered(d, template, visit) for template in (wait.seconds, wait.until, wait.signal))
    moments = [] if seconds is None else [d.now + _span(seconds)]
    moments += [] if until is None else [_moment(until)]
    signals = _signals(signal)
    if not moments and not signals:
        raise CannotEvaluate("there is nothing to wait for: neither a time nor a signal")
    first, others = signals[:1], signals[1:]
    return StepIssued(step.name, visit, until=min(moments, default=None), signal="".join(first), signals=others)


def rendered(d: Decision, template: Any, visit: int, arc_inputs: dict[str, Any] = NOTHING) -> Any:
    if template is None:
        return None
    return d.evaluate.value(
        template, d.scope({"visit": visit, ARC_INPUTS: arc_inputs} if arc_inputs else {"visit": visit})
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _span(value: Any) -> int:
    if not _is_number(value) or not abs(value * SECOND) < END_OF_TIME:
        raise CannotEvaluate(f"{value!r} is not a time to wait for")
    span: int = round(value * SECOND)
    return span


def _moment(value: Any) -> int:
    try:
        return instant(value)
    except ValueError as error:
        raise CannotEvaluate(f"{value!r} is not a time to wait for: {error}") from None


def _signals(value: Any) -> tuple[str, ...]:
    """Return the names of signals, given as one name or a list, without repetitions."""
    names = value if isinstance(value, list) else [] if value is None or value == "" else [value]
    return tuple(dict.fromkeys(map(str, names)))


def issue_gate(d: Decision, step: Step, gate: Gate, visit: int) -> StepIssued:
    until = None if gate.timeout is None else d.now + round(gate.timeout * SECOND)
    assignee = rendered(d, gate.assignee, visit)
    return StepIssued(
        step.name,
        visit,
        input=rendered(d, gate.prompt, visit),
        until=until,
        assignee="" if assignee is None else str(assignee),
        choices={} if gate.choices is None else _choices(rendered(d, gate.choices, visit)),
    )


def _choices(value: Any) -> dict[str, str]:
    """Return the choices of a gate with their labels. A gate without any would wait in vain for one."""
    named = value if isinstance(value, Mapping) else {each: each for each in _texts(value)}
    if not named:
        raise CannotEvaluate("`choices`: there are none; a list of texts or a map of values to labels is needed")
    return {str(name): label if isinstance(label, str) else str(name) for name, label in named.items()}


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise CannotEvaluate("`choices` must be a list of texts, or a map of values to labels")
    return value


def issue_quality(d: Decision, step: Step, quality: Quality, visit: int) -> StepIssued:
    """Issue a quality check. A value that is missing or not a number counts as 0, and `why` says so."""
    threshold = rendered(d, quality.threshold, visit)
    if not _is_number(threshold):
        raise CannotEvaluate(f"{threshold!r} is not a number to compare with")
    why, score = "", 0
    try:
        score = rendered(d, quality.source, visit)
        why = "" if _is_number(score) else f"a {type(score).__name__} is not a number"
    except CannotEvaluate as error:
        why = str(error)
    verdict = {"score": 0, "threshold": threshold, "passed": threshold <= 0, "why": why}
    if not why:
        verdict = {"score": score, "threshold": threshold, "passed": score >= threshold}
    return StepIssued(step.name, visit, input=verdict)


def check_polls(d: Decision) -> None:
    """Those whose time has come, and those whose call has brought something to look at."""
    for command in list(d.state.polls):
        opened = d.state.open[command]
        step = d.graph.step(opened.step)
        by_worker = isinstance(step.work, WorkerWork)
        if stops(d.graph, d.state, opened.step) or not (by_worker or (opened.until or 0) <= d.now):
            continue
        _check_poll(d, command, step, by_worker)


def _check_poll(d: Decision, command: str, step: Step, by_worker: bool) -> None:
    opened, poll = d.state.open[command], step.poll
    assert poll is not None
    view = with_output(d.scope({"visit": opened.visit}), opened.step, None)
    try:
        holds = d.evaluate.truth(poll.until, view)
    except CannotEvaluate as error:
        end_visit(d, opened.step, Fault("expression", str(error), retryable=False))
        return
    again = d.now + round(poll.every * SECOND)
    if not holds:
        d.record_moves()
        later = StepIssued(step.name, opened.visit, not_before=again) if by_worker else None
        d.record_fact(later or StepIssued(step.name, opened.visit, until=again))
    elif by_worker:
        end_visit(d, opened.step, None)
    else:
        d.record_moves()
        d.record_fact(StepSettled(step.name, opened.visit, Report(opened.attempt, Succeeded({"by": "poll"}))))
