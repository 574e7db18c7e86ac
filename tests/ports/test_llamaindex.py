"""Programs of LlamaIndex Workflows, written as users of Refold would: typed events, fan-in, people, streams, state."""

import asyncio

from refold import (
    Collect,
    Context,
    Event,
    InputRequestEvent,
    InputResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    open_engine,
    step,
)


class Topic(StartEvent):
    topic: str


class Joke(Event):
    joke: str


class JokeFlow(Workflow[str]):
    """The first example of the documentation: one step writes a joke, another one criticises it."""

    @step
    async def write(self, ev: Topic) -> Joke:
        return Joke(joke=f"Why did the {ev.topic} cross the road?")

    @step
    async def criticise(self, ev: Joke) -> StopEvent:
        return StopEvent(result=f"Too old: {ev.joke}")


async def test_a_joke_is_written_and_criticised() -> None:
    async with open_engine() as engine:
        result = await engine.run(JokeFlow, topic="pirate")
    assert result == "Too old: Why did the pirate cross the road?"


class Query(StartEvent):
    queries: list[str]


class Asked(Event):
    query: str


class Answered(Event):
    query: str
    answer: str


class FanOut(Workflow[list[str]]):
    """Several events at once, at most two of them at a time, and one step that waits for all answers."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        self.most = 0

    @step
    async def begin(self, ctx: Context, ev: Query) -> list[Asked]:
        ctx.set("expected", len(ev.queries))
        return [Asked(query=query) for query in ev.queries]

    @step(workers=2)
    async def work(self, ev: Asked) -> Answered:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.01)
        self.running -= 1
        return Answered(query=ev.query, answer=ev.query.upper())

    @step(collect=Collect(Answered, n="expected"))
    async def gather(self, events: list[Answered]) -> StopEvent:
        return StopEvent(result=sorted(each.answer for each in events))


async def test_all_answers_are_collected_and_two_workers_run_at_a_time() -> None:
    workflow = FanOut()
    async with open_engine() as engine:
        result = await engine.run(workflow, queries=["a", "b", "c", "d", "e"])
    assert result == ["A", "B", "C", "D", "E"]
    assert workflow.most == 2


class Proposal(InputRequestEvent):
    text: str = ""


class Review(Workflow[str]):
    """A person in the loop: a step returns a request, and the answer arrives at another step as an event."""

    @step
    async def propose(self, ctx: Context, ev: StartEvent) -> Proposal:
        ctx.set("text", "a draft")
        return Proposal(prompt="Publish it?", text="a draft")

    @step
    async def decide(self, ctx: Context, ev: InputResponseEvent) -> StopEvent:
        return StopEvent(result=f"{ctx.get('text', type=str)}: {ev.response}")


async def test_a_person_answers_a_returned_request() -> None:
    async with open_engine() as engine:
        handle = await engine.start(Review)
        while not (requests := await handle.requests()):
            await asyncio.sleep(0.005)
        assert [request.prompt for request in requests] == ["Publish it?"]
        await handle.answer(requests[0].id, "yes")
        assert await handle.result() == "a draft: yes"


class Count(StartEvent):
    to: int


class Again(Event):
    number: int
    to: int


class Progress(Event):
    number: int


class Loop(Workflow[int]):
    """A loop: a step sends the event that it takes, until it has counted far enough; each round is shown."""

    @step
    async def begin(self, ev: Count) -> Again:
        return Again(number=0, to=ev.to)

    @step
    async def count(self, ctx: Context, ev: Again) -> Again | StopEvent:
        await ctx.publish(Progress(number=ev.number))
        if ev.number == ev.to:
            return StopEvent(result=ev.number)
        return Again(number=ev.number + 1, to=ev.to)


async def test_a_loop_counts_and_streams_every_round() -> None:
    async with open_engine() as engine:
        handle = await engine.start(Loop, to=3)
        shown = [each.value async for each in handle.stream()]
        assert await handle.result() == 3
    assert shown == [Progress(number=number) for number in range(4)]


class Tasks(StartEvent):
    tasks: int


class Task(Event):
    number: int


class Finished(Event):
    number: int


def one_more(done: int) -> int:
    return done + 1


class SharedState(Workflow[int]):
    """Many steps change one value of the run at the same time, and no change is lost."""

    @step
    async def begin(self, ctx: Context, ev: Tasks) -> list[Task]:
        ctx.set("done", 0)
        ctx.set("expected", ev.tasks)
        return [Task(number=number) for number in range(ev.tasks)]

    @step
    async def work(self, ctx: Context, ev: Task) -> Finished:
        ctx.update("done", one_more, 0)
        return Finished(number=ev.number)

    @step(collect=Collect(Finished, n="expected"))
    async def end(self, ctx: Context, events: list[Finished]) -> StopEvent:
        return StopEvent(result=ctx.get("done", 0, type=int))


async def test_concurrent_changes_of_the_state_are_all_counted() -> None:
    async with open_engine() as engine:
        assert await engine.run(SharedState, tasks=50) == 50
