"""Routes that set the weights of shares, and limits. They count for the runs of all workflows."""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from refold.errors import NotFound
from refold.ports import Limit
from refold.server.problems import HttpProblem
from refold.server.routes import Answer, Call

T = TypeVar("T")


class WeightBody(Struct, frozen=True, forbid_unknown_fields=True):
    share: str
    weight: int | None  # from 1 to 1,000; null: 1, as without this


class LimitBody(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    slots: int | None = None  # how many steps may run at a time
    rate: float | None = None  # how many may start in a second
    burst: float = 1.0  # how many may start at once after a pause


class LimitNameBody(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


async def set_weight(call: Call) -> Answer:
    body: WeightBody = call.body
    await _change(call, lambda: call.service.engine.store.set_weight(body.share, body.weight))
    return Answer(status=204)


async def set_limit(call: Call) -> Answer:
    body: LimitBody = call.body
    limit = Limit(name=body.name, slots=body.slots, rate=body.rate, burst=body.burst)
    await _change(call, lambda: call.service.engine.store.set_limit(limit))
    return Answer(status=204)


async def remove_limit(call: Call) -> Answer:
    name = call.body.name
    if not await _change(call, lambda: call.service.engine.store.remove_limit(name)):
        raise NotFound(f"there is no limit {name!r}")
    return Answer(status=204)


async def _change(call: Call, change: Callable[[], T]) -> T:
    """Change what the next claim goes by, and let workers look. Raises HttpProblem (403)."""
    if call.credential.workflows is not None:
        why = "a share or a limit counts for all workflows, and this credential is limited to some"
        raise HttpProblem(403, "forbidden", "This is not allowed", why)
    engine = call.service.engine
    changed: T = await engine.advance(change)
    engine.mailroom.doorbell.ring()
    return changed
