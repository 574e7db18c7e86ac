"""The routes of remote workers: what each answers to a worker that is late, wrong, too new, or not allowed."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from msgspec import Struct, msgpack

from refold.core.outcomes import Succeeded
from refold.core.plan import canonical, plan_hash
from refold.plan import Arc, Call, Plan, Step
from refold.ports import Done
from refold.server.table import ROUTES
from refold.wire import (
    BLOB_LIMIT,
    MEDIA,
    BeatBody,
    Beaten,
    ClaimBody,
    HandBackBody,
    HandedBack,
    Hello,
    Leases,
    PublishBody,
    Published,
    SentReport,
    SettleBody,
    Settled,
    VoucherBody,
    Welcome,
    written_done,
)
from tests.client.remote import Serving, serving

DESK = "/api/v1/ns/default/desk/v1"
PLAN = Plan(
    name="p",
    steps=(Step(name="a", work=Call(tool="body"), arcs=(Arc(to="b"),)), Step(name="b", work=Call(tool="body"))),
)
OK = written_done(Done(Succeeded(1)))


class Hand(Struct):
    """A worker by hand: it sends messages, and shows the answers."""

    client: httpx2.AsyncClient
    session: str = ""
    calls: int = 0

    async def raw(self, name: str, body: Struct, call: str = "") -> httpx2.Response:
        self.calls += 1
        headers = {"content-type": MEDIA, "refold-session": self.session, "refold-call": call or f"c{self.calls}"}
        return await self.client.post(f"{DESK}/{name}", content=msgpack.encode(body), headers=headers)

    async def hello(self, worker: str = "worker-hand", number: int = 1, **more: Any) -> httpx2.Response:
        wanted = {"protocols": (1,), "tools": ("body", "other", "workflow:abc"), "slots": 1, "release": "0", **more}
        answer = await self.raw("hello", Hello(worker=worker, number=number, **wanted))
        if answer.status_code == 200:
            self.session = msgpack.decode(answer.content, type=Welcome).session
        return answer

    async def claimed(self, *known: Any, wait: float = 0.0) -> Leases:
        answer = await self.raw("claim", ClaimBody(known, wait=wait))
        return msgpack.decode(answer.content, type=Leases) if answer.status_code == 200 else Leases()

    async def settle(self, voucher: bytes, done: bytes = OK, call: str = "", claims: bool = False) -> Settled:
        answer = await self.raw("settle", SettleBody((SentReport(voucher, done),), claims), call)
        return msgpack.decode(answer.content, type=Settled)


@asynccontextmanager
async def hand(server: Serving, **token: Any) -> AsyncIterator[Hand]:
    headers = {"authorization": f"Bearer {await server.token(**token)}"}
    async with httpx2.AsyncClient(base_url=server.address, headers=headers, trust_env=False, timeout=60) as client:
        yield Hand(client)


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    async with serving() as opened:
        yield opened


@pytest.fixture
async def worker(server: Serving) -> AsyncIterator[Hand]:
    async with hand(server) as opened:
        assert (await opened.hello()).status_code == 200
        yield opened


async def test_a_report_that_comes_again_has_the_same_answer_and_one_that_was_forgotten_is_in_the_log(
    server: Serving, worker: Hand
) -> None:
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await worker.claimed()).leases
    first = await worker.settle(lease.voucher, call="same", claims=True)
    assert [each.kind for each in first.verdicts] == ["ok"]
    assert len(first.leases) == 1
    assert await worker.settle(lease.voucher, call="same", claims=True) == first
    again = await worker.settle(lease.voucher, call="another")
    assert [each.kind for each in again.verdicts] == ["already"]
    assert again.leases == ()


async def test_calls_that_come_at_the_same_time_with_one_id_are_one_call(server: Serving, worker: Hand) -> None:
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await worker.claimed()).leases
    answers = await asyncio.gather(*(worker.settle(lease.voucher, call="same", claims=True) for _ in range(5)))
    assert all(each == answers[0] for each in answers)
    assert answers[0].verdicts[0].kind == "ok"


async def test_an_id_that_was_used_for_something_else_is_refused(server: Serving, worker: Hand) -> None:
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await worker.claimed()).leases
    await worker.settle(lease.voucher, call="same")
    other = SettleBody((SentReport(lease.voucher, written_done(Done(Succeeded(2)))),))
    refused = await worker.raw("settle", other, "same")
    assert (refused.status_code, refused.json()["code"]) == (422, "call_reused")
    assert (await worker.raw("settle", other, "x" * 101)).json()["code"] == "no_call_id"


async def test_a_lost_lease_says_who_holds_it_now(server: Serving, worker: Hand) -> None:
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await worker.claimed()).leases
    back = await worker.raw("hand-back", HandBackBody((lease.voucher,)))
    assert msgpack.decode(back.content, type=HandedBack).is_back == (True,)
    async with hand(server) as other:
        await other.hello("worker-other")
        [taken] = (await other.claimed()).leases
        [verdict] = (await worker.settle(lease.voucher)).verdicts
        assert verdict.kind == "lost"
        assert "worker-other holds it now, under generation 2" in verdict.why
        refused = await worker.raw("publish", PublishBody(lease.voucher, 0, b'["late"]'))
        assert (refused.status_code, refused.json()["code"]) == (409, "lost")
        stolen = await worker.raw("memory", VoucherBody(taken.voucher))
        assert (stolen.status_code, stolen.json()["code"]) == (409, "lost")
        stolen = await worker.raw("settle", SettleBody((SentReport(taken.voucher, OK),)))
        assert (stolen.status_code, stolen.json()["code"]) == (409, "lost")
        assert [each.kind for each in (await other.settle(taken.voucher)).verdicts] == ["ok"]


async def test_a_voucher_that_no_server_has_written_is_refused(server: Serving, worker: Hand) -> None:
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await worker.claimed()).leases
    for wrong in (b"", b"x" * 40, lease.voucher[:-1] + b"\x09", lease.voucher + b"\x00"):
        refused = await worker.raw("publish", PublishBody(wrong, 0, b"[]"))
        assert refused.status_code == 422, refused.text


async def test_a_lease_whose_answer_was_lost_comes_with_the_next_claim(server: Serving, worker: Hand) -> None:
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await worker.claimed()).leases
    [again] = (await worker.claimed()).leases
    assert again.generation == lease.generation
    known = (lease.run, "a/1", lease.generation)
    assert (await worker.claimed(known)).leases == ()


async def test_a_claim_waits_for_work_and_ends_when_its_client_goes(server: Serving, worker: Hand) -> None:
    waiting = asyncio.create_task(worker.claimed(wait=30.0))
    await asyncio.sleep(0.1)
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await asyncio.wait_for(waiting, 20)).leases
    await worker.settle(lease.voucher)
    gone = asyncio.create_task(worker.claimed(wait=30.0))
    [second] = (await asyncio.wait_for(gone, 20)).leases
    await worker.settle(second.voucher)
    left = asyncio.create_task(worker.claimed(wait=30.0))
    await asyncio.sleep(0.1)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    await server.engine.options(run="s").start(PLAN)
    async with asyncio.timeout(30):
        while not (found := (await worker.claimed()).leases):
            await asyncio.sleep(0.02)
    assert found[0].run == "s"


async def test_a_session_that_has_ended_is_gone_and_what_it_held_is_free(server: Serving, worker: Hand) -> None:
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await worker.claimed()).leases
    ended = await worker.client.delete(f"{DESK}/session", headers={"refold-session": worker.session})
    assert ended.status_code == 204
    gone = await worker.raw("beat", BeatBody())
    assert (gone.status_code, gone.json()["code"]) == (410, "session_gone")
    ended_session = worker.session
    await worker.hello(number=2)
    [again] = (await worker.claimed()).leases
    assert again.generation == lease.generation + 1
    worker.session = ended_session
    assert (await worker.raw("beat", BeatBody())).status_code == 410, "of another session of the same worker"


async def test_a_hello_that_comes_late_changes_nothing(server: Serving, worker: Hand) -> None:
    await worker.hello(number=3, tools=("body",))
    session = worker.session
    late = await worker.hello(number=2, tools=())
    assert (late.status_code, worker.session) == (200, session)
    await server.engine.options(run="r").start(PLAN)
    assert len((await worker.claimed()).leases) == 1


async def test_a_name_belongs_to_the_token_that_has_it(server: Serving, worker: Hand) -> None:
    async with hand(server) as other:
        taken = await other.hello()
        assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
        other.session = worker.session
        assert (await other.raw("beat", BeatBody())).status_code == 410
        for wrong in ("hand", "worker-" + "x" * 100, "worker-a/b"):
            assert (await other.hello(wrong)).status_code == 422


async def test_another_protocol_is_told_which_release_is_needed(server: Serving) -> None:
    async with hand(server) as opened:
        refused = await opened.hello(protocols=(7, 8))
        assert (refused.status_code, refused.json()["code"]) == (426, "other_protocol")
        assert "0.1.0" in refused.json()["detail"]


async def test_a_token_decides_which_queues_and_tools_its_worker_gets(server: Serving) -> None:
    queued = Plan(name="q", steps=(Step(name="a", work=Call(tool="other"), queue="big"),))
    coded = Plan(name="c", steps=(Step(name="a", work=Call(tool="workflow:abc"), queue="big"),))
    async with hand(server, queues=("big",), tools=("body", "workflow")) as opened:
        await opened.hello()
        for run, plan in (("p", PLAN), ("q", queued), ("c", coded)):
            await server.engine.options(run=run).start(plan)
        assert [lease.run for lease in (await opened.claimed()).leases] == ["c"]
        refused = await opened.hello(number=2, queues=("small",))
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("role", ["viewer", "operator", "author", "approver", "admin"])
async def test_only_the_role_worker_may_work(server: Serving, role: str) -> None:
    async with hand(server, role=role) as opened:
        assert (await opened.hello()).status_code == 403


async def test_a_revoked_token_ends_with_the_next_call(server: Serving) -> None:
    async with hand(server) as opened:
        await opened.hello()
        [token] = [each for each in await server.service.credentials.tokens() if each.role == "worker"]
        await server.service.credentials.revoke(token.id)
        assert (await opened.raw("beat", BeatBody())).status_code == 401


async def test_lines_that_come_again_or_late_are_not_shown_twice(server: Serving, worker: Hand) -> None:
    await server.engine.options(run="r").start(PLAN)
    [lease] = (await worker.claimed()).leases
    counts = []
    for start, lines in ((0, b'["a","b"]'), (2, b'["c"]'), (0, b'["a","b"]'), (2, b'["c"]'), (3, b'["d"]')):
        answer = await worker.raw("publish", PublishBody(lease.voucher, start, lines))
        counts.append(msgpack.decode(answer.content, type=Published).n)
    assert counts == [2, 3, 3, 3, 4]
    assert [line for _, line in server.engine.store.views.lines("r")] == ["a", "b", "c", "d"]


async def test_a_blob_is_checked_against_its_name_and_belongs_to_runs_that_are_held(
    server: Serving, worker: Hand
) -> None:
    await server.engine.options(run="r").start(PLAN)
    await worker.claimed()
    data = b'"' + b"x" * 2_000_000 + b'"'
    name, headers = hashlib.sha256(data).hexdigest(), {"refold-session": worker.session}
    assert (await worker.client.put(f"{DESK}/blobs/r/{name}", content=data, headers=headers)).status_code == 201
    assert (await worker.client.put(f"{DESK}/blobs/r/{'0' * 64}", content=data, headers=headers)).status_code == 422
    assert (await worker.client.put(f"{DESK}/blobs/s/{name}", content=data, headers=headers)).status_code == 404
    assert (await worker.client.get(f"{DESK}/blobs/r/{name}", headers=headers)).status_code == 404
    kept = server.engine.store.views.documents("desk-blob")
    assert {each.id.split("/")[2] for each in kept} == {name}


async def refusal(server: Serving, head: list[str], size: int = 0) -> bytes:
    """What the server answers when so much of a body has come that does not end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.rpartition(":")[2]))
    try:
        writer.write("\r\n".join([*head, f"Host: {server.address[7:]}", "", ""]).encode())
        for _ in range(0, size, 0x10000):
            writer.write(b"10000\r\n" + b"\xc1" * 0x10000 + b"\r\n")  # a byte that msgpack never has
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    finally:
        writer.close()


async def test_a_plan_is_checked_against_its_name(server: Serving, worker: Hand) -> None:
    for name, status in ((plan_hash(PLAN), 201), ("0" * 64, 422)):
        headers = {"refold-session": worker.session, "content-type": "application/octet-stream"}
        sent = await worker.client.put(f"{DESK}/plans/{name}", content=canonical(PLAN), headers=headers)
        assert sent.status_code == status, sent.text


async def test_a_body_above_its_limit_is_refused_before_it_is_parsed(server: Serving, worker: Hand) -> None:
    await server.engine.options(run="r").start(PLAN)
    await worker.claimed()
    token = worker.client.headers["authorization"]
    routes = [route for route in ROUTES if route.need == "work" and (route.body is not None or route.takes == "bytes")]
    assert len(routes) == 14
    for route in routes:
        path = route.path.format(ns="default", run="r", hash="0" * 64)
        head = [f"{route.method} {path} HTTP/1.1", f"Authorization: {token}", f"Content-Type: {MEDIA}"]
        head += [f"Refold-Session: {worker.session}", "Refold-Call: c"]
        declared = await refusal(server, [*head, f"Content-Length: {route.limit + 1}"])
        assert declared.startswith(b"HTTP/1.1 413"), (route.name, declared)
        if route.limit < BLOB_LIMIT:
            streamed = await refusal(server, [*head, "Transfer-Encoding: chunked"], route.limit + 1)
            assert streamed.startswith(b"HTTP/1.1 413"), (route.name, streamed)


async def test_what_is_no_message_is_refused_and_names_what_is_wrong(server: Serving, worker: Hand) -> None:
    headers = {"content-type": MEDIA, "refold-session": worker.session, "refold-call": "c"}
    for body in (b"\xc1", msgpack.encode({"known": 1}), msgpack.encode([]), b"\x91" * 100_000):
        answer = await worker.client.post(f"{DESK}/claim", content=body, headers=headers)
        assert answer.status_code == 422, (body[:10], answer.text)
    answer = await worker.client.post(f"{DESK}/claim", json={}, headers={**headers, "content-type": "application/json"})
    assert answer.status_code == 415


async def test_workers_are_listed_with_what_they_have_told_and_whether_they_drain(
    server: Serving, worker: Hand
) -> None:
    await worker.raw("beat", BeatBody())
    await worker.claimed()
    headers = {"authorization": f"Bearer {await server.token('admin')}"}
    async with httpx2.AsyncClient(base_url=server.address, headers=headers, trust_env=False, timeout=60) as client:

        async def shown() -> dict[str, Any]:
            items = (await client.get("/api/v1/ns/default/workers")).json()["items"]
            return {each["worker"]: each for each in items}

        before = (await shown())["worker-hand"]
        assert (before["is_remote"], before["draining"], before["slots"], before["version"]) == (True, False, 1, "0")
        drained = await client.post("/api/v1/ns/default/workers/worker-hand/drain", json={})
        assert drained.status_code == 200, drained.text
        assert (await shown())["worker-hand"]["draining"]


async def test_a_worker_can_be_asked_to_end(server: Serving, worker: Hand) -> None:
    assert await server.service.desk.sessions.ask_to_stop("worker-hand")
    answer = await worker.raw("beat", BeatBody())
    assert msgpack.decode(answer.content, type=Beaten).stop
    await server.engine.options(run="r").start(PLAN)
    assert (await worker.claimed()).leases == ()


async def test_the_calls_of_a_worker_are_not_audited_one_by_one_and_show_no_token(
    server: Serving, worker: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await worker.raw("beat", BeatBody())
        await worker.claimed()
        await worker.raw("settle", SettleBody((SentReport(b"no voucher", OK),)))
    shown = caplog.text + "".join(str(vars(record)) for record in caplog.records if record.name.startswith("refold"))
    assert "rfd_" not in shown and worker.client.headers["authorization"] not in shown


async def test_nothing_of_a_worker_is_left_when_it_is_old(server: Serving, worker: Hand) -> None:
    desk = server.service.desk
    await desk.documents.put("desk-lines", "r/a", b"{}", 0, desk.now() - 1)
    await desk.tidy()
    assert server.engine.store.views.document("desk-lines", "r/a") is None
    assert (await worker.raw("beat", BeatBody())).status_code == 200
