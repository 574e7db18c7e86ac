"""Rings processes through a NATS server: `REFOLD_DOORBELL=nats://host:4222`.

A ring is a message without a body on the subject `refold.NAMESPACE.KIND.KEY`, whose parts are encoded. Nothing ever
waits for the server: what cannot be sent at once is dropped, and those who would have heard it look by themselves.
"""

import asyncio
import re
from collections.abc import Collection
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from refold.core.faults import text_of
from refold.errors import InvalidValue, Unusable
from refold.logs import INFO, WARNING, event, logger
from refold.ports import ANYTHING, Heard, Ring
from refold.rings import decoded, encoded, token

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

log = logger("doorbell")

PAUSE = 0.01  # seconds in which rings are gathered
AGAIN = 1  # seconds between two attempts to connect
PATIENCE = 2  # seconds for one attempt, and for a sign of life
LAST = 0.5  # seconds for the last rings of a process that ends
ADDRESS = re.compile(r"(nats|tls)://[^\s/]+/?")


class NatsBell:
    """One thread, with an event loop and a connection of its own; it starts with the first `listen` or `ring`."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url, self.subject = url, f"refold.{token(namespace)}"
        self.sent = self.dropped = 0  # messages
        self._rings: set[Ring] = set()
        self._callbacks: list[Heard] = []
        self._thread: Thread | None = None
        self._loop = asyncio.new_event_loop()
        self._rung, self._stopped = asyncio.Event(), asyncio.Event()
        self._client: Client | None = None

    def ring(self, rings: Collection[Ring]) -> None:
        self._start()
        self._call(self._note, set(rings))

    def listen(self, heard: Heard) -> None:
        self._callbacks.append(heard)
        self._start()

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            self._loop.close()
            return
        self._call(self._stopped.set)
        thread.join(PATIENCE + LAST)

    @property
    def is_connected(self) -> bool:
        return self._client is not None and bool(self._client.is_connected)

    def _start(self) -> None:
        if self._thread is None and not self._loop.is_closed():
            self._thread = Thread(target=self._run, name="refold-nats", daemon=True)
            self._thread.start()

    def _call(self, function: object, *values: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *values)  # type: ignore[arg-type]

    def _note(self, rings: set[Ring]) -> None:
        self._rings |= rings
        self._rung.set()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        serving = [asyncio.create_task(self._connect()), asyncio.create_task(self._send())]
        await self._stopped.wait()
        self._publish()
        for each in serving:
            each.cancel()
        await asyncio.wait(serving)
        if self._client is not None:
            with suppress(Exception):  # the process ends, and the last rings may be lost
                async with asyncio.timeout(LAST):
                    await (self._client.drain() if self.is_connected else self._client.close())

    async def _connect(self) -> None:
        """Stay connected. The client itself connects again after an error; a first attempt that fails is repeated."""
        from nats.aio.client import Client

        told = False
        while True:
            self._client = client = Client()
            try:
                await client.connect(
                    self.url,
                    name="refold",
                    no_echo=True,
                    connect_timeout=PATIENCE,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=AGAIN,
                    ping_interval=PATIENCE,
                    max_outstanding_pings=2,
                    error_cb=self._failed,
                    disconnected_cb=self._disconnected,
                    reconnected_cb=self._reconnected,
                )
                await client.subscribe(f"{self.subject}.>", cb=self._heard)
                await self._reconnected()
                return
            except Exception as error:  # an attempt may fail in any way, and rings are not worth a process
                if not told:
                    why = text_of(error)
                    event(log, WARNING, "NATS does not answer; other processes are asked now and then", why=why)
                told = True
                with suppress(Exception):
                    await client.close()
            await asyncio.sleep(AGAIN)

    async def _send(self) -> None:
        while True:
            await self._rung.wait()
            await asyncio.sleep(PAUSE)
            self._rung.clear()
            self._publish()

    def _publish(self) -> None:
        rings, self._rings = self._rings, set()
        messages = [f"{self.subject}.{kind}.{key}" for kind, key in encoded(rings)]
        if not self.is_connected or self._client is None:
            self.dropped += len(messages)
            return
        sending = [self._client.publish(message) for message in messages]
        self.sent += len(messages)
        for each in sending:
            task = self._loop.create_task(each)
            task.add_done_callback(_forget)

    async def _heard(self, message: "Msg") -> None:
        parts = message.subject.removeprefix(f"{self.subject}.").split(".")
        ring = decoded(*parts) if len(parts) == 2 else None
        if ring is not None:
            self._hear({ring})

    def _hear(self, rings: Collection[Ring]) -> None:
        for callback in self._callbacks:
            callback(rings)

    async def _failed(self, error: Exception) -> None:
        event(log, INFO, "NATS reports an error", why=text_of(error))

    async def _disconnected(self) -> None:
        event(log, WARNING, "the connection to NATS was lost; other processes are asked now and then")

    async def _reconnected(self) -> None:
        self._hear({ANYTHING})  # nothing was heard for a while


def _forget(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()  # a ring that was not sent is dropped


def nats_bell(url: str, namespace: str) -> NatsBell:
    """Raises InvalidValue for an address that is not one of NATS, and Unusable without the package."""
    if ADDRESS.fullmatch(url) is None:
        raise InvalidValue("doorbell", "it is the address of a NATS server: nats://host:4222, or tls://host:4222")
    try:
        import nats  # noqa: F401
    except ImportError as error:
        raise Unusable(f"the doorbell needs the package nats-py ({error}): install refold[nats]") from error
    return NatsBell(url, namespace)
