"""Tells other processes that something has changed, and hears it from them: by NOTIFY, on a session of its own.

A NOTIFY inside a transaction that writes facts would make all commits of the server wait for each other. Rings are
gathered here instead and sent at most once in 10 ms. A ring says what has changed and carries no data: those who hear
it ask the store. A lost, doubled, foreign or garbled ring changes nothing but latency.

The session also holds the life lock of its process: when the process dies, the server frees the lock at once.
"""

import hashlib
import os
import select
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any

import psycopg

from refold.errors import RefoldError
from refold.logs import WARNING, event, logger
from refold.ports import ANYTHING, Heard, Ring
from refold.rings import decoded, encoded
from refold.stores.postgres.address import Address, direct_address
from refold.stores.postgres.arrays import Texts
from refold.stores.postgres.connection import Session
from refold.stores.postgres.queries import BEGIN, COMMIT, NOT_FLUSHED

log = logger("store")

PAUSE = 0.01  # seconds between two statements
PATIENCE = 5.0  # seconds for a server to answer
AGAIN = 0.5  # seconds until a broken session is opened again
ASK_EVERY = 1.0  # seconds
LIFE = 79  # the class of the life locks
NOTIFY = "select pg_notify(%s, payload) from unnest(%s::text[]) payload"
WRITTEN = """
    select pg_snapshot_xmin(pg_current_snapshot())::text, exists (
        select 1 from refold.facts g join refold.runs r on r.rid = g.rid
            join refold.namespaces n on n.ns = r.ns
        where g.tx >= %s::text::xid8 and g.tx < pg_snapshot_xmin(pg_current_snapshot()) and n.name = %s)"""
SETTINGS = (
    "set synchronous_commit = off",  # a ring need not survive a crash
    "set tcp_keepalives_idle = 2",
    "set tcp_keepalives_interval = 1",
    "set tcp_keepalives_count = 3",
    "set tcp_user_timeout = 5000",
    "set statement_timeout = '10s'",
)


class Bell:
    """One thread, which both sends and hears; it starts with the first `listen` or `ring`."""

    sent = 0  # statements with rings

    def __init__(self, address: Address) -> None:
        self.address = address
        where = f"{address.schema}/{address.namespace}".encode()
        self.channel = "refold_" + hashlib.sha256(where).hexdigest()[:24]
        self.name = os.urandom(8).hex()
        self.lock = int.from_bytes(os.urandom(4), "big") & 0x7FFFFFFF
        self.is_held = False  # whether the life lock is
        self.is_deaf = False  # behind a pooler: it rings, but has to ask instead of hearing, and holds no lock
        self._seen: str | None = None  # all transactions before this one are over, and were asked for
        self._asked_at = 0.0
        self._session = Session(direct_address(address))
        self._stopped = False
        self._rings: set[Ring] = set()  # to be sent
        self._guard = Lock()
        self._callbacks: list[Heard] = []
        self._thread: Thread | None = None
        self._ready = Event()
        self._wake_reading, self._wake_writing = -1, -1
        self._pid = os.getpid()

    def ring(self, rings: Collection[Ring]) -> None:
        """From any thread; returns at once."""
        with self._guard:
            self._rings.update(rings)
        self.start()
        self._wake()

    def listen(self, heard: Heard) -> None:
        """Call this, on the thread of the bell, when another process has rung. Returns when it is listening, or when
        the server does not answer."""
        self._callbacks.append(heard)
        self.start()

    def start(self) -> None:
        if self._thread is None and not self._stopped:
            self._wake_reading, self._wake_writing = os.pipe()
            os.set_blocking(self._wake_writing, False)
            self._thread = Thread(target=self._run, name="refold-bell", daemon=True)
            self._thread.start()
            self._ready.wait(PATIENCE)

    def close(self) -> None:
        self._stopped = True
        thread, self._thread = self._thread, None
        if thread is not None and os.getpid() == self._pid:
            self._wake()
            thread.join(PATIENCE)
            for end in (self._wake_reading, self._wake_writing):
                os.close(end)
            self._wake_writing = -1
        self._session.close()

    def _wake(self) -> None:
        if self._wake_writing >= 0:
            with suppress(BlockingIOError, OSError):  # it is awake already
                os.write(self._wake_writing, b"r")

    def _run(self) -> None:
        while not self._stopped:
            began = time.monotonic()
            try:
                self._serve()
            except (psycopg.Error, RefoldError) as error:
                self._session.drop()
                self._ready.set()
                if self._stopped:
                    return
                told = "the doorbell is out of order; other processes are asked now and then"
                event(log, WARNING, told, why=str(error))
                if time.monotonic() - began < PATIENCE:  # else it worked until now, and the life lock is needed soon
                    self._wait_for_wake(AGAIN)

    def payloads(self, rings: Iterable[Ring]) -> list[str]:
        """One for each queue or run."""
        return [f"{self.name} {kind} {key}" for kind, key in encoded(rings)]

    def _serve(self) -> None:
        connection = self._session.raw
        self.is_deaf = self._session.is_shared
        if not self.is_deaf:
            self._start_hearing(connection)
        if self._ready.is_set():
            self._hear({ANYTHING})  # it did not listen for a while
        self._ready.set()
        sent_at = 0.0
        while self._rings or not self._stopped:  # the last rings of a process are sent too
            if self._rings:
                wait = sent_at + PAUSE - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                with self._guard:
                    rings, self._rings = self._rings, set()
                payloads = Texts(self.payloads(rings))
                self.sent += 1
                if self.is_deaf:
                    self._session.run(
                        [(BEGIN, ()), (NOT_FLUSHED, ()), (NOTIFY, (self.channel, payloads)), (COMMIT, ())]
                    )
                else:
                    connection.execute(NOTIFY, (self.channel, payloads), prepare=False)
                sent_at = time.monotonic()
            if self.is_deaf:
                self._ask()
            else:
                heard = {self._read(each.payload) for each in connection.notifies(timeout=0)}
                self._hear({ring for ring in heard if ring is not None})
            if self._rings or self._stopped:
                continue
            if self.is_deaf:
                self._wait_for_wake(ASK_EVERY)
            else:
                self._wait_for_wake(None, connection.fileno())

    def _start_hearing(self, connection: psycopg.Connection[Any]) -> None:
        for setting in SETTINGS:
            connection.execute(setting, prepare=False)
        connection.execute(f"listen {self.channel}", prepare=False)
        row = connection.execute(
            "select pg_try_advisory_lock(%s::int, %s::int)", (LIFE, self.lock), prepare=False
        ).fetchone()
        self.is_held = row is not None and bool(row[0])

    def _ask(self) -> None:
        """Whether anybody has written since the last time."""
        if time.monotonic() < self._asked_at + ASK_EVERY or not self._callbacks:
            return
        since, self._asked_at = self._seen, time.monotonic()
        ((self._seen, is_new),) = self._session.rows(WRITTEN, since, self.address.namespace)
        if is_new and since is not None:
            self._hear({ANYTHING})

    def _read(self, payload: str) -> Ring | None:
        """Return what another process has rung; None for a ring of this one, and for what is not a ring."""
        parts = payload.split(" ")
        return decoded(parts[1], parts[2]) if len(parts) == 3 and parts[0] != self.name else None

    def _hear(self, rings: Collection[Ring]) -> None:
        for callback in self._callbacks if rings else ():
            callback(rings)

    def _wait_for_wake(self, timeout: float | None, *others: int) -> None:
        ready, _, _ = select.select([self._wake_reading, *others], [], [], timeout)
        if self._wake_reading in ready:
            os.read(self._wake_reading, 4096)
