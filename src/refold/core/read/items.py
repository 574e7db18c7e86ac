"""The items of a list loop as rows: state, tries, value, result or error, and child run."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from refold.core.commands import command_id
from refold.core.facts import ChildEnded
from refold.core.outcomes import Fault, Outcome, Succeeded, fault_of_outcome
from refold.core.read.loaded import Loaded, item_value, key_of
from refold.core.read.template_scope import outcomes_of
from refold.core.state import (
    ITEM_CANCELLED,
    ITEM_COMPLETED,
    ITEM_FAILED,
    ITEM_RUNNING,
    ITEM_SKIPPED,
    ITEM_STOPPED,
    ITEM_WAITING,
    FanOut,
    RunState,
)

STATES = {
    ITEM_WAITING: "waiting",
    ITEM_RUNNING: "running",
    ITEM_COMPLETED: "completed",
    ITEM_FAILED: "failed",
    ITEM_STOPPED: "cancelled",
    ITEM_SKIPPED: "skipped",
    ITEM_CANCELLED: "cancelled",
}
QUEUED = "queued"  # no worker executes it yet


class ItemRow(Struct, frozen=True, omit_defaults=True):
    item: int
    status: str
    key: str = ""
    tries: int = 0
    value: Any = None
    result: Any = None
    error: Fault | None = None
    run: str = ""  # the id of the child run, if the item is one


class LoopSeen(Struct, frozen=True):
    """A list loop of a run, whose items are listed."""

    step: str
    state: RunState
    fan: FanOut
    is_running: bool
    claimed: frozenset[str] | None = None  # the commands that workers execute; None: items are runs of their own

    def status(self, item: int) -> str:
        """Return the state of an item for people. A waiting item of a loop that has ended is cancelled; an item that
        was issued is running only while a worker executes it."""
        life = self.fan.status[item]
        if life == ITEM_WAITING and not self.is_running:
            return STATES[ITEM_CANCELLED]
        if life != ITEM_RUNNING or self.claimed is None:
            return STATES[life]
        command = command_id(self.step, self.fan.visit, item)
        if command in self.claimed:
            return STATES[ITEM_RUNNING]
        opened = self.state.open.get(command)
        return STATES[ITEM_WAITING] if opened is not None and (opened.held or opened.not_before) else QUEUED


def items_in(loop: LoopSeen, states: Sequence[str] = ()) -> list[int]:
    """Return the numbers of the items in these states, or of all items if no states are given."""
    items = range(len(loop.fan.status))
    return [item for item in items if not states or loop.status(item) in states]


def item_rows(loop: LoopSeen, items: Sequence[int], loaded: Loaded) -> list[ItemRow]:
    """Return the rows of these items; may raise Missing."""
    outcomes = outcomes_of(loop.fan, loaded, items)
    return [_row(loop, item, outcomes[item], loaded) for item in items]


def _row(loop: LoopSeen, item: int, outcome: Outcome | None, loaded: Loaded) -> ItemRow:
    fan, life = loop.fan, loop.fan.status[item]
    opened = loop.state.open.get(command_id(loop.step, fan.visit, item))
    begun = life in (ITEM_RUNNING, ITEM_COMPLETED, ITEM_FAILED, ITEM_STOPPED)
    result = outcome if isinstance(outcome, Succeeded) else Succeeded()
    fact = loaded.facts.get(fan.report_facts[item])
    return ItemRow(
        item=item,
        status=loop.status(item),
        key=key_of(fan, loaded, item),
        tries=(opened.attempt if opened is not None else fan.retried.get(item, 1)) if begun else 0,
        value=item_value(fan, loaded, item),
        result=loaded.blob(result.blob) if result.blob is not None else result.result,
        error=fault_of_outcome(outcome) if outcome is not None else None,
        run=opened.child if opened is not None else fact.child if isinstance(fact, ChildEnded) else "",
    )
