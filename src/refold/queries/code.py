"""The Python workflows whose code a run still needs, and the workers that have it."""

import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from refold.core.facts import RunStarted
from refold.core.graph import Graph
from refold.core.pipeline import TaskPipeline
from refold.core.plan import BODY, Child, CodeIdentity, Step
from refold.core.read.summary import Summary
from refold.core.read.why import SHORT
from refold.core.state import BYPASSED, COMPLETED, PAUSED, RUNNING, SKIPPED, TERMINAL, WAITING, RunState
from refold.errors import NotFound
from refold.ports import RunFilter, Views
from refold.queries.reading import RunReader, graph_of
from refold.queries.runs import list_runs
from refold.queries.workers import serving

OVER = frozenset({COMPLETED, SKIPPED, BYPASSED})
UNFINISHED = (RUNNING, WAITING, PAUSED)


class Need(NamedTuple):
    """A Python workflow whose code a run needs."""

    plan: str
    run: Summary | None  # the run that follows this plan; None: it is not started yet


def needs(views: Views, row: Summary) -> Iterator[Need]:
    """The plans whose code a run needs, as far as its plan says: what code starts by itself comes with that code."""
    graph = graph_of(views, row.plan)
    if graph.by_events:
        yield Need(row.plan, row)
        return
    if not any(_starts(step) for step in graph.plan.steps):
        return
    graph, state = RunReader(views, row.run).read()
    below = list(_below(views, graph, state))
    for _, child in below:
        yield from needs(views, child)
    for step in graph.plan.steps:
        under_way = step.loop is None and any(name == step.name for name, _ in below)
        over = not graph.loops and state.steps[graph.index[step.name]].life in OVER
        if not under_way and not over:
            yield from (Need(plan, None) for plan in _coded(views, _starts(step), set()))


def _below(views: Views, graph: Graph, state: RunState) -> Iterator[tuple[str, Summary]]:
    """The children that are running, and the steps that wait for them; a child may have migrated by now."""
    for key, run in state.children.items():
        opened, child = state.open.get(key.partition("#")[0]), views.summary(run)
        if opened is not None and child is not None and child.status not in TERMINAL:
            yield graph.name(opened.step), child


def _starts(step: Step) -> list[str]:
    """The plans that a step starts, except the plan that it is part of."""
    if isinstance(step.work, Child):
        plans = [step.work.plan]
    else:
        tasks = step.work.tasks if isinstance(step.work, TaskPipeline) else ()
        plans = [task.child.plan for task in tasks if task.child is not None]
    return [plan for plan in plans if plan]


def _coded(views: Views, plans: list[str], seen: set[str]) -> Iterator[str]:
    for plan in plans:
        if plan in seen:
            continue
        seen.add(plan)
        graph = graph_of(views, plan)
        if graph.by_events:
            yield plan
        else:
            for step in graph.plan.steps:
                yield from _coded(views, _starts(step), seen)


class CodeHere(NamedTuple):
    """A Python workflow whose code is at hand."""

    target: str  # where
    workflow: str
    code: CodeIdentity | None = None


def workers_with_code(views: Views, row: Summary, here: Mapping[str, CodeHere]) -> Collection[str]:
    """Workers of other processes that have the code of a run, if this process lacks it; none if it has all of it.

    `here` is the code that this process has, by the hashes of plans. Raises NotFound if no worker has it either.
    """
    workers, having = serving(views, row), dict[str, None]()
    for need in needs(views, row):
        if need.plan in here:
            continue
        body = f"{BODY}:{need.plan}"
        others = [worker for worker, can in workers.items() if can.tools is None or body in can.tools]
        if not others:
            raise NotFound(_absent(views, row, need, here))
        having.update(dict.fromkeys(others))
    return having.keys()


def open_plans(
    views: Views, workflows: Collection[str], known: Collection[str], newest: int | None = None
) -> dict[str, bytes]:
    """The stored plans that unfinished runs of these workflows follow, by their hashes, except the known ones.

    `newest`: only so many runs are looked at, for each workflow and status.
    """
    plans: dict[str, bytes] = {}
    for workflow in workflows:
        for status in UNFINISHED:
            for row in list_runs(views, RunFilter(status=status, workflow=workflow), newest):
                if row.plan not in known and row.plan not in plans and (data := views.plan(row.plan)) is not None:
                    plans[row.plan] = data
    return plans


def _absent(views: Views, row: Summary, need: Need, here: Mapping[str, CodeHere]) -> str:
    needed, run = graph_of(views, need.plan).plan, need.run
    workflow = needed.name
    missing = f"the code of {workflow} (plan {need.plan[:SHORT]}) is not here"
    for plan, code in here.items():
        if code.workflow == workflow and (needed.code is None or code.code in (None, needed.code)):
            now = f"{missing}: {code.target} is plan {plan[:SHORT]} by now"
            if run is not None:
                return f"{now}; `refold runs migrate {run.name or run.run} --to {code.target}` moves the run to it"
            how = f"`refold runs migrate {row.name or row.run} --to FILE`"
            return f"{now}; {how}, with the playbook of {row.workflow}, lets it start that"
    where = shlex.split(code_place(views, row)) or ["MODULE:CLASS"]
    return f"{missing}: give it with {' '.join(f'--code {shlex.quote(each)}' for each in where)}"


def code_place(views: Views, row: Summary) -> str:
    """Where the code of a run was when it was started, or its parent was: for messages only, never to be imported."""
    first = next(iter(views.facts(row.run, 0, 1)), None)
    code = first[2].code if first is not None and isinstance(first[2], RunStarted) else ""
    above = views.summary(row.parent) if row.parent and not code else None
    return code if above is None else code_place(views, above)
