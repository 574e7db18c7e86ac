"""Keeps runs that were imported from a foreign log or from exports in memory, so that every query can read them."""

import os
from collections.abc import Iterable
from itertools import groupby

from refold.core.expressions import Values
from refold.core.fold.apply import Record, fold
from refold.core.outcomes import Instant
from refold.core.plan import canonical
from refold.core.read.summary import summarize
from refold.core.state import RunState
from refold.playbooks.noetl_log.log import ImportedRun
from refold.ports import Store, Writes
from refold.stores.memory import MemoryStore
from refold.wiring.world import language, wall


def stored_in_memory(runs: Iterable[ImportedRun], now: Instant) -> Store:
    """Return a store that holds these runs with the times of their logs; nothing in it can be continued."""
    store = MemoryStore(lambda: now)
    for run in runs:
        if run.records:
            _store(store, run)
    return store


def exported_in_memory(exports: Iterable[bytes]) -> Store:
    """Return a store that holds exported runs as they were. Raises InvalidValue, or Conflict if a run comes twice."""
    from refold.runtime.archive import import_run

    store = MemoryStore(wall)
    for data in exports:
        import_run(store, data, Values(), language, lambda: os.urandom(16).hex())
    return store


def _store(store: MemoryStore, run: ImportedRun) -> None:
    state, plan = RunState(run=run.run), canonical(run.plan)
    with store.turn([run.run]) as turn:
        for at, records in groupby(run.records, key=_at):
            some = list(records)
            expected = state.seq
            fold(run.graph, some, state)
            facts = [fact for _, _, fact in some]
            summary = summarize(run.graph, state)
            turn.write(Writes(run.run, f"{run.run}:{expected}", expected, at, facts, summary, plan=plan))


def _at(record: Record) -> Instant:
    return record[1]
