"""Where NoETL's own reconstruction of an execution would differ from the run that Refold reads from the same log.

NoETL takes one event after the other and keeps the last word of each: an event that is repeated or late counts again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.playbooks.noetl_log.events import LogEvent, read_events
from refold.playbooks.noetl_log.log import ImportedRun
from refold.playbooks.noetl_log.log_reader import ENDS
from refold.playbooks.noetl_log.report import COMPLETED, FAILED, RUNNING, SKIPPED, VisitReport, report_run
from refold.playbooks.noetl_log.results import extract_user_data

NONE = "initial"
STARTS = ("playbook_started",)
ENTERS = ("step.enter", "step_enter", "step_started")
SKIPS = ("step.skipped", "step_skipped")
MOVES = ("command.issued", "command.claimed", "command.started", "action_started")
COMPLETES = ("command.completed", "action_completed", "step.exit", "step_completed")
CALLS = ("call.done", "action_done")
FAILS = ("command.failed", "action_failed", "step_failed")


class NoetlStep(Struct):
    """A step as NoETL's reconstruction keeps it."""

    status: str = RUNNING
    result: Any = None
    has_result: bool = False
    expected: int | None = None  # iterations; None: a plain step
    commands: dict[str, Any] = {}  # iterations that completed, in the order of arrival


class NoetlState(Struct):
    status: str = NONE
    ended_by: str = ""  # the id of the event
    steps: dict[str, NoetlStep] = {}
    context: dict[str, Any] = {}


def reconstruct(events: Iterable[LogEvent]) -> NoetlState:
    """Return the state that NoETL would rebuild from these events."""
    state = NoetlState()
    for event in events:
        if event.type in STARTS:
            state.status = "in_progress"
        elif event.type in ENDS and event.type != "playbook_cancelled":  # NoETL reads only `playbook.cancelled`
            state.status, state.ended_by = ENDS[event.type], event.id
        elif event.type == "ctx.updated":
            values = event.payload.get("values")
            state.context |= values if isinstance(values, dict) else {}
        elif event.step:
            _apply(state.steps, event)
    return state


def _apply(steps: dict[str, NoetlStep], event: LogEvent) -> None:
    if event.type not in (*ENTERS, *SKIPS, *MOVES, *COMPLETES, *CALLS, *FAILS):
        return
    step = steps.setdefault(event.step, NoetlStep())
    if event.type in ENTERS:
        step.status = RUNNING
        step.expected = event.expected if event.expected is not None else step.expected
    elif event.type in MOVES:
        step.status = RUNNING
    elif event.type in SKIPS:
        step.status = SKIPPED
    elif event.type in FAILS:
        step.status = FAILED
    elif event.type in CALLS:
        if step.expected is None and event.result is not None:
            step.result, step.has_result = event.result, True
    elif step.expected is not None:
        if event.command:
            step.commands.setdefault(event.command, event.result)
        if len(step.commands) >= step.expected:
            step.status = COMPLETED
    else:
        step.status = COMPLETED
        if not step.has_result and event.result is not None:
            step.result, step.has_result = event.result, True


def differences(rows: Sequence[Mapping[str, Any]], run: ImportedRun) -> list[str]:
    """Return a sentence for each difference, in the order of the steps of the log."""
    return list(_differences(reconstruct(read_events(rows)), run))


def _differences(theirs: NoetlState, run: ImportedRun) -> Iterator[str]:
    ours = report_run(run)
    if theirs.status != ours.status:
        by = f" (event {theirs.ended_by})" if theirs.ended_by else ""
        began = theirs.status != NONE
        why = (
            "the first end counts" if began else "it has begun with its first event, also without a `playbook_started`"
        )
        yield f"the run: NoETL would say {theirs.status}{by}, here it is {ours.status}: {why}"
    last = {visit.step: visit for visit in ours.visits}
    for name, step in theirs.steps.items():
        visit = last.get(name)
        if visit is not None:
            yield from _of_step(name, step, visit)
    for key in dict.fromkeys([*theirs.context, *ours.context]):
        if theirs.context.get(key) != ours.context.get(key):
            yield f"ctx.{key}: NoETL would have the value of the last event about it, here the first of each completion"


def _of_step(name: str, theirs: NoetlStep, ours: VisitReport) -> Iterator[str]:
    visit = f" in visit {ours.visit}" if ours.visit > 1 else ""
    if theirs.status != ours.status:
        yield f"step {name}: NoETL would say {theirs.status}, here it is {ours.status}{visit}"
        return
    if theirs.expected is not None:
        arrived = [extract_user_data(each) for each in theirs.commands.values()]
        if ours.status == COMPLETED and arrived != ours.result:
            yield f"step {name}: NoETL would have the results in the order of their arrival, here that of the items"
    elif ours.status == COMPLETED and extract_user_data(theirs.result) != ours.result:
        yield f"step {name}: NoETL would keep an earlier result, here the result is that of the last visit"
