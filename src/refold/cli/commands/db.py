"""Commands for the database: `doctor`, `db info`, `db check`, `db copy`, `db rebuild`."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click
from msgspec import Struct, to_builtins

from refold import __version__
from refold.cli import database, exits, words
from refold.cli import output as out
from refold.cli.exits import WrongRows
from refold.cli.options import db_option, output_option
from refold.cli.settings import loaded
from refold.core.outcomes import SECOND
from refold.errors import InvalidValue, RefoldError
from refold.ports import RunFilter, Views
from refold.queries.dead_letters import EVERY
from refold.queries.reading import RunReader
from refold.queries.runs import list_runs
from refold.queries.workers import abilities
from refold.stores.open import is_server, migrate_store, refuse_other_urls, shown_address

OLDEST_PYTHON = (3, 11)
OLD_TRANSACTION = 300  # seconds for which a transaction may keep old rows from being removed
LITTLE = 100 * 1024 * 1024  # bytes that should be free

MANY = 1000  # runs of each status that are looked at
UNDER_WAY = ("running", "waiting", "paused", "ending")


class CheckResult(Struct, frozen=True):
    """One thing that was looked at; `state` is ok, warning or error."""

    about: str
    state: str
    detail: str


@click.command()
@output_option
@db_option
def doctor(output: str, db: str) -> int:
    """Check versions, clock, disk, permissions and the database."""
    ray = loaded().engine.ray
    findings = [
        *_of_machine(),
        *(_of_ray(ray) if ray else ()),
        *(_of_server(db) if is_server(db) else [*_of_folder(db), *_of_file(db)]),
    ]
    if output != "table":
        out.print_json([to_builtins(finding) for finding in findings], output)
    else:
        out.print_data(
            out.table(("", "STATE", "DETAIL"), [(finding.about, finding.state, finding.detail) for finding in findings])
        )
    return exits.FAILED if any(finding.state == "error" for finding in findings) else exits.OK


def _of_machine() -> Iterator[CheckResult]:
    yield CheckResult("refold", "ok", __version__)
    good = sys.version_info >= OLDEST_PYTHON
    yield CheckResult("python", "ok" if good else "error", f"{platform.python_version()} on {platform.system()}")
    year = words.moment(words.now())[:4]
    yield CheckResult("clock", "ok" if year >= "2026" else "error", words.moment(words.now()))


LOOK_AT_RAY = """
import sys
from refold.executors.ray import join
ray = join(sys.argv[1])
alive = [node for node in ray.nodes() if node["Alive"]]
print(f"{len(alive)} nodes, Ray {ray.__version__}, Python {sys.version.split()[0]}:",
      ", ".join(f"{name} {amount:g}" for name, amount in sorted(ray.cluster_resources().items())
                if name in ("CPU", "GPU")))
"""
PATIENCE_FOR_RAY = 60.0  # seconds


def _of_ray(address: str) -> Iterator[CheckResult]:
    """In a process of its own: Ray ends a process that it cannot serve. It refuses another Python, and another Ray."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", LOOK_AT_RAY, address],
            capture_output=True,
            text=True,
            timeout=PATIENCE_FOR_RAY,
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield CheckResult("ray", "error", f"{address} does not answer")
        return
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    yield CheckResult(
        "ray", "ok" if done.returncode == 0 else "error", f"{address}: {lines[-1] if lines else 'no answer'}"
    )


def _of_folder(db: str) -> Iterator[CheckResult]:
    folder = os.path.dirname(os.path.abspath(db))
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        yield CheckResult("disk", "error", f"{folder}: {error.strerror}")
        return
    yield CheckResult("disk", "ok" if free > LITTLE else "warning", f"{free // 2**20} MiB free in {folder}")
    writable = os.access(folder, os.W_OK)
    yield CheckResult("folder", "ok" if writable else "error", f"{folder} is {'' if writable else 'not '}writable")


def _of_file(db: str) -> Iterator[CheckResult]:
    if not os.path.exists(db):
        yield CheckResult("database", "ok", f"{db} is not there yet; `refold run` makes it")
        return
    try:
        with database.reading(db) as views:
            yield from _of_views(views)
    except RefoldError as error:
        yield CheckResult("database", "error", str(error))


def _of_server(db: str) -> Iterator[CheckResult]:
    try:
        with database.reading(db) as views:
            health = views.health(thorough=True)
            details = health.details
            yield CheckResult("server", "ok", str(details["server"]))
            size = f"{health.size // 1024} KiB"
            yield CheckResult(
                "database", "ok", f"{details['path']}, schema {health.schema}, {size}, {details['tables']}"
            )
            if not health.is_writable:
                yield CheckResult("writing", "error", "the server takes no writes: it is read-only, or a replica")
            yield CheckResult("sessions", *_of_sessions(str(details["sessions"]), str(details["rings"])))
            modes = ", ".join(f"{name} {details[name]}" for name in ("fsync", "full_page_writes", "synchronous_commit"))
            yield CheckResult("durability", "ok" if health.is_durable else "error", modes)
            checksums = details["data_checksums"] == "on"
            yield CheckResult(
                "checksums",
                "ok" if checksums else "warning",
                "pages have checksums" if checksums else "pages have no checksums: a damaged disk is not noticed",
            )
            replicas, safe = int(details["replicas"]), int(details["synchronous_replicas"])
            if replicas and not safe:
                why = f"all {replicas} replicas are asynchronous: after a failover the last facts may be missing"
                yield CheckResult("replicas", "warning", why)
            else:
                yield CheckResult("replicas", "ok", f"{replicas}, of which {safe} synchronous")
            age = int(details["oldest_transaction_seconds"])
            kept = f"{details['dead_rows']} dead rows; the oldest transaction is {words.span(age)} old"
            yield CheckResult("transactions", "ok" if age < OLD_TRANSACTION else "warning", kept)
            apart = abs(views.now() - words.now()) / SECOND
            if apart > 1:
                why = f"the clocks of this machine and of the server are {words.span(apart)} apart; the server's counts"
                yield CheckResult("clock", "warning", why)
            yield from _of_runs(views)
    except RefoldError as error:
        yield CheckResult("database", "error", str(error))


def _of_sessions(sessions: str, rings: str) -> tuple[str, str]:
    if sessions == "direct":
        return "ok", sessions
    if rings == "direct":
        return "ok", f"{sessions}; rings go to refold_direct_url"
    return "warning", f"{sessions}: processes ask instead of being called; refold_direct_url names the way around it"


def _of_views(views: Views) -> Iterator[CheckResult]:
    health = views.health(thorough=True)
    details = health.details
    yield CheckResult("sqlite", "ok", str(details["sqlite"]))
    size = int(details["pages"]) * int(details["page_size"]) // 1024
    yield CheckResult("database", "ok", f"{details['path']}, schema {health.schema}, {size} KiB")
    yield CheckResult("file system", "ok", str(details["file_system"]) or "unknown")
    modes = f"{details['journal_mode']}, synchronous {details['synchronous']}"
    yield CheckResult("durability", "ok" if health.is_durable else "error", modes)
    private = details["mode"] == "0o600"
    yield CheckResult(
        "permissions", "ok" if private else "warning", f"{details['mode']}{'' if private else ', not 0o600'}"
    )
    damage = "; ".join(health.damage[:3])
    yield CheckResult("integrity", "error" if damage else "ok", damage or "every page reads well")
    ahead = (views.now() - words.now()) / SECOND
    if ahead > 1:
        why = f"the file's time is {words.span(ahead)} ahead of the machine's clock, which was set back"
        yield CheckResult("clock", "warning", f"{why}; what is to wait for some seconds still does")
    newest = next(iter(list_runs(views, limit=1)), None)
    if newest is not None and newest.created_at > words.now() + SECOND:
        yield CheckResult(
            "clock", "error", f"run {newest.run} was started in the future: {words.moment(newest.created_at)}"
        )
    yield from _of_runs(views)


def _of_runs(views: Views) -> Iterator[CheckResult]:
    for row in (each for status in UNDER_WAY for each in list_runs(views, RunFilter(status), MANY) if each.stuck):
        yield CheckResult("run", "error", f"{row.name or row.run} is stuck: {row.stuck}")
    seen = {row.plan: row for row in list_runs(views, limit=MANY)}
    lost = [row.name or row.run for plan, row in seen.items() if views.plan(plan) is None]
    if lost:
        why = f"run {lost[0]} follows a plan that is not in the file ({len(lost)} such plans): restore a backup"
        yield CheckResult("plans", "error", f"{why}; `refold db check` names every run")
    yield CheckResult("workers", "ok", ", ".join(abilities(views)) or "no worker is running")


@click.command()
@output_option
@db_option
def info(output: str, db: str) -> None:
    """Show what the file is, and how much is in it."""
    with database.reading(db) as views:
        health = views.health()
        seen: dict[str, Any] = {
            "size": health.size,
            **health.details,
            "rows": views.sizes(),
            "workers": list(abilities(views)),
        }
    if output != "table":
        out.print_json(seen, output)
        return
    rows = seen.pop("rows")
    seen |= {name: words.size(seen[name]) for name in ("size", "free") if name in seen}
    lines = [
        (key.replace("_", " "), ", ".join(value) if isinstance(value, list) else str(value))
        for key, value in seen.items()
    ]
    lines += [(f"rows of {table}", str(size)) for table, size in rows.items()]
    out.print_data("\n".join(out.table(("", ""), lines).splitlines()[1:]))


@click.command()
@output_option
@db_option
def check(output: str, db: str) -> int:
    """Check the whole file, and fold every run.

    Each page of the file and each fact of each log is read.
    """
    wrong: list[dict[str, str]] = []
    rows_wrong = WrongRows()
    with database.reading(db, rows_wrong) as views:
        wrong += [{"run": "", "problem": each} for each in views.health(thorough=True).damage]
        rows = list(list_runs(views))
        for row in rows:
            try:
                _, state = RunReader(views, row.run).read()
                if state.seq != row.seq:
                    wrong.append({"run": row.run, "problem": f"its log has {state.seq} facts, its row says {row.seq}"})
            except RefoldError as error:
                wrong.append({"run": row.run, "problem": str(error)})
        views.dead(limit=EVERY)
        views.workers()
        views.leases()
    wrong += [{"run": "", "problem": each} for each in rows_wrong.errors]
    if output != "table":
        out.print_json({"runs": len(rows), "problems": wrong}, output)
    for each in wrong if output == "table" else ():
        out.print_data(f"{out.printable(each['run'] or 'file')}: {out.printable(each['problem'])}")
    out.print_message(f"{words.counted(len(rows), 'run')} read, {words.counted(len(wrong), 'problem')}")
    return exits.UNREACHABLE if wrong else exits.OK


@click.command()
@db_option
def migrate(db: str) -> None:
    """Bring the database up to date with this release.

    That is the file, or the tables of a server.

    Commands that write do that by themselves with a file; those that only look leave an older file as it is and name
    this one. The tables of a server are updated by this command alone: other processes continue meanwhile.
    """
    database.check_exists(db)
    with closing(migrate_store(db, words.now, database.wrong_rows().report)) as store:
        health = store.views.health()
    out.print_message(f"{health.details['path']} has schema {health.schema}")


@click.command()
@output_option
@db_option
def rebuild(output: str, db: str) -> int:
    """Make every row, command and timer again from the logs alone."""
    from refold.wiring import rebuild_file

    database.check_exists(db)
    results = rebuild_file(db, database.wrong_rows().report)
    wrong = {run: str(error) for run, error in results.items() if error is not None}
    if output != "table":
        out.print_json({"runs": len(results), "problems": wrong}, output)
    for run, problem in wrong.items() if output == "table" else ():
        out.print_data(f"{out.printable(run)}: {out.printable(problem)}")
    out.print_message(f"{len(results) - len(wrong)} of {len(results)} runs were rebuilt")
    return exits.UNREACHABLE if wrong else exits.OK


@click.command()
@db_option
def vacuum(db: str) -> None:
    """Give the space of removed runs back to the disk.

    Other processes wait until it is done. It needs as much free space as the file has now.
    """
    with database.writing(db) as store:
        before = store.views.health().size
        store.compact()
        after = store.views.health().size
    out.print_message(f"{shown_address(db)}: {words.size(before)} before, {words.size(after)} now")


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@output_option
def copy(source: str, target: str, output: str) -> None:
    """Copy all runs of the database FROM into the database TO.

    Each is a file or postgresql://... Finished runs and runs under way are copied, with what their steps printed; a run
    continues in TO where it was; schedules and calendars are copied too. Each copy is checked: its log must fold to the
    same state. Stop the workers of both databases before. Runs that are in TO already are left as they are, so an
    interrupted copy can be begun again. FROM is not changed: do not let workers serve it afterwards, or its runs would
    continue there too.
    """
    from refold.wiring import copy_database

    database.check_exists(source)
    refuse_other_urls(target)
    if shown_address(source) == shown_address(target):
        raise InvalidValue("TO", "it is the same database as FROM")
    done = copy_database(source, target, lambda run: None)
    if output != "table":
        out.print_json({"copied": done.copied, "present": done.present}, output)
    where = f"{shown_address(source)} to {shown_address(target)}"
    out.print_message(f"{len(done.copied)} runs copied from {where}, {len(done.present)} were there already")


@click.command()
@click.argument("file", metavar="FILE")
@db_option
def backup(file: str, db: str) -> None:
    """Write a copy of the database to FILE, while others use it.

    The copy is complete: every commit before the moment of the copy is in it. No file is overwritten. Artifacts and
    secrets are kept in files of their own and are not copied.
    """
    with database.reading(db) as views:
        views.backup(file)
    out.print_message(f"{file} is a copy of {db}, {words.size(os.path.getsize(file))}")


COMMANDS = {
    "backup": backup,
    "copy": copy,
    "vacuum": vacuum,
    "info": info,
    "check": check,
    "rebuild": rebuild,
    "migrate": migrate,
    "doctor": doctor,
}
