"""Runs as data: the objects that `-o json` prints."""

from typing import Any

from msgspec import to_builtins

from refold.cli.words import stamp
from refold.core.facts import RunTimedOut, StepFault
from refold.core.faults import fault_text
from refold.core.graph import Graph
from refold.core.outcomes import Fault, Instant
from refold.core.read.loaded import Loaded
from refold.core.read.progress import pace
from refold.core.read.summary import Summary, shown_steps, status_of
from refold.core.read.template_scope import LISTED, step_value
from refold.core.state import ISSUED, FanOut, RunState
from refold.ports import Store
from refold.runtime.reading import with_values


def run_object(store: Store, graph: Graph, state: RunState, now: Instant) -> dict[str, Any]:
    """Everything about a run: how it stands, each step with its result, and what it has used up."""
    claimed = _claimed(store, state.run) if state.open else frozenset()
    at_work = {graph.name(opened.step) for command, opened in state.open.items() if command in claimed}

    def computed(loaded: Loaded) -> dict[str, Any]:
        result = loaded.blob(state.blob) if state.blob is not None else state.result
        steps = shown_steps(graph, state)
        for s, step in enumerate(state.steps):
            shown = steps[graph.name(s)]
            shown["result"] = _result(state, loaded, s) if step.done_at else None
            shown["error"] = fault_object(shown["error"])
            if step.fan is not None and (step.life == ISSUED or step.fan.done < step.fan.count):
                shown["items"] = _items(step.fan, now if step.life == ISSUED else step.fan.since)
            if shown["status"] == ISSUED and graph.name(s) in at_work:
                shown["status"] = "claimed"
        return {
            "id": state.run,
            "name": state.name,
            "workflow": graph.plan.name,
            "status": status_of(graph, state, now),
            "result": result,
            "error": error_object(state.error),
            "steps": steps,
            "usage": dict(state.usage),
            "created_at": stamp(state.started_at),
            "ended_at": stamp(state.ended_at),
        }

    return with_values(store, state.run, computed)


def _items(fan: FanOut, now: Instant) -> dict[str, Any]:
    """How many of a loop's items have come to what; of one that goes on, how fast, and for how long."""
    speed = pace(fan, now)
    counts = {"count": fan.count, "completed": fan.done, "failed": fan.failed, "running": fan.running}
    more = {"skipped": fan.skipped, "cancelled": fan.cancelled, "more": speed.more}
    left = None if speed.left is None else round(speed.left, 1)
    return {**counts, **more, "rate": round(speed.rate, 3), "left": left}


def row_object(row: Summary) -> dict[str, Any]:
    """A line of the list."""
    return {
        "id": row.run,
        "name": row.name,
        "workflow": row.workflow,
        "status": row.status,
        "created_at": stamp(row.created_at),
        "ended_at": stamp(row.ended_at),
    }


def error_object(error: StepFault | None) -> dict[str, Any] | None:
    """Where it failed, and what was wrong there."""
    if error is None:
        return None
    where = {"step": error.step or None, "visit": error.visit, "why": error.why}
    return {**where, **(fault_object(error.fault) or {"kind": "run", "message": error.why})}


def fault_object(fault: Fault | None) -> dict[str, Any] | None:
    if fault is None:
        return None
    return {"kind": fault.kind, "message": fault.message, **to_builtins(fault)}


def error_text(error: StepFault) -> str:
    """On one line: what and where."""
    why = fault_text(error.fault) if error.fault is not None else error.why
    return f"step {error.step}: {why}" if error.step else why


def timed_out(store: Store, state: RunState) -> bool:
    """Whether it was the time of the whole run that ran out."""
    if state.error is None or state.error.step:
        return False
    return any(isinstance(fact, RunTimedOut) for _, _, fact in store.facts(state.run))


def _result(state: RunState, loaded: Loaded, s: int) -> Any:
    """A loop gives the list of what its items gave."""
    value, fan = step_value(state, loaded, s), state.steps[s].shown
    if fan is None:
        return value
    return value["results"] if fan.count <= LISTED else {"stats": value["stats"]}


def _claimed(store: Store, run: str) -> frozenset[str]:
    with store.turn([run]) as turn:
        return turn.claimed(run)
