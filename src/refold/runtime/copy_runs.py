"""Copies the runs of one store into another, finished ones and those under way, and compares their folds."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct, structs

from refold.core import codec
from refold.core.commands import Letter, LetterReport
from refold.core.expressions import Evaluate, Languages
from refold.core.fold.apply import Record
from refold.core.graph import Graph
from refold.core.state import RunState
from refold.errors import Conflict, Corrupt, NotFound
from refold.ports import RunCursor, Store, Writes
from refold.queries.reading import plan_data, replayed, stored_blob, stored_graph
from refold.runtime.archive import named_blobs, named_plans
from refold.runtime.rebuild import projected
from refold.schedules.documents import BACKFILL, CALENDAR, SCHEDULE, TIME

PAGE = 500  # runs of a list
MOST_DUE = 1_000_000  # runs with letters


class Copied(Struct):
    """What a copy has done."""

    copied: list[str] = []
    present: list[str] = []  # runs that were there already, with the same log

    def count(self) -> int:
        return len(self.copied) + len(self.present)


class Copy:
    """Each run is one commit in the target, so that a copy that is interrupted can be begun again."""

    def __init__(
        self, source: Store, target: Store, evaluate: Evaluate, languages: Languages, new_id: Callable[[], str]
    ) -> None:
        self.source, self.target, self.new_id = source, target, new_id
        self.evaluate, self.languages = evaluate, languages
        self._plans: dict[str, bytes] = {}
        self._unstarted: dict[str, list[Letter]] = {}  # by sender

    def all(self, copied: Callable[[str], object] = lambda run: None) -> Copied:
        """Copy every run, the oldest first. Raises Conflict if workers are executing runs of one of the stores, or if
        the target has another run under the same id."""
        for name, store in (("source", self.source), ("target", self.target)):
            workers = [worker.can.worker for worker in store.views.workers()]
            if workers:
                raise Conflict(f"workers of the {name} are running: {', '.join(workers[:5])}; stop them first")
        self._find_unstarted()
        done = Copied()
        for run in self._runs():
            (done.copied if self.one(run) else done.present).append(run)
            copied(run)
        for kind in (SCHEDULE, TIME, BACKFILL, CALENDAR):
            self._copy_documents(kind)
        return done

    def _copy_documents(self, kind: str) -> None:
        """Schedules and what belongs to them; what the target has already stays."""
        after = ""
        while part := self.source.views.documents(kind, after, PAGE):
            with self.target.turn([]) as turn:
                for each in part:
                    if turn.document(kind, each.id) is None:
                        turn.put_document(kind, each.id, each.data, 0, each.due)
            after = part[-1].id

    def _find_unstarted(self) -> None:
        """Letters to runs that have not started are copied with their senders."""
        waiting, _ = self.source.due(MOST_DUE)
        for run in waiting:
            with self.source.turn([run]) as turn:
                for letter in () if turn.head(run) else turn.letters(run):
                    self._unstarted.setdefault(letter.sender, []).append(letter)

    def _runs(self) -> list[str]:
        runs: list[str] = []
        after: RunCursor | None = None
        while True:
            page = self.source.views.runs(after=after, limit=PAGE)
            runs += [row.run for row in page.rows]
            if not page.more:
                return runs[::-1]
            after = page.after

    def one(self, run: str) -> bool:
        """Copy a run; False if it is there already."""
        with self.source.turn([run]) as turn:
            records = list(turn.facts(run))
            letters = list(turn.letters(run))
            blobs = {
                blob.hash: stored_blob(turn, run, blob.hash) for blob in named_blobs([fact for _, _, fact in records])
            }
        before = self._fold(self.source, run, records)
        there = list(self.target.facts(run))
        if there:
            if [codec.encode_fact(fact) for _, _, fact in there] != [codec.encode_fact(fact) for _, _, fact in records]:
                raise Conflict(f"the target has another run {run}, with {len(there)} facts instead of {len(records)}")
            return False
        for hash in named_plans(records):
            self.target.put_plan(hash, self._plan(hash))
        row, reported = self.source.summary(run), {e.body.command for e in letters if isinstance(e.body, LetterReport)}
        if row is None:
            raise NotFound(f"run {run} has no row: `refold db rebuild` makes it again")
        with self.target.turn([run]) as turn:
            expected = 0
            for at, some in groupby(records, key=lambda record: record[1]):
                facts = [fact for _, _, fact in some]
                parts: dict[str, Any] = {"blobs": blobs} if expected == 0 else {}
                turn.write(Writes(run, self.new_id(), expected, at, facts, structs.replace(row, stuck=""), **parts))
                expected += len(facts)
            written = projected(turn, run, self._graph, self.evaluate, self.languages)
            commands = {id: order for id, order in written.commands.items() if id not in reported}
            lines = [line for _, line in self.source.views.lines(run)]
            mail = [*letters, *self._unstarted.get(run, ())]
            turn.write(structs.replace(written, commands=commands, letters=mail, lines=lines))
        after = self._fold(self.target, run, list(self.target.facts(run)))
        if after != before:
            raise Corrupt(f"run {run} was copied, and its log folds to another state")
        return True

    def _fold(self, store: Store, run: str, records: Sequence[Record]) -> bytes:
        state = RunState(run=run)
        replayed(lambda hash: stored_graph(hash, plan_data(store, hash)), records, state)
        return codec.encode_snapshot(state)

    def _plan(self, hash: str) -> bytes:
        if hash not in self._plans:
            self._plans[hash] = plan_data(self.source, hash)
        return self._plans[hash]

    def _graph(self, hash: str) -> Graph:
        return stored_graph(hash, self._plan(hash))
