"""A fan-out that a body asks for, as a plan: one step that loops over the items, for a step or another workflow."""

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from math import ceil, floor
from typing import Any, TypedDict

from msgspec import structs

from refold.core import plan as data
from refold.core.fold.fanout import ITEMS_FAILED, share
from refold.core.outcomes import Awaited, Fault
from refold.core.plan import BODY, STOP, Loop, Plan, Step
from refold.core.times import seconds
from refold.errors import ChildFailed, InvalidValue
from refold.python.body_call import BodyCall
from refold.python.call_records import unnumbered
from refold.python.children import result_of
from refold.python.definition import Definition, is_workflow
from refold.python.durable_calls import CallOptions
from refold.python.startable import is_playbook
from refold.python.values import Mapped, ValueCodec
from refold.python.workflow import checked_retry

ON = "on"  # the setting that tells a body which exceptions its policy names, if that is not the policy of its step
FAILURES: Mapping[str, Any] = {"continue": "all", "skip_dependents": "all", "halt": "halt"}


class MapOptions(TypedDict, total=False):
    """How items are mapped. `item_key` and `after` are functions of an item, or fields of it; with a source they are
    templates such as `"{{ item.id }}"`."""

    max_in_flight: int
    item_key: str | Callable[[Any], Any]
    after: str | Callable[[Any], Any]
    on_cycle: str
    on_item_error: str
    tolerate: int | str
    min_success: int | str
    page: int


def check(how: MapOptions) -> None:
    unknown = how.keys() - MapOptions.__annotations__.keys()
    if unknown:
        known, names = ", ".join(MapOptions.__annotations__), ", ".join(sorted(unknown))
        apart = "; `key`, `retry` and `timeout` are given to ctx.options"
        raise InvalidValue("map", f"there is no option {names}; there are {known}{apart}")
    if how.get("on_item_error", "continue") not in FAILURES:
        raise InvalidValue("on_item_error", f"{how['on_item_error']!r} is none of {', '.join(FAILURES)}")
    if how.get("max_in_flight", 1) < 1:
        raise InvalidValue("max_in_flight", f"{how['max_in_flight']!r} is too few; at least 1 item runs at once")
    if "after" in how and "item_key" not in how:
        raise InvalidValue("after", "items that wait for others need an `item_key`, by which they are known")


def source_of(items: Any) -> dict[str, Any] | None:
    """Return a source as data, from a map with its `kind` or an importable generator function; else None."""
    if isinstance(items, Mapping) and "kind" in items:
        return dict(items)
    if not (inspect.isgeneratorfunction(items) or inspect.isasyncgenfunction(items)):
        return None
    if "<locals>" in items.__qualname__ or items.__module__ == "__main__":
        where = f"{items.__module__}.{items.__qualname__}"
        raise InvalidValue("items", f"{where} cannot be imported by another process: write it in a module")
    return {"kind": "python", "function": f"{items.__module__}:{items.__qualname__}"}


async def all_items(items: Any) -> list[Any]:
    if isinstance(items, AsyncIterable):
        return [each async for each in items]
    if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
        raise InvalidValue("items", f"a {type(items).__name__} is not a list, iterator or source of items")
    return list(items)


def loop_of(how: MapOptions, source: Mapping[str, Any] | None) -> Loop:
    """Return the loop of a fan-out.

    Items of a list are maps with `data`, and with `key` and `after` if there are such options.
    """
    named, ordered = "item_key" in how, "after" in how
    return Loop(
        items=None if source is not None else "{{ workload.items }}",
        max_in_flight=how.get("max_in_flight", 16),
        on_item_error=FAILURES[how.get("on_item_error", "continue")],
        key=None if not named else how.get("item_key") if source is not None else "{{ item.key }}",
        after=None if not ordered else how.get("after") if source is not None else "{{ item.after }}",
        on_cycle="drop" if how.get("on_cycle") == "drop" else "fail",
        tolerate=how.get("tolerate"),
        min_success=how.get("min_success"),
        source=None
        if source is None
        else data.Source(kind=source["kind"], settings="{{ workload.source }}", page=how.get("page", 500)),
    )


def item_data(item: Any, put: Any, how: MapOptions) -> dict[str, Any]:
    """Return an item of a list in the form that the plan reads."""
    named = {"key": _of(how["item_key"], item)} if "item_key" in how else {}
    return {**put, **named, **({"after": _of(how["after"], item)} if "after" in how else {})}


def _of(field: str | Callable[[Any], Any], item: Any) -> Any:
    if callable(field):
        return field(item)
    return item[field] if isinstance(item, Mapping) else getattr(item, field)


def plan_of_step(definition: Definition, step: Step, loop: Loop) -> Plan:
    """Return a plan whose items are events for a step of the workflow; any process that has the code runs them."""
    named = "{{ item.type }}" if loop.source is None else step.accepts[0]
    value = "{{ item.data }}" if loop.source is None else "{{ item }}"
    made = structs.replace(
        step,
        work=data.Call(tool=f"{BODY}:{definition.hash}"),
        input={"events": [{"type": named, "data": value}]},
        loop=loop,
        accepts=(),
        collect=None,
        workers=0,
        on_error="",
    )
    return Plan(name=f"{definition.plan.name}.{step.name}", steps=(made,), language="refold")


def plan_of_workflow(name: str, plan: str, loop: Loop) -> Plan:
    """Return a plan that runs a workflow once for each item."""
    value = "{{ item.data }}" if loop.source is None else "{{ item }}"
    step = Step(name="each", work=data.Child(plan=plan), input=value, loop=loop)
    return Plan(name=name, steps=(step,), language="refold")


def with_policies(plan: Plan, options: CallOptions) -> Plan:
    """The plan with the retry and the timeout of the call in place of those of the step."""
    (step,) = plan.steps
    retry = checked_retry(options.retry, "ctx.map") or step.retry
    timeout = seconds(options.timeout) if options.timeout is not None else step.timeout
    work = step.work
    if isinstance(work, data.Call) and retry.on:
        work = structs.replace(work, settings={ON: list(retry.on)})
    return structs.replace(plan, steps=(structs.replace(step, work=work, retry=retry, timeout=timeout),))


OneCall = Callable[[int, Any], Any]
"""A durable call for the item of this number."""


class FanOutCall:
    """A fan-out of one try of a body."""

    def __init__(self, body_call: BodyCall, options: CallOptions) -> None:
        self._body_call, self._options = body_call, options

    async def over(self, work: Any, items: Any, how: MapOptions) -> Mapped[Any]:
        """Run a step or a workflow for each item; the body is suspended until all items have ended."""
        source = source_of(items)
        loop = loop_of(how, source)
        is_plan = isinstance(work, Plan) or is_playbook(work)
        step = None if is_plan or is_workflow(work) else self.step_of(work)
        definition = self._body_call.definition
        if step is not None:
            plan, codec = plan_of_step(definition, step, loop), definition.codec
        else:
            child, codec = await self._child(work)
            name = work.name if isinstance(work, Plan) else getattr(work, "__name__", "workflow")
            name = work.plan.name if is_playbook(work) else name
            plan = plan_of_workflow(f"{definition.plan.name}.{name}", child, loop)
            if not is_plan and source is None and not self._body_call.calls.records.by_former_rule:
                plan = structs.replace(plan, typed=True)
        plan = with_policies(plan, self._options)
        if source is not None:
            put: dict[str, Any] = {"source": {name: each for name, each in source.items() if name != "kind"}}
        else:
            listed = enumerate(await all_items(items))
            put = {"items": [item_data(each, self._put(step, codec, n, each), how) for n, each in listed]}
        with unnumbered():
            hash = await self._body_call.services.register(plan)
        records, given = self._body_call.calls.asked(), self._options.key
        key = records.named("map", given) if given is not None else records.child("map", plan.name, hash, put)
        outcome = await self._body_call.calls.outcome(Awaited(key, child=hash, input=put, want=plan.steps[0].name))
        value = result_of(outcome, key, None)
        read = self._events if step is not None else codec.get
        return Mapped([None if each is None else read(each) for each in value["results"]], value["items"])

    def step_of(self, work: Any) -> Step | None:
        """Return the step whose body is this function, or None."""
        definition = self._body_call.definition
        name = next((name for name, body in definition.bodies.items() if body.function == work), None)
        return None if name is None else definition.step(name)

    async def _child(self, work: Any) -> tuple[str, ValueCodec]:
        with unnumbered():
            if isinstance(work, Plan) or is_playbook(work):
                return await self._body_call.services.register(work), self._body_call.definition.codec
            child: Definition = await self._body_call.services.adopt(work)
            if self._body_call.calls.records.by_former_rule:  # the plan of the items was recorded with that hash
                return await self._body_call.services.register(child.former.plan), child.codec
        return child.hash, child.codec

    def _put(self, step: Step | None, codec: ValueCodec, number: int, item: Any) -> dict[str, Any]:
        if step is not None:
            type, data = self._body_call.definition.sent(item, f"item {number}")
            if type not in step.accepts:
                raise InvalidValue(f"item {number}", f"step {step.name!r} takes {', '.join(step.accepts)}, not {type}")
            return {"type": type, "data": data}
        if not isinstance(item, dict):
            raise InvalidValue(f"item {number}", f"a run has inputs by name; a {type_of(item)} is not a map of them")
        return {"data": {name: codec.put(each, f"item {number}.{name}") for name, each in item.items()}}

    def _events(self, told: dict[str, Any]) -> Any:
        """Return the result of one item: an event, a list of events, or None; of a StopEvent its result."""
        found = [self._event(each["type"], each["data"]) for each in told["events"]]
        return found[0] if len(found) == 1 else found or None

    def _event(self, type: str, data: Any) -> Any:
        definition = self._body_call.definition
        return definition.codec.get(data["result"]) if type == STOP else definition.received(type, data)


def type_of(value: Any) -> str:
    return type(value).__name__


async def by_calls(call: OneCall, items: Any, how: MapOptions) -> Mapped[Any]:
    """Call a plain function for each item, as durable calls of the body itself, which keeps running meanwhile."""
    if "after" in how or source_of(items) is not None:
        raise InvalidValue("map", "a plain function takes no order and no source: map a step or a workflow")
    listed = await all_items(items)
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
        await asyncio.gather(*tasks, return_exceptions=True)  # the first error is raised; the others were stopped
        raise
    done = sum(each["status"] == "completed" for each in told)
    _judge(len(told), done, how)
    return Mapped([each["result"] for each in told], told)


def _judge(count: int, done: int, how: MapOptions) -> None:
    allowed = share(how["tolerate"], count, floor) if "tolerate" in how else count
    wanted = share(how["min_success"], count, ceil) if "min_success" in how else 0
    if count - done > allowed or done < wanted:
        raise ChildFailed(Fault(ITEMS_FAILED, f"{count - done} of {count} items failed"))
