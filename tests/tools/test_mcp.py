"""The tool `mcp` against servers of this machine: at an address, and as programs."""

import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from refold.executors.programs import Programs
from refold.tools.http.tool import HttpTool
from refold.tools.mcp.tool import McpTool
from tests.tools.calls import call, engine, fault_of, one_step
from tests.tools.mcp_server import answer
from tests.tools.web import Answer, Asked, Site, says, served

SERVER = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]
METHODS = ["initialize", "notifications/initialized"]


class Server:
    """Sends its answers as events, or as plain JSON."""

    def __init__(self, events: bool) -> None:
        self.events = events
        self.site = Site()
        self.site["/mcp"] = self.reply
        self.at = ""

    def reply(self, asked: Asked) -> Answer:
        if asked.method == "DELETE":
            return Answer(405)
        told = answer(json.decode(asked.body))
        if told is None:
            return Answer(202)
        session = {"mcp-session-id": "s-1"} if "initialize" in asked.body.decode() else {}
        if not self.events:
            return says(told, 200, **session)
        noise = b'event: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\r\n\r\n: ping\r\n\r\n'
        body = noise + b"id: 7\r\nevent: message\r\ndata: " + json.encode(told) + b"\r\n\r\n"
        return Answer(200, {"content-type": "text/event-stream", **session}, body)

    def methods(self) -> list[str]:
        return [json.decode(asked.body)["method"] for asked in self.site.asked if asked.method == "POST"]


@pytest.fixture(params=["events", "json"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(request.param == "events")
    with served(made.site) as address:
        made.at = f"{address}/mcp"
        yield made


@pytest.fixture
async def mcp() -> AsyncIterator[McpTool]:
    http, programs = HttpTool(private=True), Programs(0.2)
    yield McpTool(http, programs)
    await http.close()
    await programs.close()


async def test_a_tool_of_a_server_at_an_address_is_called(mcp: McpTool, server: Server) -> None:
    result = await mcp(call(None, {"endpoint": f"{server.at}?k=1", "tool": "add", "arguments": {"a": 2, "b": 3}}))
    content = result.pop("result")["content"]
    assert result == {
        "status": "ok",
        "server": "sums",
        "endpoint": server.at,
        "method": "tools/call",
        "tool": "add",
        "arguments": {"a": 2, "b": 3},
        "text": "5\nsum",
    }
    assert len(content) == 3
    assert server.methods() == [*METHODS, "tools/call"]


async def test_a_session_is_kept_and_ended(mcp: McpTool, server: Server) -> None:
    await mcp(
        call(None, {"endpoint": server.at, "tool": "add", "arguments": {"a": 1, "b": 1}, "auth": {"bearer": "t"}})
    )
    first, *others = server.site.asked
    assert ("mcp-session-id" in first.headers, "mcp-protocol-version" in first.headers) == (False, False)
    assert {asked.headers["mcp-session-id"] for asked in others} == {"s-1"}
    assert {asked.headers["mcp-protocol-version"] for asked in others} == {"2025-03-26"}, "the one that was agreed on"
    assert {asked.headers["authorization"] for asked in server.site.asked} == {"Bearer t"}
    assert others[-1].method == "DELETE"


@pytest.fixture(params=["address", "program"])
def where(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    if request.param == "program":
        yield {"command": SERVER}
        return
    made = Server(True)
    with served(made.site) as address:
        yield {"endpoint": f"{address}/mcp"}


async def test_either_way_leads_to_the_same_result(mcp: McpTool, where: dict[str, Any]) -> None:
    result = await mcp(call(None, {**where, "tool": "add", "arguments": {"a": 40, "b": 2}}))
    assert (result["status"], result["server"], result["text"]) == ("ok", "sums", "42\nsum")


async def test_what_is_told_of_the_arguments_has_no_secret() -> None:
    http, programs = HttpTool(private=True), Programs(0.2)
    tool = McpTool(http, programs, lambda text: text.replace("s3cret", "***"))
    arguments = {"a": "s3cret ", "b": "x", "c": {"d": ["s3cret"], "e": 5}}
    result = await tool(call(None, {"command": SERVER, "tool": "add", "arguments": arguments}))
    assert result["text"].startswith("s3cret x"), "but the server is told"
    assert result["arguments"] == {"a": "*** ", "b": "x", "c": {"d": ["***"], "e": 5}}
    await http.close()
    await programs.close()


async def test_all_tools_are_listed_page_by_page(mcp: McpTool, where: dict[str, Any]) -> None:
    result = await mcp(call(None, {**where, "method": "tools/list"}))
    assert [each["name"] for each in result["result"]["tools"]] == ["add", "fail"]


async def test_a_server_that_answers_is_well(mcp: McpTool, where: dict[str, Any]) -> None:
    result = await mcp(call(None, {**where, "method": "health"}))
    assert (result["status"], result["server"], result["tool"]) == ("ok", "sums", None)


async def test_a_tool_that_answers_with_an_error_fails_the_step(mcp: McpTool, where: dict[str, Any]) -> None:
    fault = await fault_of(mcp, call(None, {**where, "tool": "fail"}))
    assert (fault.kind, fault.message) == ("tool_error", "fail answered with an error: cannot be done")
    assert (fault.data["status"], fault.data["text"]) == ("error", "cannot be done")


async def test_a_tool_that_is_not_there_fails_the_step(mcp: McpTool, where: dict[str, Any]) -> None:
    fault = await fault_of(mcp, call(None, {**where, "tool": "nothing"}))
    assert (fault.kind, fault.code, fault.retryable) == ("client_error", -32602, False)
    assert fault.message == "tools/call: unknown tool nothing"


async def test_a_program_gets_its_variables_and_what_it_complains_about_is_heard(mcp: McpTool) -> None:
    heard: list[tuple[str, str]] = []
    config = {"command": SERVER, "tool": "variable", "env": {"VARIABLE": "v4lue"}}
    result = await mcp(call(None, config, None, lambda stream, text: heard.append((stream, text))))
    assert result["text"] == "v4lue"
    assert result["endpoint"] == " ".join(SERVER)
    assert heard == [("stderr", "a line that is not a message")]


async def test_a_program_that_leaves_before_it_answers_may_be_tried_again(mcp: McpTool) -> None:
    fault = await fault_of(mcp, call(None, {"command": SERVER, "tool": "leave"}))
    assert (fault.kind, fault.retryable) == ("connection", True)
    assert fault.message.endswith("it ended before it answered tools/call")
    fault = await fault_of(mcp, call(None, {"command": ["/no/such/program"], "tool": "x"}))
    assert fault.kind == "connection"
    assert "'/no/such/program' cannot be started" in fault.message


async def test_a_program_that_takes_too_long_is_ended(mcp: McpTool, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = (
        f"import os, runpy; open({str(note)!r}, 'w').write(str(os.getpid()));"
        f" runpy.run_path({SERVER[1]!r}, {{}}, '__main__')"
    )
    for limit in ("2s", "8s", "32s"):  # a busy machine may need longer to begin with it
        config = {"command": [sys.executable, "-c", script], "tool": "sleep", "timeout": limit}
        fault = await fault_of(mcp, call(None, config))
        assert (fault.kind, fault.retryable) == ("timeout", True)
        if note.exists():
            break
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{note.read_text()}"):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    "config",
    [
        {"tool": "x"},
        {"endpoint": "http://x.test", "command": ["x"], "tool": "x"},
        {"endpoint": "http://x.test"},
        {"command": [], "tool": "x"},
        {"endpoint": "http://x.test", "method": "tools/drop"},
    ],
)
async def test_what_cannot_be_meant_is_refused(mcp: McpTool, config: dict[str, Any]) -> None:
    fault = await fault_of(mcp, call(None, config))
    assert (fault.kind, fault.retryable) == ("invalid_settings", False)


@pytest.mark.parametrize("reply", [says({"jsonrpc": "2.0", "id": 99, "result": {}}), Answer(200, {}, b"data: {")])
async def test_an_answer_to_something_else_is_a_failure(mcp: McpTool, reply: Answer) -> None:
    site = Site()
    site["/mcp"] = reply
    with served(site) as address:
        fault = await fault_of(mcp, call(None, {"endpoint": f"{address}/mcp", "tool": "x"}))
    assert (fault.kind, fault.retryable) == ("parse", True)


async def test_a_private_address_is_refused_unless_it_may_be_reached(server: Server) -> None:
    tool = McpTool(HttpTool(private=False), Programs(0.2))
    assert (await fault_of(tool, call(None, {"endpoint": server.at, "tool": "add"}))).kind == "blocked_address"
    assert server.site.connections == 0


async def test_a_call_is_a_step_like_any_other() -> None:
    async with engine() as opened:
        config = {"command": SERVER, "tool": "add", "arguments": {"a": 1, "b": 2}}
        assert (await opened.run(one_step("mcp", None, config)))["text"] == "3\nsum"
