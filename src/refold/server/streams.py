"""Streams of events: the exact log of a run for programs, and several topics on one stream for a page."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct, json, structs

from refold.core.fold.apply import Record
from refold.core.read.summary import Summary
from refold.errors import NotFound, RefoldError
from refold.logs import WARNING, event, logger
from refold.queries.history import line_object
from refold.queries.runs import stamp
from refold.server.overview import overview
from refold.server.problems import HttpProblem, invalid
from refold.server.requests import read_query
from refold.server.routes import Answer, Call
from refold.server.runs import RunsQuery, fact_object, list_rows, page_of_runs, run_head, run_row
from refold.server.steering import GatesQuery, list_gates
from refold.server.timeline import StripQuery, show_strip

RETRY = 2000  # milliseconds after which a reader that was cut off comes back
SILENCE = 15.0  # seconds after which a comment shows that the stream is alive
CHECKED = 5.0  # seconds between two looks whether the credential still holds
AT_ONCE = 500  # facts or lines in one read
SLOWEST = 0.25  # seconds between two events of a topic whose rows are coalesced
MOST_STREAMS, MOST_OF_ONE = 200, 8
MOST_TOPICS = 64
QUEUED = 256  # events that may wait for a slow reader

log = logger("server")


class LogQuery(Struct, frozen=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    begin: int | None = None  # go on after this fact


class TopicsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    topics: str = "overview"


def written(name: str, data: Any, id: str = "") -> bytes:
    """One event on the wire. JSON has no line breaks, so its data is one line."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: ".encode() + json.encode(data) + b"\n\n"


def opened(call: Call) -> None:
    """Count a stream. Raises HttpProblem if there are too many."""
    streams, who = call.service.streams, call.credential.id
    if sum(streams.values()) >= MOST_STREAMS or streams.get(who, 0) >= MOST_OF_ONE:
        why = f"at most {MOST_OF_ONE} streams of a credential and {MOST_STREAMS} of a server are open at a time"
        raise HttpProblem(429, "too_many_streams", "Too many streams", why, headers={"retry-after": "5"})
    streams[who] = streams.get(who, 0) + 1
    call.service.metrics.streams(sum(streams.values()))


def closed(call: Call) -> None:
    streams, who = call.service.streams, call.credential.id
    streams[who] -= 1
    if not streams[who]:
        del streams[who]
    call.service.metrics.streams(sum(streams.values()))


def hello(call: Call) -> bytes:
    about = {
        "version": call.service.version,
        "now": stamp(call.service.now()),
        "permissions": sorted(call.credential.permissions),
    }
    return f"retry: {RETRY}\n".encode() + written("hello", about)


async def stream_log(call: Call) -> Answer:
    """The facts of a run, each an event whose id is its number; nothing is left out or joined."""
    query: LogQuery = call.query
    row = await run_row(call)
    last = call.headers.get("last-event-id", "")
    if last and not last.isdecimal():
        raise invalid("Last-Event-ID", f"{last!r} is not the number of a fact")
    after = int(last) if last else query.begin or 0
    opened(call)
    return Answer(stream=_counted(call, _facts(call, row, after)))


async def _counted(call: Call, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        yield hello(call)
        async for each in events:
            yield each
    finally:
        closed(call)


async def _facts(call: Call, row: Summary, after: int) -> AsyncIterator[bytes]:
    watch, key = Watch(call), (row.run, row.created_at, call.credential.may("values"))

    def encode(record: Record) -> bytes:
        return written("fact", fact_object(*record, call.credential), str(record[0]))

    with call.service.changes.listening(row.run) as listener:
        while True:
            listener.take()
            while True:
                after, events = await call.service.log.after(key, after, encode)
                if not events:
                    break
                yield events
            while not listener.changed.is_set():
                for sign in await watch.next(listener.wait):
                    yield sign
                if watch.is_over:
                    return


class Watch:
    """Waits for changes, shows meanwhile that the stream is alive, and ends it with the server or the credential."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._spoke = self._checked = self._loop.time()
        self.is_over = False

    async def next(self, wait: Callable[[float], Awaitable[bool]]) -> list[bytes]:
        """Wait for a moment; return what the reader has to get besides."""
        await wait(1.0)
        now = self._loop.time()
        if self._call.service.stopping.is_set():
            self.is_over = True
            return [written("bye", {"again_in": 2})]
        if now - self._checked >= CHECKED - 1:
            self._checked = now
            if not await self._call.service.credentials.is_valid(self._call.credential, self._call.session):
                self.is_over = True
                return [written("revoked", {})]
        if now - self._spoke >= SILENCE:
            self._spoke = now
            return [b": alive\n\n"]
        return []


async def stream_topics(call: Call) -> Answer:
    """Several topics on one stream, each coalesced: what a page shows now, not each step on the way."""
    names = [each for each in call.query.topics.split(",") if each]
    if not 1 <= len(names) <= MOST_TOPICS:
        raise invalid("?topics", f"a stream has between 1 and {MOST_TOPICS} topics")
    topics = [await _topic(call, names[0])] if len(names) == 1 else [await _topic_of_many(call, name) for name in names]
    opened(call)
    return Answer(stream=_counted(call, _multiplexed(call, topics)))


class Topic(Struct):
    """A part of a stream. `look` returns events if something of it has changed; `runs` are those it depends on."""

    name: str
    look: Callable[[], Awaitable[Sequence[tuple[str, Any]]]]
    run: str = ""  # empty: any run
    shown: bytes = b""  # what was sent last


async def _topic_of_many(call: Call, name: str) -> Topic:
    """A run that is gone does not keep the other topics from the reader: its topic says that it is gone."""
    try:
        return await _topic(call, name)
    except NotFound as error:
        return Topic(name, partial(_raise, error))


async def _raise(error: NotFound) -> Sequence[tuple[str, Any]]:
    raise error


async def _topic(call: Call, name: str) -> Topic:
    """Raises HttpProblem for a topic that there is not, NotFound for a run that the credential does not see."""
    kind, _, rest = name.partition(":")
    if kind == "loop" and "/" in rest:
        run, _, step = rest.partition("/")
        strip = structs.replace(call, path={**call.path, "run": run, "step": step}, query=StripQuery())
        await run_row(strip)
        return Topic(name, lambda: _body(strip, "loop", show_strip), run)
    if kind in ("run", "facts", "lines") and rest:
        rest, _, begin = rest.partition("@")
        if begin and not (begin.isdecimal() and kind != "run"):
            raise invalid("?topics", f"{begin!r} is not the number of a fact or line")
        one = _for_run(call, rest)
        await run_row(one)
        after, rows = StreamPosition(int(begin or 0)), ShownRows()
        looks = {
            "run": lambda: _run(one, rows),
            "facts": lambda: _next_facts(one, after),
            "lines": lambda: _lines(one, after),
        }
        if kind == "lines" and not call.credential.may("values"):
            raise HttpProblem(403, "forbidden", "This is not allowed", "the permission `values` is missing")
        return Topic(name, looks[kind], rest)
    base, _, filter = name.partition("?")
    if base == "runs":
        query = read_query(filter.encode().replace(b";", b"&"), RunsQuery) if filter else RunsQuery()
        return Topic(name, lambda: _runs(call, query))
    if name == "overview":
        return Topic(name, lambda: _body(call, "overview", overview))
    if name == "gates":
        gates = _with_query(call, GatesQuery())
        return Topic(name, lambda: _body(gates, "gates", list_gates))
    raise invalid(
        "?topics",
        f"there is no topic {name!r}: overview, runs, gates, run:ID, facts:ID[@N], lines:ID[@N], loop:ID/STEP",
    )


class StreamPosition(Struct):
    """The number of the last fact or line that was sent."""

    number: int = 0


class ShownRows(Struct):
    """The rows of a run that were sent last; None: none were."""

    by_step: dict[str, Any] | None = None


def _for_run(call: Call, run: str) -> Call:
    return structs.replace(call, path={**call.path, "run": run})


def _with_query(call: Call, query: Any) -> Call:
    return structs.replace(call, query=query)


async def _body(call: Call, name: str, handler: Callable[[Call], Awaitable[Answer]]) -> Sequence[tuple[str, Any]]:
    return [(name, (await handler(call)).body)]


async def _run(call: Call, shown: ShownRows) -> Sequence[tuple[str, Any]]:
    """The head of a run. The first event has all rows, each later one those that changed."""
    row = await run_row(call)
    head = await call.service.read(lambda: run_head(call, row))
    before, now = shown.by_step, {each["step"]: each for each in head["steps"]}
    shown.by_step = now
    if before is None or before.keys() != now.keys():
        return [("run", {**head, "all": True})]
    changed = [each for step, each in now.items() if before[step] != each]
    return [("run", {**head, "steps": changed, "all": False})]


async def _runs(call: Call, query: RunsQuery) -> Sequence[tuple[str, Any]]:
    wanted, limit = query.wanted(call.service.now()), query.checked_limit()
    page = await call.service.read(lambda: page_of_runs(call, query, wanted, None, limit))
    return [("runs", {"items": await call.service.read(lambda: list_rows(call, page.rows, query.why))})]


async def _next_facts(call: Call, after: StreamPosition) -> Sequence[tuple[str, Any]]:
    run = call.path["run"]
    records = await call.service.read(lambda: call.service.views.facts(run, after.number, AT_ONCE))
    if not records:
        return []
    after.number = records[-1][0]
    items = [fact_object(number, at, fact, call.credential) for number, at, fact in records]
    return [("facts", {"run": run, "items": items})]


async def _lines(call: Call, after: StreamPosition) -> Sequence[tuple[str, Any]]:
    run = call.path["run"]
    found = await call.service.read(lambda: call.service.views.lines(run, after.number, AT_ONCE))
    if not found:
        return []
    after.number = found[-1][0]
    return [("lines", {"run": run, "items": [{"number": number, "line": line_object(line)} for number, line in found]})]


async def _multiplexed(call: Call, topics: Sequence[Topic]) -> AsyncIterator[bytes]:
    """One task reads the topics, and a bounded queue is between it and the reader: who is too slow gets `reset`."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED)
    reading = asyncio.create_task(_fill(call, topics, queue))
    try:
        while (each := await queue.get()) is not None:
            yield each
        if reading.done() and not reading.cancelled() and reading.exception() is not None:
            raise reading.exception() or AssertionError
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await reading


async def _fill(call: Call, topics: Sequence[Topic], queue: "asyncio.Queue[bytes | None]") -> None:
    watch = Watch(call)
    try:
        with call.service.changes.listening() as listener:
            changed: set[str] | None = None  # None: everything has to be looked at
            while not watch.is_over:
                for topic in topics:
                    if changed is None or not topic.run or topic.run in changed:
                        await _send(topic, queue)
                changed = set()
                while not listener.changed.is_set() and not watch.is_over:
                    for sign in await watch.next(listener.wait):
                        queue.put_nowait(sign)
                if not watch.is_over:
                    await asyncio.sleep(SLOWEST)  # what changes meanwhile is one event
                    changed = set(listener.take())
    except asyncio.QueueFull:
        while not queue.empty():
            queue.get_nowait()
        call.service.metrics.stream_reset()
        queue.put_nowait(written("reset", {"why": "the reader was too slow: fetch again"}))
    finally:
        with suppress(asyncio.QueueFull):
            queue.put_nowait(None)


async def _send(topic: Topic, queue: "asyncio.Queue[bytes | None]") -> None:
    try:
        events = await topic.look()
    except NotFound:
        events = [("gone", {})]
    except RefoldError as error:
        event(log, WARNING, "a topic of a stream could not be read", topic=topic.name, why=str(error))
        return
    for name, data in events:
        sent = written(name, {**data, "topic": topic.name})
        if sent != topic.shown:
            topic.shown = sent
            queue.put_nowait(sent)
