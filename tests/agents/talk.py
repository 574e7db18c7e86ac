"""An agent whose model follows a script, and a program that runs it until it is killed.

`python -m tests.agents.talk DB RUN` runs the flow, and dies where the file `die` next to the database says.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from refold import Context, flow, open_engine
from refold.agents.pydantic_ai import RefoldDurability, durable
from refold.settings import Settings

SHORT = Settings(lease_for=1.0, sweep_every=0.1, poll=0.1)
PRICE = {"prompt": 1.0, "completion": 2.0}


def mark(folder: str, text: str) -> None:
    with open(Path(folder, "marks"), "a", encoding="utf-8") as marks:
        marks.write(f"{text}\n")
    die = Path(folder, "die")
    if die.exists() and die.read_text(encoding="utf-8") == text:
        os.kill(os.getpid(), signal.SIGKILL)


def returned(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


async def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call `add` twice at the same time, then `double` with the sum, then say the result."""
    results = {part.tool_call_id: part.content for part in returned(messages)}
    mark(FOLDER, f"model {len(results)}")
    usage = RequestUsage(input_tokens=100, output_tokens=10)
    match len(results):
        case 0:
            calls = [ToolCallPart("add", {"a": n, "b": n}, tool_call_id=f"add-{n}") for n in (1, 2)]
            return ModelResponse(parts=calls, usage=usage)
        case 2:
            value = int(str(results["add-1"])) + int(str(results["add-2"]))
            return ModelResponse(parts=[ToolCallPart("double", {"n": value}, tool_call_id="double-1")], usage=usage)
        case _:
            return ModelResponse(parts=[TextPart(f"it is {results['double-1']}")], usage=usage)


FOLDER = os.environ.get("TALK_FOLDER", ".")
agent = Agent(
    FunctionModel(scripted, model_name="scripted"),
    name="talker",
    deps_type=str,
    capabilities=[RefoldDurability(price=PRICE)],
)


@agent.tool
async def add(ctx: RunContext[str], a: int, b: int) -> int:
    mark(FOLDER, f"add {a}")
    return a + b


@agent.tool_plain
def double(n: int) -> int:
    mark(FOLDER, f"double {n}")
    return 2 * n


@flow
async def talk(ctx: Context, question: str) -> str:
    mark(FOLDER, "body")
    with durable(ctx):
        result = await agent.run(question, deps="nothing")
    mark(FOLDER, "said")
    return result.output


async def go_on(db: str, run: str) -> Any:
    async with open_engine(db=db, settings=SHORT) as engine:
        handle = await engine.options(key=run).start(talk, question="what?")
        said = await handle.result()
        return f"{said}, tokens {(await handle.usage())['tokens']}"


if __name__ == "__main__":
    print(asyncio.run(go_on(*sys.argv[1:])))
