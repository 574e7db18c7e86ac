"""The Python workflows whose code a run still needs: its own, or those that a playbook starts as children."""

from collections.abc import Iterator
from typing import NamedTuple

from refold.core.graph import Graph
from refold.core.plan import Call, Child, Step
from refold.core.read.summary import Summary
from refold.core.state import BYPASSED, COMPLETED, SKIPPED, TERMINAL, RunState
from refold.runtime.plans import graph_of
from refold.runtime.reading import Reading
from refold.stores.sqlite.store import SqliteStore

OVER = frozenset({COMPLETED, SKIPPED, BYPASSED})


class Need(NamedTuple):
    plan: str
    run: Summary | None  # that follows this plan; None: it is not started yet


def needs(store: SqliteStore, row: Summary) -> Iterator[Need]:
    """As far as its plan says: what code starts by itself comes with that code."""
    graph = graph_of(store, row.plan)
    if graph.by_events:
        yield Need(row.plan, row)
        return
    if not any(_starts(step) for step in graph.plan.steps):
        return
    graph, state = Reading(store, row.run).read()
    below = list(_below(store, graph, state))
    for _, child in below:
        yield from needs(store, child)
    for step in graph.plan.steps:
        under_way = step.loop is None and any(name == step.name for name, _ in below)
        over = not graph.loops and state.steps[graph.index[step.name]].life in OVER
        if not under_way and not over:
            yield from (Need(plan, None) for plan in _coded(store, _starts(step), set()))


def _below(store: SqliteStore, graph: Graph, state: RunState) -> Iterator[tuple[str, Summary]]:
    """The children that are under way, and the steps that wait for them; one may have migrated by now."""
    for key, run in state.children.items():
        opened, child = state.open.get(key.partition("#")[0]), store.summary(run)
        if opened is not None and child is not None and child.status not in TERMINAL:
            yield graph.name(opened.step), child


def _starts(step: Step) -> list[str]:
    """The plans that it starts, but for the plan that it is part of."""
    if isinstance(step.work, Child):
        found = [step.work.plan]
    else:
        tasks = step.work.settings.get("tasks", ()) if isinstance(step.work, Call) else ()
        found = [task["child"]["plan"] for task in tasks if isinstance(task, dict) and task.get("child")]
    return [plan for plan in found if plan]


def _coded(store: SqliteStore, plans: list[str], seen: set[str]) -> Iterator[str]:
    for plan in plans:
        if plan in seen:
            continue
        seen.add(plan)
        graph = graph_of(store, plan)
        if graph.by_events:
            yield plan
        else:
            for step in graph.plan.steps:
                yield from _coded(store, _starts(step), seen)
