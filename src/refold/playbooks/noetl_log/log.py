"""Reads a NoETL event log: the same run as Refold facts, with a plan made up from what the log shows.

NoETL's log tells when a step was entered, never which arc led there. So the plan has one step of its own, `(playbook)`,
which is bypassed at the start and leads to every step; a step that the log enters again has an arc back to itself, and
each further entry is a further visit. The templates of a `set` are not told either: the plan has the values they gave
last. An imported run is history to look at; its steps name a tool that no worker has, so nobody continues it.

- `step.skipped` is written where a guard was false, and that is a bypassed visit.
- Claimed and started are no facts here; they stand in the report that ends the try.
- A fan-out's item is known by its NoETL command; whatever is said of it after its first end is an echo.
- A `ctx.updated` belongs to the completion it names, and the first one of a completion counts. If the log lacks that
  completion, the update stands for it; if it names none, it is a visit of the made-up step `(context)`.
- The first end of the playbook is its end. What was open then was dropped, and what comes later is not read.
- Times are those of the events and never go back; an event without a readable time has that of the one before.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from refold.core.facts import Bypassed, Fact, ItemsSettled, LoopLeft, Move, Parent, Routed, RunStarted, Took
from refold.core.fold.apply import Record, fold
from refold.core.graph import Graph, analyse
from refold.core.outcomes import Instant
from refold.core.plan import Arc, Call, Loop, Plan, Step, plan_hash
from refold.core.read.loaded import Loaded
from refold.core.state import RunState
from refold.playbooks.noetl_log.events import Event, read_events
from refold.playbooks.noetl_log.results import NoetlContext
from refold.playbooks.noetl_log.visits import Telling

PLAYBOOK = "(playbook)"
NOETL = Call(tool="noetl")


class Imported(Struct, frozen=True):
    """A NoETL run in Refold's terms."""

    run: str
    graph: Graph
    records: list[Record]
    ids: dict[str, str]  # as NoETL's templates know them

    @property
    def plan(self) -> Plan:
        return self.graph.plan

    def state(self) -> RunState:
        return fold(self.graph, self.records, RunState(run=self.run))

    def context(self) -> NoetlContext:
        """The names that a template of this run sees now."""
        loaded = Loaded(facts={seq: fact for seq, _, fact in self.records if isinstance(fact, ItemsSettled)})
        return NoetlContext(self.graph, self.state(), loaded, self.ids)


def read_log(rows: Iterable[Mapping[str, Any]]) -> Imported:
    """The events of one execution, in their order; those that say nothing of its state are passed over."""
    events = list(read_events(rows))
    telling = Telling()
    telling.read(events)
    first = events[0] if events else Event("", 0)
    start = next((event for event in events if event.type == "playbook_started"), None)
    ids = {"execution_id": first.run, "catalog_id": first.catalog}
    if start is not None:
        ids.update({name: start.told[name] for name in ("path", "version") if isinstance(start.told.get(name), str)})
    graph = analyse(_plan(telling, ids.get("path", "noetl")))
    facts: list[tuple[Instant, Fact]] = []
    if start is not None or telling.told:
        facts = [(first.at, _started(graph.plan, start or first)), *_facts(telling, first.at)]
    return Imported(first.run, graph, [(seq, at, fact) for seq, (at, fact) in enumerate(facts, 1)], ids)


def _plan(telling: Telling, name: str) -> Plan:
    sets = _sets(telling)
    steps = tuple(_step(telling, step, sets.get(step, {})) for step in telling.visits)
    arcs = tuple(Arc(to=step.name) for step in steps)
    return Plan(name=name, steps=(Step(name=PLAYBOOK, work=NOETL, when=False, mode="inclusive", arcs=arcs), *steps))


def _step(telling: Telling, name: str, sets: dict[str, Any]) -> Step:
    arcs = (Arc(to=name, on="both", when=False),) if telling.visits[name].number > 1 else ()
    loop = None
    if name in telling.loops:
        entered = telling.loops[name]
        variable = entered.told.get("iterator_var")
        window = max(1, entered.expected or 0)
        loop = Loop(items=[], name=variable if isinstance(variable, str) else "item", window=window)
    return Step(name=name, work=NOETL, arcs=arcs, set=sets, loop=loop)


def _sets(telling: Telling) -> dict[str, dict[str, Any]]:
    """What each step set, with the values it gave last."""
    found: dict[str, dict[str, Any]] = {}
    for (step, _), values in telling.sets.items():
        found.setdefault(step, {}).update(values)
    return found


def _started(plan: Plan, start: Event) -> RunStarted:
    workload = start.told.get("workload")
    return RunStarted(
        plan=plan_hash(plan),
        input=workload if isinstance(workload, dict) else {},
        parent=Parent(start.parent, "") if start.parent else None,
        depth=int(bool(start.parent)),
    )


def _facts(telling: Telling, began: Instant) -> Iterator[tuple[Instant, Fact]]:
    """Moves that follow each other at one moment are one fact."""
    moves: list[Move] = [Bypassed(PLAYBOOK, 1)]
    last = began
    for at, said in _complete(telling):
        if moves and (at != last or not isinstance(said, Move)):
            yield last, Routed(tuple(moves))
            moves = []
        if isinstance(said, Move):
            moves.append(said)
        else:
            yield at, said
        last = at
    if moves:
        yield last, Routed(tuple(moves))


def _complete(telling: Telling) -> Iterator[tuple[Instant, Fact | Move]]:
    """Every visit's end with what only the whole log tells: whether the step was entered again, and what it set."""
    sets = _sets(telling)
    for at, said in telling.told:
        if not isinstance(said, Took):
            yield at, said
            continue
        where, visits = (said.step, said.visit), telling.visits[said.step].number
        if visits > 1 or said.step in sets or where in telling.faults:
            yield at, Took(*where, (0,) if said.visit < visits else (), telling.sets.get(where, {}), said.fault)
        if said.visit == visits > 1:
            yield at, LoopLeft(said.step)
