"""Programs of LangGraph, written as users of Refold would: interrupts, map and reduce, routing, an agent with tools."""

import asyncio
import operator
from functools import reduce
from typing import Any, Literal, TypedDict

import refold
from refold import Collect, Context, Event, Handle, StartEvent, StopEvent, Workflow, open_engine, step


async def request_of(handle: Handle[Any]) -> str:
    """The id of the first open question of a run."""
    while not (requests := await handle.requests()):
        await asyncio.sleep(0.005)
    return requests[0].id


class Essay(TypedDict):
    essay: str
    is_approved: bool


@refold.flow
async def write_essay(ctx: Context, topic: str) -> Essay:
    """The functional API: a task writes an essay, and an interrupt asks a person about it."""
    essay = await ctx.call(compose, topic)
    approved = await ctx.ask("Please approve or reject", metadata={"essay": essay}, type=bool)
    return {"essay": essay, "is_approved": approved}


written: list[str] = []


def compose(topic: str) -> str:
    written.append(topic)
    return f"An essay about topic: {topic}"


async def test_an_interrupt_asks_a_person_and_the_task_before_it_runs_once() -> None:
    written.clear()
    async with open_engine() as engine:
        handle = await engine.start(write_essay, "cat")
        question = await request_of(handle)
        [request] = await handle.requests()
        assert request.metadata == {"essay": "An essay about topic: cat"}
        await handle.answer(question, True)
        assert await handle.result() == {"essay": "An essay about topic: cat", "is_approved": True}
    assert written == ["cat"]


@refold.flow
async def ask_age(ctx: Context) -> int:
    """An interrupt in a loop: the question is asked until the answer is a number above zero."""
    question = "What is your age?"
    while True:
        answer: object = await ctx.ask(question)
        if isinstance(answer, int) and answer > 0:
            return answer
        question = f"{answer!r} is not a valid age. What is your age?"


async def test_a_question_is_asked_again_until_its_answer_is_valid() -> None:
    prompts: list[str] = []
    async with open_engine() as engine:
        handle = await engine.start(ask_age)
        for answer in ("ten", -3, 42):
            question = await request_of(handle)
            [request] = await handle.requests()
            prompts.append(request.prompt)
            await handle.answer(question, answer)
        assert await handle.result() == 42
    assert prompts == [
        "What is your age?",
        "'ten' is not a valid age. What is your age?",
        "-3 is not a valid age. What is your age?",
    ]


class Subjects(StartEvent):
    subjects: list[str]


class Subject(Event):
    subject: str


class Joke(Event):
    text: str


class BestJoke(Workflow[str]):
    """Map and reduce: as many branches as there are subjects, known only when the run is under way."""

    @step
    async def split(self, ctx: Context, ev: Subjects) -> list[Subject]:
        ctx.set("count", len(ev.subjects))
        return [Subject(subject=each) for each in ev.subjects]

    @step
    async def tell(self, ev: Subject) -> Joke:
        return Joke(text=f"Joke about {ev.subject}")

    @step(collect=Collect(Joke, n="count"))
    async def best(self, events: list[Joke]) -> StopEvent:
        return StopEvent(result=reduce(operator.add, [f"[{text}]" for text in sorted(each.text for each in events)]))


async def test_a_map_over_a_list_that_is_known_at_run_time_is_reduced_to_one_result() -> None:
    async with open_engine() as engine:
        result = await engine.run(BestJoke, subjects=["lions", "elephants", "penguins"])
    assert result == "[Joke about elephants][Joke about lions][Joke about penguins]"


class Request(StartEvent):
    text: str


class Story(Event):
    about: str


class Poem(Event):
    about: str


class Router(Workflow[str]):
    """Routing: a step decides which of two branches is taken."""

    @step
    async def route(self, ev: Request) -> Story | Poem:
        kind: Literal["story", "poem"] = "poem" if "poem" in ev.text else "story"
        return Poem(about=ev.text) if kind == "poem" else Story(about=ev.text)

    @step
    async def story(self, ev: Story) -> StopEvent:
        return StopEvent(result=f"Once upon a time: {ev.about}")

    @step
    async def poem(self, ev: Poem) -> StopEvent:
        return StopEvent(result=f"Roses are red: {ev.about}")


async def test_a_router_takes_one_branch() -> None:
    async with open_engine() as engine:
        assert await engine.run(Router, text="write a poem") == "Roses are red: write a poem"
        assert await engine.run(Router, text="write something") == "Once upon a time: write something"


@refold.flow
async def agent(ctx: Context, question: str) -> str:
    """An agent with tools: each call of the model and of a tool is recorded, and never made again."""
    messages = [f"user: {question}"]
    while True:
        answer = await ctx.options(key=f"model {len(messages)}").call(model, messages)
        messages.append(f"model: {answer}")
        if not answer.startswith("call "):
            return answer
        name, *numbers = answer.removeprefix("call ").split()
        result = await ctx.call(tool, name, [int(number) for number in numbers])
        messages.append(f"{name}: {result}")


model_calls: list[int] = []


def model(messages: list[str]) -> str:
    """A model that multiplies first, then adds, then answers."""
    model_calls.append(len(messages))
    script = {1: "call multiply 3 4", 3: "call add 12 5", 5: f"The answer is {messages[-1].split()[-1]}"}
    return script[len(messages)]


def tool(name: str, numbers: list[int]) -> int:
    return reduce(operator.mul if name == "multiply" else operator.add, numbers)


async def test_an_agent_calls_its_tools_until_the_model_answers() -> None:
    model_calls.clear()
    async with open_engine() as engine:
        assert await engine.run(agent, "What is 3 * 4 + 5?") == "The answer is 17"
    assert model_calls == [1, 3, 5]
