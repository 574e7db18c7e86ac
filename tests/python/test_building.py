"""From a class to a plan: what annotations say, and what is refused before anything runs."""

from dataclasses import dataclass
from typing import Annotated, Any, Optional

import msgspec
import pytest

from refold import (
    Collect,
    Context,
    ErrorEvent,
    Event,
    InputRequestEvent,
    InputResponseEvent,
    Retry,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from refold.core.plan import EventType, Plan
from refold.errors import InvalidPlan, InvalidValue
from refold.python.definition import define
from tests.python import other


class Page(Event):
    url: str


class Image(Page):
    width: int = 0


class Done(Event):
    pass


@dataclass
class Plain:
    n: int


class Struct(msgspec.Struct):
    n: int


def plan(*steps: Any, **options: Any) -> Plan:
    return define(Workflow("w", steps, **options)).plan


def refused(*steps: Any) -> str:
    with pytest.raises(InvalidPlan) as caught:
        plan(*steps)
    return str(caught.value)


@step
async def begin(ctx: Context, ev: StartEvent) -> Page: ...  # type: ignore[empty-body]


@step
async def stop(ev: Page) -> StopEvent: ...  # type: ignore[empty-body]


def test_a_class_and_functions_make_the_same_plan() -> None:
    class First(Workflow):
        name = "w"

        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Page: ...  # type: ignore[empty-body]

        @step
        async def stop(self, ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    assert define(First).plan == define(First()).plan == plan(begin, stop)


def test_the_hash_is_that_of_names_types_routing_and_policies_and_not_of_bodies() -> None:
    def version(text: str, retry: Retry | None = None) -> str:
        async def one(ev: StartEvent) -> StopEvent:
            return StopEvent(result=text)

        return define(Workflow("w", [step(retry=retry)(one)])).hash

    assert version("a") == version("b") != version("b", Retry(attempts=2))


def test_a_union_takes_each_of_its_members() -> None:
    @step
    async def both(ev: Page | Done) -> StopEvent: ...  # type: ignore[empty-body]

    @step
    async def start(ev: StartEvent) -> list[Page] | Done | None: ...

    assert plan(start, both).steps[1].accepts == ("Page", "Done")


def test_optional_annotated_and_quoted_annotations_are_read() -> None:
    @step
    async def start(ev: "Annotated[StartEvent, 'x']") -> "Optional[Page]": ...  # noqa: UP045

    assert [each.accepts for each in plan(start, stop).steps] == [("StartEvent",), ("Page",)]


def test_a_quoted_local_class_is_refused_by_name() -> None:
    async def start(ev: "Nowhere") -> StopEvent: ...  # type: ignore # noqa: F821

    assert "name 'Nowhere' is not defined" in refused(start)


def test_a_parameter_without_an_annotation_is_refused() -> None:
    async def start(ctx: Context, ev) -> StopEvent: ...  # type: ignore

    assert "no annotation of 'ev'" in refused(start)


def test_a_value_that_is_not_an_event_is_refused() -> None:
    async def start(ev: int) -> StopEvent: ...  # type: ignore[empty-body]

    assert "says int, which is not a class of events" in refused(start)


def test_too_many_parameters_are_refused() -> None:
    async def start(ctx: Context, ev: StartEvent, more: int) -> StopEvent: ...  # type: ignore[empty-body]

    assert "it must take `ev`, or `ctx` and `ev`" in refused(start)


def test_a_generator_is_refused() -> None:
    async def start(ev: StartEvent) -> Any:
        yield Page(url="x")

    assert "'start' is a generator" in refused(start)


def test_no_steps_is_refused() -> None:
    assert "has no steps" in refused()


def test_no_step_for_the_start_is_refused() -> None:
    assert "takes StartEvent" in refused(stop)


def test_two_steps_of_one_name_are_refused() -> None:
    assert "two steps are called 'stop'" in refused(begin, stop, stop)


def test_an_event_no_step_takes_is_refused() -> None:
    assert "'begin' sends Page, which no step takes" in refused(begin)


def test_a_step_nothing_leads_to_is_refused() -> None:
    async def lonely(ev: Done) -> StopEvent: ...  # type: ignore[empty-body]

    assert "nothing leads to step 'lonely'" in refused(begin, stop, lonely)


def test_what_is_sent_besides_is_declared() -> None:
    @step(sends=[Done])
    async def start(ev: StartEvent) -> None: ...

    @step
    async def last(ev: Done) -> StopEvent: ...  # type: ignore[empty-body]

    assert len(plan(start, last).steps) == 2


def test_no_way_to_the_end_is_refused() -> None:
    @step
    async def start(ev: StartEvent) -> None: ...

    assert "no step of 'w' sends StopEvent" in refused(start)


def test_a_step_that_does_not_say_what_it_sends_may_send_anything() -> None:
    async def start(ev: StartEvent):  # type: ignore
        ...

    assert len(plan(start, stop).steps) == 2


def test_a_list_without_collect_and_collect_without_a_list_are_refused() -> None:
    async def many(ev: list[Page]) -> StopEvent: ...  # type: ignore[empty-body]

    @step(collect=Collect(Page, n=2))
    async def one(ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    assert "takes a list and collects nothing" in refused(begin, many)
    assert "so it takes list[Page]" in refused(begin, one)


def test_collect_and_the_annotation_must_agree() -> None:
    @step(collect=Collect(Done, n=2))
    async def many(ev: list[Page]) -> StopEvent: ...  # type: ignore[empty-body]

    assert "takes Page and collects Done" in refused(begin, many)


@pytest.mark.parametrize("n", [0, -1, True, 1.5, ""])
def test_a_batch_is_of_one_or_more(n: Any) -> None:
    with pytest.raises(InvalidPlan, match="n is"):
        Collect(Page, n=n)


def test_a_subclass_goes_where_its_parent_goes() -> None:
    async def start(ev: StartEvent) -> Image: ...  # type: ignore[empty-body]

    image = EventType(name="Image", bases=("Page",), required=("url",), optional=("width",))
    assert image in plan(start, stop).events


def test_classes_of_one_name_and_two_modules_are_kept_apart() -> None:
    async def start(ev: StartEvent) -> list[Page | other.Page]: ...  # type: ignore[empty-body]

    async def strange(ev: other.Page) -> StopEvent: ...  # type: ignore[empty-body]

    made = plan(start, stop, strange)
    assert [each.accepts for each in made.steps[1:]] == [
        ("tests.python.test_building.Page",),
        ("tests.python.other.Page",),
    ]


def test_dataclasses_and_structs_are_events_too() -> None:
    async def start(ev: StartEvent) -> Plain | Struct: ...  # type: ignore[empty-body]

    async def last(ev: Plain | Struct) -> StopEvent: ...  # type: ignore[empty-body]

    assert plan(start, last).steps[1].accepts == ("Plain", "Struct")


def test_policies_become_those_of_the_plan() -> None:
    @step(workers=3, timeout="2m", queue="slow", priority=4, retry=Retry(attempts=5))
    async def last(ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    made = plan(begin, last, retry=Retry(attempts=2), timeout="1h")
    found = made.steps[1]
    assert (found.workers, found.timeout, found.queue, found.priority) == (3, 120.0, "slow", 4)
    assert [each.retry.attempts for each in made.steps] == [2, 5]
    assert made.timeout == 3600.0


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"workers": -1}, "workers is -1"),
        ({"isolation": "moon"}, "isolation is 'moon'"),
        ({"speed": 3}, "@step has no speed"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(policy: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidPlan, match=why):
        step(**policy)


def test_a_timeout_that_is_no_time_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no duration"):
        step(timeout="soon")


def test_on_error_names_an_event_that_can_hold_an_error() -> None:
    class Broken(ErrorEvent):
        pass

    @step(on_error=Done)
    async def bad(ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    @step(on_error=Broken)
    async def good(ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    async def mend(ev: Broken) -> StopEvent: ...  # type: ignore[empty-body]

    async def after(ev: Done) -> StopEvent: ...  # type: ignore[empty-body]

    assert "not a subclass of refold.ErrorEvent" in refused(begin, bad, after)
    assert plan(begin, good, mend).steps[1].on_error == "Broken"


def test_a_request_for_input_leads_to_who_takes_the_response() -> None:
    async def start(ev: StartEvent) -> InputRequestEvent: ...  # type: ignore[empty-body]

    async def last(ev: InputResponseEvent) -> StopEvent: ...  # type: ignore[empty-body]

    assert len(plan(start, last).steps) == 2


def test_a_process_must_be_able_to_import_the_workflow() -> None:
    @step(isolation="process")
    def last(ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    assert "write a class, in a module" in refused(begin, last)


def test_steps_of_a_parent_class_are_steps_too_and_may_be_written_anew() -> None:
    class Parent(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> Page: ...  # type: ignore[empty-body]

        @step
        async def stop(self, ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    class Child(Parent):
        @step(workers=1)
        async def stop(self, ev: Page) -> StopEvent: ...  # type: ignore[empty-body]

    assert [(each.name, each.workers) for each in define(Child).plan.steps] == [("begin", 0), ("stop", 1)]


def test_something_else_is_no_workflow() -> None:
    with pytest.raises(InvalidPlan, match="is not a workflow"):
        define(3)
