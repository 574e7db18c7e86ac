"""What this connection remembers of the file since its last commit, and the runs that a turn opens by it.

It counts only as long as no other connection has written."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, json

from refold.core.outcomes import Instant
from refold.core.state import TERMINAL
from refold.errors import Corrupt
from refold.ports import Abilities
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import CommandRow, Values, check_run, malformed

MANY = 10_000  # runs, or commands
PLANS = 100


class Opening(Struct, gc=False):
    """A run as the turn finds it, and leaves it."""

    head: int
    status: str
    stored: str | None  # its status in the file, or as it is going to be written; None: it has no row
    has_letters: bool
    next_due: Instant | None  # of its timers
    floor: int  # where generations begin

    def is_plain(self) -> bool:
        """It goes on, and nothing waits for it."""
        return self.next_due is None and not self.has_letters and self.head > 0 and self.status not in TERMINAL


class Remembered:
    """If another connection has written since the last commit here, or if a turn was taken back, all is forgotten."""

    def __init__(self) -> None:
        self.version = -1  # of the data, after the last commit
        self.runs: dict[str, Opening] = {}  # those without letters and timers
        self.leased: dict[tuple[str, str], CommandRow] = {}
        self.idle: set[Abilities] = set()  # for whom nothing waits, now or later
        self.plans: set[bytes] = set()  # those that are stored

    def begin(self, version: int) -> None:
        if version != self.version:
            self.forget()

    def forget(self) -> None:
        self.runs, self.leased, self.idle, self.plans = {}, {}, set(), set()

    def keep(self, runs: Mapping[str, Opening], troubled: Collection[str], version: int) -> None:
        """After a commit: `troubled` may have letters or timers that are not known here."""
        self.version = version
        if len(self.runs) + len(runs) > MANY or len(self.leased) > MANY or len(self.plans) > PLANS:
            self.forget()
        for run in troubled:
            self.runs.pop(run, None)
        for run, opening in runs.items():
            if opening.is_plain() and run not in troubled:
                self.runs[run] = opening
            else:
                self.runs.pop(run, None)


class Openings(Struct):
    """The runs of one turn: each is opened once, from what is remembered of it or from the file."""

    file: File
    namespace: str
    remembered: Remembered
    runs: dict[str, Opening] = {}
    found: dict[str, Values] = {}  # rows of runs that are going to be opened

    def get(self, run: str) -> Opening:
        return self.runs.get(run) or self._open(run)  # the first is a struct, and never false

    def find(self, runs: Sequence[str]) -> None:
        """Read the rows of several runs with one query; each is checked when it is opened."""
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
