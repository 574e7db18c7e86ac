"""The command `runs migrate`: an unfinished run, or all of a workflow, continue with another plan."""

import os
from collections.abc import Sequence

import click
from msgspec import Struct, structs

from refold.cli import database, exits
from refold.cli import output as out
from refold.cli.commands.playbooks import STDIN, is_code, read_file, read_workflow
from refold.cli.options import output_option, run_argument, store_option, who
from refold.cli.steering import steering
from refold.core.graph import Graph, analyse
from refold.core.plan import Plan, plan_hash
from refold.errors import Conflict, NotFound
from refold.playbooks.playbook import Playbook
from refold.ports import Views
from refold.queries.reading import graph_of, stored_plan
from refold.runtime.mail import Migrate
from refold.runtime.migrations import Migration, preview, preview_all
from refold.runtime.operations import SHORT

FILES = (".yaml", ".yml", ".wf")


class MigrationTarget(Struct, frozen=True):
    """The plan that a run migrates to."""

    hash: str
    graph: Graph
    plans: Sequence[Plan] = ()  # perhaps not stored yet: the plan itself and those of its children
    code: Sequence[str] = ()  # Python workflows that it starts, or the one that it is


@click.command()
@run_argument(required=False)
@click.option("--to", "target", required=True, metavar="PLAN", help="Hash, its beginning, FILE or MODULE:CLASS.")
@click.option("--all", "every", is_flag=True, help="All unfinished runs of the workflow, instead of one.")
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@output_option
@store_option
def migrate(run: str | None, target: str, every: bool, dry_run: bool, output: str, db: str) -> int:
    """Move unfinished runs to another plan.

    One run is moved, or with --all every run of a workflow, as after a deployment. Steps are the same by name. What has
    happened stays as it is; what is open or waits must have its place in the new plan, else nothing is changed and the
    steps that prevent it are named. Code that is running starts over.

    With --all, each run is moved or stays by itself. A run that stays is named with the reason, and the exit code is 4.
    """
    if every == (run is not None):
        raise click.UsageError("name a RUN, or give --all for all unfinished runs of the workflow")
    with database.reading(db) as views:
        to = read_target(views, target, db)
        if run is None:
            found = preview_all(views, to.hash, to.graph)
        else:
            found = [preview(views, database.find_run(views, run), to.hash, to.graph)]
    if not dry_run:
        found = _move(db, found, to, stays=every)
    if output != "table":
        shown = [{**each.as_object(), "dry_run": dry_run} for each in found]
        out.print_json(shown if every else shown[0], output)
    else:
        for each in found:
            _tell(each, dry_run)
        if not found:
            out.print_message(f"no unfinished run of {to.graph.plan.name} follows another plan")
    return exits.CONFLICT if any(each.refused for each in found) else exits.OK


def read_target(views: Views, text: str, db: str) -> MigrationTarget:
    """Read the plan that `--to` or `--with` names. Raises NotFound, InvalidPlaybook or Conflict."""
    if is_code(text):
        return _written(read_workflow(text), (text,))
    if text == STDIN or text.endswith(FILES) or os.path.exists(text):
        playbook = read_file(text, db)
        return _written(playbook, playbook.code)
    found = views.plans(text) if text else []
    if not found:
        raise NotFound(f"there is no plan {text!r}; --to FILE or --to MODULE:CLASS brings one that is not known yet")
    if len(found) > 1:
        lines = [f"  {hash}  {_name(views, hash)}" for hash in found]
        raise Conflict("\n".join([f"error: {text!r} may mean several plans:", *lines]))
    return MigrationTarget(found[0], graph_of(views, found[0]))


def _written(playbook: Playbook, code: Sequence[str]) -> MigrationTarget:
    plan = playbook.plan
    return MigrationTarget(plan_hash(plan), analyse(plan), (plan, *(child.plan for child in playbook.children)), code)


def _name(views: Views, hash: str) -> str:
    data = views.plan(hash)
    return "" if data is None else stored_plan(hash, data).name


def _move(db: str, found: Sequence[Migration], to: MigrationTarget, stays: bool) -> list[Migration]:
    """Move the runs. If `stays`, a run that cannot be moved any more is reported, else its error is raised."""
    moved: list[Migration] = []
    with steering(db) as there:
        for plan in to.plans:
            there.register(plan)
        for each in found:
            try:
                if not each.refused:
                    there.send(each.run, Migrate(to.hash, to.graph, who()))
                moved.append(each)
            except Conflict as error:
                if not stays:
                    raise
                moved.append(structs.replace(each, refused=str(error)))
    return moved


def _tell(seen: Migration, dry_run: bool) -> None:
    if seen.refused:
        out.print_message(
            f"{seen.name} {'would stay' if dry_run else 'stays'} on plan {seen.plan[:SHORT]}: {seen.refused}"
        )
        return
    verb = "would follow" if dry_run else "follows"
    now, was = f"{seen.to[:SHORT]} ({seen.to_workflow})", f"{seen.plan[:SHORT]} ({seen.workflow})"
    out.print_message(f"{seen.name} {verb} plan {now} instead of {was}")
    for command in seen.restarted:
        out.print_message(f"  {command} is running and {'would start' if dry_run else 'starts'} over with the new code")
    for names, words in ((seen.new, "is new in the plan"), (seen.gone, "is no longer in the plan")):
        for name in names:
            out.print_message(f"  step {name} {words}")
