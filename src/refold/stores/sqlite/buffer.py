"""What a turn will write, collected so that each table is written once, however many runs the turn advances."""

from hashlib import sha256

from msgspec import Struct

from refold.core.codec import encode_letter
from refold.core.commands import Command, Held, Letter
from refold.core.outcomes import Instant
from refold.ports import Writes
from refold.stores.sqlite import queries
from refold.stores.sqlite.columns import Values
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import FAR, Queued, fact_rows, fresh, run_row, seal

Named = tuple[str, str]
"""A run, and the key or the hash of something that belongs to it."""


class Draft:
    """The rows of one run's writes. Constructing a draft may fail, and changes nothing."""

    def __init__(self, namespace: str, writes: Writes) -> None:
        run = self.run = writes.run
        self.facts = fact_rows(namespace, writes)
        self.head = writes.expected + len(self.facts)
        self.row = run_row(run, self.head, writes.summary)
        plan = writes.summary.plan
        self.orders: list[tuple[str, Queued | Held | None]] = [
            (id, None if order is None else fresh(run, order, plan) if isinstance(order, Command) else order)
            for id, order in writes.commands.items()
        ]
        self.timers = [_timer_row(run, *timer) for timer in writes.timers.items()] if writes.timers else ()
        self.letters = [_letter_row(letter) for letter in writes.letters] if writes.letters else ()
        self.rest = writes  # needs no encoding, so it cannot fail later


def _timer_row(run: str, key: str, due: Instant | None) -> tuple[Named, Values | None]:
    if due is None:
        return (run, key), None
    due = min(due, FAR)
    return (run, key), (due, seal((run, key, due)))


def _letter_row(letter: Letter) -> tuple[Named, Values]:
    data = encode_letter(letter)
    return (letter.to, letter.key), (data, seal((letter.to, letter.key, data)))


class Buffer(Struct):
    """All that a turn will write, except commands."""

    namespace: str
    touched: set[str] = set()  # runs whose logs, letters or timers are not all in the file yet
    troubled: set[str] = set()  # runs whose letters or timers have changed
    blobs: dict[Named, bytes] = {}
    facts: list[Values] = []
    runs: dict[str, tuple[str | None, Values]] = {}
    timers: dict[Named, Values | None] = {}
    letters: dict[Named, Values] = {}
    read: dict[Named, None] = {}
    plans: dict[str, bytes] = {}

    def add(self, draft: Draft, stored_status: str | None, plans: set[bytes]) -> None:
        """`stored_status`: the status in the stored row of the run, None without one. `plans`: those already stored."""
        run, rest = draft.run, draft.rest
        self.touched.add(run)
        self.facts += draft.facts
        self.runs[run] = (self.runs[run][0] if run in self.runs else stored_status, draft.row)
        if draft.timers or draft.letters or rest.read_letters:
            self._add_mail(draft)
        if rest.blobs:
            self.blobs.update(((run, hash), data) for hash, data in rest.blobs.items())
        if rest.plan is not None and rest.plan not in plans:
            self.plans[sha256(rest.plan).hexdigest()] = rest.plan
            plans.add(rest.plan)

    def _add_mail(self, draft: Draft) -> None:
        self.timers.update(draft.timers)
        if draft.timers or draft.rest.read_letters:
            self.troubled.add(draft.run)
        for named, row in draft.letters:
            self.touched.add(named[0])
            self.troubled.add(named[0])
            self.letters.setdefault(named, row)  # the first letter of a key counts
        for key in draft.rest.read_letters:
            self.letters.pop((draft.run, key), None)
            self.read[draft.run, key] = None

    def flush(self, file: File) -> None:
        """Write everything: one statement for each table and kind of change."""
        if self.facts:
            file.write(queries.ADD_FACT, self.facts)
        if self.runs:
            self._flush_runs(file)
        if self.timers or self.read or self.letters:
            self._flush_mail(file)
        if self.blobs:
            rows = [(self.namespace, *named, data, seal((*named, data))) for named, data in self.blobs.items()]
            file.write(queries.PUT_BLOB, rows)
        if self.plans:
            file.write(queries.PUT_PLAN, [(self.namespace, *plan) for plan in self.plans.items()])

    def _flush_runs(self, file: File) -> None:
        writing: dict[str, list[Values]] = {}
        for run, (stored, row) in self.runs.items():
            query, values = queries.CHANGE_RUN if stored else queries.ADD_RUN, (*row, self.namespace, run)
            if stored == row[1]:
                query, values = queries.MOVE_RUN, (row[0], row[3], row[4], self.namespace, run)
            writing.setdefault(query, []).append(values)
        for query, rows in writing.items():
            file.write(query, rows)

    def _flush_mail(self, file: File) -> None:
        space = self.namespace
        writing = {
            queries.CLEAR_TIMER: [(space, *named) for named, row in self.timers.items() if row is None],
            queries.SET_TIMER: [(*row, space, *named) for named, row in self.timers.items() if row is not None],
            queries.REMOVE_LETTER: [(space, *named) for named in self.read],
            queries.ADD_LETTER: [(space, *named, *row) for named, row in self.letters.items()],
        }
        for query, rows in writing.items():
            if rows:
                file.write(query, rows)
