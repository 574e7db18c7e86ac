"""Routes that read runs: the list, one run, its facts, reasons, items, lines and values."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct, json, to_builtins

from refold.core.facts import RunStarted
from refold.core.graph import Graph
from refold.core.outcomes import Instant
from refold.core.read.fact_text import fact_text
from refold.core.read.items import STATES, LoopSeen, items_in
from refold.core.read.summary import StepProgress, Summary, progress
from refold.core.read.why import Reason
from refold.core.read.why_text import run_why
from refold.core.state import ISSUED, TERMINAL, RunState
from refold.errors import Corrupt, NotFound
from refold.names import label_flaw
from refold.ports import RunCursor, RunFilter, Views
from refold.queries.history import line_object, record_object
from refold.queries.items import find_loop, item_object, rows_of
from refold.queries.reading import graph_of, with_values
from refold.queries.runs import error_object, error_text, moment, row_object
from refold.queries.why import reason_object, run_reasons, without_values
from refold.server.access import Credential
from refold.server.problems import invalid
from refold.server.routes import Answer, Call

MOST = 200  # rows of one part of a list
LONGEST_WAIT = 60.0  # seconds of a long poll
INLINE = 64 * 1024  # bytes of a value in an answer; of a larger one there is a reference
PAGE = 1000  # lines that are read at once
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
    status: Status | None = None
    workflow: str | None = None
    name: str | None = None
    key: str | None = None
    label: tuple[str, ...] = ()  # name:value, each of them
    since: str | None = None
    until: str | None = None
    why: bool = False  # each row with one line that says why it waits or failed

    def wanted(self, now: Instant) -> RunFilter:
        return RunFilter(
            status=self.status,
            workflow=self.workflow,
            name=self.name,
            key=self.key,
            labels=_labels(self.label),
            since=moment(self.since, now),
            until=moment(self.until, now),
        )

    def scope(self) -> str:
        """The list that a cursor belongs to; spans such as 2h count from now, so they are kept as they are written."""
        parts = [self.status, self.workflow, self.name, self.key, sorted(self.label), self.since, self.until]
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


class ItemsQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    state: tuple[str, ...] = ()


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
    page = await call.service.read(lambda: call.service.views.runs(wanted, after, limit))
    rows = await call.service.read(lambda: list_rows(call, page.rows, query.why))
    more = page.more and page.after is not None
    cursor = call.service.cursors.written(f"{page.after[0]}-{page.after[1]}", scope) if more and page.after else None
    return Answer({"items": rows, "next_cursor": cursor, "more": more}, headers=link_header(call, cursor))


def list_rows(call: Call, rows: Iterable[Summary], with_why: bool) -> list[dict[str, Any]]:
    seen = [row for row in rows if call.credential.sees(row.workflow)]
    shown = [shown_row(row, call.credential) for row in seen]
    return [each | {"why": row_why(call, row)} for each, row in zip(shown, seen, strict=True)] if with_why else shown


def row_why(call: Call, row: Summary) -> str | None:
    if row.status in TERMINAL:
        return shown_why(row, (), call)
    try:
        graph, state = call.service.folded(row.run)
        reasons = run_reasons(call.service.views, row, graph, state, call.service.now())
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
    number, capped = await call.service.read(lambda: call.service.views.count(wanted))
    return Answer({"count": number, "capped": capped})


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
    reasons = run_reasons(call.service.views, row, graph, state, now)
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
    records = await call.service.read(lambda: call.service.views.facts(row.run, query.after, limit))
    shown = [fact_object(n, at, fact, call.credential) for n, at, fact in records]
    chosen = [each for each in shown if query.kind in (None, each["type"]) and query.step in (None, each.get("step"))]
    return Answer({"items": chosen, "last": records[-1][0] if records else query.after, "more": len(records) == limit})


def fact_object(number: int, at: Instant, fact: Any, credential: Credential) -> dict[str, Any]:
    """A fact as data. Who may not see values gets its number, time, kind and step."""
    found = record_object(number, at, fact)
    if not credential.may("values"):
        seen = ("number", "at", "type", "step", "visit", "attempt")
        return {name: found[name] for name in seen if name in found}
    return found | {"text": fact_text(fact)}


async def show_why(call: Call) -> Answer:
    row = await run_row(call)

    def look() -> list[dict[str, Any]]:
        graph, state = call.service.folded(row.run)
        found = run_reasons(call.service.views, row, graph, state, call.service.now())
        return [shown_reason(each, call) for each in found]

    return Answer({"id": row.run, "status": row.status, "reasons": await call.service.read(look)})


async def show_items(call: Call) -> Answer:
    query: ItemsQuery = call.query
    limit, row, step = query.checked_limit(), await run_row(call), call.path["step"]
    if strange := sorted({*query.state} - {*STATES.values()}):
        raise invalid("?state", f"{strange[0]!r} is not one of {', '.join(STATES.values())}")
    scope = f"items:{row.run}:{step}:{','.join(sorted(query.state))}"
    first = int(call.service.cursors.read(query.cursor, scope)) if query.cursor else 0

    def look() -> tuple[list[dict[str, Any]], int | None]:
        graph, state = call.service.folded(row.run)
        s, fan = find_loop(graph, state, step)
        loop = LoopSeen(graph.name(s), state, fan, state.steps[s].life == ISSUED)
        chosen = items_in(loop, query.state)
        rows = [item_object(each) for each in rows_of(call.service.views, loop, chosen[first : first + limit])]
        return rows, first + limit if len(chosen) > first + limit else None

    rows, place = await call.service.read(look)
    if not call.credential.may("values"):
        rows = [{name: each[name] for name in ("item", "status", "tries")} for each in rows]
    cursor = call.service.cursors.written(str(place), scope) if place is not None else None
    answer = {"items": rows, "next_cursor": cursor, "more": cursor is not None}
    return Answer(answer, headers=link_header(call, cursor))


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
    return Answer({"items": [shown_row(each, call.credential) for each in children]})


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
    if wanted == "none" or len(data) > INLINE:
        beginning, hash = data[:BEGINNING].decode(errors="replace"), hashlib.sha256(data).hexdigest()
        return Answer({"ref": {"size": len(data), "hash": hash, "beginning": beginning}})
    return Answer({"text": data.decode()} if wanted == "text" else {"value": value})


async def show_plan(call: Call) -> Answer:
    hash = call.path["hash"]
    data = await call.service.read(lambda: call.service.views.plan(hash))
    if data is None:
        raise NotFound(f"there is no plan {hash}")
    graph: Graph = await call.service.read(lambda: graph_of(call.service.views, hash))
    return Answer(to_builtins(graph.plan), headers={"cache-control": "private, max-age=31536000, immutable"})
