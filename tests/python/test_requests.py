"""Requests that steps return: the step is completed, the request waits by itself, and its answer is an event."""

import asyncio
import json
from typing import Any

import pytest

from refold import (
    Collect,
    Context,
    Event,
    Handle,
    InputRequestEvent,
    InputResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    flow,
    open_engine,
    step,
)
from refold.errors import CannotMigrate, InvalidPlan, InvalidValue, NotFound, RunCancelled, StepFailed
from refold.python.definition import define
from tests.python.house import SHORT, Page, error, started


async def asked(handle: Handle, count: int = 1) -> list[str]:
    async with asyncio.timeout(60):
        while len(found := await handle.requests()) < count:
            await asyncio.sleep(0.005)
    return [each.id for each in found]


class Approved(InputResponseEvent):
    yes: bool
    comment: str = ""


class Approve(InputRequestEvent, answer=Approved):
    amount: int


async def approve(ev: StartEvent) -> Approve:
    return Approve(request_id="a1", prompt="pay?", amount=30)


async def decided(ev: Approved) -> StopEvent:
    return StopEvent(result=[ev.request_id, ev.yes, ev.comment])


async def test_a_step_that_returns_a_request_is_completed_and_never_runs_again() -> None:
    passes: list[int] = []

    async def propose(ctx: Context, ev: StartEvent) -> InputRequestEvent:
        passes.append(len(passes))
        ctx.set("schema", f"schema {passes[-1]}")
        return InputRequestEvent(prompt=f"approve schema {passes[-1]}?")

    async def got(ctx: Context, ev: InputResponseEvent) -> StopEvent:
        return StopEvent(result=[ev.response, ctx.get("schema")])

    async with started(propose, got) as handle:
        [id] = await asked(handle)
        state = (await handle.engine.show(handle.id)).state
        assert state.steps[0].life == "completed" and state.ctx == {"schema": "schema 0"}
        await handle.answer(id, "yes")
        assert await handle.result() == ["yes", "schema 0"]
    assert passes == [0]


async def test_requests_wait_by_themselves_and_events_beside_them_are_delivered_at_once() -> None:
    other = asyncio.Event()

    async def begin(ev: StartEvent) -> list[Page | InputRequestEvent]:
        return [Page(n=1), InputRequestEvent(request_id="q1"), InputRequestEvent(request_id="q2")]

    async def fetch(ev: Page) -> None:
        other.set()

    @step(collect=Collect(InputResponseEvent, n=2))
    async def both(answers: list[InputResponseEvent]) -> StopEvent:
        return StopEvent(result=[(each.request_id, each.response) for each in answers])

    async with started(begin, fetch, both) as handle:
        assert await asked(handle, 2) == ["q1", "q2"]
        await asyncio.wait_for(other.wait(), 60)
        await handle.answer("q2", "second")
        assert await asked(handle) == ["q1"]
        await handle.answer("q1", "first")
        assert await handle.result() == [("q2", "second"), ("q1", "first")]


async def test_requests_without_an_id_get_different_ones() -> None:
    async def begin(ev: StartEvent) -> list[InputRequestEvent]:
        return [InputRequestEvent(prompt="a"), InputRequestEvent(prompt="b")]

    async def got(ev: InputResponseEvent) -> StopEvent:
        return StopEvent(result=ev.request_id)

    async with started(begin, got) as handle:
        assert await asked(handle, 2) == ["begin/1/request", "begin/1/request/2"]
        await handle.answer("begin/1/request/2", None)
        assert await handle.result() == "begin/1/request/2"


async def test_two_requests_of_a_step_with_one_id_fail_the_step() -> None:
    async def begin(ev: StartEvent) -> list[InputRequestEvent]:
        return [InputRequestEvent(request_id="q"), InputRequestEvent(request_id="q")]

    async def got(ev: InputResponseEvent) -> StopEvent: ...  # type: ignore[empty-body]

    assert "two of its requests have the id 'q'" in str(await error(begin, got))


async def test_a_request_may_have_fields_of_its_own_and_names_the_class_of_its_answer() -> None:
    async with started(approve, decided) as handle:
        await asked(handle)
        [request] = await handle.requests()
        assert request.event == Approve(request_id="a1", prompt="pay?", amount=30)
        await handle.answer("a1", Approved(yes=True, comment="fine"))
        assert await handle.result() == ["a1", True, "fine"]


async def test_an_answer_with_fields_may_be_a_map_and_one_that_does_not_fit_is_refused() -> None:
    async with started(approve, decided) as handle:
        await asked(handle)
        for value, why in (
            ("yes", "a map of the fields of Approved: response .optional., yes, comment .optional."),
            ({"comment": "x"}, "lacks 'yes'"),
            ({"yes": True, "no": 1}, "has 'no'"),
            ({"yes": "maybe"}, "yes: 'maybe' is not a boolean"),
        ):
            with pytest.raises(InvalidValue, match=why):
                await handle.answer("a1", value)
        await handle.answer("a1", {"yes": False})
        assert await handle.result() == ["a1", False, ""]


async def test_an_early_answer_and_one_with_a_wrong_id() -> None:
    async with started(approve, decided) as handle:
        await asked(handle)
        with pytest.raises(NotFound, match="no request 'a2'; open: a1"):
            await handle.answer("a2", {"yes": True})
        await handle.cancel()
    async with open_engine(settings=SHORT) as engine:
        for n in range(5):
            handle = await engine.start(Workflow("w", [approve, decided]))
            await handle.answer("a1", Approved(yes=bool(n % 2)), early=True)
            assert await asyncio.wait_for(handle.result(), 60) == ["a1", bool(n % 2), ""]


async def test_a_run_whose_only_open_thing_is_a_request_is_waiting_and_says_for_what() -> None:
    async with started(approve, decided) as handle:
        await asked(handle)
        report = await handle.engine.show(handle.id)
        assert report.status == "waiting"  # type: ignore[attr-defined]
        assert await handle.why() == {"approve/1 request a1": "waits for the answer of a person"}


async def test_questions_in_the_stream_are_request_events_also_those_of_ctx_ask() -> None:
    @flow
    async def asks(ctx: Context) -> Any:
        await ctx.publish({"prompt": "not a question"})
        return await ctx.ask("well?", id="r1", metadata=(1,))

    async with started(asks) as handle:
        await asked(handle)
        await handle.answer("r1", 1)
        await handle.result()
        shown = [each.value async for each in handle.stream()]
    assert shown == [{"prompt": "not a question"}, InputRequestEvent(prompt="well?", request_id="r1", metadata=(1,))]
    async with started(approve, decided) as handle:
        async for each in handle.stream():
            if isinstance(each.value, InputRequestEvent):
                assert each.value == Approve(request_id="a1", prompt="pay?", amount=30)
                await handle.answer(each.value.request_id, Approved(yes=True))
        assert await handle.result() == ["a1", True, ""]


async def test_a_paused_run_keeps_its_request_through_export_and_takes_the_answer_when_it_resumes() -> None:
    workflow = Workflow("asking", [approve, decided])
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(workflow)
        await asked(handle)
        await handle.pause()
        data = await handle.export()
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(data), workflow)
        assert [each.id for each in await handle.requests()] == ["a1"]
        await handle.answer("a1", Approved(yes=True))
        assert [each.id for each in await handle.requests()] == ["a1"]  # it is paused
        await handle.resume()
        assert await asyncio.wait_for(handle.result(), 60) == ["a1", True, ""]


async def test_a_cancelled_run_asks_no_more_and_asks_again_when_it_is_retried() -> None:
    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Workflow("w", [approve, decided]))
        await asked(handle)
        await handle.cancel()
        with pytest.raises(RunCancelled):
            await handle.result()
        assert await handle.requests() == []
        await engine.retry(handle.id)
        assert await asked(handle) == ["a1"]
        await handle.answer("a1", Approved(yes=True))
        assert await asyncio.wait_for(handle.result(), 60) == ["a1", True, ""]


async def test_a_request_stays_open_while_another_branch_fails_and_is_retried() -> None:
    broken = [True]

    async def begin(ev: StartEvent) -> list[Page | Approve]:
        return [Page(n=1), Approve(request_id="a1", amount=1)]

    async def fetch(ev: Page) -> None:
        if broken[0]:
            raise ValueError("not yet")

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.start(Workflow("w", [begin, fetch, decided]))
        with pytest.raises(StepFailed, match="not yet"):
            await handle.result()
        broken[0] = False
        await engine.retry(handle.id)
        await asked(handle)
        await handle.answer("a1", Approved(yes=True))
        assert await asyncio.wait_for(handle.result(), 60) == ["a1", True, ""]


async def test_requests_with_one_id_are_answered_one_after_the_other_the_oldest_first() -> None:
    async def begin(ev: StartEvent) -> list[Page]:
        return [Page(n=0), Page(n=1)]

    @step(workers=1)
    async def fetch(ev: Page) -> InputRequestEvent:
        return InputRequestEvent(request_id="next", metadata=ev.n)

    @step(collect=Collect(InputResponseEvent, n=2))
    async def both(answers: list[InputResponseEvent]) -> StopEvent:
        return StopEvent(result=[each.response for each in answers])

    async with started(begin, fetch, both) as handle:
        await asked(handle, 2)
        assert await handle.result(lambda request: request.metadata) == [0, 1]


async def test_a_loop_that_asks_with_the_same_id_in_every_round_is_answered_in_every_round() -> None:
    class Again(Event):
        n: int

    async def begin(ev: StartEvent) -> Again:
        return Again(n=0)

    async def ask(ctx: Context, ev: Again) -> InputRequestEvent:
        ctx.set("n", ev.n)
        return InputRequestEvent(request_id="more", metadata=ev.n)

    async def got(ctx: Context, ev: InputResponseEvent) -> Again | StopEvent:
        return Again(n=ctx.get("n") + 1) if ev.response else StopEvent(result=ctx.get("n"))

    async with started(begin, ask, got) as handle:
        assert await asyncio.wait_for(handle.result(lambda request: request.metadata < 3), 60) == 3


async def test_a_request_is_sent_with_ctx_send_too_and_that_of_a_child_is_on_the_handle_of_its_parent() -> None:
    @step(sends=[Approve])
    async def begin(ctx: Context, ev: StartEvent) -> None:
        ctx.send(Approve(request_id="of the child", amount=2))

    child = Workflow("child", [begin, decided])

    @flow
    async def parent(ctx: Context) -> Any:
        return await ctx.run_child(child)

    async with started(parent) as handle:
        assert await asked(handle) == ["of the child"]
        [request] = await handle.requests()
        assert request.event == Approve(request_id="of the child", amount=2)
        await handle.answer("of the child", Approved(yes=True))
        assert await handle.result() == ["of the child", True, ""]


async def test_a_step_that_is_mapped_cannot_return_a_request() -> None:
    @step(mapped=True)
    async def one(ev: Page) -> Any:
        return InputRequestEvent()

    async def begin(ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.map(one, [Page(n=1)], tolerate=1)).items)

    @step(mapped=True)
    async def annotated(ev: Page) -> InputRequestEvent: ...  # type: ignore[empty-body]

    async with started(begin, one) as handle:
        [item] = await handle.result()
        assert "use `ctx.ask`" in str(item)
    with pytest.raises(InvalidPlan, match=r"'annotated' is run by `ctx\.map`, so it cannot return InputRequestEvent"):
        define(Workflow("w", [begin, annotated]))


async def test_a_migration_that_would_leave_an_answer_without_a_step_is_refused() -> None:
    async def other(ev: InputResponseEvent) -> StopEvent: ...  # type: ignore[empty-body]

    async def plain(ev: StartEvent) -> InputRequestEvent: ...  # type: ignore[empty-body]

    plain.__name__ = "approve"
    async with started(approve, decided) as handle:
        await asked(handle)
        with pytest.raises(CannotMigrate, match="no step of the new plan would take Approved"):
            await handle.migrate(Workflow("other", [plain, other]))


def test_what_is_wrong_with_requests_is_found_before_anything_runs() -> None:
    class Tick(InputRequestEvent):
        round: int

    async def begin(ev: StartEvent) -> Tick: ...  # type: ignore[empty-body]

    async def on_continue(ev: Approved) -> StopEvent: ...  # type: ignore[empty-body]

    async def takes_it(ev: Tick) -> StopEvent: ...  # type: ignore[empty-body]

    hint = (
        r"answer is InputResponseEvent, which no step takes; if it is Approved, write `class Tick\(…, answer=Approved"
    )
    with pytest.raises(InvalidPlan, match=hint):
        define(Workflow("w", [begin, on_continue]))
    with pytest.raises(InvalidPlan, match="takes Tick, which a person answers: take InputResponseEvent"):
        define(Workflow("w", [begin, takes_it]))
    with pytest.raises(InvalidPlan, match="answer is <class 'int'>, which is not a subclass of InputResponseEvent"):
        type("Wrong", (InputRequestEvent,), {}, answer=int)


FORMER = {
    "format": "refold.run",
    "version": 1,
    "run": "d4b14d78ff45f277e82e6b5c5e643d6f",
    "plan": {
        "events": [{"name": "StartEvent"}, {"name": "StopEvent"}, {"name": "InputResponseEvent"}],
        "name": "Asking",
        "on_failure": "cancel",
        "steps": [
            {"accepts": ["StartEvent"], "name": "begin", "work": {"tool": "workflow", "type": "call"}},
            {"accepts": ["InputResponseEvent"], "name": "last", "work": {"tool": "workflow", "type": "call"}},
        ],
    },
    "plans": [],
    "facts": [
        [
            1795020945339687,
            {
                "type": "run_started",
                "plan": "9b16a28e58a4362c58101538dfa160b41d7d1771b570ca1302acbcd0d4bd0dea",
                "code": "asking_before:Asking",
            },
        ],
        [1795020945339687, {"type": "events_taken", "step": "begin", "first": 1, "batches": [[[1, 0]]]}],
        [
            1795020945341207,
            {
                "type": "step_settled",
                "step": "begin",
                "visit": 1,
                "report": {
                    "attempt": 1,
                    "outcome": {
                        "type": "suspended",
                        "calls": [
                            {
                                "key": "ask:r1",
                                "signal": "answer:r1",
                                "input": {
                                    "id": "r1",
                                    "prompt": "Name?",
                                    "metadata": {"a": {"$refold": ["tuple", [1]]}},
                                },
                            }
                        ],
                        "progress": {"published": 1},
                    },
                    "worker": "worker-4d563814",
                    "generation": 1,
                    "claimed_at": 1795020945339687,
                    "started_at": 1795020945340717,
                },
            },
        ],
        [1795020945353933, {"type": "run_paused"}],
    ],
    "blobs": {},
    "live": {},
    "below": [],
    "letters": [],
}


async def test_a_run_that_waits_inside_its_body_as_former_releases_did_continues() -> None:
    class Asking(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> InputRequestEvent:
            return InputRequestEvent(request_id="r1", prompt="Name?", metadata={"a": (1,)})

        @step
        async def last(self, ev: InputResponseEvent) -> StopEvent:
            return StopEvent(result=[ev.request_id, ev.response])

    async with open_engine(settings=SHORT) as engine:
        handle = await engine.attach(await engine.restore(json.dumps(FORMER).encode()), Asking)
        [request] = await handle.requests()
        assert (request.id, request.prompt, request.metadata) == ("r1", "Name?", {"a": (1,)})
        await handle.resume()
        await handle.answer("r1", "Ada")
        assert await asyncio.wait_for(handle.result(), 60) == ["r1", "Ada"]
