"""Facts are encoded once for all streams that send them, and each reader has all of them, wherever it begins."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from refold.core.fold.apply import Record
from refold.server import shared_log
from refold.server.shared_log import SharedLog
from tests.server.conftest import Server


def encode(record: Record) -> bytes:
    return b"%d," % record[0]


async def whole(log: SharedLog, run: str, after: int = 0, part: Callable[[Record], bytes] = encode) -> bytes:
    found = b""
    while True:
        after, piece = await log.after((run, 0, True), after, part)
        if not piece:
            return found
        found += piece


def numbers(first: int, last: int) -> bytes:
    return b"".join(b"%d," % number for number in range(first, last + 1))


@pytest.fixture
async def log(server: Server) -> SharedLog:
    async def read(work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return work()

    return SharedLog(server.service.views, read)


async def test_a_fact_is_encoded_once_for_readers_that_come_together(
    server: Server, client: httpx2.AsyncClient, log: SharedLog
) -> None:
    run = await server.start(client, "many")
    head = (await server.until(client, run, "completed"))["head"]
    encoded = []

    def counted(record: Record) -> bytes:
        encoded.append(record[0])
        return encode(record)

    found = await asyncio.gather(*(whole(log, run, 0, counted) for _ in range(20)))
    assert set(found) == {numbers(1, head)}
    assert encoded == list(range(1, head + 1))


@pytest.mark.parametrize(("kept", "size"), [(3, 10_000), (1000, 5)])
async def test_a_reader_that_is_far_behind_has_every_fact_too(
    server: Server,
    client: httpx2.AsyncClient,
    log: SharedLog,
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
    size: int,
) -> None:
    monkeypatch.setattr(shared_log, "KEPT", kept)
    monkeypatch.setattr(shared_log, "MOST_BYTES", size)
    monkeypatch.setattr(shared_log, "AT_ONCE", 2)
    run = await server.start(client, "many")
    head = (await server.until(client, run, "completed"))["head"]
    for after in (head - 1, 0, head // 2, head, 0, 1, head + 5):
        assert await whole(log, run, after) == numbers(after + 1, head)
    [tail] = log._tails.values()
    assert len(tail.events) <= kept
    assert tail.size == sum(map(len, tail.events))


async def test_what_some_may_not_see_is_kept_apart(server: Server, client: httpx2.AsyncClient, log: SharedLog) -> None:
    run = await server.start(client, "greet")
    await server.until(client, run, "completed")
    _, first = await log.after((run, 0, True), 0, lambda record: b"secret,")
    _, second = await log.after((run, 0, False), 0, lambda record: b"hidden,")
    _, other = await log.after((run, 1, True), 0, lambda record: b"another,")
    assert [each[:6] for each in (first, second, other)] == [b"secret", b"hidden", b"anothe"]
