"""The summary of a run, which lists show and stores keep in a row, and the states of its steps."""

from typing import Any

from msgspec import Struct

from refold.core.facts import StepFault
from refold.core.graph import Graph
from refold.core.outcomes import Instant
from refold.core.plan import WorkerWork
from refold.core.state import PAUSED, RUNNING, WAITING, OpenCommand, RunState, shown_life


class Summary(Struct, frozen=True, omit_defaults=True, gc=False):
    run: str
    workflow: str
    plan: str
    status: str
    name: str = ""
    key: str = ""
    parent: str = ""
    created_at: Instant = 0
    ended_at: Instant = 0
    seq: int = 0
    error: StepFault | None = None
    gates: tuple[str, ...] = ()  # commands that wait for a person
    stuck: str = ""  # the internal error because of which nothing is decided; reports are kept meanwhile


def summarize(graph: Graph, state: RunState) -> Summary:
    return Summary(
        run=state.run,
        workflow=graph.plan.name,
        plan=state.plan,
        status=status_of(graph, state, state.at),
        name=state.name,
        key=state.key,
        parent=state.parent.run if state.parent is not None else "",
        created_at=state.started_at,
        ended_at=state.ended_at,
        seq=state.seq,
        error=state.error,
        gates=tuple(command for command, each in state.open.items() if each.step in graph.gates) if graph.gates else (),
    )


def status_of(graph: Graph, state: RunState, now: Instant) -> str:
    """Return the status of a run. It is waiting if it has open commands and no worker could run any of them now."""
    if state.paused:
        return PAUSED
    if state.life != RUNNING or not state.open:
        return state.life
    for each in reversed(state.open.values()):  # from the newest: the oldest end first and leave slow gaps
        if not _waits(graph, each, now):
            return RUNNING
    return WAITING


def _waits(graph: Graph, opened: OpenCommand, now: Instant) -> bool:
    if not isinstance(graph.step(opened.step).work, WorkerWork) and not opened.page:
        return True
    return opened.held or opened.not_before > now


def shown_steps(graph: Graph, state: RunState) -> dict[str, dict[str, Any]]:
    """Return state, visits, attempts, result and error of each step."""
    shown = {}
    for s, step in enumerate(state.steps):
        shown[graph.name(s)] = {
            "status": shown_life(step),
            "visits": step.visits,
            "attempts": step.attempts,
            "result": step.result,
            "error": step.fault,
        }
    return shown
