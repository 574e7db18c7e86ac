"""Routes for operations on many runs: count, let go, stop, and look."""

import os
from typing import Any, Literal

from msgspec import structs

from refold.errors import Conflict, InvalidValue, NotFound
from refold.queries.reading import stored_plan
from refold.queries.runs import stamp
from refold.server.operations import (
    EXPIRES,
    FASTEST,
    SHOWN,
    GoBody,
    Operation,
    OperationBody,
    Pinned,
    check_operation,
    chosen_rows,
    counted,
    counted_schedules,
)
from refold.server.routes import Answer, Call
from refold.server.runs import ListQuery, link_header, shown_row


class OutcomesQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    outcome: Literal["waiting", "done", "refused"] | None = None


def operation_object(operation: Operation) -> dict[str, Any]:
    return {
        "id": operation.id,
        "action": operation.action,
        "on": operation.on,
        "by": operation.by,
        "at": stamp(operation.at),
        "state": operation.state,
        "count": operation.count,
        "done": operation.done,
        "refused": operation.refused,
        "waiting": operation.count - operation.done - operation.refused,
        "rate": operation.rate,
        "to": operation.to or None,
        "reason": operation.reason or None,
        "expires_at": stamp(operation.at + EXPIRES) if operation.state == "counted" else None,
    }


async def count_operation(call: Call) -> Answer:
    """Count, pin what was counted, and say what cannot be done with which: nothing is changed before `go`."""
    body: OperationBody = call.body
    check_operation(body)
    views, now = call.service.views, call.service.now()
    if body.to:
        data = await call.service.read(lambda: views.plan(body.to))
        if data is None or not call.credential.sees(stored_plan(body.to, data).name):
            raise NotFound(f"there is no plan {body.to}")
    if body.on == "schedules":
        found = await call.service.read(lambda: counted_schedules(views, body, call.credential))
    else:
        found = await call.service.read(lambda: counted(chosen_rows(views, body, now), body, call.credential))
    allowed = call.credential.workflows
    operation = Operation(
        id=os.urandom(8).hex(),
        action=body.action,
        on=body.on,
        by=call.credential.name,
        at=now,
        count=len(found.pinned),
        to=body.to,
        reason=body.reason,
        workflows=None if allowed is None else tuple(sorted(allowed)),
        changed_at=now,
    )
    await call.service.operations.put(operation, found.pinned)
    shown = {
        **operation_object(operation),
        "first": [shown_row(row, call.credential) for row in found.first] or found.pinned[:SHOWN],
        "cannot": {
            "count": sum(found.why.values()),
            "why": found.why,
            "first": [{"id": id, "why": why} for id, why in found.refused],
        },
    }
    where = f"/api/v1/ns/{call.path['ns']}/operations/{operation.id}"
    return Answer(shown, 201, {"location": where})


async def _own(call: Call) -> Operation:
    """The operation, if the credential may steer everything that its author could. Raises NotFound."""
    operation, _ = await call.service.operations.find(call.path["id"])
    allowed = call.credential.workflows
    if allowed is not None and (operation.workflows is None or not {*operation.workflows} <= allowed):
        raise NotFound(f"there is no operation {operation.id!r}")
    return operation


async def list_operations(call: Call) -> Answer:
    allowed = call.credential.workflows
    found = await call.service.operations.every()
    seen = [each for each in found if allowed is None or (each.workflows is not None and {*each.workflows} <= allowed)]
    return Answer({"items": [operation_object(each) for each in seen]})


async def show_operation(call: Call) -> Answer:
    """How far an operation is, and the outcome of each run."""
    query: OutcomesQuery = call.query
    operation, limit = await _own(call), query.checked_limit()
    scope = f"operation:{operation.id}:{query.outcome}"
    first = int(call.service.cursors.read(query.cursor, scope)) if query.cursor else 0
    rows = [
        {"id": each.id, "outcome": each.outcome or "waiting", "why": _why(each, call) or None}
        for each in await call.service.operations.parts(operation)
        if query.outcome in (None, each.outcome or "waiting")
    ]
    cursor = call.service.cursors.written(str(first + limit), scope) if len(rows) > first + limit else None
    shown = {**operation_object(operation), "items": rows[first : first + limit], "next_cursor": cursor}
    return Answer({**shown, "more": cursor is not None}, headers=link_header(call, cursor))


def _why(pinned: Pinned, call: Call) -> str:
    return pinned.why if call.credential.may("values") or not pinned.why else "refused"


async def go(call: Call) -> Answer:
    """Act on exactly what was counted, at a rate."""
    body: GoBody = call.body
    if not 0 < body.rate <= FASTEST:
        raise InvalidValue("rate", f"{body.rate:g} is not between 0 and {FASTEST:g} in a second")
    await _own(call)

    def begin(operation: Operation) -> Operation:
        if operation.state == "running":
            return structs.replace(operation, rate=body.rate)
        if operation.state == "done":
            raise Conflict(f"operation {operation.id} is done")
        return structs.replace(operation, state="running", rate=body.rate)

    return Answer(operation_object(await call.service.operations.change(call.path["id"], begin)))


async def stop(call: Call) -> Answer:
    """Stop an operation; what it has done stays done. `go` continues it."""
    await _own(call)

    def end(operation: Operation) -> Operation:
        if operation.state == "done":
            raise Conflict(f"operation {operation.id} is done")
        return structs.replace(operation, state="stopped", server="")

    return Answer(operation_object(await call.service.operations.change(call.path["id"], end)))
