"""Durable agents of pydantic-ai, with the models that the library has for tests."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from refold import Context, Engine, Handle, RunFailed, SyncContext, flow, open_engine
from refold.agents.pydantic_ai import RefoldDurability, durable
from refold.core.facts import CallSettled
from refold.core.outcomes import Succeeded
from refold.plan import Retry
from refold.settings import Settings

QUICK = Settings(sweep_every=0.05, poll=0.05)
USAGE = RequestUsage(input_tokens=100, output_tokens=10)


def said(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], usage=USAGE)


def called(*calls: ToolCallPart) -> ModelResponse:
    return ModelResponse(parts=list(calls), usage=USAGE)


def returned(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


async def records(engine: Engine, run: str) -> dict[str, Any]:
    """The durable calls of a run as they are recorded, by their keys."""
    settled = [fact for _, _, fact in await engine.history(run) if isinstance(fact, CallSettled)]
    return {each.key: each.outcome.result for each in settled if isinstance(each.outcome, Succeeded)}


async def result(workflow: Any, **inputs: Any) -> Any:
    async with open_engine(settings=QUICK) as engine:
        handle = await engine.start(workflow, **inputs)
        return await asyncio.wait_for(handle.result(), 60)


async def test_outside_of_a_body_the_agent_runs_as_usual() -> None:
    agent = Agent(TestModel(custom_output_text="hi"), name="a", capabilities=[RefoldDurability()])
    assert (await agent.run("x")).output == "hi"


async def test_what_each_request_used_up_is_in_the_ledger_of_the_run() -> None:
    price = {"prompt": 1.0, "completion": 2.0}
    model = FunctionModel(lambda messages, info: said("hi"))
    agent = Agent(model, name="a", capabilities=[RefoldDurability(price=price)])

    @flow
    async def talk(ctx: Context) -> str:
        with durable(ctx):
            first = await agent.run("x")
            second = await agent.run("y", message_history=first.all_messages())
        return first.output + second.output

    async with open_engine(settings=QUICK) as engine:
        handle = await engine.start(talk)
        assert await handle.result() == "hihi"
        usage = await handle.usage()
    assert usage == {
        "tokens": 220,
        "prompt_tokens": 200,
        "completion_tokens": 20,
        "usd": pytest.approx(0.00024),
    }


async def test_a_record_has_the_name_the_arguments_the_usage_and_the_result() -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return said("done") if returned(messages) else called(ToolCallPart("add", {"a": 1, "b": 2}, tool_call_id="c1"))

    def add(a: int, b: int) -> int:
        return a + b

    agent = Agent(FunctionModel(model, model_name="m"), name="helper", tools=[add], capabilities=[RefoldDurability()])

    @flow
    async def talk(ctx: Context) -> str:
        with durable(ctx):
            return (await agent.run("sum?")).output

    async with open_engine(settings=QUICK) as engine:
        handle = await engine.start(talk)
        await handle.result()
        found = await records(engine, handle.id)
    calls = {key: record for key, record in found.items() if key.startswith("call:")}
    assert list(calls) == ["call:m:helper/1/1", "call:add:helper/1/c1/1", "call:m:helper/1/2"]
    first, tool, _ = calls.values()
    assert first["usage"]["tokens"] == 110 and first["messages"] == 1
    assert first["request"][0]["parts"][0]["content"] == "sum?"
    assert (tool["name"], tool["arguments"], tool["result"]["result"]) == ("add", {"a": 1, "b": 2}, 3)


async def test_what_a_failed_try_has_done_is_neither_done_nor_counted_again() -> None:
    asked: list[int] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(len(messages))
        return said("hi")

    agent = Agent(FunctionModel(model), name="a", capabilities=[RefoldDurability()])

    @flow(retry=Retry(attempts=2))
    async def talk(ctx: Context) -> str:
        with durable(ctx):
            output = (await agent.run("x")).output
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return output

    async with open_engine(settings=QUICK) as engine:
        handle = await engine.start(talk)
        assert await handle.result() == "hi"
        assert (await handle.usage())["tokens"] == 110
    assert len(asked) == 1


async def test_a_request_that_fails_is_tried_again_by_its_own_policy() -> None:
    asked: list[int] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(1)
        if len(asked) == 1:
            raise ConnectionError("busy")
        return said("hi")

    retry = Retry(attempts=2, on=(ConnectionError,))
    agent = Agent(FunctionModel(model), name="a", capabilities=[RefoldDurability(model_retry=retry)])

    @flow
    async def talk(ctx: Context) -> str:
        with durable(ctx):
            return (await agent.run("x")).output

    assert await result(talk) == "hi" and len(asked) == 2


async def test_a_tool_that_raises_fails_the_body_and_a_tool_that_wants_a_retry_asks_the_model() -> None:
    from pydantic_ai import ModelRetry

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(str(messages[-1].parts[0]))
        return said("ok") if len(asked) > 1 else called(ToolCallPart("broken", {}, tool_call_id="c"))

    def broken() -> str:
        if picky:
            raise ModelRetry("be nice")
        raise ValueError("no disk")

    agent = Agent(FunctionModel(model), name="a", tools=[broken], capabilities=[RefoldDurability()])

    @flow
    async def talk(ctx: Context) -> str:
        with durable(ctx):
            return (await agent.run("x")).output

    picky, asked = True, list[str]()
    assert await result(talk) == "ok" and "be nice" in asked[1]
    picky, asked = False, []
    with pytest.raises(RunFailed, match="no disk"):
        await result(talk)


def asking(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    found = returned(messages)
    return said(str(found[0])) if found else called(ToolCallPart("pay", {"amount": 5}, tool_call_id="c1"))


def payer(paid: list[int]) -> Any:
    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    tools = [Tool(pay, requires_approval=True)]
    agent = Agent(FunctionModel(asking), name="a", tools=tools, capabilities=[RefoldDurability()])

    @flow
    async def shop(ctx: Context) -> str:
        with durable(ctx):
            return str((await agent.run("buy")).output)

    return shop


@pytest.mark.parametrize(
    ("answer", "paid", "output"),
    [
        (True, [5], "paid 5"),
        ("yes", [5], "paid 5"),
        ({"approved": True, "arguments": {"amount": 3}}, [3], "paid 3"),
        (False, [], "The tool call was denied."),
        ({"approved": False, "message": "too dear"}, [], "too dear"),
    ],
)
async def test_a_person_decides_about_a_tool_that_needs_approval(answer: Any, paid: list[int], output: str) -> None:
    done: list[int] = []
    async with open_engine(settings=QUICK) as engine:
        handle = await engine.start(payer(done))
        [request] = await asked_by(handle)
        assert "pay" in request.prompt and request.metadata["arguments"] == {"amount": 5}
        await handle.answer("pay/c1", answer)
        assert await asyncio.wait_for(handle.result(), 60) == output
    assert done == paid


async def asked_by(handle: Handle[Any]) -> list[Any]:
    async with asyncio.timeout(60):
        while not (found := await handle.requests()):
            await asyncio.sleep(0.01)
    return found


async def test_an_answer_that_is_neither_yes_nor_no_fails_the_body_and_pays_nothing() -> None:
    paid: list[int] = []
    async with open_engine(settings=QUICK) as engine:
        handle = await engine.start(payer(paid))
        await asked_by(handle)
        await handle.answer("pay/c1", "perhaps")
        with pytest.raises(RunFailed, match="neither yes nor no"):
            await asyncio.wait_for(handle.result(), 60)
    assert paid == []


async def streaming(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    if not returned(messages):
        yield {0: DeltaToolCall(name="look", json_args="{}", tool_call_id="c1")}
        return
    for word in ("it ", "is ", "fine"):
        yield word


async def test_the_text_of_a_model_is_published_as_it_comes_and_once() -> None:
    def look() -> str:
        return "seen"

    agent = Agent(
        FunctionModel(stream_function=streaming),
        name="a",
        tools=[look],
        capabilities=[RefoldDurability(stream=True)],
    )

    @flow(retry=Retry(attempts=2))
    async def talk(ctx: Context) -> str:
        with durable(ctx):
            output = (await agent.run("x")).output
        await ctx.publish({"text": "end"})
        if ctx.attempt == 1:
            raise ValueError("again")
        return output

    async with open_engine(settings=QUICK) as engine:
        handle = await engine.start(talk)
        shown = [event async for event in handle.stream()]
        assert await handle.result() == "it is fine"
    texts = [each.value.get("text") or each.value["tool"] for each in shown]
    assert texts == ["look", "it ", "is ", "fine", "end", "end"], "the second try publishes what it does itself"


async def test_the_agent_of_a_body_without_async_is_refused() -> None:
    agent = Agent(TestModel(), name="a", capabilities=[RefoldDurability()])

    @flow
    def talk(ctx: SyncContext) -> str:
        with durable(ctx):  # type: ignore[arg-type]
            return agent.run_sync("x").output

    with pytest.raises(RunFailed, match="make the body async"):
        await result(talk)


async def test_two_agents_at_the_same_time_do_not_share_records() -> None:
    agents = [
        Agent(TestModel(custom_output_text=str(n)), name=f"a{n}", capabilities=[RefoldDurability()]) for n in range(3)
    ]

    @flow
    async def talk(ctx: Context) -> list[str]:
        with durable(ctx):
            found = await asyncio.gather(*(each.run("x") for each in (*agents, agents[0])))
        return [each.output for each in found]

    assert await result(talk) == ["0", "1", "2", "0"]


POINTS = ("model 0", "add 1", "add 2", "model 2", "double 6", "model 3", "said")


@pytest.mark.parametrize("at", POINTS)
def test_after_kill_9_no_finished_request_and_no_finished_tool_call_is_made_again(tmp_path: Path, at: str) -> None:
    Path(tmp_path, "die").write_text(at, encoding="utf-8")
    assert talk_until_it_ends(tmp_path).returncode == -signal.SIGKILL
    Path(tmp_path, "die").unlink()
    before = marks(tmp_path)
    ended = talk_until_it_ends(tmp_path)
    assert ended.returncode == 0 and "it is 12" in ended.stdout and "tokens 330" in ended.stdout, ended.stderr
    after = marks(tmp_path)
    again = {name for name in before if after[name] > 1} - {"body"}
    died_in = {at} | ({"add 1", "add 2"} if at.startswith("add") else set())
    assert again <= died_in, "only what was under way when the process died"
    assert after["body"] == 2 and set(after) == {"body", *POINTS}


def talk_until_it_ends(folder: Path) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "tests.agents.talk", str(folder / "refold.db"), "r"]
    environment = {**os.environ, "TALK_FOLDER": str(folder)}
    return subprocess.run(program, capture_output=True, text=True, timeout=120, env=environment)


def marks(folder: Path) -> Counter[str]:
    return Counter(Path(folder, "marks").read_text(encoding="utf-8").splitlines())
