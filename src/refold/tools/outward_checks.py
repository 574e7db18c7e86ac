"""What can be wrong with the keys of the tools that reach beyond the run, and be seen before one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.tool_api import ToolProblem

NAME = re.compile(r"\S{1,200}")  # of an event


def check_artifact(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    action = keys.get("action", "get")
    if action == "put" and keys.get("uri") is None:
        return [ToolProblem("", "`put` needs `uri`", "write `uri: reports/today.json`")]
    if action == "put" and "data" not in keys:
        return [ToolProblem("", "`put` needs `data`", 'write `data: "{{ ctx.report }}"`')]
    if action == "get" and keys.get("ref") is not None and keys.get("uri") is not None:
        return [ToolProblem("uri", "`uri` and `ref` exclude each other", "take one of them away")]
    return []


def check_emit(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    event = keys.get("event")
    if (event is None) == (keys.get("message") is None):
        return [ToolProblem("", "exactly one of `event` and `message` is needed", "write `event: paid`")]
    if isinstance(event, str) and "{{" not in event and not NAME.fullmatch(event):
        return [ToolProblem("event", "the name of an event has no spaces", "write `event: order.paid`")]
    return []


def check_container(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    resources = keys.get("resources")
    known = ("cpus", "memory")
    return [
        ToolProblem("resources", f"`resources` has no {name!r}", "it has `cpus` and `memory`")
        for name in (resources if isinstance(resources, Mapping) else ())
        if name not in known
    ]


def check_mcp(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_server(keys), *_called(keys)]


def _server(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    if (keys.get("endpoint") is None) == (keys.get("command") is None):
        yield ToolProblem("", "exactly one of `endpoint` and `command` is needed", "give the address of the server")
    for name, other in (("headers", "endpoint"), ("auth", "endpoint"), ("env", "command")):
        if keys.get(name) is not None and keys.get(other) is None:
            yield ToolProblem(name, f"`{name}` belongs to `{other}`", "take it away")


def _called(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    if keys.get("method", "tools/call") == "tools/call" and not keys.get("tool"):
        yield ToolProblem("", "`tools/call` needs `tool`", "name the tool, or write `method: tools/list`")


def check_llm(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    if (keys.get("messages") is None) == (keys.get("prompt") is None):
        return [ToolProblem("", "exactly one of `messages` and `prompt` is needed", "write `prompt: …`")]
    if keys.get("messages") is not None and keys.get("system") is not None:
        hint = "write it as the first message, `{role: system, content: …}`"
        return [ToolProblem("system", "`system` belongs to `prompt`", hint)]
    return []
