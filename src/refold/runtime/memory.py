"""What a run remembers for a body that is about to be run: copies, for the fold goes on with the originals."""

from collections.abc import Callable, Sequence

from msgspec import structs

from refold.core.state import RunState
from refold.ports import Lease, Memory


def memory_of(state: RunState, command: str) -> Memory:
    """Values themselves are never changed in place."""
    opened = state.open[command]
    return Memory(dict(state.ctx), dict(state.versions), dict(opened.recorded), frozenset(opened.calls))


def with_memory(leases: Sequence[Lease], state_of: Callable[[str], RunState | None]) -> Sequence[Lease]:
    """Those of runs whose state is at hand bring it along; the others ask for it when they need it."""
    found = []
    for lease in leases:
        state = state_of(lease.run)
        found.append(lease if state is None else structs.replace(lease, memory=memory_of(state, lease.command.id)))
    return found
