"""`ctx.map`: a step or a workflow for each of many items, as a run of its own; a plain function as durable calls."""

import asyncio
from collections.abc import Callable
from math import ceil, floor
from typing import Any

from refold.authoring.workflows import mapping
from refold.authoring.workflows.definition import Definition, is_workflow
from refold.authoring.workflows.exact import Exact
from refold.authoring.workflows.mapped import Mapped
from refold.authoring.workflows.mapping import Each
from refold.core.fanout import ITEMS_FAILED, share
from refold.core.outcomes import Awaited, Fault
from refold.core.plan import STOP, Plan, Step
from refold.errors import ChildFailed, InvalidValue
from refold.worker.children import result_of
from refold.worker.tries import Try

OneCall = Callable[[int, Any], Any]
"""A durable call for the item of this number."""


class Mapping:
    """Of one try of a body."""

    def __init__(self, tried: Try) -> None:
        self._try = tried

    async def over(self, work: Any, items: Any, how: Each) -> Mapped:
        """For a step of the workflow, or for a workflow; the body waits as it waits for a child run."""
        source = mapping.source_of(items)
        loop = mapping.looped(how, source)
        step = None if is_workflow(work) or isinstance(work, Plan) else self.step_of(work)
        definition = self._try.definition
        if step is not None:
            plan, exact = mapping.of_step(definition, step, loop), definition.exact
        else:
            child, exact = await self._child(work)
            name = work.name if isinstance(work, Plan) else getattr(work, "__name__", "workflow")
            plan = mapping.of_workflow(f"{definition.plan.name}.{name}", child, loop)
        plan = mapping.with_policies(plan, how)
        if source is not None:
            put: dict[str, Any] = {"source": {name: each for name, each in source.items() if name != "kind"}}
        else:
            listed = enumerate(await mapping.drained(items))
            put = {"items": [mapping.item_of(each, self._put(step, exact, n, each), how) for n, each in listed]}
        hash = await self._try.house.register(plan)
        key = self._try.calls.key("map", [hash, put], how.get("key"))
        outcome = await self._try.calls.outcome(Awaited(key, child=hash, input=put, want=plan.steps[0].name))
        value = result_of(outcome, key, None)
        read = self._events if step is not None else exact.get
        return Mapped([None if each is None else read(each) for each in value["results"]], value["items"])

    def step_of(self, work: Any) -> Step | None:
        """The step whose body this function is."""
        definition = self._try.definition
        name = next((name for name, body in definition.bodies.items() if body.function == work), None)
        return None if name is None else definition.step(name)

    async def _child(self, work: Any) -> tuple[str, Exact]:
        if isinstance(work, Plan):
            return await self._try.house.register(work), self._try.definition.exact
        child: Definition = await self._try.house.adopt(work)
        return child.hash, child.exact

    def _put(self, step: Step | None, exact: Exact, number: int, item: Any) -> dict[str, Any]:
        if step is not None:
            type, data = self._try.definition.sent(item, f"item {number}")
            if type not in step.accepts:
                raise InvalidValue(f"item {number}", f"step {step.name!r} takes {', '.join(step.accepts)}, not {type}")
            return {"type": type, "data": data}
        if not isinstance(item, dict):
            raise InvalidValue(f"item {number}", f"a run has inputs by name; a {type_name(item)} is no map of them")
        return {"data": {name: exact.put(each, f"item {number}.{name}") for name, each in item.items()}}

    def _events(self, told: dict[str, Any]) -> Any:
        """What the step gave for one item: an event, several, or nothing; of a StopEvent what it holds."""
        found = [self._event(each["type"], each["data"]) for each in told["events"]]
        return found[0] if len(found) == 1 else found or None

    def _event(self, type: str, data: Any) -> Any:
        definition = self._try.definition
        return definition.exact.get(data["result"]) if type == STOP else definition.received(type, data)


def type_name(value: Any) -> str:
    return type(value).__name__


async def by_calls(call: OneCall, items: Any, how: Each) -> Mapped:
    """A plain function: durable calls of the body itself, which stays where it is meanwhile."""
    if "after" in how or mapping.source_of(items) is not None:
        raise InvalidValue("map", "a plain function takes no order and no source: map a step or a workflow")
    listed = await mapping.drained(items)
    room, halts = asyncio.Semaphore(how.get("max_in_flight", 16)), how.get("on_item_error") == "halt"

    async def one(number: int, item: Any) -> dict[str, Any]:
        async with room:
            try:
                return {"status": "completed", "result": await call(number, item), "error": None}
            except Exception as error:
                if halts or not ("tolerate" in how or "min_success" in how):
                    raise
                return {"status": "failed", "result": None, "error": repr(error)}

    tasks = [asyncio.ensure_future(one(number, item)) for number, item in enumerate(listed)]
    try:
        told = list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    done = sum(each["status"] == "completed" for each in told)
    _judge(len(told), done, how)
    return Mapped([each["result"] for each in told], told)


def _judge(count: int, done: int, how: Each) -> None:
    allowed = share(how["tolerate"], count, floor) if "tolerate" in how else count
    wanted = share(how["min_success"], count, ceil) if "min_success" in how else 0
    if count - done > allowed or done < wanted:
        raise ChildFailed(Fault(ITEMS_FAILED, f"{count - done} of {count} items failed"))
