"""Dead letters: final failures of a run that has ended, which nothing in the workflow handled.

A failure that an arc handles is not a dead letter. Neither is a failed child run: its own failures are listed with the
child. The items of a list loop that failed for the same reason are one dead letter.
"""

import hashlib
import re
from collections.abc import Iterator

from msgspec import Struct

from refold.core.facts import StepFault
from refold.core.faults import fault_text
from refold.core.fold.fanout import ITEMS_FAILED, failed_items
from refold.core.graph import Graph
from refold.core.outcomes import Fault, Instant, fault_of_outcome
from refold.core.plan import Call, WorkerWork, tool_of
from refold.core.read.loaded import Loaded, has_keys, key_of
from refold.core.read.template_scope import outcomes_of
from refold.core.state import COMPLETED, TERMINAL, RunState

LISTED = 100  # items of a dead letter that are listed
LONG = 300  # characters of a message that are kept
_VARIES = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}(?:-[0-9a-f]{4,})*|\d+(?:\.\d+)*", re.IGNORECASE)


class DeadLetter(Struct, frozen=True, omit_defaults=True):
    """One dead letter. Failures of the same tool for the same reason have the same `fingerprint`."""

    run: str
    step: str
    visit: int
    fingerprint: str
    tool: str
    kind: str
    message: str
    at: Instant  # when the run ended
    workflow: str = ""
    name: str = ""  # the name of the run
    count: int = 1  # how many commands failed
    items: tuple[int, ...] = ()  # the first failed items
    keys: tuple[str, ...] = ()  # their keys, if items of the loop have keys


def normalised(message: str) -> str:
    """Return the first line of a message without parts that differ between failures: numbers, addresses, ids."""
    line = next(iter(message.strip().splitlines()), "")
    return " ".join(_VARIES.sub("#", line).split())[:LONG]


def fingerprint(tool: str, fault: Fault) -> str:
    text = "\n".join((tool, fault.kind, normalised(fault.message)))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def dead_letters(graph: Graph, state: RunState, loaded: Loaded) -> tuple[DeadLetter, ...]:
    """Return the dead letters of a run that has ended. May raise Missing, because reports of items are in the log."""
    if state.life not in TERMINAL:
        return ()
    failures = [*state.failures, *tolerated(graph, state)]
    return tuple(letter for failure in failures for letter in _of(graph, state, loaded, failure))


def any_tolerated(graph: Graph, state: RunState) -> bool:
    return any(True for _ in tolerated(graph, state))


def tolerated(graph: Graph, state: RunState) -> Iterator[StepFault]:
    """Return the list loops that completed although some of their items failed."""
    for s in graph.list_loops:
        step, loop = state.steps[s], graph.step(s).loop
        if loop is None or loop.on_item_error == "ignore":
            continue
        if step.fan is not None and step.fan.failed and step.life == COMPLETED:
            why = f"{step.fan.failed} of {step.fan.count} items failed"
            yield StepFault(graph.name(s), step.fan.visit, "tolerated", Fault(ITEMS_FAILED, why))


def _of(graph: Graph, state: RunState, loaded: Loaded, failure: StepFault) -> Iterator[DeadLetter]:
    s = graph.index.get(failure.step, -1)
    if s < 0 or failure.fault is None or not isinstance(graph.step(s).work, Call):
        return
    fan = state.steps[s].fan
    if failure.fault.kind != ITEMS_FAILED or fan is None:
        yield _letter(graph, state, failure, failure.fault)
        return
    outcomes, groups = outcomes_of(fan, loaded, failed_items(fan)), dict[str, tuple[Fault, list[int]]]()
    tool = _tool(graph, s)
    for item, outcome in outcomes.items():
        fault = (fault_of_outcome(outcome) if outcome is not None else None) or failure.fault
        groups.setdefault(fingerprint(tool, fault), (fault, []))[1].append(item)
    for fault, items in groups.values():
        keys = tuple(key_of(fan, loaded, item) for item in items[:LISTED]) if has_keys(fan, loaded) else ()
        yield _letter(graph, state, failure, fault, items, keys)


def _letter(
    graph: Graph,
    state: RunState,
    failure: StepFault,
    fault: Fault,
    items: list[int] | None = None,
    keys: tuple[str, ...] = (),
) -> DeadLetter:
    tool = _tool(graph, graph.index[failure.step])
    return DeadLetter(
        run=state.run,
        step=failure.step,
        visit=failure.visit,
        fingerprint=fingerprint(tool, fault),
        tool=tool,
        kind=fault.kind,
        message=fault_text(fault)[:LONG],
        at=state.ended_at,
        workflow=graph.plan.name,
        name=state.name,
        count=len(items) if items is not None else 1,
        items=tuple(items[:LISTED]) if items is not None else (),
        keys=keys,
    )


def _tool(graph: Graph, s: int) -> str:
    work = graph.step(s).work
    return tool_of(work) if isinstance(work, WorkerWork) else ""
