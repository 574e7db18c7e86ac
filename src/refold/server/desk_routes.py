"""The routes of remote workers: they read messages, make each call once, and answer with messages."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, json

from refold import __version__
from refold.core.graph import prepare
from refold.core.outcomes import Awaited, Outcome
from refold.errors import LeaseLost, NotFound
from refold.queries.code import open_plans
from refold.queries.reading import stored_plan
from refold.server.answers import Remembering, Reply
from refold.server.desk import Claimed, place
from refold.server.desk_sessions import DeskSession, session_name
from refold.server.problems import HttpProblem, invalid, not_found
from refold.server.routes import Answer, Call
from refold.wire import (
    CALL,
    LONGEST_WAIT,
    MEDIA,
    PROTOCOL,
    SESSION,
    BeatBody,
    Beaten,
    ChildBody,
    ChildSeen,
    ClaimBody,
    ExpectBody,
    HandBackBody,
    HandedBack,
    Hello,
    KeptLease,
    Leases,
    Nothing,
    OpenPlans,
    OpenPlansBody,
    PublishBody,
    Published,
    RecordBody,
    Remembered,
    SettleBody,
    Settled,
    VoucherBody,
    Welcome,
    encoded,
    from_json,
    read_calls,
)

LONGEST_CALL = 100  # characters of the id of a call
MOST_REPORTS = 100  # in one message


def _message(message: Struct) -> Answer:
    return Answer(raw=encoded(message), media=MEDIA)


def _reply(message: Struct) -> Reply:
    return Reply(200, encoded(message))


async def _session(call: Call) -> DeskSession:
    return await call.service.desk.sessions.find(call.headers.get(SESSION, ""), call.credential)


def _call_id(call: Call) -> str:
    id = call.headers.get(CALL, "")
    if not id or len(id) > LONGEST_CALL:
        why = f"send `{CALL.title()}`, the same when it is repeated"
        raise HttpProblem(400, "no_call_id", "The call has no id", why)
    return id


async def _once(call: Call, work: Callable[[Remembering], Awaitable[Reply]]) -> Answer:
    """Make a call once, and give a repetition the same answer."""
    session = call.headers.get(SESSION, "")
    body = call.route.path.encode() + b"\0" + session.encode() + b"\0" + call.content
    reply = await call.service.desk.answers.once((call.credential.id, _call_id(call)), body, work)
    return Answer(raw=reply.data, status=reply.status, media=MEDIA)


async def hello(call: Call) -> Answer:
    """A worker comes, or can take something else from now on."""
    desk, wanted = call.service.desk, call.body
    assert isinstance(wanted, Hello)

    async def greet(_: Remembering) -> Reply:
        current, now = call.headers.get(SESSION, ""), desk.now()
        session = await desk.sessions.open(wanted, call.credential, _call_id(call), current, now)
        await desk.advance(lambda: desk.store.enrol(session.can(desk.alive_for)))
        welcome = Welcome(
            session_name(session), PROTOCOL, desk.lease_for, desk.beat_every, LONGEST_WAIT, now, __version__
        )
        return _reply(welcome)

    return await _once(call, greet)


async def claim(call: Call) -> Answer:
    """Wait for commands, at most 30 seconds."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, ClaimBody)
    began = desk.now()

    async def wait(remembering: Remembering) -> Reply:
        async def has_left() -> bool:
            return not remembering.followers and call.has_left is not None and await call.has_left()

        async def look() -> Claimed:
            return await desk.claim(session, body, began)

        claimed: Claimed = await desk.wait_for(body.wait, look, has_left, 0.0)
        try:
            if claimed.is_new and await has_left():
                await desk.desk.hand_back(claimed.leases[0])
                desk.answers.forget((call.credential.id, _call_id(call)))
                return Reply(204)
        finally:
            if claimed.is_new:
                desk.on_the_way.discard(place(claimed.leases[0]))
        leases = tuple(desk.vouchers.sent(each) for each in claimed.leases)
        return _reply(Leases(leases)) if leases else Reply(204)

    return await _once(call, wait)


async def settle(call: Call) -> Answer:
    """Take reports, and give the next commands with the same commit."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, SettleBody)
    if len(body.reports) > MOST_REPORTS:
        raise invalid("/reports", f"at most {MOST_REPORTS} reports go in one message")

    async def take(_: Remembering) -> Reply:
        then = session.can(desk.alive_for, body.full) if body.claims and not session.stop else None
        found = await asyncio.gather(*(desk.settle(session, each, then) for each in body.reports))
        leases = tuple(desk.vouchers.sent(lease) for _, lease in found if lease is not None)
        return _reply(Settled(tuple(verdict for verdict, _ in found), leases))

    return await _once(call, take)


async def beat(call: Call) -> Answer:
    """Extend all leases of a worker; or wait until one of them is taken away or its run is cancelled."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, BeatBody)
    if body.wait > 0:
        assert call.has_left is not None
        leases, interrupted = await desk.watch(session, body, call.has_left)
        session = await _session(call)
    else:
        leases, interrupted = await desk.beat(session, body)
    kept = tuple(
        KeptLease(
            desk.vouchers.written(each), each.run, each.command.id, each.command.step, each.generation, each.until
        )
        for each in leases
    )
    over = await desk.over(body.runs)
    return _message(Beaten(desk.now(), kept, tuple(sorted(interrupted)), session.stop, over))


async def hand_back(call: Call) -> Answer:
    """Free commands for other workers."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, HandBackBody)

    async def free(_: Remembering) -> Reply:
        back = [await desk.hand_back(session, desk.voucher(session, each), body.lost) for each in body.vouchers]
        return _reply(HandedBack(tuple(back)))

    return await _once(call, free)


async def publish(call: Call) -> Answer:
    """Append lines to the side stream of a run."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, PublishBody)

    async def append(_: Remembering) -> Reply:
        voucher = desk.voucher(session, body.voucher)
        data = await desk.payload(session, voucher.run, body.lines)
        lines: list[Any] = from_json(data, list[Any], "lines")
        return _reply(Published(await desk.advance(lambda: desk.publish(voucher.lease(), body.n, lines))))

    return await _once(call, append)


async def record(call: Call) -> Answer:
    """Record the outcome of a durable call; the first one counts."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, RecordBody)

    async def note(_: Remembering) -> Reply:
        voucher = desk.voucher(session, body.voucher)
        data = await desk.payload(session, voucher.run, body.outcome)
        outcome: Outcome = from_json(data, Outcome, "outcome")
        await desk.desk.record(voucher.lease(), body.key, outcome)
        return _reply(Nothing())

    return await _once(call, note)


async def expect(call: Call) -> Answer:
    """The body of a command waits for durable calls, and keeps running."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, ExpectBody)

    async def note(_: Remembering) -> Reply:
        voucher = desk.voucher(session, body.voucher)
        calls: Sequence[Awaited] = read_calls(await desk.payload(session, voucher.run, body.calls))
        await desk.desk.expect(voucher.lease(), calls)
        return _reply(Nothing())

    return await _once(call, note)


async def wake(call: Call) -> Answer:
    """Let the command of a parked body be claimed again."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, VoucherBody)

    async def free(_: Remembering) -> Reply:
        await desk.desk.wake(desk.voucher(session, body.voucher).lease())
        return _reply(Nothing())

    return await _once(call, free)


async def memory(call: Call) -> Answer:
    """The context of a run and the recorded calls of a command."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, VoucherBody)
    voucher = desk.voucher(session, body.voucher)
    held = await desk.desk.leases_of(session.worker)
    if not any(place(each) == voucher.place for each in held):
        raise LeaseLost(f"{voucher.command} of run {voucher.run} is no longer held")
    return _message(Remembered(json.encode(await desk.desk.recall(voucher.lease()))))


async def put_blob(call: Call) -> Answer:
    """Take a large value before it is named in a report."""
    desk, session, run, hash = call.service.desk, await _session(call), call.path["run"], call.path["hash"]
    if not await desk.may_read(session, run):
        raise not_found("no lease of this run is held")
    if len(hash) != 64 or not hash.isalnum():
        raise invalid("/hash", "the name of a blob is the SHA-256 of its bytes, in hexadecimal digits")
    assert call.chunks is not None
    await desk.take_blob(session, run, hash, call.chunks)
    return Answer(status=201, raw=b"")


async def get_blob(call: Call) -> Answer:
    """A large value of a run."""
    desk, session, run, hash = call.service.desk, await _session(call), call.path["run"], call.path["hash"]
    if not await desk.may_read(session, run):
        raise not_found("no lease of this run is held")
    data: bytes = await desk.read(lambda: desk.store.views.blob(run, hash))
    return Answer(raw=data, media="application/octet-stream", headers={"cache-control": "private, immutable"})


async def get_plan(call: Call) -> Answer:
    """A plan by its hash."""
    desk, hash = call.service.desk, call.path["hash"]
    await _session(call)
    data: bytes | None = await desk.read(lambda: desk.store.views.plan(hash))
    if data is None:
        raise NotFound(f"there is no plan {hash}")
    cached = {"cache-control": "private, max-age=31536000, immutable"}
    return Answer(raw=data, media="application/octet-stream", headers=cached)


async def put_plan(call: Call) -> Answer:
    """Store the plan of a workflow whose code the worker has."""
    desk, hash = call.service.desk, call.path["hash"]
    await _session(call)
    assert call.chunks is not None
    data = b"".join([chunk async for chunk in call.chunks])
    if hashlib.sha256(data).hexdigest() != hash:
        raise invalid("/hash", "the plan is not the one that its name says")
    plan = prepare(stored_plan(hash, data))
    await desk.advance(lambda: desk.store.put_plan(plan.hash, plan.data))
    return Answer(status=201, raw=b"")


async def show_child(call: Call) -> Answer:
    """How far a child run is whose parent the worker executes."""
    desk, session, body = call.service.desk, await _session(call), call.body
    assert isinstance(body, ChildBody)
    row = await desk.read(lambda: desk.store.views.summary(body.run))
    if row is None:
        return _message(ChildSeen(body.run))  # the letter that starts it is not delivered yet
    if not await desk.may_read(session, body.run):
        raise not_found("no lease of its parent is held")
    state = (await desk.advance(lambda: desk.desk.mailroom.turns.look(body.run))).state
    return _message(ChildSeen(body.run, state.started_at, state.ended_at, dict(state.usage)))


async def show_open_plans(call: Call) -> Answer:
    """The plans of unfinished runs of some workflows."""
    desk, body = call.service.desk, call.body
    await _session(call)
    assert isinstance(body, OpenPlansBody)
    plans: Mapping[str, bytes] = await desk.read(
        lambda: open_plans(desk.store.views, body.workflows, body.known, body.newest)
    )
    return _message(OpenPlans(dict(plans)))


async def drain(call: Call) -> Answer:
    """Let a remote worker end: it claims nothing more, and finishes or hands back what it has."""
    worker = call.path["worker"]
    if not await call.service.desk.sessions.ask_to_stop(worker):
        raise NotFound(f"there is no remote worker {worker}; one next to the database is stopped by a signal")
    return Answer({"worker": worker, "stops": True})


async def leave(call: Call) -> Answer:
    """End a session: others get what the worker holds."""
    desk = call.service.desk
    try:
        session = await _session(call)
    except HttpProblem as gone:
        if gone.status == 410:
            return Answer(status=204)
        raise
    await desk.leave(session)
    return Answer(status=204)
