"""Plans that are ready to be stored and run, each with its graph."""

from msgspec import Struct

from refold.core.graph import Graph, analyse
from refold.core.plan import Plan, hash_of, normalised


class PreparedPlan(Struct, frozen=True, gc=False):
    """A plan that can be stored and run: it was encoded, decoded and analysed once, and is not again for its runs."""

    data: bytes
    hash: str
    graph: Graph


def prepare(plan: Plan) -> PreparedPlan:
    """Raises InvalidPlan."""
    normal, data = normalised(plan)
    return PreparedPlan(data, hash_of(data), analyse(normal))
