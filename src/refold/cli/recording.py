"""The command `runs record`: the results of a run, for tests."""

import click

from refold.cli import out, stored
from refold.cli.options import db_option, run_argument

STDOUT = "-"


@click.command()
@run_argument()
@click.option("-o", "--output", default=STDOUT, metavar="FILE", help="Where to write it (- is stdout).")
@db_option
def record(run: str, output: str, db: str) -> None:
    """Write down what each tool gave in a run and in those it has started: for `t.replay`, and `refold sim --replay`.

    Secrets are as the log has them: redacted, or sealed.
    """
    from refold.testing import recording, replaying

    with stored.opened(db) as store:
        recorded = recording.record(store, stored.found(store, run).run)
    if output == STDOUT:
        out.put_json(recorded, "json")
        return
    replaying.write(recorded, output)
    out.tell(f"{len(recorded.calls)} results of {recorded.workflow} are in {output}")
