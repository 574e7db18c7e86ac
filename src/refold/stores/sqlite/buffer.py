"""What a turn is going to write, gathered so that each table is written once however many runs it advances."""

from hashlib import sha256

from refold.core.codec import encode_letter
from refold.core.commands import Letter
from refold.core.facts import Instant
from refold.ports import Writes
from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import FAR, Values, fact_rows, run_row, seal

Named = tuple[str, str]
"""A run, and the key or the hash of something that belongs to it."""


class Draft:
    """The rows of one run's writes; to make one can fail and changes nothing."""

    def __init__(self, namespace: str, writes: Writes) -> None:
        run = self.run = writes.run
        self.facts = fact_rows(namespace, writes)
        self.head = writes.expected + len(self.facts)
        self.row = run_row(run, self.head, writes.summary)
        self.timers = [((run, key), _timer_row(run, key, due)) for key, due in writes.timers.items()]
        self.letters = [_letter_row(letter) for letter in writes.letters]
        self.rest = writes  # which cannot fail


def _timer_row(run: str, key: str, due: Instant | None) -> Values | None:
    if due is None:
        return None
    due = min(due, FAR)
    return due, seal((run, key, due))


def _letter_row(letter: Letter) -> tuple[Named, Values]:
    data = encode_letter(letter)
    return (letter.to, letter.key), (data, seal((letter.to, letter.key, data)))


class Buffer:
    """Everything but the commands."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.touched: set[str] = set()  # runs whose logs, letters or timers are not all in the file yet
        self.troubled: set[str] = set()  # those of them whose letters or timers these are
        self.blobs: dict[Named, bytes] = {}
        self._facts: list[Values] = []
        self._runs: dict[str, tuple[str | None, Values]] = {}
        self._timers: dict[Named, Values | None] = {}
        self._letters: dict[Named, Values] = {}
        self._read: dict[Named, None] = {}
        self._plans: dict[str, bytes] = {}

    def add(self, draft: Draft, stored_status: str | None) -> None:
        """`stored_status`: how the run is listed in the file; None if it is not."""
        self.touched.add(draft.run)
        self._facts += draft.facts
        self._runs[draft.run] = (stored_status, draft.row)
        if draft.timers:
            self._timers.update(draft.timers)
            self.troubled.add(draft.run)
        for named, row in draft.letters:
            self.touched.add(named[0])
            self.troubled.add(named[0])
            self._letters.setdefault(named, row)  # the one that came first counts
        for key in draft.rest.read_letters:
            self._letters.pop((draft.run, key), None)
            self._read[draft.run, key] = None
            self.troubled.add(draft.run)
        for hash, data in draft.rest.blobs.items():
            self.blobs[draft.run, hash] = data
        if draft.rest.plan is not None:
            self._plans[sha256(draft.rest.plan).hexdigest()] = draft.rest.plan

    def flush(self, file: File) -> None:
        """One statement for each table and kind of change."""
        space = self.namespace
        if self._facts:
            file.write(queries.ADD_FACT, self._facts)
        if self._runs:
            self._flush_runs(file)
        if self._timers:
            self._flush_timers(file)
        if self._read:
            file.write(queries.REMOVE_LETTER, [(space, *named) for named in self._read])
        if self._letters:
            file.write(queries.ADD_LETTER, [(space, *named, *row) for named, row in self._letters.items()])
        if self.blobs:
            rows = [(space, *named, data, seal((*named, data))) for named, data in self.blobs.items()]
            file.write(queries.PUT_BLOB, rows)
        if self._plans:
            file.write(queries.PUT_PLAN, [(space, *plan) for plan in self._plans.items()])

    def _flush_runs(self, file: File) -> None:
        writing: dict[str, list[Values]] = {}
        for run, (stored, row) in self._runs.items():
            if stored == row[1]:
                writing.setdefault(queries.MOVE_RUN, []).append((row[0], row[3], row[4], self.namespace, run))
            else:
                query = queries.ADD_RUN if stored is None else queries.CHANGE_RUN
                writing.setdefault(query, []).append((*row, self.namespace, run))
        for query, rows in writing.items():
            file.write(query, rows)

    def _flush_timers(self, file: File) -> None:
        cleared = [(self.namespace, *named) for named, row in self._timers.items() if row is None]
        rows = [(*row, self.namespace, *named) for named, row in self._timers.items() if row is not None]
        for query, values in ((queries.CLEAR_TIMER, cleared), (queries.SET_TIMER, rows)):
            if values:
                file.write(query, values)
