"""Whether a pooler shares the server's sessions among its clients by transactions, found by test.

Behind such a pooler each transaction of a connection may run in another session of the server. So nothing of a session
can be used: settings, named statements, locks and LISTEN.
"""

import os
from typing import Any

import psycopg

WHO = "select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()"
LOCK = "select pg_try_advisory_lock(80, %s::int)"
UNLOCK = "select pg_advisory_unlock(80, %s::int)"
LOOKS = 3  # poolers that give out sessions in rounds show another one soon

_found: dict[str, bool] = {}
"""What was found at the first connect to an address."""


def is_shared(url: str, connection: psycopg.Connection[Any], settings: dict[str, Any]) -> bool:
    """Whether the transactions of this connection run in sessions that others get too. Raises psycopg.Error."""
    known = _found.get(url)
    if known is None:
        known = _found[url] = _test(url, connection, settings)
    return known


def _test(url: str, connection: psycopg.Connection[Any], settings: dict[str, Any]) -> bool:
    number = int.from_bytes(os.urandom(4), "big") & 0x7FFFFFFF
    who = _ask(connection, WHO)
    if any(_ask(connection, WHO) != who for _ in range(LOOKS - 1)):
        return True
    _ask(connection, LOCK, number)
    with psycopg.connect(url, autocommit=True, **settings) as other:
        other.execute("begin", prepare=False)
        if _ask(other, WHO) == who or _ask(other, LOCK, number) == (True,):  # a session of its own cannot have either
            _ask(other, UNLOCK, number)
            return True
        is_moved = _ask(connection, WHO) != who  # the other transaction holds the session that the pooler likes best
    return _ask(connection, UNLOCK, number) != (True,) or is_moved


def _ask(connection: psycopg.Connection[Any], sql: str, *values: Any) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = connection.execute(sql, values, prepare=False).fetchone()
    return row
