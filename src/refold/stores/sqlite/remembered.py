"""What this connection knows of the file since its last commit, as long as no other has written to it."""

from msgspec import Struct

from refold.ports import Abilities
from refold.stores.sqlite.rows import Queued

MANY = 10_000  # runs, or commands


class Opening(Struct, gc=False):
    """A run as the turn finds it, and leaves it."""

    head: int
    status: str
    stored: str | None  # its status in the file; None: it has no row there
    has_letters: bool
    has_due_timers: bool
    has_timers: bool
    floor: int  # where generations begin


class Remembered:
    """SQLite tells whether another connection has written; if so, or if a turn was taken back, all is forgotten."""

    def __init__(self) -> None:
        self.version = -1
        self.runs: dict[str, Opening] = {}  # those without letters and timers
        self.leased: dict[tuple[str, str], Queued] = {}
        self.idle: set[Abilities] = set()  # for whom nothing waits, now or later

    def begin(self, version: int) -> None:
        if version != self.version:
            self.forget()
            self.version = version

    def forget(self) -> None:
        self.runs, self.leased, self.idle = {}, {}, set()

    def keep(self, runs: dict[str, Opening], touched: set[str]) -> None:
        """After a commit: `touched` may have letters or timers that are not known here."""
        if len(self.runs) + len(runs) > MANY or len(self.leased) > MANY:
            self.forget()
        for run in touched:
            self.runs.pop(run, None)
        for run, opening in runs.items():
            if run not in touched and opening.head and not opening.has_letters and not opening.has_timers:
                opening.stored = opening.status
                self.runs[run] = opening
