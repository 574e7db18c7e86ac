"""What this connection knows of the file since its last commit, as long as no other has written to it."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from refold.core.outcomes import Instant
from refold.core.state import TERMINAL
from refold.ports import Abilities
from refold.stores.sqlite.rows import Queued

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
        self.leased: dict[tuple[str, str], Queued] = {}
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
