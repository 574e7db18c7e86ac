"""The runs of one turn: each is opened once, from what is remembered of it or from the file."""

from collections.abc import Sequence

from msgspec import Struct, json

from refold.errors import Corrupt
from refold.stores.sqlite import queries
from refold.stores.sqlite.columns import Values, malformed
from refold.stores.sqlite.file import File
from refold.stores.sqlite.remembered import Opening, Remembered
from refold.stores.sqlite.rows import check_run


class Openings(Struct):
    """Within one transaction."""

    file: File
    namespace: str
    remembered: Remembered
    runs: dict[str, Opening] = {}
    found: dict[str, Values] = {}  # rows of runs that are going to be opened

    def get(self, run: str) -> Opening:
        return self.runs.get(run) or self._open(run)  # the first is a struct, and never false

    def find(self, runs: Sequence[str]) -> None:
        """All of them with one question; each is judged when it is opened."""
        unknown = [run for run in runs if run not in self.remembered.runs]
        if len(unknown) > 1:
            wanted = json.encode(unknown).decode()
            for run, *row in self.file.rows(queries.OPENINGS, (self.namespace, wanted)):
                self.found[run] = tuple(row)

    def _open(self, run: str) -> Opening:
        opening = self.remembered.runs.get(run)
        if opening is None:
            row = self.found.pop(run, None) or self.file.row(queries.OPENING, (self.namespace, run))
            assert row is not None
            opening = _opening(run, row)
        self.runs[run] = opening
        return opening


def _opening(run: str, row: Values) -> Opening:
    head, status, _, _, seal, has_letters, next_due, floor, orphaned = row
    if seal is not None:
        check_run(run, row[:5])
    elif orphaned:
        raise Corrupt(f"run {run} has a log and no row: `refold db rebuild` makes the row again")
    if type(next_due) not in (int, type(None)):
        raise malformed("timers", (run,), "due", f"{next_due!r} is not an integer")
    if type(floor) not in (int, type(None)):
        raise malformed("generations", (), "floor", f"{floor!r} is not an integer")
    return Opening(head or 0, status or "", status, bool(has_letters), next_due, floor or 0)
