"""A database with schedules, and processes that serve it."""

import asyncio
from collections.abc import Callable
from typing import Any

from refold.core.plan import Call, Plan, Step, canonical, plan_hash
from refold.core.read.summary import Summary
from refold.ports import RunFilter, Store, Views
from refold.runtime.schedule_changes import last_times, put_schedule
from refold.schedules.documents import Rules, Schedule, Target, TimeRecord
from refold.schedules.times import When

PLAN = Plan(name="report", language="refold", steps=(Step(name="only", work=Call("note"), input="{{ workload }}"),))


def add(
    store: Store,
    id: str = "often",
    plan: Plan = PLAN,
    input: dict[str, Any] | None = None,
    when: When | None = None,
    **rules: Any,
) -> Schedule:
    store.put_plan(plan_hash(plan), canonical(plan))
    target = Target(workflow="report.yaml", plan=plan_hash(plan), name=plan.name, input=input or {})
    schedule = Schedule(id=id, target=target, when=when or When(every=1), rules=Rules(**rules))
    put_schedule(store, schedule)
    return schedule


def runs(views: Views, id: str = "often") -> list[Summary]:
    return list(views.runs(RunFilter(labels=(("schedule", id),)), limit=1000).rows)


def history(views: Views, schedule: str = "often") -> list[TimeRecord]:
    from refold.runtime.schedule_changes import find_schedule

    return last_times(views, find_schedule(views, schedule), 1000)


async def until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    for _ in range(round(seconds / 0.02)):
        value = holds()
        if value:
            return value
        await asyncio.sleep(0.02)
    raise AssertionError(f"it does not come to hold within {seconds} s")
