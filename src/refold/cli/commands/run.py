"""Commands that execute: `run`, and `runs resume`."""

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, json, structs

from refold.cli import database, exits
from refold.cli import output as out
from refold.cli.commands.items import another_try
from refold.cli.commands.migrate import read_target
from refold.cli.commands.playbooks import STDIN, check_bound, is_code, read_file, read_workflow, source_of
from refold.cli.commands.same_start import changed_file_text, other_inputs_text, taken_key_text
from refold.cli.options import (
    binding_arguments,
    bindings_options,
    budget_option,
    budgets,
    code_option,
    follow_option,
    inputs,
    label_option,
    labels_of,
    output_option,
    progress_option,
    queueing_options,
    quiet_option,
    run_argument,
    settings,
    store_option,
    until_waiting_option,
    who,
)
from refold.cli.settings import db_argument, loaded, server
from refold.cli.steering import steering
from refold.cli.tree import NO_PLAYBOOK, PlaybookLines
from refold.cli.words import now
from refold.core.outcomes import NO_QUEUEING, Queueing
from refold.core.plan import BODY, Plan, plan_hash
from refold.core.queueing import checked_queueing
from refold.core.read.summary import Summary
from refold.core.state import PAUSED, TERMINAL
from refold.errors import Conflict, InvalidValue
from refold.names import did_you_mean
from refold.playbooks.playbook import Playbook
from refold.playbooks.problems import show_all
from refold.ports import RunFilter, Views
from refold.queries.code import CodeHere, needs, workers_with_code
from refold.queries.reading import RunReader, graph_of
from refold.queries.runs import run_label, run_object, unfinished_run
from refold.queries.workers import serving, serving_any
from refold.runtime.children import check_inputs, known_inputs, unread_inputs
from refold.runtime.keys import check_same_start, run_of_key
from refold.runtime.mail import Migrate, Reopen, Resume
from refold.stores.open import is_server
from refold.wiring import working_directory

if TYPE_CHECKING:
    from refold.cli.commands.execute import Execution

ADJECTIVES = """
able airy apt bold brave brief bright brisk calm civil clean clear clever cool cosy crisp curious daring deep eager
early easy even fair fancy fast fine firm fleet fond frank free fresh gentle glad golden good grand great green happy
hardy honest humble ideal jolly just keen kind large lasting light lively loyal lucky mellow merry mild modest neat
nimble noble novel open patient placid plain polite prime prompt proud pure quick quiet rapid rare ready regal rich
robust rosy round royal safe sharp shiny silent silver sincere smart smooth snug sober solid sound spry steady still
strong sturdy subtle sunny super sure swift tall tender tidy tough true upbeat vast vivid warm wary wide wild willing
wise witty young zesty
"""
NOUNS = """
acorn alder amber apple arbor aspen badger bay beacon bear beaver birch bison breeze bridge brook canyon cedar cherry
cliff cloud clover comet coral cove crane creek crow dale dawn deer delta dove dune eagle elk elm ember falcon fern
field finch fir fjord flame flint forest fox frost garden glade glen grove gull harbor hare hawk hazel heron hill
holly island ivy jay juniper kite lake lark leaf lily linden lion lotus lynx maple marsh meadow mesa moon moss oak
oasis ocean olive opal orchid otter owl palm peak pearl pebble pine plain plum pond poplar quail quartz rain raven
reef ridge river robin rose sage sky slope snow sparrow spring spruce star stone storm stream summit swan thorn tide
tulip valley violet wave willow wren yarrow
"""
LONGEST = 24  # characters of the workflow's name in the name of a run


def run_name(workflow: str, run: str) -> str:
    """Derive a name from the run's id, so that a run that is started twice under one key has one name."""
    adjectives, nouns = ADJECTIVES.split(), NOUNS.split()
    number = int(run[:12], 16)
    kept = "".join(char if char.isalnum() or char in "._" else "-" for char in workflow).strip("-")[:LONGEST]
    noun, adjective = divmod(number, len(adjectives))
    return f"{kept or 'run'}-{adjectives[adjective]}-{nouns[noun % len(nouns)]}"


def leave(
    db: str, plan: Plan, children: Sequence[Plan], input: dict[str, Any], wanted: "RunRequest", code: str
) -> tuple[dict[str, Any], list[str], str]:
    """Store a run for a worker. Return the run as an object, the live workers that serve every run and have its code if
    it needs any, and a message if the key has its run already. `code` says where its code is."""
    folder, taken = working_directory(), ""
    with steering(db, creates=True) as there:
        views = there.views
        for child in children:
            there.register(child)
        file = "" if plan.events else wanted.playbook.file
        named = (wanted.run, wanted.name, wanted.key, code, wanted.labels)
        if not there.start(plan, input, *named, folder, file, wanted.queueing):
            differ = check_same_start(views, wanted.key, wanted.run, plan, input)
            row = views.summary(wanted.run)
            if differ and row is not None:
                out.print_message(other_inputs_text(run_label(row), wanted.key, differ))
            taken = "" if row is None else taken_key_text(row, wanted.key, db)
        graph, state = RunReader(views, wanted.run).read()
        bodies = frozenset(f"{BODY}:{plan_hash(each)}" for each in (plan, *children) if each.events)
        return run_object(views, graph, state, now()), serving_any(views, bodies), taken


def _tell_taken(wanted: "RunRequest", db: str) -> None:
    """Say it before anything is shown, if the key has its run already."""
    if not server() and not is_server(db) and not os.path.exists(db):
        return
    with database.reading(db) as views:
        row = views.summary(wanted.run)
        if row is None:
            return
        coded = is_code(wanted.playbook.file)
        input = _stored_input(wanted.playbook.file, wanted.input) if coded else wanted.input
        differ = check_same_start(views, wanted.key, wanted.run, wanted.playbook.plan, input)
    if differ:
        out.print_message(other_inputs_text(run_label(row), wanted.key, differ))
    out.print_message(taken_key_text(row, wanted.key, db))


class RunArguments(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line of `run`."""

    file: str
    input: Sequence[str]
    input_file: str | None
    db: str
    name: str | None
    key: str | None
    labels: Sequence[str]
    detach: bool
    until_waiting: bool
    dry_run: bool
    output: str
    progress: str
    quiet: bool
    unit: str | None = None
    bindings: str | None = None
    agent: str | None = None
    queue: str = ""
    priority: int | None = None
    share: str = ""
    limit: str = ""


class RunRequest(Struct, frozen=True):
    """A run to be started."""

    run: str
    name: str
    key: str
    playbook: Playbook
    input: dict[str, Any]
    labels: dict[str, str] = {}
    queueing: Queueing = NO_QUEUEING


@click.command()
@click.argument("file", metavar="FILE")
@click.argument("unit", required=False, metavar="[UNIT]")
@click.option("-i", "--input", multiple=True, metavar="KEY=VALUE", help="An input; JSON, or else text.")
@click.option("--input-file", metavar="FILE", help="Inputs, as a JSON object or in YAML; - is stdin.")
@click.option("--name", metavar="NAME", help="The name of the run (without it, two words are chosen).")
@click.option("--key", metavar="KEY", help="What the run is for; if a run has this key, no other one is started.")
@label_option("A label, by which lists of runs can be filtered; can be repeated.")
@queueing_options
@click.option("--detach", is_flag=True, help="Write the run and leave it to a worker.")
@until_waiting_option
@click.option("--dry-run", is_flag=True, help="Read and check, and say what would run.")
@bindings_options
@output_option
@progress_option
@quiet_option
@store_option
def run(**given: Any) -> int:
    """Execute a playbook or a Python workflow.

    FILE is a playbook, or a Python workflow `module:Class`. UNIT is one of several workflows in a file. Progress goes
    to stderr and the result to stdout. Ctrl-C lets steps finish or hands them back and prints the command that
    continues the run; Ctrl-C once more kills it. Neither loses what was finished. A run that is paused, by a person or
    by its budget, is left with exit code 6.
    """
    asked = RunArguments(**given)
    if asked.detach and asked.until_waiting:
        raise click.UsageError("--detach and --until-waiting exclude each other: a detached run is not executed here")
    if server() and _is_offered(asked):
        return _run_offered(asked)
    code, bound = is_code(asked.file), binding_arguments(asked.bindings, asked.agent)
    db = None if asked.detach or server() else asked.db
    playbook = read_workflow(asked.file) if code else read_file(asked.file, db, bound, unit=asked.unit or "")
    if playbook.warnings and _talks(asked.progress, asked.quiet):
        out.print_message(show_all(playbook.warnings, playbook.file, playbook.source))
    if asked.name == "":
        raise InvalidValue("--name", "a run has a name, or one is chosen")
    run = run_of_key(asked.key) if asked.key else os.urandom(16).hex()
    input = inputs(asked.input, asked.input_file, _texts(playbook.plan))
    labels = {**playbook.labels(), **labels_of(asked.labels)}
    queueing = checked_queueing(asked.queue, asked.priority, asked.share, asked.limit)
    name = asked.name or run_name(playbook.plan.name, run)
    wanted = RunRequest(run, name, asked.key or "", playbook, input, labels, queueing)
    if code:
        _stored_input(asked.file, input)  # refuse wrong inputs before anything is written
    else:
        _tell_unread(wanted, _talks(asked.progress, asked.quiet))
    if asked.dry_run:
        return _tell_plan(wanted, asked.output)
    check_bound(playbook)
    return _leave(wanted, asked) if asked.detach else _execute(wanted, asked)


@click.command()
@run_argument(required=False)
@click.option("--all", "every", is_flag=True, help="Every run that is not over or paused, until only waits are left.")
@click.option("--detach", is_flag=True, help="Lift the pause and leave the run to a worker.")
@until_waiting_option
@code_option
@budget_option
@output_option
@progress_option
@quiet_option
@store_option
def resume(
    run: str | None,
    every: bool,
    detach: bool,
    until_waiting: bool,
    code: Sequence[str],
    budget: Sequence[str],
    db: str,
    **shown: Any,
) -> int:
    """Continue a run in this process; lift its pause if it has one.

    Without RUN, the newest that is not over. With --all, every run of the database that is not over, until only
    people, signals or a later time can continue one; paused runs stay paused.
    """
    if every:
        if server():
            raise click.UsageError("--all executes runs in this process; those of a server are executed by its workers")
        _check_alone("--all", RUN=run, **{"--detach": detach, "--until-waiting": until_waiting, "--budget": budget})
        return _resume_all(db, code, bool(shown["quiet"]))
    if detach:
        _check_alone("--detach", **{"--until-waiting": until_waiting})
    with database.reading(db) as views:
        row = database.find_run(views, run, changes=True) if run is not None else unfinished_run(views)
        if row.status in TERMINAL:
            reopens = row.status in ("failed", "cancelled")
            also = ": `refold runs retry` reopens it" if reopens else ", and nothing of it is left to do"
            raise Conflict(f"run {run_label(row)} is {row.status}{also}")
        others = () if detach else _others_with_code(views, row, code)
        workers = list(serving(views, row))
    more = budgets(budget)
    if detach:
        with steering(db) as there:
            there.send(row.run, Resume(who(), more))
        name = run_label(row)
        out.print_message(f"{name} is left to {_worker_of(workers)}; to execute it here: {again(name, db, *code)}")
        return exits.OK
    _tell_going_on(row, others, shown)
    if server():
        with steering(db) as there:
            there.send(row.run, Resume(who(), more))
        return _follow(row, shown, db, until_waiting)

    async def begin(engine: Any) -> None:
        for target in code:
            await engine.register(_workflow(target))
        await engine.resume(row.run, who(), more)

    return _go_on(row, begin, code, shown, db, until_waiting)


def _texts(plan: Plan) -> frozenset[str]:
    """Return the inputs that are declared as text: `-i zip=12345` is text for them, and not a number."""
    declared = ((each.name, each.schema) for each in plan.inputs)
    return frozenset(name for name, schema in declared if isinstance(schema, dict) and schema.get("type") == "string")


def _check_alone(option: str, **others: Any) -> None:
    """Raise UsageError if an option is given together with one that it excludes."""
    for name, value in others.items():
        if value:
            raise click.UsageError(f"{option} and {name} exclude each other")


def _worker_of(workers: Sequence[str]) -> str:
    return " or ".join(workers) if workers else "a worker, but none is running (`refold worker` starts one)"


def _resume_all(db: str, code: Sequence[str], quiet: bool) -> int:
    from refold.cli.commands.worker import Serving, serve

    with database.reading(db) as views:
        paused = views.count(RunFilter(status=PAUSED))[0]
    if paused and not quiet:
        which = "1 paused run stays" if paused == 1 else f"{paused} paused runs stay"
        out.print_message(f"{which} paused: refold runs resume RUN")
    return serve(Serving(db, code, settings(own_machine=True), True, quiet, loaded().command.playbooks))


@click.command()
@run_argument()
@click.option("--from", "step", default="", metavar="STEP", help="Run this step and all that follows from it again.")
@click.option("--step", "loop", default="", metavar="STEP", help="Only items of this list loop that did not complete.")
@click.option("--item", "items", multiple=True, metavar="N|KEY", help="Only this item of the loop; can be repeated.")
@follow_option
@click.option("--with", "target", metavar="FILE", help="Follow this playbook or MODULE:CLASS from here on.")
@click.option("--detach", is_flag=True, help="Reopen the run and leave it to a worker.")
@code_option
@budget_option
@output_option
@progress_option
@quiet_option
@store_option
def retry(run: str, target: str | None, detach: bool, db: str, code: Sequence[str], **asked: Any) -> int:
    """Continue a run that has failed or was cancelled.

    What failed or was stopped gets another visit, of a list loop only the items that were not done; nothing that was
    finished is repeated, unless --from says so. --from also works on a run that has completed.

    With --step or --item items of a list loop are run again, while the loop is running or after the end of the run. If
    the loop had completed because it tolerated their failure, nothing else is touched: the run keeps its status and
    its result. With --follow the steps behind the loop are visited again with the new values.

    A run follows its playbook as it was when it started, also if the file has changed. With --with the run follows the
    file as it is now, as by `refold runs migrate`; both are one change, and if the file does not fit the run, nothing
    is changed.
    """
    shown = {name: asked.pop(name) for name in ("output", "progress", "quiet")}
    if target is not None and (asked["loop"] or asked["items"]):
        raise click.UsageError("--with excludes --step and --item: items are run again by the plan of their loop")
    with database.reading(db) as views:
        row = database.find_run(views, run, changes=True)
        leaves = detach or row.status not in TERMINAL
        mail = another_try(views, row.run, **asked)
        to = None if target is None else read_target(views, target, db)
        code = tuple(dict.fromkeys((*code, *(to.code if to is not None else ()))))
        others = () if leaves or to is not None else _others_with_code(views, row, code)
        changed = changed_file_text(views, row) if to is None and _talks(shown["progress"], shown["quiet"]) else ""
    with steering(db) as there:
        if to is not None and isinstance(mail, Reopen):
            for plan in to.plans:
                there.register(plan)
            mail = structs.replace(mail, to=Migrate(to.hash, to.graph, who()))
        there.send(row.run, mail)
    if changed:
        out.print_message(changed)
    name = run_label(row)
    if leaves:
        out.print_message(f"{name} continues when a worker takes it; to execute it here: {again(name, db)}")
        return exits.OK
    _tell_going_on(row, others, shown)
    if server():
        return _follow(row, shown, db)

    async def begin(engine: Any) -> None:
        for target in code:
            await engine.register(_workflow(target))

    return _go_on(row, begin, code, shown, db)


def _others_with_code(views: Views, row: Summary, code: Sequence[str]) -> Collection[str]:
    """Return the workers of other processes that have the code of a run, if this process has not. Raises NotFound."""
    return workers_with_code(views, row, _code_here(code, views, row) if code else {})


def _tell_going_on(row: Summary, others: Collection[str], shown: Mapping[str, Any]) -> None:
    if _talks(shown["progress"], shown["quiet"]):
        out.print_message(f"continuing {run_label(row)} ({row.run[:8]})")
        if others:
            out.print_message(f"its code is not here; its steps are run by {' or '.join(others)}")


def again(name: str, db: str, *files: str) -> str:
    """Return the command that resumes a run."""
    needed = [file for file in files if is_code(file) and file not in loaded().command.code]
    code = "".join(f" --code {shlex.quote(file)}" for file in needed)
    return f"refold runs resume {shlex.quote(name)}{db_argument(db)}{code}"


def _execute(wanted: RunRequest, asked: RunArguments) -> int:
    from refold.cli.commands.execute import Execution, execute
    from refold.cli.progress import screen

    source = source_of(wanted.playbook)
    typed = wanted.run if wanted.key else wanted.name
    going_on = again(typed, asked.db, asked.file, *wanted.playbook.code)
    if wanted.key and _talks(asked.progress, asked.quiet):
        _tell_taken(wanted, asked.db)
    order = Execution(
        wanted.run, asked.db, going_on, settings(own_machine=True), asked.output != "table", asked.until_waiting
    )
    if server():
        return _execute_there(wanted, asked, order, source)

    async def begin(engine: Any) -> None:
        lane = wanted.queueing
        starter = engine.options(
            name=wanted.name,
            key=wanted.key,
            run=wanted.run,
            labels=wanted.labels,
            queue=lane.queue,
            priority=lane.priority,
            share=lane.share,
            limit=lane.limit,
        )
        is_python = is_code(wanted.playbook.file)
        await starter.start(_workflow(asked.file) if is_python else wanted.playbook, **wanted.input)

    ended = execute(order, begin, screen(asked.progress, asked.quiet, source))
    return _tell_end(ended, wanted.name, asked.output, asked.progress, asked.quiet)


def _execute_there(wanted: RunRequest, asked: RunArguments, order: "Execution", source: PlaybookLines) -> int:
    """Start the run on a server, whose workers execute it, and show it to its end."""
    from refold.cli.commands.follow import follow
    from refold.cli.progress import screen

    playbook = wanted.playbook
    coded = is_code(playbook.file)
    input = _stored_input(playbook.file, wanted.input) if coded else wanted.input
    code = shlex.join([asked.file] if coded else playbook.code)
    leave(asked.db, playbook.plan, [child.plan for child in playbook.children], input, wanted, code)
    with database.reading(asked.db) as views:
        ended = follow(views, order, screen(asked.progress, asked.quiet, source))
    return _tell_end(ended, wanted.name, asked.output, asked.progress, asked.quiet)


def _workflow(target: str) -> Any:
    """Import the Python workflow of this name. Playbooks do not need it, and do not pay for loading it."""
    from refold.python.load import load

    return load(target)


def _code_here(targets: Sequence[str], views: Views, row: Summary) -> dict[str, CodeHere]:
    """Return the Python workflows of these names and all that they start, by the hashes of their plans.

    Of a class, also the instances that the run needs. An older run may be one of any workflow with its former hash; if
    there are several, none is taken.
    """
    from refold.python.definition import define, define_stored, with_children
    from refold.python.identity import missing_arguments
    from refold.python.load import load

    here: dict[str, CodeHere] = {}
    former: dict[str, dict[str, CodeHere]] = {}
    for target in targets:
        workflow = load(target)
        found = [] if missing_arguments(workflow) else with_children(define(workflow, target))
        if isinstance(workflow, type):
            instances = (define_stored(workflow, graph_of(views, need.plan).plan) for need in needs(views, row))
            found += [each for each in instances if each is not None]
        for each in found:
            here[each.hash] = CodeHere(target, each.plan.name, each.plan.code)
            former.setdefault(each.former.hash, {})[each.hash] = here[each.hash]
    return {**{hash: next(iter(codes.values())) for hash, codes in former.items() if len(codes) == 1}, **here}


def _stored_input(target: str, input: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a Python workflow as they are stored. Raises InvalidValue for what it does not take."""
    from refold.python.definition import define
    from refold.python.load import load

    return define(load(target)).begun(input)


def _go_on(
    row: Summary, begin: Any, code: Sequence[str], shown: Mapping[str, Any], db: str, until_waiting: bool = False
) -> int:
    from refold.cli.commands.execute import Execution, execute
    from refold.cli.progress import screen

    output, progress, quiet = shown["output"], shown["progress"], shown["quiet"]
    going_on = again(run_label(row), db, *code)
    order = Execution(row.run, db, going_on, settings(own_machine=True), output != "table", until_waiting)
    ended = execute(order, begin, screen(progress, quiet, NO_PLAYBOOK))
    return _tell_end(ended, run_label(row), output, progress, quiet)


def _follow(row: Summary, shown: Mapping[str, Any], db: str, until_waiting: bool = False) -> int:
    """Show a run that a server executes, to its end."""
    from refold.cli.commands.execute import Execution
    from refold.cli.commands.follow import follow
    from refold.cli.progress import screen

    output, progress, quiet = shown["output"], shown["progress"], shown["quiet"]
    order = Execution(
        row.run, db, again(run_label(row), db), settings(own_machine=True), output != "table", until_waiting
    )
    with database.reading(db) as views:
        ended = follow(views, order, screen(progress, quiet, NO_PLAYBOOK))
    return _tell_end(ended, run_label(row), output, progress, quiet)


def _is_offered(asked: RunArguments) -> bool:
    """Whether FILE is no file here but the name of a workflow of the server. Raises UsageError for options that only go
    with a file."""
    file = asked.file
    if os.path.exists(file) or file == STDIN or is_code(file) or file.endswith((".yaml", ".yml", ".wf")):
        return False
    if asked.unit or asked.bindings or asked.agent:
        raise click.UsageError(f"{file!r} is a workflow of the server: UNIT, --bindings and --agent go with a file")
    return True


def _run_offered(asked: RunArguments) -> int:
    """Start a workflow of the server's catalogue."""
    from refold.cli.commands.follow import Offered

    offered = Offered(asked.file)
    plan = offered.plan
    input = inputs(asked.input, asked.input_file, _texts(plan))
    check_inputs(plan, {**plan.defaults, **input})
    run = run_of_key(asked.key) if asked.key else os.urandom(16).hex()
    name = asked.name or run_name(plan.name, run)
    if asked.dry_run:
        out.print_message(f"{plan.name} would be started on {server()}")
        return exits.OK
    queueing = checked_queueing(asked.queue, asked.priority, asked.share, asked.limit)
    run = offered.start(run, name, asked.key or "", input, labels_of(asked.labels), queueing)
    with database.reading(asked.db) as views:
        row = database.find_run(views, run)
    shown = {"output": asked.output, "progress": asked.progress, "quiet": asked.quiet}
    if not asked.detach:
        return _follow(row, shown, asked.db, asked.until_waiting)
    if asked.output == "table":
        out.print_data(f"{out.printable(run_label(row))}  {row.run}")
        return exits.OK
    with database.reading(asked.db) as views:
        graph, state = RunReader(views, run).read()
        out.print_json(run_object(views, graph, state, now()), asked.output)
    return exits.OK


def _tell_unread(wanted: RunRequest, talks: bool) -> None:
    """Warn of inputs that nothing in the playbook can read: they are probably typing errors. Raises InvalidValue for
    a part of an input, which cannot be given alone."""
    plan = wanted.playbook.plan
    known = known_inputs(plan)
    for name in unread_inputs(plan, wanted.input):
        whole = name.partition(".")[0]
        if whole in known:
            raise InvalidValue(f"input `{name}`", f"give all of `{whole}`, as JSON: -i '{whole}={{…}}'")
        if talks:
            message = f"warning: `{plan.name}` has no input `{out.printable(name)}`: {did_you_mean(name, known)}"
            out.print_message(message)


def _talks(progress: str, quiet: bool) -> bool:
    """Whether to print messages for people: not with `--quiet`, nor with progress as JSON."""
    return not quiet and progress != "json"


def _tell_end(ended: Any, name: str, output: str, progress: str, quiet: bool) -> int:
    """Print the result to stdout, and messages about the run to stderr."""
    if ended.error and (quiet or progress == "none"):
        out.print_message(f"error: {out.printable(ended.error)}")
    if ended.cause and _talks(progress, quiet) and progress != "none":
        out.print_message(f"because {out.printable(ended.cause)}")
    if ended.code != exits.OK and _talks(progress, quiet):
        out.print_message(f"more: refold runs show {shlex.quote(name)}")
    try:
        if output != "table":
            out.print_json(ended.seen, output)
        elif ended.code == exits.OK and ended.result is not None:
            _put_result(ended.result)
    except out.ReaderGone:
        pass  # the run has ended in any case
    return int(ended.code)


def _put_result(value: Any) -> None:
    if isinstance(value, str):
        out.print_exact(value)
    else:
        out.print_json(value, "json")


def _tell_plan(wanted: RunRequest, output: str) -> int:
    plan = wanted.playbook.plan
    check_inputs(plan, wanted.input)
    input = {**plan.defaults, **wanted.input}
    steps = [step.name for step in plan.steps]
    if output != "table":
        out.print_json({"workflow": plan.name, "plan": plan_hash(plan), "input": input, "steps": steps}, output)
        return exits.OK
    out.print_data(f"{plan.name}: {len(steps)} steps would run with {json.encode(input).decode()}")
    for name in steps:
        out.print_data(f"  {out.printable(name)}")
    return exits.OK


def _leave(wanted: RunRequest, asked: RunArguments) -> int:
    """Store the run for a worker, and execute nothing here."""

    plan, children = wanted.playbook.plan, [child.plan for child in wanted.playbook.children]
    coded = is_code(asked.file)
    input = _stored_input(asked.file, wanted.input) if coded else wanted.input
    code = shlex.join([asked.file] if coded else wanted.playbook.code)
    seen, workers, taken = leave(asked.db, plan, children, input, wanted, code)
    if asked.output != "table":
        out.print_json(seen, asked.output)
    else:
        out.print_data(f"{out.printable(seen['name'])}  {seen['id']}")
    if taken and not asked.quiet:
        out.print_message(taken)
    if not asked.quiet and seen["status"] not in TERMINAL:
        name = again(str(seen["name"]), asked.db, asked.file, *wanted.playbook.code)
        if workers:
            out.print_message(f"it will be executed by {' or '.join(workers)}")
        else:
            needed = "".join(
                f" --code {shlex.quote(each)}" for each in (asked.file, *wanted.playbook.code) if is_code(each)
            )
            out.print_message(f"no worker is running: start `refold worker{needed}{db_argument(asked.db)}`, or {name}")
    return exits.OK


COMMANDS = {"run": run, "resume": resume, "retry": retry}
