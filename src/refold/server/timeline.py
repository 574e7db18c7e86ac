"""Routes about the time of a run: its visits as segments, where the time went, and the strip of a loop."""

from itertools import pairwise
from typing import Any

from msgspec import Struct

from refold.core.read.summary import pace
from refold.core.read.timeline import Segment, Timeline, time_spent, timeline, window
from refold.core.state import (
    ISSUED,
    ITEM_CANCELLED,
    ITEM_COMPLETED,
    ITEM_FAILED,
    ITEM_RUNNING,
    ITEM_SKIPPED,
    ITEM_STOPPED,
    FanOut,
)
from refold.core.times import stamp
from refold.errors import InvalidValue, NotFound
from refold.queries.items import find_loop
from refold.queries.runs import moment
from refold.server.problems import invalid
from refold.server.routes import Answer, Call
from refold.server.runs import run_row

PAGE = 10_000  # facts read at once
MOST_LANES = 2000  # visits of one answer
BINS = ("waiting", "running", "completed", "failed", "cancelled", "skipped")
"""The numbers of each bin of a strip, in this order."""


class TimelineQuery(Struct, frozen=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    begin: str | None = None  # a moment; nothing: the start of the run
    until: str | None = None  # a moment; nothing: its end, or now
    width: int = 1200  # dots: segments that are shorter than one are joined


class StripQuery(Struct, frozen=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    begin: int = 0  # the first item
    until: int | None = None  # the item after the last one; nothing: all of them
    bins: int = 400


def _read(call: Call, run: str) -> tuple[Any, Timeline]:
    views = call.service.views
    graph, state = call.service.folded(run)
    running = {graph.name(s) for s, each in enumerate(state.steps) if each.life == ISSUED}
    began = {each.command: each.claimed_at for each in views.leases(run) if each.is_alive}

    def records() -> Any:
        after = 0
        while part := views.facts(run, after, PAGE):
            yield from part
            after = part[-1][0]
            if len(part) < PAGE:
                return

    return graph, timeline(graph, records(), views.now(), began, running)


def segment_object(segment: Segment) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": segment.kind, "from": stamp(segment.begin), "until": stamp(segment.end)}
    found |= {"attempt": segment.attempt} if segment.attempt else {}
    return found | {"open": segment.is_open}


async def show_timeline(call: Call) -> Answer:
    """The visits of a run in a span of time, each with what it waited for and when it worked."""
    query: TimelineQuery = call.query
    row = await run_row(call)
    if not 1 <= query.width <= 10_000:
        raise invalid("?width", f"{query.width} is not between 1 and 10000")

    def look() -> dict[str, Any]:
        now = call.service.now()
        begin, until = (_moment(name, text, now) for name, text in (("from", query.begin), ("until", query.until)))
        _, found = _read(call, row.run)
        begin, until = found.begin if begin is None else begin, found.end + 1 if until is None else until
        if until <= begin:
            raise invalid("?until", "the span ends before it begins")
        lanes = window(found, begin, until, (until - begin) // query.width)
        return {
            "from": stamp(found.begin),
            "until": stamp(found.end),
            "over": found.is_over,
            "paused": [segment_object(each) for each in found.paused],
            "visits": [
                {
                    "step": lane.step,
                    "visit": lane.visit,
                    "from": stamp(lane.begin),
                    "until": stamp(lane.end) if lane.end else None,
                    "failed": lane.failed,
                    "segments": [segment_object(each) for each in lane.segments],
                }
                for lane in lanes[:MOST_LANES]
            ],
            "more": len(lanes) > MOST_LANES,
        }

    return Answer(await call.service.read(look))


def _moment(name: str, text: str | None, now: int) -> int | None:
    try:
        return moment(text, now)
    except InvalidValue as error:
        raise invalid(f"?{name}", str(error).partition(": ")[2]) from None


async def show_time(call: Call) -> Answer:
    """Where the time of a run went: seconds by what it waited for, over all visits and along the critical path."""
    row = await run_row(call)

    def look() -> dict[str, Any]:
        graph, found = _read(call, row.run)
        spent = time_spent(graph, found)
        return {
            "seconds": spent.seconds,
            "by_kind": spent.by_kind,
            "by_step": spent.by_step,
            "critical_path": [{"step": step, "visit": visit} for step, visit in spent.critical_path],
            "critical": spent.critical,
            "slots_would_save": spent.critical.get("slot", 0.0),
        }

    return Answer(await call.service.read(look))


async def show_strip(call: Call) -> Answer:
    """How many items of a loop are in each state, by range of items."""
    query: StripQuery = call.query
    row, step = await run_row(call), call.path["step"]
    if not 1 <= query.bins <= 2000:
        raise invalid("?bins", f"{query.bins} is not between 1 and 2000")

    def look() -> dict[str, Any]:
        graph, state = call.service.folded(row.run)
        s, fan = find_loop(graph, state, step)
        last = fan.count if query.until is None else min(query.until, fan.count)
        if not 0 <= query.begin <= last:
            raise invalid("?from", f"{query.begin} is not between 0 and {last}")
        speed = pace(fan, state.ended_at or call.service.now())
        is_running = state.steps[s].life == ISSUED
        return {
            "step": graph.name(s),
            "visit": fan.visit,
            "count": fan.count,
            "more": speed.more,
            "rate": speed.rate,
            "left": speed.left,
            "states": list(BINS),
            "total": _counts(fan, 0, fan.count, is_running),
            "from": query.begin,
            "until": last,
            "bins": [_counts(fan, *each, is_running) for each in _ranges(query.begin, last, query.bins)],
        }

    return Answer(await call.service.read(look))


def _ranges(first: int, last: int, bins: int) -> list[tuple[int, int]]:
    number = min(bins, last - first)
    cuts = [first + (last - first) * each // number for each in range(number + 1)] if number else []
    return list(pairwise(cuts))


def _counts(fan: FanOut, first: int, last: int, is_running: bool) -> list[int]:
    status = fan.status
    count = {
        each: status.count(each, first, last)
        for each in (ITEM_RUNNING, ITEM_COMPLETED, ITEM_FAILED, ITEM_STOPPED, ITEM_SKIPPED, ITEM_CANCELLED)
    }
    waiting = last - first - sum(count.values())
    cancelled = count[ITEM_STOPPED] + count[ITEM_CANCELLED]
    if not is_running:  # what never began when the loop ended was cancelled
        waiting, cancelled = 0, cancelled + waiting
    return [waiting, count[ITEM_RUNNING], count[ITEM_COMPLETED], count[ITEM_FAILED], cancelled, count[ITEM_SKIPPED]]


async def show_blob(call: Call) -> Answer:
    """A large value of a run by its hash, as JSON to download."""
    row, hash = await run_row(call), call.path["hash"]
    if len(hash) != 64 or not all(each in "0123456789abcdef" for each in hash):
        raise NotFound(f"run {row.run} has no value {hash!r}")
    data = await call.service.read(lambda: call.service.views.blob(row.run, hash))
    headers = {
        "content-disposition": f'attachment; filename="value-{hash[:16]}.json"',
        "content-security-policy": "sandbox",
        "cache-control": "private, max-age=31536000, immutable",
        "etag": f'"{hash[:32]}"',
    }
    return Answer(raw=data, headers=headers)
