"""Routes that read runs: the list, one run, its facts, reasons, items, lines and values."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

from msgspec import Struct, json, to_builtins

from refold.core.facts import RunStarted
from refold.core.graph import Graph
from refold.core.outcomes import Instant
from refold.core.plan import WorkerWork, tool_of
from refold.core.read.dead_letters import fingerprint
from refold.core.read.fact_text import fact_text
from refold.core.read.items import STATES, LoopSeen, items_in
from refold.core.read.summary import StepProgress, Summary, progress
from refold.core.read.why import Reason
from refold.core.read.why_text import run_why
from refold.core.state import ISSUED, TERMINAL, RunState
from refold.errors import Corrupt, NotFound
from refold.names import label_flaw
from refold.ports import MOST_SCANNED, RunCursor, RunFilter, RunPage, Views
from refold.queries.history import line_object, record_object
from refold.queries.items import find_loop, item_object, rows_of
from refold.queries.reading import graph_of, with_values
from refold.queries.runs import error_object, error_text, moment, row_object, stamp
from refold.queries.runs import list_runs as all_runs
from refold.queries.why import reason_object, without_values
from refold.server.access import Credential
from refold.server.problems import forbidden, invalid
from refold.server.routes import Answer, Call

MOST = 200  # rows of one part of a list
SCANNED_AT_ONCE = 500  # rows that are read together, where they are looked at one by one
MOST_COUNTED = 10_000
LONGEST_WAIT = 60.0  # seconds of a long poll
INLINE = 64 * 1024  # bytes of a value in an answer; of a larger one there is a reference
PAGE = 1000  # lines or facts that are read at once
MOST_BYTES = 900_000  # of the rows of one answer; there are more then
BEGINNING = 2048  # bytes of a large value that are shown
Status = Literal["running", "waiting", "paused", "ending", "completed", "failed", "cancelled", "continued"]


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    limit: int = 50
    cursor: str = ""

    def checked_limit(self) -> int:
        if not 1 <= self.limit <= MOST:
            raise invalid("?limit", f"{self.limit} is not between 1 and {MOST}")
        return self.limit


class RunsQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    status: tuple[Status, ...] = ()  # one of these
    workflow: str | None = None
    plan: str | None = None
    name: str | None = None
    key: str | None = None
    label: tuple[str, ...] = ()  # name:value, each of them
    since: str | None = None
    until: str | None = None
    parent: str | None = None  # the run that has started it
    error: str = ""  # a part of the message of the error with which it failed
    fingerprint: str | None = None  # of a dead letter: only runs in which something failed for this reason
    schedule: str | None = None  # that has started it
    gates: bool = False  # only runs that wait for a person
    by: Literal["created", "ended"] = "created"  # what `since` and `until` bound
    order: Literal["-created"] = "-created"  # the newest first
    why: bool = False  # each row with one line that says why it waits or failed

    def wanted(self, now: Instant) -> RunFilter:
        """What the store can look for; `keep` says the rest."""
        by_start = self.by == "created"
        return RunFilter(
            status=self.status[0] if len(self.status) == 1 else None,
            workflow=self.workflow,
            name=self.name,
            key=self.key,
            labels=_labels([*self.label, *([f"schedule:{self.schedule}"] if self.schedule else [])]),
            since=moment(self.since, now) if by_start else None,
            until=moment(self.until, now) if by_start else None,
            parent=self.parent,
            error=self.error,
        )

    def keep(self, views: Views, credential: Credential, now: Instant) -> Callable[[Summary], bool] | None:
        """Return what has to be looked at row by row; None: nothing. Call it on a thread for readers."""
        if self.error and not credential.may("values"):
            raise forbidden("values")  # to look for a message is to see it
        failed = None
        if self.fingerprint is not None:
            failed = {letter.run for letter in views.dead(self.fingerprint, 1_000_000)}
        since, until = (moment(text, now) for text in (self.since, self.until))
        by_end = self.by == "ended" and (since is not None or until is not None)
        nothing = len(self.status) < 2 and self.plan is None and not self.gates and failed is None
        if nothing and not by_end and credential.workflows is None:
            return None

        def fits(row: Summary) -> bool:
            ended = not by_end or (
                row.ended_at > 0 and (since or 0) <= row.ended_at and (until is None or row.ended_at < until)
            )
            return (
                credential.sees(row.workflow)
                and (not self.status or row.status in self.status)
                and self.plan in (None, row.plan)
                and (not self.gates or bool(row.gates))
                and (failed is None or row.run in failed)
                and ended
            )

        return fits

    def scope(self) -> str:
        """The list that a cursor belongs to; spans such as 2h count from now, so they are kept as they are written."""
        parts: list[Any] = [
            list(self.status),
            self.workflow,
            self.name,
            self.key,
            sorted(self.label),
            self.since,
            self.until,
        ]
        parts += [self.parent, self.error, self.plan, self.fingerprint, self.schedule, self.gates, self.by]
        return json.encode(parts).decode()


def _labels(pairs: Iterable[str]) -> tuple[tuple[str, str], ...]:
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition(":")
        if not sign:
            raise invalid("?label", f"{pair!r} is not of the form name:value")
        if flaw := label_flaw({name: value}):
            raise invalid("?label", flaw)
        found[name] = value
    return tuple(sorted(found.items()))


class RunQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: int | None = None  # answer as soon as the head is above this number
    wait: float = 0.0  # seconds, at most LONGEST_WAIT


class FactsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: int = 0
    limit: int = 100
    kind: str | None = None
    step: str | None = None
    q: str = ""  # a part of what the fact says in words
    values: Literal["none", "inline"] = "inline"  # none: number, time, kind, step and text, without data

    def fits(self, shown: dict[str, Any]) -> bool:
        return (
            self.kind in (None, shown["type"])
            and self.step in (None, shown.get("step"))
            and self.q.lower() in str(shown.get("text", "")).lower()
        )


class LinesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: int = 0
    before: int | None = None
    limit: int = 100
    q: str = ""
    step: str | None = None
    item: int | None = None
    stream: str | None = None

    def fits(self, line: Any) -> bool:
        if self.step is None and self.item is None and self.stream is None:
            return True
        if not isinstance(line, dict):
            return False
        pairs = (("step", self.step), ("item", self.item), ("stream", self.stream))
        return all(value is None or line.get(name) == value for name, value in pairs)


class ItemsQuery(ListQuery, frozen=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    state: tuple[str, ...] = ()
    begin: int = 0  # the first item
    until: int | None = None  # the item after the last one
    skip: int = 0  # of those that fit, for a list that is scrolled
    q: str = ""  # a part of the key, the value, the result or the error


class ValueQuery(Struct, frozen=True, forbid_unknown_fields=True):
    values: Literal["none", "inline", "text", "download"] = "inline"


def may_see(call: Call, row: Summary) -> None:
    """A credential for some workflows sees no runs of others. Raises NotFound, as for a run that does not exist."""
    if not call.credential.sees(row.workflow):
        raise NotFound(f"there is no run {row.run}")


async def run_row(call: Call) -> Summary:
    row = await call.service.row(call.path["run"])
    may_see(call, row)
    return row


def shown_row(row: Summary, credential: Credential) -> dict[str, Any]:
    return {
        **row_object(row),
        "plan": row.plan,
        "parent": row.parent or None,
        "head": row.seq,
        "gates": len(row.gates),
        "stuck": bool(row.stuck),
        "error": shown_error(error_object(row.error), credential),
    }


def shown_error(error: dict[str, Any] | None, credential: Credential) -> dict[str, Any] | None:
    """Messages of errors may hold values; who may not see values gets kind and place."""
    if error is None or credential.may("values"):
        return error
    return {name: value for name, value in error.items() if name in ("kind", "step", "visit")}


async def list_runs(call: Call) -> Answer:
    query: RunsQuery = call.query
    limit, scope = query.checked_limit(), f"runs:{call.path['ns']}:{query.scope()}"
    after = _place(call.service.cursors.read(query.cursor, scope)) if query.cursor else None
    wanted = query.wanted(call.service.now())
    page = await call.service.read(lambda: page_of_runs(call, query, wanted, after, limit))
    rows = await call.service.read(lambda: list_rows(call, page.rows, query.why))
    more = page.more and page.after is not None
    cursor = call.service.cursors.written(f"{page.after[0]}-{page.after[1]}", scope) if more and page.after else None
    return Answer({"items": rows, "next_cursor": cursor, "more": more}, headers=link_header(call, cursor))


def page_of_runs(call: Call, query: RunsQuery, wanted: RunFilter, after: RunCursor | None, limit: int) -> RunPage:
    """One part of a list. Where rows have to be looked at one by one, at most MOST_SCANNED are; then there are fewer,
    and a cursor."""
    views = call.service.views
    keep = query.keep(views, call.credential, call.service.now())
    if keep is None:
        return views.runs(wanted, after, limit)
    rows: list[Summary] = []
    scanned = 0
    while True:
        page = views.runs(wanted, after, max(limit, SCANNED_AT_ONCE))
        for row in page.rows:
            scanned, after = scanned + 1, (row.created_at, row.run)
            if keep(row):
                rows.append(row)
                if len(rows) == limit:
                    return RunPage(rows, after, True)
        if not page.more or scanned >= MOST_SCANNED:
            return RunPage(rows, after if page.more else None, page.more)
        after = page.after


def list_rows(call: Call, rows: Iterable[Summary], with_why: bool) -> list[dict[str, Any]]:
    seen = [row for row in rows if call.credential.sees(row.workflow)]
    shown = [shown_row(row, call.credential) for row in seen]
    return [each | {"why": row_why(call, row)} for each, row in zip(shown, seen, strict=True)] if with_why else shown


def row_why(call: Call, row: Summary) -> str | None:
    if row.status in TERMINAL:
        return shown_why(row, (), call)
    try:
        graph, state = call.service.folded(row.run)
        reasons = call.service.reasons(row, graph, state)
    except (Corrupt, NotFound) as error:
        if isinstance(error, Corrupt):
            call.service.views.report(error)
        return "its log cannot be read"
    return shown_why(row, reasons, call)


def _place(text: str) -> RunCursor:
    at, _, run = text.partition("-")
    return int(at), run


def link_header(call: Call, cursor: str | None) -> dict[str, str]:
    """RFC 8288: where the next part of a list is."""
    return {"link": f'<?cursor={cursor}>; rel="next"'} if cursor else {}


async def count_runs(call: Call) -> Answer:
    query: RunsQuery = call.query
    wanted = query.wanted(call.service.now())

    def count() -> tuple[int, bool]:
        keep = query.keep(call.service.views, call.credential, call.service.now())
        if keep is None:
            return call.service.views.count(wanted)
        rows = filter(keep, all_runs(call.service.views, wanted))
        number = sum(1 for _ in islice(rows, MOST_COUNTED + 1))
        return min(number, MOST_COUNTED), number > MOST_COUNTED

    number, capped = await call.service.read(count)
    return Answer({"count": number, "capped": capped})


MOST_SUMMED = 5000  # runs of one summary, the newest


class SummaryQuery(RunsQuery, frozen=True, forbid_unknown_fields=True):
    bins: int = 60


async def sum_runs(call: Call) -> Answer:
    """The newest runs that fit, as numbers: by time of start and status, and by workflow."""
    query: SummaryQuery = call.query
    if not 1 <= query.bins <= 400:
        raise invalid("?bins", f"{query.bins} is not between 1 and 400")
    now = call.service.now()
    wanted = query.wanted(now)

    def look() -> list[Summary]:
        found: list[Summary] = []
        after = None
        while len(found) < MOST_SUMMED:
            page = call.service.views.runs(wanted, after, 1000)
            found += (row for row in page.rows if call.credential.sees(row.workflow))
            after = page.after
            if not page.more or after is None:
                break
        return found[:MOST_SUMMED]

    return Answer(_summed(await call.service.read(look), query.bins, now))


def _summed(rows: Sequence[Summary], bins: int, now: Instant) -> dict[str, Any]:
    begin = min((row.created_at for row in rows), default=now)
    width = max((now - begin) // bins + 1, 1)
    parts: list[Counter[str]] = [Counter() for _ in range(bins)]
    for row in rows:
        parts[min(max((row.created_at - begin) // width, 0), bins - 1)][row.status] += 1
    return {
        "count": len(rows),
        "capped": len(rows) == MOST_SUMMED,
        "from": stamp(begin),
        "until": stamp(begin + width * bins),
        "bins": parts,
        "status": Counter(row.status for row in rows),
        "workflow": dict(Counter(row.workflow for row in rows).most_common(50)),
    }


async def show_run(call: Call) -> Answer:
    """The head of a run. With `after` it answers when the head has moved, or when the time is over."""
    query: RunQuery = call.query
    row = await run_row(call)
    if query.after is not None and query.wait > 0 and row.seq <= query.after:
        row = await _moved(call, row, query.after, min(query.wait, LONGEST_WAIT))
    tag = f'"{row.plan[:16]}-{row.seq}"'
    if call.headers.get("if-none-match") == tag:
        return Answer(status=304, headers={"etag": tag})
    return Answer(await call.service.read(partial(run_head, call, row)), headers={"etag": tag})


async def _moved(call: Call, row: Summary, head: int, seconds: float) -> Summary:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    with call.service.changes.listening(row.run) as listener:
        row = await run_row(call)
        while row.seq <= head and not call.service.stopping.is_set():
            left = end - loop.time()
            if left <= 0 or not await listener.wait(min(left, 5.0)):
                if left <= 0:
                    break
                continue
            listener.take()
            row = await run_row(call)
    return row


def run_head(call: Call, row: Summary) -> dict[str, Any]:
    graph, state = call.service.folded(row.run)
    now = call.service.now()
    seen = progress(graph, state, now)
    reasons = call.service.reasons(row, graph, state)
    return {
        **shown_row(row, call.credential),
        "status": seen.status,
        "head": state.seq,
        "why": shown_why(row, reasons, call),
        "steps": [step_object(each, call) for each in seen.rows],
        "reasons": [shown_reason(each, call) for each in reasons],
        "usage": dict(state.usage),
        "may": sorted(actions(call, row, state)),
    }


def step_object(row: StepProgress, call: Call, now: Instant | None = None) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(row)
    found["reason"] = shown_reason(row.reason, call, now) if row.reason is not None else None
    fault = found.pop("fault")
    found["error"] = shown_error(fault, call.credential) if fault is not None else None
    return found


def shown_reason(reason: Reason, call: Call, now: Instant | None = None) -> dict[str, Any]:
    """`now` is the moment at which it is said, which may be one of the past."""
    return reason_object(seen_reason(reason, call.credential), call.service.now() if now is None else now)


def seen_reason(reason: Reason, credential: Credential) -> Reason:
    return reason if credential.may("values") else without_values(reason)


def shown_why(row: Summary, reasons: Sequence[Reason], call: Call) -> str | None:
    """One line: the error of a run that failed, or what an unfinished run waits for."""
    if row.error is not None and row.status in TERMINAL:
        if call.credential.may("values"):
            return error_text(row.error)
        return f"step {row.error.step} failed" if row.error.step else "failed"
    return run_why([seen_reason(each, call.credential) for each in reasons], call.service.now()) or None


def actions(call: Call, row: Summary, state: RunState) -> set[str]:
    """What this credential may do with the run now."""
    if not call.service.is_steering or not call.credential.may("operate"):
        return set()
    if state.life in TERMINAL:
        return {"retry"} if state.life in ("failed", "cancelled") else set()
    return {"cancel", "signal", "migrate", "resume" if state.paused else "pause"}


async def show_facts(call: Call) -> Answer:
    query: FactsQuery = call.query
    row = await run_row(call)
    limit = query.limit
    if not 1 <= limit <= 500:
        raise invalid("?limit", f"{limit} is not between 1 and 500")
    items, last, more = await call.service.read(lambda: _facts(call, row.run, query))
    return Answer({"items": items, "last": last, "more": more})


def _facts(call: Call, run: str, query: FactsQuery) -> tuple[list[dict[str, Any]], int, bool]:
    """Return facts that fit, the number after which to go on, and whether there may be more."""
    found: list[dict[str, Any]] = []
    after, seen, size = query.after, 0, 0
    is_filtered = query.kind is not None or query.step is not None or bool(query.q)
    while seen < SCANNED:
        part = call.service.views.facts(run, after, PAGE if is_filtered else query.limit)
        for record in part:
            shown = fact_object(*record, call.credential)
            after, seen = record[0], seen + 1
            if query.fits(shown):
                found.append(shown if query.values == "inline" else brief_fact(shown))
                size += len(json.encode(found[-1]))
            if len(found) == query.limit or size > MOST_BYTES:
                return found, after, True
        if len(part) < (PAGE if is_filtered else query.limit):
            return found, after, False
    return found, after, True


BRIEF = ("number", "at", "type", "step", "visit", "attempt", "text")


def brief_fact(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in BRIEF if name in shown}


def fact_object(number: int, at: Instant, fact: Any, credential: Credential) -> dict[str, Any]:
    """A fact as data. Who may not see values gets its number, time, kind and step."""
    found = record_object(number, at, fact)
    if not credential.may("values"):
        seen = ("number", "at", "type", "step", "visit", "attempt")
        return {name: found[name] for name in seen if name in found}
    return found | {"text": fact_text(fact, at)}


async def show_why(call: Call) -> Answer:
    row = await run_row(call)

    def look() -> list[dict[str, Any]]:
        graph, state = call.service.folded(row.run)
        found = call.service.reasons(row, graph, state)
        return [shown_reason(each, call) for each in found]

    return Answer({"id": row.run, "status": row.status, "reasons": await call.service.read(look)})


async def show_items(call: Call) -> Answer:
    query: ItemsQuery = call.query
    limit, row, step = query.checked_limit(), await run_row(call), call.path["step"]
    if strange := sorted({*query.state} - {*STATES.values()}):
        raise invalid("?state", f"{strange[0]!r} is not one of {', '.join(STATES.values())}")
    scope = f"items:{row.run}:{step}:{','.join(sorted(query.state))}:{query.begin}:{query.until}:{query.q}"
    first = int(call.service.cursors.read(query.cursor, scope)) if query.cursor else query.skip

    def look() -> tuple[list[dict[str, Any]], int | None, int | None]:
        graph, state = call.service.folded(row.run)
        s, fan = find_loop(graph, state, step)
        loop = LoopSeen(graph.name(s), state, fan, state.steps[s].life == ISSUED)
        until = len(fan.status) if query.until is None else query.until
        chosen = [each for each in items_in(loop, query.state) if query.begin <= each < until]
        if query.q:
            rows, place = _searched(call, loop, chosen, first, limit, query.q)
            return rows, place, None
        rows = [item_object(each) for each in rows_of(call.service.views, loop, chosen[first : first + limit])]
        return rows, first + limit if len(chosen) > first + limit else None, len(chosen)

    if query.q and not call.credential.may("values"):
        raise invalid("?q", "who may not see values cannot search in them")
    rows, place, count = await call.service.read(look)
    if not call.credential.may("values"):
        rows = [{name: each[name] for name in ("item", "status", "tries")} for each in rows]
    cursor = call.service.cursors.written(str(place), scope) if place is not None else None
    answer = {"items": rows, "next_cursor": cursor, "more": cursor is not None, "count": count}
    return Answer(answer, headers=link_header(call, cursor))


def _searched(
    call: Call, loop: LoopSeen, chosen: Sequence[int], first: int, limit: int, text: str
) -> tuple[list[dict[str, Any]], int | None]:
    """Return rows with a text in them, and the place from which to go on; one request looks at so many items only."""
    found: list[dict[str, Any]] = []
    place = first
    for row in rows_of(call.service.views, loop, chosen[first : first + SCANNED]):
        shown = item_object(row)
        place += 1
        if text.lower() in json.encode(shown).decode().lower():
            found.append(shown)
        if len(found) == limit:
            break
    return found, place if place < len(chosen) else None


MOST_GROUPS = 100
EXAMPLES = 5  # items of a group that are named


async def show_failures(call: Call) -> Answer:
    """The failed items of a loop in groups: failures of one kind whose messages differ only in numbers and ids."""
    row, step = await run_row(call), call.path["step"]

    def look() -> dict[str, Any]:
        graph, state = call.service.folded(row.run)
        s, fan = find_loop(graph, state, step)
        loop = LoopSeen(graph.name(s), state, fan, state.steps[s].life == ISSUED)
        work = graph.step(s).work
        tool = tool_of(work) if isinstance(work, WorkerWork) else "child"
        failed = items_in(loop, ("failed",))
        groups: dict[str, dict[str, Any]] = {}
        for each in rows_of(call.service.views, loop, failed[:SCANNED]):
            if each.error is None:
                continue
            group = groups.setdefault(
                fingerprint(tool, each.error),
                {"kind": each.error.kind, "message": each.error.message, "count": 0, "items": []},
            )
            group["count"] += 1
            if len(group["items"]) < EXAMPLES:
                group["items"].append(each.item)
        shown = [{"fingerprint": name, **group} for name, group in groups.items()]
        shown.sort(key=lambda group: -group["count"])
        return {"items": shown[:MOST_GROUPS], "failed": len(failed), "looked_at": min(len(failed), SCANNED)}

    found = await call.service.read(look)
    if not call.credential.may("values"):
        for group in found["items"]:
            del group["message"]
    return Answer(found)


async def show_lines(call: Call) -> Answer:
    query: LinesQuery = call.query
    row = await run_row(call)
    if not 1 <= query.limit <= 1000:
        raise invalid("?limit", f"{query.limit} is not between 1 and 1000")
    if query.before is None:
        found, place = await call.service.read(lambda: _lines_after(call.service.views, row.run, query))
    else:
        found, place = await call.service.read(lambda: _lines_before(call.service.views, row.run, query))
    items = [{"number": number, "line": line_object(line)} for number, line in found]
    return Answer({"items": items, "next": place, "more": place is not None})


NumberedLine = tuple[int, Any]
SCANNED = 20_000  # lines that one request looks at


def _lines_after(views: Views, run: str, query: LinesQuery) -> tuple[list[NumberedLine], int | None]:
    """Return lines from a place on, and the place after which there may be more."""
    found: list[NumberedLine] = []
    after, seen = query.after, 0
    while seen < SCANNED:
        part = views.lines(run, after, query.limit if query.q else min(PAGE, query.limit * 10), query.q)
        for number, line in part:
            after, seen = number, seen + 1
            if query.fits(line):
                found.append((number, line))
                if len(found) == query.limit:
                    return found, after
        if not part:
            return found, None
    return found, after


def _lines_before(views: Views, run: str, query: LinesQuery) -> tuple[list[NumberedLine], int | None]:
    """The same towards the beginning; the lines are in their order."""
    found: list[NumberedLine] = []
    before, seen = query.before, 0
    while seen < SCANNED:
        part = views.last_lines(run, before, min(PAGE, query.limit * 10))
        for number, line in part:
            before, seen = number, seen + 1
            if query.fits(line) and (not query.q or query.q in str(line)):
                found.append((number, line))
                if len(found) == query.limit:
                    return found[::-1], before
        if not part:
            return found[::-1], None
    return found[::-1], before


async def show_children(call: Call) -> Answer:
    row = await run_row(call)

    def look() -> list[Summary]:
        _, state = call.service.folded(row.run)
        found = (call.service.views.summary(child) for child in state.children.values())
        return [each for each in found if each is not None]

    children = await call.service.read(look)
    seen = [each for each in children if call.credential.sees(each.workflow)]
    return Answer({"items": [shown_row(each, call.credential) for each in seen]})


async def show_result(call: Call) -> Answer:
    return await _value(call, lambda state, loaded: loaded.blob(state.blob) if state.blob is not None else state.result)


async def show_input(call: Call) -> Answer:
    row = await run_row(call)

    def look() -> Any:
        for _, _, fact in call.service.views.facts(row.run, 0, 1):
            if isinstance(fact, RunStarted):
                return fact.input
        raise NotFound(f"run {row.run} has no recorded input")

    return value_answer(await call.service.read(look), call.query.values)


async def show_context(call: Call) -> Answer:
    return await _value(call, lambda state, loaded: dict(state.ctx))


async def _value(call: Call, find: Callable[[RunState, Any], Any]) -> Answer:
    row = await run_row(call)

    def look() -> Any:
        _, state = call.service.folded(row.run)
        return with_values(call.service.views, row.run, lambda loaded: find(state, loaded))

    return value_answer(await call.service.read(look), call.query.values)


def value_answer(value: Any, wanted: str) -> Answer:
    """Whether a value is here or is a reference stands outside the value, never in it."""
    data = json.encode(value)
    if wanted == "download":
        headers = {"content-disposition": 'attachment; filename="value.json"', "content-security-policy": "sandbox"}
        return Answer(raw=data, headers=headers)
    return Answer(value_part(value, wanted))


def value_part(value: Any, wanted: str) -> dict[str, Any]:
    data = json.encode(value)
    if wanted == "none" or len(data) > INLINE:
        beginning, hash = data[:BEGINNING].decode(errors="replace"), hashlib.sha256(data).hexdigest()
        return {"ref": {"size": len(data), "hash": hash, "beginning": beginning}}
    return {"text": data.decode()} if wanted == "text" else {"value": value}


async def show_plan(call: Call) -> Answer:
    hash = call.path["hash"]
    data = await call.service.read(lambda: call.service.views.plan(hash))
    if data is None:
        raise NotFound(f"there is no plan {hash}")
    graph: Graph = await call.service.read(lambda: graph_of(call.service.views, hash))
    if not call.credential.sees(graph.plan.name):
        raise NotFound(f"there is no plan {hash}")
    return Answer(to_builtins(graph.plan), headers={"cache-control": "private, max-age=31536000, immutable"})
