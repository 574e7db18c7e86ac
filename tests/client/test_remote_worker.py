"""A remote worker as a whole: timeouts, cancelled and drained work, a token that ends, a server that goes and comes."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

from refold.client.worker import open_remote_worker
from refold.core.facts import StepSettled
from refold.core.outcomes import TimedOut
from refold.errors import InvalidValue, NotAllowed, Unreachable
from refold.plan import Call, Plan, Step
from refold.ports import ToolCall
from refold.server.process import listen
from refold.server.service import ServerOptions
from tests.client.remote import QUICK, serving, working


class Body:
    """A tool that waits until it is stopped."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.stopped = asyncio.Event()

    async def __call__(self, call: ToolCall) -> Any:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


def plan(**more: Any) -> Plan:
    return Plan(name="p", steps=(Step(name="a", work=Call(tool="body"), **more),))


async def soon(awaited: Any) -> Any:
    return await asyncio.wait_for(awaited, 60)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_step_that_takes_too_long_is_stopped_in_the_worker() -> None:
    body = Body()
    async with serving() as server, working(server, tools={"body": body}):
        handle = await server.engine.start(plan(timeout=0.2))
        assert (await soon(server.engine.wait(handle.id))).status == "failed"
        [fact] = [fact for _, _, fact in await server.engine.history(handle.id) if isinstance(fact, StepSettled)]
        assert fact.report.outcome == TimedOut(0.2)
        await soon(body.stopped.wait())


async def test_a_run_that_is_cancelled_stops_its_body_long_before_the_next_heartbeat() -> None:
    body = Body()
    slow = QUICK.__class__(poll=0.05, sweep_every=0.05, processes=1, lease_for=600.0)  # a heartbeat in 200 s
    async with serving(slow) as server, working(server, tools={"body": body}):
        handle = await server.engine.start(plan())
        await soon(body.began.wait())
        await handle.cancel()
        await soon(body.stopped.wait())


async def test_a_worker_that_is_closed_hands_back_and_is_seen_no_more() -> None:
    first, second = Body(), Body()
    async with serving() as server:
        async with working(server, tools={"body": first}) as remote:
            handle = await server.engine.start(plan())
            await soon(first.began.wait())
            views = server.engine.store.views
            assert [each.can.worker for each in views.workers()] == [remote.desk.worker]
            assert [each.worker for each in views.leases()] == [remote.desk.worker]
        assert list(views.workers()) == [] and list(views.leases()) == []
        async with working(server, tools={"body": second}):
            await soon(second.began.wait())
            await handle.cancel()


async def test_a_worker_that_is_asked_to_end_claims_nothing_more() -> None:
    async with serving() as server, working(server) as remote:
        assert await server.service.desk.sessions.ask_to_stop(remote.desk.worker)
        await soon(remote.until_refused())
        assert remote.desk.is_stopping


async def test_a_worker_whose_token_is_revoked_says_so_and_shows_it_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "refold"):
        async with serving() as server, working(server) as remote:
            [token] = [each for each in await server.service.credentials.tokens() if each.role == "worker"]
            await server.service.credentials.revoke(token.id)
            with pytest.raises(NotAllowed, match="revoked") as refused:
                await soon(remote.until_refused())
    shown = caplog.text + "".join(str(vars(record)) for record in caplog.records if record.name.startswith("refold"))
    assert "rfd_" not in shown + repr(refused.value)


async def test_a_worker_without_a_server_or_with_a_wrong_token_says_what_is_wrong() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 does not answer"):
        async with open_remote_worker("http://127.0.0.1:1", "rfd_12345678_x"):
            raise AssertionError
    async with serving() as server:
        with pytest.raises(NotAllowed, match="not valid"):
            async with open_remote_worker(server.address, "rfd_12345678_" + "x" * 43):
                raise AssertionError
        with pytest.raises(NotAllowed, match="work"):
            async with open_remote_worker(server.address, await server.token("admin")):
                raise AssertionError
    with pytest.raises(InvalidValue, match="REFOLD_TOKEN"):
        async with open_remote_worker("http://127.0.0.1:1", ""):
            raise AssertionError


def test_small_answers_are_sent_at_once() -> None:
    """asyncio waits for the acknowledgement of the client, 40 ms, unless the protocol of the socket says TCP."""
    bound = listen(ServerOptions(port=0))
    try:
        assert bound.proto == socket.IPPROTO_TCP
    finally:
        bound.close()
