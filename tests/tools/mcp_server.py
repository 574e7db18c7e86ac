"""A small MCP server: what it answers to a message, and itself as a program over stdin and stdout."""

import json
import os
import sys
import time
from typing import Any

TOOLS = [{"name": "add", "inputSchema": {"type": "object"}}, {"name": "fail", "inputSchema": {"type": "object"}}]


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    if "id" not in message:
        return None
    told = _result(message["method"], message.get("params") or {})
    return {"jsonrpc": "2.0", "id": message["id"], **told}


def _result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "sums", "version": "1.0"}
            return {"result": {"protocolVersion": "2025-03-26", "capabilities": {}, "serverInfo": info}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            at = int(params.get("cursor", 0))
            more = {"nextCursor": str(at + 1)} if at + 1 < len(TOOLS) else {}
            return {"result": {"tools": [TOOLS[at]], **more}}
        case "tools/call":
            return _called(params["name"], params.get("arguments") or {})
        case _:
            return {"error": {"code": -32601, "message": "no such method"}}


def _called(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match tool:
        case "add":
            content = [{"type": "text", "text": str(arguments["a"] + arguments["b"])}, {"type": "text", "text": "sum"}]
            return {"result": {"content": [*content, {"type": "image", "data": ""}], "isError": False}}
        case "fail":
            return {"result": {"content": [{"type": "text", "text": "cannot be done"}], "isError": True}}
        case "variable":
            return {"result": {"content": [{"type": "text", "text": os.environ.get("VARIABLE", "")}]}}
        case "sleep":
            time.sleep(100)
            return {"result": {}}
        case "leave":
            sys.exit("goodbye")
        case _:
            return {"error": {"code": -32602, "message": f"unknown tool {tool}"}}


def main() -> None:
    print("a line that is not a message", flush=True)
    asks = {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            print(json.dumps(asks), flush=True)  # and waits for the answer before it goes on
            refusal = json.loads(sys.stdin.readline())
            assert refusal["error"]["code"] == -32601
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}), flush=True)
        if (told := answer(message)) is not None:
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
