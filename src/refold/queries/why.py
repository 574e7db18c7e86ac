"""Why a run does not continue, and which of its steps no live worker can take."""

from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import structs, to_builtins

from refold.core import times
from refold.core.expressions import CannotEvaluate, Contained, Evaluate, Languages, unknown
from refold.core.graph import Graph
from refold.core.outcomes import Instant
from refold.core.queueing import lane_name
from refold.core.read.loaded import Loaded
from refold.core.read.summary import Summary
from refold.core.read.template_scope import item_scope
from refold.core.read.why import Reason, has_limit_of_its_own, reasons
from refold.core.read.why_text import why_text
from refold.core.state import TERMINAL, OpenCommand, RunState
from refold.errors import InvalidPlan
from refold.ports import Views
from refold.queries.reading import with_values
from refold.queries.workers import world_of

UNSERVED = frozenset({"no_code", "no_tool", "no_queue"})  # reasons that only another worker can remove


def run_reasons(
    views: Views, row: Summary, graph: Graph, state: RunState, now: Instant, languages: Languages = unknown
) -> list[Reason]:
    """Every reason: of the run as a whole, then of its steps. `languages` tell the limits of items that differ."""
    world = world_of(views, row)
    if world.limits:
        world = structs.replace(world, item_limits=item_limits(views, graph, state, languages))
    found = [*stuck_reasons(row), *reasons(graph, state, now, world)]
    return [_on_cluster(views, row.run, each) if each.kind == "running" else each for each in found]


def item_limits(views: Views, graph: Graph, state: RunState, languages: Languages) -> dict[str, str]:
    """Return the limits of open items whose step has an expression there; one that has no value is left out."""
    items = {
        command: opened
        for command, opened in state.open.items()
        if has_limit_of_its_own(graph.step(opened.step), opened)
    }
    found: dict[str, str] = {}
    if not items:
        return found
    try:
        evaluate = Contained(languages(graph.plan.language))
    except InvalidPlan:
        return found
    for command, opened in items.items():
        with suppress(CannotEvaluate):
            limit = with_values(views, state.run, partial(_item_limit, graph, state, opened, evaluate))
            found[command] = limit or state.queueing.limit
    return found


def _item_limit(graph: Graph, state: RunState, opened: OpenCommand, evaluate: Evaluate, loaded: Loaded) -> str:
    step, fan = graph.step(opened.step), state.steps[opened.step].fan
    assert fan is not None and step.loop is not None and opened.item is not None
    scope = item_scope(fan, loaded, step.loop.iterator, opened.item, opened.visit)
    return lane_name("limit", evaluate.value(step.limit, scope))


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
