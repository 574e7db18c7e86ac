"""Commands of `refold audit`: who did what through the server of a database."""

import click

from refold.cli import database, words
from refold.cli import output as out
from refold.cli.options import db_option, output_option
from refold.server.audit import audit_rows, row_object, verify


@click.command("list")
@click.option("--after", type=click.IntRange(0), default=0, metavar="NUMBER", help="Only rows after this number.")
@output_option
@db_option
def list_rows(after: int, output: str, db: str) -> None:
    """List what was done through the server.

    The oldest comes first: who, from where, what, and the status of the answer.
    """
    with database.reading(db) as views:
        rows = [row for row, _ in audit_rows(views, after)]
    if output != "table":
        out.print_json([row_object(row) for row in rows], output)
        return
    if not rows:
        out.print_message("nothing was done through a server")
        return
    lines = [
        (str(row.number), words.moment(row.at), *map(out.printable, parts), str(row.deed.result))
        for row in rows
        for parts in ((row.deed.by, row.deed.action, row.deed.target),)
    ]
    out.print_data(out.table(("NUMBER", "AT", "BY", "ACTION", "TARGET", "STATUS"), lines, False, out.terminal_width()))


@click.command("verify")
@db_option
def verify_rows(db: str) -> None:
    """Check that no row of the audit log was changed or removed. Rows older than 400 days are removed by the server."""
    with database.reading(db) as views:
        count = verify(views)
    out.print_message(f"{count} row{'' if count == 1 else 's'}, each follows the one before it")


COMMANDS = {"list": list_rows, "verify": verify_rows}
