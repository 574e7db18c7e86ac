"""The facts of all runs in the order of their commits, each once for a cursor.

A turn is found by the transaction that wrote it, and only when no running transaction can precede it: so a commit that
becomes visible late is not missed. Two turns of one run may have been committed in the other order of their
transactions, because a transaction gets its number before it waits for a lock. The later turn comes first then, brings
the earlier one along, and the cursor notes that it has come.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from refold.errors import InvalidValue, Unusable
from refold.ports import FeedFact
from refold.stores.feed import no_cursor, read_cursor, write_cursor
from refold.stores.postgres import queries
from refold.stores.postgres.arrays import Ints
from refold.stores.postgres.connection import Row
from refold.stores.postgres.turn import read_fact

Ask = Callable[..., Sequence[Row]]

KIND = "p"


class Position(Struct):
    """Behind which fact a reader is."""

    system: int
    table: int
    timeline: int
    tx: int = 0
    rid: int = 0
    number: int = 0
    ahead: dict[int, tuple[int, int]] = {}  # by run: the last fact that came early, and the transaction it is found by

    def text(self) -> str:
        notes = [each for rid, (number, tx) in sorted(self.ahead.items()) for each in (rid, number, tx)]
        return write_cursor(KIND, (self.system, self.table, self.timeline, self.tx, self.rid, self.number, *notes))

    def move(self, tx: int, rid: int, number: int) -> None:
        self.tx, self.rid, self.number = tx, rid, number
        self.ahead = {each: note for each, note in self.ahead.items() if note[1] >= tx}


def read_feed(ask: Ask, ns: int, cursor: str, limit: int) -> Sequence[FeedFact]:
    position = _position(ask, cursor)
    found: list[FeedFact] = []
    if position.number:
        _add_rest(ask, ns, position, found)
    turns = ask(queries.FEED, ns, str(position.tx), position.rid, position.number, max(limit - len(found), 1))
    ends = _ends(ask, [(row[1], row[3]) for row in turns])
    facts = _facts(ask, [(rid, number, ends[rid, number]) for _, rid, _, number, _, _ in turns])
    for tx, rid, run, number, before, tx_before in turns:
        if rid in position.ahead and number <= position.ahead[rid][0]:
            position.move(tx, rid, ends[rid, number])
            continue
        if before is not None and tx_before > tx:
            _add_early(ask, position, found, (tx, rid, run, number))
        for each in facts[rid, number]:
            position.move(tx, rid, each[0])
            found.append(_feed_fact(run, each, position))
    if turns and not found:
        return read_feed(ask, ns, position.text(), limit)
    if not found and ask(queries.FOREIGN_TRANSACTIONS):
        raise Unusable("the database was restored from a dump, and its feed is out of order: run `refold db migrate`")
    return found


def feed_end(ask: Ask, ns: int) -> str:
    position = _position(ask, "")
    rows = ask(queries.LAST_CHANGED, ns)
    if rows:
        position.tx, position.rid, position.number = rows[0][0], rows[0][1] + 1, 0
    return position.text()


def _position(ask: Ask, cursor: str) -> Position:
    now = Position(*ask(queries.FEED_EPOCH)[0])
    if not cursor:
        return now
    numbers = read_cursor(KIND, cursor, 6)
    if len(numbers) % 3:
        raise no_cursor(cursor)
    notes = {numbers[at]: (numbers[at + 1], numbers[at + 2]) for at in range(6, len(numbers), 3)}
    system, table, timeline, tx, rid, number = numbers[:6]
    position = Position(system, table, timeline, tx, rid, number, notes)
    if (position.system, position.table, position.timeline) != (now.system, now.table, now.timeline):
        why = "the database was restored, or another server has taken over: facts behind the cursor may be others now"
        raise InvalidValue("cursor", f"{why}; read again from an empty cursor")
    return position


def _add_rest(ask: Ask, ns: int, position: Position, found: list[FeedFact]) -> None:
    """What is left of the turn that the cursor is in."""
    runs = ask(queries.FEED_RUN, ns, position.rid)
    rid, number = position.rid, position.number
    for row in ask(queries.FEED_TURN, rid, number, rid, number) if runs else ():
        position.move(position.tx, rid, row[0])
        found.append(_feed_fact(runs[0][0], row, position))


def _add_early(ask: Ask, position: Position, found: list[FeedFact], turn: tuple[int, int, str, int]) -> None:
    """Turns of the same run that were committed before this one, under later transactions."""
    tx, rid, run, number = turn
    known = position.ahead.get(rid, (0, 0))[0]
    first, last_tx, at = number, 0, number
    while rows := ask(queries.TURN_BEFORE, rid, at):
        at, tx_before = rows[0]
        if tx_before <= tx:
            break
        first, last_tx = at, max(last_tx, tx_before)
    for row in _facts(ask, [(rid, first, number - 1)])[rid, first] if first < number else ():
        if row[0] > known:
            position.ahead = {**position.ahead, rid: (row[0], last_tx)}
            found.append(_feed_fact(run, row, position))


def _feed_fact(run: str, row: Row, position: Position) -> FeedFact:
    number, at, fact = read_fact(run, row)
    return FeedFact(run, number, at, fact, position.text())


def _ends(ask: Ask, turns: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    if not turns:
        return {}
    rows = ask(queries.FEED_ENDS, Ints(rid for rid, _ in turns), Ints(first for _, first in turns))
    return {(rid, first): last for rid, first, last in rows}


def _facts(ask: Ask, parts: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int], list[tuple[Any, ...]]]:
    """The facts of parts of logs, each part by its run and first fact."""
    if not parts:
        return {}
    columns = [Ints(part[at] for part in parts) for at in range(3)]
    rows = ask(queries.FEED_FACTS, *columns)
    by_run: dict[int, dict[int, tuple[Any, ...]]] = {}
    for rid, number, at, data in rows:
        by_run.setdefault(rid, {})[number] = (number, at, data)
    return {
        (rid, first): [by_run[rid][n] for n in range(first, last + 1) if n in by_run.get(rid, {})]
        for rid, first, last in parts
    }
