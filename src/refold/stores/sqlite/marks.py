"""Marks of the store's clock in the file: from the last one, the time continues in whichever process comes next."""

from refold.stores.clock import Mark, StoreClock
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import seal


def read_mark(file: File, namespace: str, clock: StoreClock) -> None:
    """One that does not read as it was written is none; the next commit writes another."""
    row = file.row(queries.MARK, (namespace,))
    if row is None or row[3] != seal((namespace, *row[:3])):
        return
    mark = Mark(*row[:3])
    if mark.is_plausible():
        clock.resume(mark)


def put_mark(file: File, namespace: str, clock: StoreClock) -> None:
    """Only inside a transaction."""
    mark = clock.mark()
    values = (namespace, mark.at, mark.steady, mark.boot)
    file.write(queries.PUT_MARK, [(*values, seal(values))])
