"""The command `runs migrate`: an unfinished run continues with another plan."""

import os
from collections.abc import Sequence
from typing import Any

import click
from msgspec import Struct

from refold.cli import database
from refold.cli import output as out
from refold.cli.commands.playbooks import STDIN, is_code, read_file, read_workflow
from refold.cli.options import db_option, output_option, run_argument, who
from refold.core.decide.migrate import restarting
from refold.core.graph import Graph, analyse
from refold.core.plan import Plan, plan_hash
from refold.core.read.summary import Summary
from refold.errors import Conflict, NotFound
from refold.ports import Views
from refold.queries.reading import RunReader, graph_of, stored_plan
from refold.queries.runs import run_label
from refold.runtime.mail import Migrate
from refold.runtime.operations import SHORT, refuse

FILES = (".yaml", ".yml")


class Target(Struct, frozen=True):
    """The plan that a run migrates to."""

    hash: str
    graph: Graph
    plans: Sequence[Plan] = ()  # perhaps not stored yet: the plan itself and those of its children


@click.command()
@run_argument()
@click.option("--to", "target", required=True, metavar="PLAN", help="Hash, its beginning, FILE or MODULE:CLASS.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@output_option
@db_option
def migrate(run: str, target: str, dry_run: bool, output: str, db: str) -> None:
    """Let a run that is under way follow another plan.

    Steps are the same by name. What has happened stays as it is; what is open or waits must have its place in the new
    plan, else nothing is changed and the steps that stand in the way are named. Code that is at work starts over.
    """
    with database.reading(db) as views:
        row = database.find_run(views, run, changes=True)
        to = _target(views, target, db)
        seen = _preview(views, row, to)
    if not dry_run:
        _move(db, row, to)
    if output != "table":
        out.print_json({**seen, "dry_run": dry_run}, output)
        return
    _tell(seen, dry_run)


def _target(views: Views, text: str, db: str) -> Target:
    if is_code(text):
        return _written(read_workflow(text))
    if text == STDIN or text.endswith(FILES) or os.path.exists(text):
        return _written(read_file(text, db))
    found = views.plans(text) if text else []
    if not found:
        raise NotFound(f"there is no plan {text!r}; --to FILE or --to MODULE:CLASS brings one that is not known yet")
    if len(found) > 1:
        lines = [f"  {hash}  {_name(views, hash)}" for hash in found]
        raise Conflict("\n".join([f"error: {text!r} may mean several plans:", *lines]))
    return Target(found[0], graph_of(views, found[0]))


def _written(playbook: Any) -> Target:
    plan = playbook.plan
    return Target(plan_hash(plan), analyse(plan), (plan, *(child.plan for child in playbook.children)))


def _name(views: Views, hash: str) -> str:
    data = views.plan(hash)
    return "" if data is None else stored_plan(hash, data).name


def _preview(views: Views, row: Summary, to: Target) -> dict[str, Any]:
    """Return what the migration would change. Raises the error that prevents it."""
    graph, state = RunReader(views, row.run).read()
    refuse(graph, to.graph, state, to.hash)
    held = {lease.command for lease in views.leases(row.run) if lease.is_alive}
    return {
        "id": row.run,
        "name": run_label(row),
        "from": {"plan": state.plan, "workflow": graph.plan.name},
        "to": {"plan": to.hash, "workflow": to.graph.plan.name},
        "restarted": sorted(held.intersection(restarting(graph, state))),
        "new": [name for name in to.graph.index if name not in graph.index],
        "gone": [name for name in graph.index if name not in to.graph.index],
    }


def _move(db: str, row: Summary, to: Target) -> None:
    from refold.wiring import open_intake

    with open_intake(db) as (intake, _):
        for plan in to.plans:
            intake.register(plan)
        intake.send(row.run, Migrate(to.hash, intake.turns.graph(to.hash), who()))


def _tell(seen: dict[str, Any], dry_run: bool) -> None:
    was, now = seen["from"], seen["to"]
    verb = "would follow" if dry_run else "follows"
    out.print_message(f"{seen['name']} {verb} plan {_called(now)} instead of {_called(was)}")
    for command in seen["restarted"]:
        out.print_message(f"  {command} is at work and {'would start' if dry_run else 'starts'} over with the new code")
    for what, words in (("new", "has come to the plan"), ("gone", "is no longer in the plan")):
        for name in seen[what]:
            out.print_message(f"  step {name} {words}")


def _called(plan: dict[str, str]) -> str:
    return f"{plan['plan'][:SHORT]} ({plan['workflow']})"
