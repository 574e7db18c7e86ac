"""The tool `mcp`: calls a tool of an MCP server, which is reached at an address or started as a program.

It speaks the protocol itself, which is a few messages of JSON: so that every request goes through the one client with
all that it refuses, and every program is ended with all it has started.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import structs

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.logs import DEBUG, event, logger
from refold.ports import Program, Programs, Tool, ToolCall
from refold.tool_api import Keys, folder_of, refused, text_of
from refold.tools.mcp.info import MCP
from refold.tools.mcp.messages import INITIALIZE, INITIALIZED, VERSION, asks, response_in

log = logger("tools")

TIMEOUT = 60.0
MOST_PAGES = 100
MOST = 16 * 1024 * 1024  # bytes that a program may answer
STDIO = str(Path(__file__).with_name("stdio_bridge.py"))
NOT_FOUND, BAD_PARAMS = -32601, -32602

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Sends a request, by its method and its parameters; gives its result."""


class McpTool:
    """Calls MCP servers. `http` is the tool of that name; `conceal` removes secrets from a text that is shown."""

    def __init__(self, http: Tool, programs: Programs, conceal: Callable[[str], str] = str) -> None:
        self._http, self._programs, self._conceal = http, programs, conceal
        self._keys = Keys(MCP)

    async def __call__(self, call: ToolCall) -> Any:
        keys = self._keys.read(call).keys
        endpoint, command = keys.get("endpoint"), keys.get("command")
        if (endpoint is None) == (command is None):
            raise refused("mcp needs exactly one of `endpoint` and `command`")
        if keys.get("method", "tools/call") == "tools/call" and not keys.get("tool"):
            raise refused("`tools/call` needs `tool`")
        try:
            async with asyncio.timeout(keys.get("timeout", TIMEOUT)):
                if endpoint is not None:
                    return await self._at_address(call, keys, endpoint)
                return await self._by_program(call, keys)
        except TimeoutError:
            why = f"{_called(keys)} took too long"
            raise ToolFailed(Fault("timeout", why, code="CONN_TIMEOUT", retryable=True)) from None

    async def _at_address(self, call: ToolCall, keys: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
        session = _Session(self._http, call, keys)
        try:
            begun = await session.ask("initialize", INITIALIZE)
            session.version = str(begun.get("protocolVersion") or VERSION)
            await session.post(INITIALIZED)
            result = await _result(session.ask, keys)
        finally:
            await session.end()
        return self._answer(keys, endpoint, begun, result)

    async def _by_program(self, call: ToolCall, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Call a server that is a program.

        A second program, the bridge, waits for its responses; it is given the requests.
        """
        argv = [text_of(each, "`command`") for each in keys["command"]]
        if not argv:
            raise refused("`command` is a list of the program and its arguments")
        env = {name: text_of(value, f"`env.{name}`") for name, value in keys.get("env", {}).items()}
        begun: dict[str, Any] = {}

        async def ask(method: str, params: Mapping[str, Any]) -> Any:
            messages = [asks(1, "initialize", INITIALIZE), INITIALIZED, asks(2, method, params)]
            stdin = "".join(json.dumps(each) + "\n" for each in messages).encode()
            program = Program(
                argv=[sys.executable, "-I", STDIO, *argv], env=env, stdin=stdin, keep=MOST, cwd=folder_of(call)
            )
            ended = await self._programs.run(program, _only_stderr(call))
            if ended.code:
                raise _died(argv[0], ended.stderr_end or ended.stderr)
            if ended.left_out:
                raise refused(f"the answer of {argv[0]} has more than {MOST} bytes", "too_large")
            first, last = (json.loads(line) for line in ended.stdout.splitlines())
            begun.update(_result_of(first, "initialize"))
            return _result_of(last, method)

        result = await _result(ask, keys)
        return self._answer(keys, " ".join(argv), begun, result)

    def _answer(self, keys: Mapping[str, Any], where: str, begun: Mapping[str, Any], result: Any) -> dict[str, Any]:
        told = {
            "status": "ok",
            "server": begun.get("serverInfo", {}).get("name", ""),
            "endpoint": _without_query(where),
            "method": keys.get("method", "tools/call"),
            "tool": keys.get("tool"),
            "arguments": _each_text(keys.get("arguments", {}), self._conceal),
            "text": _texts(result),
            "result": result,
        }
        if isinstance(result, Mapping) and result.get("isError"):
            why = f"{_called(keys)} answered with an error: {told['text'] or 'it does not say which'}"
            raise ToolFailed(Fault("tool_error", why, data={**told, "status": "error"}))
        return told


class _Session:
    """A session with one server at an address: its requests are sent one after the other."""

    def __init__(self, http: Tool, call: ToolCall, keys: Mapping[str, Any]) -> None:
        self._http, self._call, self._keys = http, call, keys
        self._id = ""
        self._asked = self._sent = 0
        self.version = ""  # the one that was agreed on

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        self._asked += 1
        answer = await self.post(asks(self._asked, method, params))
        found = response_in(answer, self._asked)
        if found is None:
            raise ToolFailed(Fault("parse", f"{self._keys['endpoint']} did not answer {method}", retryable=True))
        return _result_of(found, method)

    async def post(self, message: Mapping[str, Any]) -> Any:
        answer = await self._http(self._request({"method": "POST", "json": message}))
        self._id = answer["headers"].get("mcp-session-id", self._id)
        return answer

    async def end(self) -> None:
        """End the session on the server. A server that cannot do that is not a failure."""
        if self._id:
            try:
                await self._http(self._request({"method": "DELETE", "timeout": 2.0, "expect": list(range(200, 600))}))
            except ToolFailed as error:
                event(log, DEBUG, "an MCP server did not end its session", why=error.fault.kind)

    def _request(self, more: dict[str, Any]) -> ToolCall:
        headers = {
            **self._keys.get("headers", {}),
            "accept": "application/json, text/event-stream",
            "mcp-session-id": self._id or None,
            "mcp-protocol-version": self.version or None,
        }
        config = {"url": self._keys["endpoint"], "headers": headers, "auth": self._keys.get("auth"), **more}
        self._sent += 1
        config["idempotency_key"] = f"{self._call.idempotency_key}/{self._sent}"
        config.setdefault("timeout", self._keys.get("timeout", TIMEOUT))
        command = structs.replace(self._call.command, input={"config": config})
        return structs.replace(self._call, command=command, settings={})


async def _result(ask: Ask, keys: Mapping[str, Any]) -> Any:
    match keys.get("method", "tools/call"):
        case "health":
            return await ask("ping", {})
        case "tools/list":
            return {"tools": await _tools(ask)}
        case _:
            return await ask("tools/call", {"name": keys["tool"], "arguments": keys.get("arguments", {})})


async def _tools(ask: Ask) -> list[Any]:
    found: list[Any] = []
    params: dict[str, Any] = {}
    for _ in range(MOST_PAGES):
        page = await ask("tools/list", params)
        found += page.get("tools", [])
        if not page.get("nextCursor"):
            break
        params = {"cursor": page["nextCursor"]}
    return found


def _texts(result: Any) -> str:
    content = result.get("content") if isinstance(result, Mapping) else None
    found = [each for each in content or () if isinstance(each, Mapping) and each.get("type") == "text"]
    return "\n".join(str(each.get("text", "")) for each in found)


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {name: _each_text(each, change) for name, each in value.items()}
        case list():
            return [_each_text(each, change) for each in value]
        case _:
            return value


def _result_of(message: Mapping[str, Any], method: str) -> Any:
    error = message.get("error")
    if error is None:
        return message.get("result") or {}
    code = error.get("code", 0) if isinstance(error, Mapping) else 0
    kind = {NOT_FOUND: "not_found", BAD_PARAMS: "client_error"}.get(code, "server_error")
    why = error.get("message", "") if isinstance(error, Mapping) else str(error)
    worth = kind == "server_error"
    raise ToolFailed(Fault(kind, f"{method}: {why}", code=code, retryable=worth, data={"error": error}))


def _called(keys: Mapping[str, Any]) -> str:
    return str(keys.get("tool") or keys.get("method"))


def _without_query(endpoint: str) -> str:
    return endpoint if " " in endpoint else urlsplit(endpoint)._replace(query="", fragment="").geturl()


def _only_stderr(call: ToolCall) -> Callable[[str, str], None] | None:
    """Pass on only stderr, for those who follow the run: stdout is the protocol."""
    if call.say is None:
        return None
    say = call.say
    return lambda stream, text: say(stream, text) if stream == "stderr" else None


def _died(program: str, stderr: bytes) -> ToolFailed:
    last = (stderr.decode("utf-8", "replace").strip().splitlines() or ["it ended before it answered"])[-1]
    return ToolFailed(Fault("connection", f"{program}: {last}", code="CONN_ERROR", retryable=True))
