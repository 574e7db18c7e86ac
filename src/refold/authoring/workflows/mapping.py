"""A fan-out that a body asks for, as a plan: one step that loops over the items, for a step or another workflow."""

import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import Any, TypedDict

from msgspec import structs

from refold.authoring.workflows.classes import timed
from refold.authoring.workflows.definition import Definition
from refold.core import plan as data
from refold.core.durations import seconds
from refold.core.plan import BODY, Loop, Plan, Retry, Step
from refold.errors import InvalidValue

ON = "on"  # the setting that tells a body which exceptions its policy names, if that is not the policy of its step
FAILURES: Mapping[str, Any] = {"continue": "all", "skip_dependents": "all", "halt": "halt"}


class Each(TypedDict, total=False):
    """How items are mapped. `item_key` and `after` are functions of an item, or fields of it; with a source they are
    templates such as `"{{ item.id }}"`."""

    max_in_flight: int
    item_key: str | Callable[[Any], Any]
    after: str | Callable[[Any], Any]
    on_cycle: str
    on_item_error: str
    tolerate: int | str
    min_success: int | str
    retry: Retry
    timeout: str | int | float
    page: int
    key: str


def check(how: Each) -> None:
    unknown = how.keys() - Each.__annotations__.keys()
    if unknown:
        known = ", ".join(Each.__annotations__)
        raise InvalidValue("map", f"there is no option {', '.join(sorted(unknown))}; there are {known}")
    if how.get("on_item_error", "continue") not in FAILURES:
        raise InvalidValue("on_item_error", f"{how['on_item_error']!r} is none of {', '.join(FAILURES)}")
    if how.get("max_in_flight", 1) < 1:
        raise InvalidValue("max_in_flight", f"{how['max_in_flight']!r} is too few; at least 1 item runs at once")
    if "after" in how and "item_key" not in how:
        raise InvalidValue("after", "items that wait for others need an `item_key`, by which they are known")


def source_of(items: Any) -> dict[str, Any] | None:
    """A source as data: a map with its `kind`, or a generator function that can be imported."""
    if isinstance(items, Mapping) and "kind" in items:
        return dict(items)
    if not (inspect.isgeneratorfunction(items) or inspect.isasyncgenfunction(items)):
        return None
    if "<locals>" in items.__qualname__ or items.__module__ == "__main__":
        where = f"{items.__module__}.{items.__qualname__}"
        raise InvalidValue("items", f"{where} cannot be imported by another process: write it in a module")
    return {"kind": "python", "function": f"{items.__module__}:{items.__qualname__}"}


async def drained(items: Any) -> list[Any]:
    if isinstance(items, AsyncIterable):
        return [each async for each in items]
    if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
        raise InvalidValue("items", f"a {type(items).__name__} is no list, iterator or source of items")
    return list(items)


def looped(how: Each, source: Mapping[str, Any] | None) -> Loop:
    """Listed items are maps of `data`, and of `key` and `after` if they have them."""
    named, ordered = "item_key" in how, "after" in how
    return Loop(
        items=None if source is not None else "{{ workload.items }}",
        window=how.get("max_in_flight", 16),
        failures=FAILURES[how.get("on_item_error", "continue")],
        key=None if not named else how.get("item_key") if source is not None else "{{ item.key }}",
        after=None if not ordered else how.get("after") if source is not None else "{{ item.after }}",
        on_cycle="drop" if how.get("on_cycle") == "drop" else "fail",
        tolerate=how.get("tolerate"),
        min_success=how.get("min_success"),
        source=None
        if source is None
        else data.Source(kind=source["kind"], settings="{{ workload.source }}", page=how.get("page", 500)),
    )


def item_of(item: Any, put: Any, how: Each) -> dict[str, Any]:
    """An item of a list, as the plan reads it."""
    named = {"key": _of(how["item_key"], item)} if "item_key" in how else {}
    return {**put, **named, **({"after": _of(how["after"], item)} if "after" in how else {})}


def _of(field: str | Callable[[Any], Any], item: Any) -> Any:
    if callable(field):
        return field(item)
    return item[field] if isinstance(item, Mapping) else getattr(item, field)


def of_step(definition: Definition, step: Step, loop: Loop) -> Plan:
    """Items are events for a step of the workflow, which runs them wherever its code is."""
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


def of_workflow(name: str, plan: str, loop: Loop) -> Plan:
    """Each item is a run of its own."""
    value = "{{ item.data }}" if loop.source is None else "{{ item }}"
    step = Step(name="each", work=data.Child(plan=plan), input=value, loop=loop)
    return Plan(name=name, steps=(step,), language="refold")


def with_policies(plan: Plan, how: Each) -> Plan:
    """What the call says of retries and time counts before what the step says."""
    (step,) = plan.steps
    retry = timed(how.get("retry"), "ctx.map") or step.retry
    timeout = seconds(how["timeout"]) if "timeout" in how else step.timeout
    work = step.work
    if isinstance(work, data.Call) and retry.on:
        work = structs.replace(work, settings={ON: list(retry.on)})
    return structs.replace(plan, steps=(structs.replace(step, work=work, retry=retry, timeout=timeout),))
