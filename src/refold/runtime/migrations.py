"""What migrations to another plan would change, and which unfinished runs of a workflow a new plan concerns."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, to_builtins

from refold.core.decide.migrate import restarting
from refold.core.graph import Graph
from refold.core.plan import Plan
from refold.core.read.summary import Summary
from refold.errors import Conflict
from refold.ports import RunFilter, Views
from refold.queries.code import UNFINISHED, code_place
from refold.queries.reading import RunReader, graph_of
from refold.queries.runs import list_runs, run_label
from refold.runtime.operations import refuse


class Migration(Struct, frozen=True):
    """A run that follows, or would follow, another plan."""

    run: str
    name: str  # for people
    workflow: str
    plan: str  # that it has followed
    to: str
    to_workflow: str
    restarted: tuple[str, ...] = ()  # commands that start over with the new code
    new: tuple[str, ...] = ()  # steps that the old plan does not have
    gone: tuple[str, ...] = ()
    refused: str = ""  # why it stays on its plan

    def as_object(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "id": self.run,
            "name": self.name,
            "from": {"plan": self.plan, "workflow": self.workflow},
            "to": {"plan": self.to, "workflow": self.to_workflow},
            **to_builtins({"restarted": self.restarted, "new": self.new, "gone": self.gone}),
            **({"refused": self.refused} if self.refused else {}),
        }


def preview(views: Views, row: Summary, hash: str, graph: Graph) -> Migration:
    """Return what the migration of a run would change. Raises the error that prevents it."""
    old, state = RunReader(views, row.run).read()
    refuse(old, graph, state, hash)
    held = {lease.command for lease in views.leases(row.run) if lease.is_alive}
    return Migration(
        row.run,
        run_label(row),
        old.plan.name,
        state.plan,
        hash,
        graph.plan.name,
        tuple(sorted(held.intersection(restarting(old, state)))),
        tuple(name for name in graph.index if name not in old.index),
        tuple(name for name in old.index if name not in graph.index),
    )


def preview_all(views: Views, hash: str, graph: Graph) -> list[Migration]:
    """Return what the migration of all unfinished runs of a workflow would change; the newest run comes first."""
    found: list[Migration] = []
    for row in _older_runs(views, hash, graph.plan):
        try:
            found.append(preview(views, row, hash, graph))
        except Conflict as error:
            found.append(refused(row, hash, graph, error))
    return found


def refused(row: Summary, hash: str, graph: Graph, error: Conflict) -> Migration:
    return Migration(row.run, run_label(row), row.workflow, row.plan, hash, graph.plan.name, refused=str(error))


def _older_runs(views: Views, hash: str, plan: Plan) -> Iterator[Summary]:
    """The unfinished runs of the same workflow that follow another plan."""
    for status in UNFINISHED:
        for row in list_runs(views, RunFilter(status=status, workflow=plan.name)):
            if row.plan != hash and _is_version(views, row, plan):
                yield row


def _is_version(views: Views, row: Summary, plan: Plan) -> bool:
    """Whether a run is one of the same workflow: its code has the same identity, with the same arguments.

    A plan that was stored before plans named their code does not say it; the start of the run says where it was.
    """
    code = graph_of(views, row.plan).plan.code
    if code is not None or plan.code is None:
        return code == plan.code
    place = code_place(views, row).rpartition("/")[2]
    return not place or ":" not in plan.code.name or place == plan.code.name
