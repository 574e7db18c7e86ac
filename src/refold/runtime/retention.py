"""Removes runs that are over and that the settings do not keep: in the background, in small commits."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice

from refold.core.faults import text_of
from refold.core.outcomes import Instant
from refold.core.read.summary import Summary
from refold.core.retention import Retention, RetentionRule
from refold.errors import Conflict, NotFound, RefoldError
from refold.logs import INFO, WARNING, event, logger
from refold.ports import Advance, Clock, RunFilter, Store, Views
from refold.queries.runs import is_wanted, list_runs

log = logger("runtime")

MOST = 10_000  # runs that are removed before it looks again
BATCH = 20  # runs that one commit removes, so that no other writer waits long


def runs_to_remove(views: Views, retention: Retention, now: Instant) -> Iterator[Summary]:
    """Runs that the rules do not keep and that no other run needs; the newest of each rule first."""
    own: Mapping[str, RetentionRule] = retention.workflow
    for name, rule in own.items():
        yield from _of_rule(views, rule, RunFilter(workflow=name), {}, now)
    yield from _of_rule(views, retention, RunFilter(), own, now)


def _of_rule(
    views: Views, rule: RetentionRule, wanted: RunFilter, others: Mapping[str, RetentionRule], now: Instant
) -> Iterator[Summary]:
    if not rule.removes:
        return
    before, kept = rule.before(now), 0
    if not rule.count:  # only old runs are looked at
        wanted = RunFilter(workflow=wanted.workflow, until=None if before is None else before + 1)
    for row in list_runs(views, wanted):
        if row.workflow in others or not rule.concerns(row.status):
            continue
        kept += 1
        is_old = before is not None and row.ended_at <= before
        if (is_old or 0 < rule.count < kept) and not is_wanted(views, row):
            yield row


class OldRuns:
    """Removes what the rules do not keep, from time to time and in small commits."""

    def __init__(self, store: Store, advance: Advance, clock: Clock, retention: Retention, every: float) -> None:
        self.store, self.advance, self.clock = store, advance, clock
        self.retention, self.every = retention, every

    async def run(self) -> None:
        while True:
            try:
                removed = await self.once()
            except RefoldError as error:
                event(log, WARNING, "removal of old runs failed", why=text_of(error))
                removed = 0
            else:
                if removed:
                    event(log, INFO, "old runs removed", count=removed)
            if removed < MOST:
                await self.clock.sleep(self.every)

    async def once(self) -> int:
        """Remove all runs that the rules do not keep now. Return how many."""
        now = self.clock.now()
        found = await asyncio.to_thread(self._found, now)
        removed = 0
        for start in range(0, len(found), BATCH):
            batch = found[start : start + BATCH]
            removed += await self.advance(partial(self._remove, batch))
            await asyncio.sleep(0)
        if removed:
            await self.advance(self.store.forget_workers)
        return removed

    def _found(self, now: Instant) -> list[str]:
        rows = islice(runs_to_remove(self.store.views, self.retention, now), MOST)
        return list(dict.fromkeys(row.run for row in rows))

    def _remove(self, batch: list[str]) -> int:
        removed = 0
        with self.store.turn(batch) as turn:
            for run in batch:
                try:
                    turn.remove(run)
                except (NotFound, Conflict):
                    continue  # another worker has removed it, or it was reopened
                removed += 1
        return removed
