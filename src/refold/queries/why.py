"""Why a run does not continue, and which of its steps no live worker can take."""

from typing import Any

from msgspec import structs, to_builtins

from refold.core import times
from refold.core.graph import Graph
from refold.core.outcomes import Instant
from refold.core.read.summary import Summary
from refold.core.read.why import Reason, reasons
from refold.core.read.why_text import why_text
from refold.core.state import TERMINAL, RunState
from refold.ports import Views
from refold.queries.workers import world_of

UNSERVED = frozenset({"no_code", "no_tool", "no_queue"})  # reasons that only another worker can remove


def run_reasons(views: Views, row: Summary, graph: Graph, state: RunState, now: Instant) -> list[Reason]:
    """Every reason: of the run as a whole, then of its steps."""
    found = [*stuck_reasons(row), *reasons(graph, state, now, world_of(views, row))]
    return [_on_cluster(views, row.run, each) if each.kind == "running" else each for each in found]


def _on_cluster(views: Views, run: str, reason: Reason) -> Reason:
    """A step that runs on a cluster may wait there; its worker writes that into the side stream of the run."""
    for _, line in views.last_lines(run, limit=RECENT):
        if isinstance(line, dict) and line.get("stream") == CLUSTER and line.get("step") == reason.step:
            text = str(line.get("text", ""))
            return structs.replace(reason, note=text) if text.startswith("pending") else reason
    return reason


def stuck_reasons(row: Summary) -> list[Reason]:
    """An internal error keeps the run from continuing; what its steps have reported is kept until it is gone."""
    return [Reason("", "stuck", note=row.stuck)] if row.stuck else []


def unserved_steps(views: Views, row: Summary, graph: Graph, state: RunState, now: Instant) -> list[Reason]:
    """Steps that no live worker could take, each once."""
    if state.life in TERMINAL or state.paused or not state.open:
        return []
    waiting = reasons(graph, state, now, world_of(views, row))
    return list({reason.step: reason for reason in waiting if reason.kind in UNSERVED}.values())


RECENT = 200  # lines
CLUSTER = "ray"  # the stream

NAMES = frozenset({"slot", "limit", "no_worker", "no_code", "no_tool", "no_queue", "window", "batch", "running"})
"""Kinds whose notes are names and numbers; other notes may hold values, as the prompt of a gate does."""


def without_values(reason: Reason) -> Reason:
    """Return a reason as somebody gets it who may not see values."""
    return reason if reason.kind in NAMES else structs.replace(reason, note="")


def reason_object(reason: Reason, now: Instant) -> dict[str, Any]:
    """Return a reason as JSON, with its text, in which times are in UTC."""
    found: dict[str, Any] = to_builtins(reason)
    shown = {name: times.stamp(value) if name in ("until", "since") else value for name, value in found.items()}
    return {**shown, "text": why_text(reason, now)}
