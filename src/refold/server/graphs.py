"""Routes that show the graph of a plan, what its arcs came to in a run, and one step of a run with its tries."""

from typing import Any, Literal

from msgspec import Struct, json, to_builtins

from refold.core.facts import ChildEnded, EventsTaken, FanOutEntered, GateDecided, StepIssued, StepSettled
from refold.core.graph import Graph
from refold.core.outcomes import QUEUE, SECOND, fault_of_outcome
from refold.core.plan import Arc, Child, Fail, Gate, Quality, Step, Wait, tool_of
from refold.core.read.loaded import Loaded
from refold.core.read.summary import progress
from refold.core.read.template_scope import LISTED, step_value
from refold.core.state import DEAD, TAKEN, RunState
from refold.core.times import stamp
from refold.errors import NotFound
from refold.ports import Views
from refold.queries.items import first_failure
from refold.queries.reading import graph_of, with_values
from refold.server.routes import Answer, Call
from refold.server.runs import run_row, shown_error, shown_reason, step_object, value_part

PAGE = 10_000  # facts read at once
MOST_TRIES = 200  # of a step, the last ones
MARKS = {TAKEN: "taken", DEAD: "dead"}
LONGEST_CONDITION = 500  # characters


class MomentQuery(Struct, frozen=True, forbid_unknown_fields=True):
    at: int | None = None  # after this fact; nothing: now


class StepQuery(MomentQuery, frozen=True, forbid_unknown_fields=True):
    values: Literal["none", "inline", "text"] = "inline"


def kind_of(step: Step) -> str:
    """Return what a step does, as people call it: a tool, or what the engine does itself."""
    match step.work:
        case Gate():
            return "gate"
        case Wait():
            return "wait"
        case Child():
            return "child"
        case Quality():
            return "quality"
        case Fail():
            return "fail"
        case _:
            return tool_of(step.work)


def graph_object(graph: Graph, shows_conditions: bool) -> dict[str, Any]:
    """The steps of a plan and the arcs between them, without templates but the conditions of arcs."""
    return {
        "workflow": graph.plan.name,
        "entry": graph.name(graph.entry),
        "by_events": graph.by_events,
        "steps": [
            {
                "step": step.name,
                "kind": kind_of(step),
                "queue": step.queue or QUEUE,
                "is_loop": step.loop is not None,
                "child": step.work.plan or None if isinstance(step.work, Child) else None,
                "is_final": s in graph.finalizers,
                "join": step.join,
            }
            for s, step in enumerate(graph.plan.steps)
        ],
        "arcs": [_arc_object(graph, a, arc, shows_conditions) for a, arc in enumerate(graph.specs)],
    }


def _arc_object(graph: Graph, a: int, arc: Arc, shows_conditions: bool) -> dict[str, Any]:
    when = arc.when if isinstance(arc.when, str) else None if arc.when is None else json.encode(arc.when).decode()
    return {
        "from": graph.name(graph.origin[a]),
        "to": arc.to,
        "on": arc.on,
        "when": when[:LONGEST_CONDITION] if when and shows_conditions else None,
        "has_condition": when is not None,
        "is_back": graph.back[a] >= 0,
    }


def marks(graph: Graph, state: RunState) -> list[str]:
    """What each arc came to: taken, dead (it will not be taken), or open."""
    found = []
    for a in range(len(graph.specs)):
        mark = MARKS.get(state.arcs[a], "open") if a < len(state.arcs) else "open"
        is_again = graph.back[a] >= 0 and state.steps[graph.target[a]].visits > 1
        if (a < len(state.ever) and state.ever[a]) or (mark == "open" and is_again):
            mark = "taken"
        found.append(mark)
    return found


async def show_plan_graph(call: Call) -> Answer:
    """The graph of a plan."""
    hash = call.path["hash"]
    if await call.service.read(lambda: call.service.views.plan(hash)) is None:
        raise NotFound(f"there is no plan {hash}")
    graph = await call.service.read(lambda: graph_of(call.service.views, hash))
    if not call.credential.sees(graph.plan.name):
        raise NotFound(f"there is no plan {hash}")
    headers = {"cache-control": "private, max-age=31536000, immutable"}
    return Answer(graph_object(graph, call.credential.may("values")), headers=headers)


async def show_graph(call: Call) -> Answer:
    """The graph that a run follows, and what its arcs came to."""
    query: MomentQuery = call.query
    row = await run_row(call)

    def look() -> dict[str, Any]:
        graph, state = _state(call, row.run, query.at)
        found = graph_object(graph, call.credential.may("values"))
        return {**found, "plan": state.plan, "head": state.seq, "marks": marks(graph, state)}

    return Answer(await call.service.read(look))


def _state(call: Call, run: str, at: int | None) -> tuple[Graph, RunState]:
    if at is None:
        return call.service.folded(run)
    graph, state, _ = call.service.moments.at(run, at)
    return graph, state


async def show_step(call: Call) -> Answer:
    """One step of a run: its row, why it waits, its last input and result, and its tries, the last ones."""
    query: StepQuery = call.query
    row, name = await run_row(call), call.path["step"]

    def look() -> dict[str, Any]:
        graph, state = _state(call, row.run, query.at)
        if name not in graph.index:
            raise NotFound(f"{graph.plan.name!r} has no step {name!r}")
        now = call.service.now() if query.at is None else state.at
        shown = progress(graph, state, now)
        seen = next(each for each in shown.rows if each.step == name)
        reasons = [] if query.at is not None else call.service.reasons(row, graph, state)
        mine = [each for each in reasons if each.step == name]
        found: dict[str, Any] = {
            "row": step_object(seen, call, now),
            "kind": kind_of(graph.step(graph.index[name])),
            "reasons": [shown_reason(each, call) for each in mine[:100]],
            "more_reasons": max(len(mine) - 100, 0),
        }
        records = _records(call.service.views, row.run, name, state.seq)
        found["tries"] = [_try_object(each, call) for each in records if not isinstance(each[2], StepIssued)][
            -MOST_TRIES:
        ]
        if call.credential.may("values"):
            issued = [fact for _, _, fact in records if isinstance(fact, StepIssued)]
            found["input"] = value_part(issued[-1].input, query.values) if issued else None
            found["result"] = _result(call, graph, state, name, query.values)
            found["first_failure"] = first_failure(call.service.views, graph, state) or None
        return found

    return Answer(await call.service.read(look))


def _result(call: Call, graph: Graph, state: RunState, name: str, wanted: str) -> dict[str, Any] | None:
    """The result of a step that has one; of a loop its items' results, or only the numbers if there are many."""
    s = graph.index[name]
    if not state.steps[s].done_at:
        return None

    def compute(loaded: Loaded) -> Any:
        fan = state.steps[s].shown
        if fan is not None and fan.count > LISTED:
            return {"items": fan.count, "completed": fan.done, "failed": fan.failed, "skipped": fan.skipped}
        value = step_value(state, loaded, s)
        return value if fan is None else value["results"]

    return value_part(with_values(call.service.views, state.run, compute), wanted)


def _records(views: Views, run: str, step: str, head: int) -> list[Any]:
    """The facts about the tries of a step up to a fact."""
    found: list[Any] = []
    after = 0
    kinds = (StepIssued, StepSettled, GateDecided, EventsTaken, FanOutEntered)
    while after < head and (part := views.facts(run, after, min(PAGE, head - after))):
        for record in part:
            fact = record[2]
            if isinstance(fact, kinds):
                if fact.step == step:
                    found.append(record)
            elif isinstance(fact, ChildEnded) and fact.command.partition("/")[0] == step:
                found.append(record)
        after = part[-1][0]
    return found


def _try_object(record: Any, call: Call) -> dict[str, Any]:
    number, at, fact = record
    found: dict[str, Any] = {"number": number, "at": stamp(at)}
    match fact:
        case StepSettled(visit=visit, report=report):
            fault = fault_of_outcome(report.outcome)
            outcome = type(report.outcome).__name__.lower()
            found |= {"visit": visit, "attempt": report.attempt, "outcome": outcome, "worker": report.worker or None}
            if report.started_at:
                found |= {"started_at": stamp(report.started_at), "seconds": max(at - report.started_at, 0) / SECOND}
            if fault is not None:
                found["error"] = shown_error(to_builtins(fault), call.credential)
        case GateDecided(visit=visit, option=option, by=by):
            found |= {"visit": visit, "outcome": "decided", "option": option, "by": by}
        case ChildEnded(child=child, outcome=outcome):
            found |= {"outcome": type(outcome).__name__.lower(), "run": child}
        case FanOutEntered(visit=visit, count=count):
            found |= {"visit": visit, "outcome": "entered", "items": count}
        case EventsTaken(first=first, batches=batches):
            found |= {"visit": first, "outcome": "events", "items": len(batches)}
    return found
