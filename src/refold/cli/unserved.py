"""What commands say about a run that no process executes."""

import shlex

from refold.cli import database
from refold.cli import output as out
from refold.cli.settings import db_argument
from refold.core.read.summary import Summary
from refold.core.state import PAUSED
from refold.ports import Views
from refold.queries.code import code_place
from refold.queries.runs import run_label
from refold.queries.workers import serves_every_run, unserved

NO_PROCESS = "no process executes"


def tell_if_unserved(db: str, text: str) -> None:
    """After something was sent to a run: say if no process is there to continue it, and which command is."""
    with database.reading(db) as views:
        row = database.find_run(views, text)
        if row.status != PAUSED and unserved(views, [row]):
            out.print_message(nobody_text(views, row, db))


def tell_if_no_worker(views: Views, db: str) -> None:
    """After a schedule was made or listed: say if no worker is there that would start its runs."""
    if not database.is_foreign() and not serves_every_run(views):
        out.print_message(f"no worker serves these schedules; to start their runs: refold worker{db_argument(db)}")


def nobody_text(views: Views, row: Summary, db: str) -> str:
    """Say that no process executes a run, and what would."""
    return f"{NO_PROCESS} {run_label(row)}; to execute it: {how_to_execute(views, row, db)}"


def how_to_execute(views: Views, row: Summary, db: str) -> str:
    """Return what executes a run; the code is the one that was named when the run was started."""
    code = "".join(f" --code {shlex.quote(each)}" for each in shlex.split(code_place(views, row)))
    resume = f"refold runs resume {shlex.quote(run_label(row))}{code}{db_argument(db)}"
    if code:
        return f"{resume}, or a worker with this code"
    return f"{resume}, or refold worker{db_argument(db)}"
