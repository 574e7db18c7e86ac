"""Runs the tools that a model has asked for: the loop of an agent that was unrolled to nodes."""

import inspect
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


async def dispatch(
    messages: Sequence[Any] | None,
    last_model_tool_calls: Sequence[Mapping[str, Any]] | None,
    last_model_output: str | None,
    tools: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Return the messages with those of the model and of its tools. `tools` are functions by the names of tools."""
    calls = list(last_model_tool_calls or ())
    asked = {
        "role": "assistant",
        "content": last_model_output or "",
        "tool_calls": [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for call in calls
        ],
    }
    answers = []
    for call in calls:
        content = await _called(call, tools or {})
        answers.append({"role": "tool", "tool_call_id": call["id"], "name": call["name"], "content": content})
    return {"messages": [*(messages or ()), asked, *answers]}


async def _called(call: Mapping[str, Any], tools: Mapping[str, str]) -> str:
    """Return what a tool gives, as text. A tool that there is not is an answer for the model."""
    name = call["name"]
    if name not in tools:
        return f"there is no tool {name!r}; there are {', '.join(tools) or 'none'}"
    module, _, path = tools[name].partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    arguments = call["arguments"]
    value = found(**arguments) if isinstance(arguments, Mapping) else found(arguments)
    value = await value if inspect.isawaitable(value) else value
    return value if isinstance(value, str) else json.dumps(value)
