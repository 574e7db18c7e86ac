"""What the tool `mcp` is for its authors: its keys, its result, an example, and its checks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem
from refold.tools.shared_keys import programs_in


def check_mcp(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_server(keys), *_called(keys)]


def _server(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    if (keys.get("endpoint") is None) == (keys.get("command") is None):
        yield ToolProblem("", "exactly one of `endpoint` and `command` is needed", "give the address of the server")
    for name, other in (("headers", "endpoint"), ("auth", "endpoint"), ("env", "command")):
        if keys.get(name) is not None and keys.get(other) is None:
            yield ToolProblem(name, f"`{name}` belongs to `{other}`", "remove it")


def _called(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    if keys.get("method", "tools/call") == "tools/call" and not keys.get("tool"):
        yield ToolProblem("", "`tools/call` needs `tool`", "name the tool, or write `method: tools/list`")


MCP = ToolInfo(
    kind="mcp",
    about="Calls a tool of an MCP server. The server is reached at an address (streamable HTTP, with the guards of the"
    " tool `http`), or is started as a program (stdio) and ended afterwards. An error result of the tool is a failure"
    " of kind `tool_error`.",
    keys=(
        ToolKey(name="endpoint", type="text", about="the address of the server"),
        ToolKey(name="command", type="list", about="in place of `endpoint`: the program and its arguments, as a list"),
        ToolKey(
            name="method",
            type="text",
            choices=("tools/call", "tools/list", "health"),
            about="`tools/call` (the default), `tools/list` for the tools of the server, `health` for whether it"
            " answers",
        ),
        ToolKey(name="tool", type="text", about="the tool to call"),
        ToolKey(name="arguments", type="map", about="the arguments of the tool ({})"),
        ToolKey(name="headers", type="map", about="headers of requests to `endpoint`"),
        ToolKey(name="auth", type="map", about="for `endpoint`, as in the tool `http`"),
        ToolKey(name="env", type="map", about="for `command`: variables that are added to the environment"),
        ToolKey(name="timeout", type="duration", about="for the whole call (60s)"),
    ),
    result="`{status, server, endpoint, method, tool, arguments, text, result}`: `text` is all text of the result,"
    " `result` the result itself",
    result_keys=("status", "server", "endpoint", "method", "tool", "arguments", "text", "result"),
    check=check_mcp,
    check_programs=programs_in("command"),
    example="""\
tool:
  kind: mcp
  endpoint: https://tools.example.com/mcp
  tool: search
  arguments: {query: "{{ ctx.question }}"}
---
tool:
  kind: mcp
  command: [python, -m, my_server]
  method: tools/list
""",
)
