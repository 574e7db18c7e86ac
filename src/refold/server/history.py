"""Routes that show a run at any moment, one fact, one item; and those that remove, export and import runs."""

from typing import Any

from msgspec import Struct, json

from refold.core.read.items import LoopSeen
from refold.core.read.summary import Progress, progress
from refold.core.state import ISSUED
from refold.core.times import stamp
from refold.errors import NotFound
from refold.queries.items import find_loop, item_object, rows_of
from refold.queries.runs import error_object
from refold.server.moments import Moments
from refold.server.operations import remove_family
from refold.server.problems import invalid
from refold.server.routes import Answer, Call
from refold.server.runs import MOST_BYTES, brief_fact, fact_object, run_row, shown_error, shown_row, step_object

MOST_FRAMES = 500


class FramesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: int = 0
    limit: int = 100


class ImportBody(Struct, frozen=True, forbid_unknown_fields=True):
    run: dict[str, Any]  # what the export of a run gave


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise NotFound(f"{text!r} is not the number of a fact")
    return int(text)


def rows_object(shown: Progress, call: Call) -> dict[str, Any]:
    return {
        "status": shown.status,
        "head": shown.seq,
        "steps": [step_object(each, call, shown.now) for each in shown.rows],
        "error": shown_error(error_object(shown.error), call.credential),
    }


async def show_moment(call: Call) -> Answer:
    """The rows of a run after a fact, with what that fact changed, and the context for those who may see values."""
    row, number = await run_row(call), _number(call.path["n"])

    def look() -> dict[str, Any]:
        graph, state, (_, at, fact) = call.service.moments.at(row.run, number)
        found = {
            **shown_row(row, call.credential),
            **rows_object(progress(graph, state, at), call),
            "fact": fact_object(number, at, fact, call.credential),
        }
        return found | ({"context": dict(state.ctx)} if call.credential.may("values") else {})

    return Answer(await call.service.read(look), headers={"cache-control": "private, max-age=3600"})


async def show_frames(call: Call) -> Answer:
    query: FramesQuery = call.query
    row = await run_row(call)
    if not 1 <= query.limit <= MOST_FRAMES:
        raise invalid("?limit", f"{query.limit} is not between 1 and {MOST_FRAMES}")
    if query.after < 0:
        raise invalid("?after", f"{query.after} is not the number of a fact")
    moments = call.service.moments
    return Answer(await call.service.read(lambda: frames_object(call, moments, row.run, query)))


def frames_object(call: Call, moments: Moments, run: str, query: FramesQuery) -> dict[str, Any]:
    """Return a keyframe and the frames after it; fewer than asked for if they are large."""
    before, frames = moments.frames(run, query.after, query.limit)
    shown: list[dict[str, Any]] = []
    size, order = 0, None if before is None else [each.step for each in before.rows]
    for frame in frames:
        number, at, fact = frame.record
        rows = {each.step: each for each in frame.shown.rows}
        is_other, order = order != [*rows], [*rows]
        shown.append(
            {
                "number": number,
                "at": stamp(at),
                "status": frame.shown.status,
                "fact": brief_fact(fact_object(number, at, fact, call.credential)),
                "changed": [step_object(rows[step], call, at) for step in frame.changed],
                "order": order if is_other else None,  # of all rows, where it is another one than before
                "error": shown_error(error_object(frame.shown.error), call.credential),
            }
        )
        size += len(json.encode(shown[-1]))
        if size > MOST_BYTES:
            break
    return {"keyframe": None if before is None else rows_object(before, call), "frames": shown}


async def show_fact(call: Call) -> Answer:
    row, number = await run_row(call), _number(call.path["n"])
    records = await call.service.read(lambda: call.service.views.facts(row.run, max(number - 1, 0), 1))
    if not records or records[0][0] != number:
        raise NotFound(f"run {row.run} has no fact {number}")
    return Answer(fact_object(*records[0], call.credential))


async def show_item(call: Call) -> Answer:
    row, number = await run_row(call), _number(call.path["i"])

    def look() -> dict[str, Any]:
        graph, state = call.service.folded(row.run)
        s, fan = find_loop(graph, state, call.path["step"])
        if number >= fan.count:
            raise NotFound(f"the loop {graph.name(s)!r} has {fan.count} items, numbered from 0")
        loop = LoopSeen(graph.name(s), state, fan, state.steps[s].life == ISSUED)
        return item_object(next(iter(rows_of(call.service.views, loop, [number]))))

    found = await call.service.read(look)
    if not call.credential.may("values"):
        found = {name: found[name] for name in ("item", "status", "tries")}
    return Answer(found)


async def show_usage(call: Call) -> Answer:
    row = await run_row(call)

    def look() -> dict[str, Any]:
        _, state = call.service.folded(row.run)
        return {"usage": dict(state.usage), "budget": dict(state.budget)}

    return Answer(await call.service.read(look))


async def delete_run(call: Call) -> Answer:
    """Remove a run that is over, with its child runs, and all that belongs to them."""
    row = await run_row(call)
    await remove_family(call.service.read, call.service.views, call.service.engine, row)
    return Answer(status=204)


async def import_run(call: Call) -> Answer:
    """Take a run from an export. It continues as soon as a worker serves it."""
    run = await call.service.engine.restore(json.encode(call.body.run))
    row = await call.service.row(run)
    return Answer(shown_row(row, call.credential), 201, {"location": f"/api/v1/ns/{call.path['ns']}/runs/{run}"})
