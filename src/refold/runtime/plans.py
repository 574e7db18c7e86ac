"""Plans as a store keeps them, and the graphs that the engine makes of them."""

from msgspec import MsgspecError, Struct

from refold.core.graph import Graph, analyse
from refold.core.plan import Plan, hash_of, normalised, read_plan
from refold.errors import Corrupt, NotFound
from refold.ports import Store


class PreparedPlan(Struct, frozen=True, gc=False):
    """A plan that can be stored and run: it was encoded, decoded and analysed once, and is not again for its runs."""

    data: bytes
    hash: str
    graph: Graph


def prepare(plan: Plan) -> PreparedPlan:
    """Raises InvalidPlan."""
    normal, data = normalised(plan)
    return PreparedPlan(data, hash_of(data), analyse(normal))


def graph_of(store: Store, plan: str) -> Graph:
    data = store.plan(plan)
    if data is None:
        raise NotFound(f"there is no workflow {plan}")
    return stored_graph(plan, data)


def stored_plan(plan: str, data: bytes) -> Plan:
    """Raises Corrupt: a plan is checked before it is stored, so one that cannot be read was not stored by Refold."""
    try:
        return read_plan(data)
    except (MsgspecError, RecursionError) as error:
        raise Corrupt(f"table plans, key ({plan!r}), column data: it is not a plan: {error}") from error


def stored_graph(plan: str, data: bytes) -> Graph:
    """Return the graph of a stored plan. Raises Corrupt."""
    try:
        return analyse(stored_plan(plan, data))
    except Corrupt:
        raise
    except Exception as error:  # the analysis may raise anything, because nothing has checked this plan
        raise Corrupt(f"table plans, key ({plan!r}), column data: it is not a plan: {error!r}") from error
