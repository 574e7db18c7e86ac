"""Reads a NoETL event log as Refold facts, with a plan that is inferred from the log.

A NoETL log records when a step was entered, but not which arc led there. So the plan has one additional step,
`(playbook)`, which is bypassed at the start and leads to every step. A step that the log enters again has an arc back
to itself, and each further entry is a further visit. The log does not contain the templates of a `set` either: the plan
has the last values. An imported run is only for reading; its steps name a tool that no worker has, so it cannot be
continued.

- `step.skipped` is written where a guard was false; that is a bypassed visit.
- Claims and starts are not facts in Refold; they are part of the report that ends the try.
- An item of a fan-out is identified by its NoETL command; events about it after its first end are repetitions.
- A `ctx.updated` belongs to the completion that it names; only the first one of a completion counts. If the completion
  is missing in the log, the update replaces it; if it names none, it is a visit of the additional step `(context)`.
- The first end of the playbook is its end. What was running then was dropped, and later events are not read.
- Times are those of the events and never go back; an event without a readable time has that of the event before.
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
from refold.playbooks.noetl_log.events import LogEvent, read_events
from refold.playbooks.noetl_log.log_reader import LogReader
from refold.playbooks.noetl_log.results import NoetlContext

PLAYBOOK = "(playbook)"
NOETL = Call(tool="noetl")


class ImportedRun(Struct, frozen=True):
    """A NoETL run as a plan and facts of Refold."""

    run: str
    graph: Graph
    records: list[Record]
    ids: dict[str, str]  # the ids that NoETL's templates can read

    @property
    def plan(self) -> Plan:
        return self.graph.plan

    def state(self) -> RunState:
        return fold(self.graph, self.records, RunState(run=self.run))

    def context(self) -> NoetlContext:
        """The names that a template sees at the end of the log."""
        loaded = Loaded(facts={seq: fact for seq, _, fact in self.records if isinstance(fact, ItemsSettled)})
        return NoetlContext(self.graph, self.state(), loaded, self.ids)


def read_log(rows: Iterable[Mapping[str, Any]]) -> ImportedRun:
    """Read the events of one execution, in their order; events that do not concern its state are ignored."""
    events = list(read_events(rows))
    reader = LogReader()
    reader.read(events)
    first = events[0] if events else LogEvent("", 0)
    start = next((event for event in events if event.type == "playbook_started"), None)
    ids = {"execution_id": first.run, "catalog_id": first.catalog}
    if start is not None:
        ids.update(
            {name: start.payload[name] for name in ("path", "version") if isinstance(start.payload.get(name), str)}
        )
    graph = analyse(_plan(reader, ids.get("path", "noetl")))
    facts: list[tuple[Instant, Fact]] = []
    if start is not None or reader.facts:
        facts = [(first.at, _started(graph.plan, start or first)), *_facts(reader, first.at)]
    return ImportedRun(first.run, graph, [(seq, at, fact) for seq, (at, fact) in enumerate(facts, 1)], ids)


def _plan(reader: LogReader, name: str) -> Plan:
    sets = _sets(reader)
    steps = tuple(_step(reader, step, sets.get(step, {})) for step in reader.visits)
    arcs = tuple(Arc(to=step.name) for step in steps)
    return Plan(name=name, steps=(Step(name=PLAYBOOK, work=NOETL, when=False, mode="inclusive", arcs=arcs), *steps))


def _step(reader: LogReader, name: str, sets: dict[str, Any]) -> Step:
    arcs = (Arc(to=name, on="both", when=False),) if reader.visits[name].number > 1 else ()
    loop = None
    if name in reader.loops:
        entered = reader.loops[name]
        variable = entered.payload.get("iterator_var")
        window = max(1, entered.expected or 0)
        loop = Loop(items=[], iterator=variable if isinstance(variable, str) else "item", max_in_flight=window)
    return Step(name=name, work=NOETL, arcs=arcs, set=sets, loop=loop)


def _sets(reader: LogReader) -> dict[str, dict[str, Any]]:
    """What each step set, with the last values."""
    values_by_step: dict[str, dict[str, Any]] = {}
    for (step, _), values in reader.sets.items():
        values_by_step.setdefault(step, {}).update(values)
    return values_by_step


def _started(plan: Plan, start: LogEvent) -> RunStarted:
    workload = start.payload.get("workload")
    return RunStarted(
        plan=plan_hash(plan),
        input=workload if isinstance(workload, dict) else {},
        parent=Parent(start.parent, "") if start.parent else None,
        depth=int(bool(start.parent)),
    )


def _facts(reader: LogReader, began: Instant) -> Iterator[tuple[Instant, Fact]]:
    """The facts in order; consecutive moves at the same time are one fact."""
    moves: list[Move] = [Bypassed(PLAYBOOK, 1)]
    last = began
    for at, fact in _complete(reader):
        if moves and (at != last or not isinstance(fact, Move)):
            yield last, Routed(tuple(moves))
            moves = []
        if isinstance(fact, Move):
            moves.append(fact)
        else:
            yield at, fact
        last = at
    if moves:
        yield last, Routed(tuple(moves))


def _complete(reader: LogReader) -> Iterator[tuple[Instant, Fact | Move]]:
    """The facts, where the end of each visit has what only the whole log shows: later visits, and what was set."""
    sets = _sets(reader)
    for at, fact in reader.facts:
        if not isinstance(fact, Took):
            yield at, fact
            continue
        where, visits = (fact.step, fact.visit), reader.visits[fact.step].number
        if visits > 1 or fact.step in sets or where in reader.faults:
            yield at, Took(*where, (0,) if fact.visit < visits else (), reader.sets.get(where, {}), fact.fault)
        if fact.visit == visits > 1:
            yield at, LoopLeft(fact.step)
