"""The messages of MCP: JSON-RPC, and how a server sends them over HTTP."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

VERSION = "2025-06-18"
INITIALIZE = {
    "protocolVersion": VERSION,
    "capabilities": {},
    "clientInfo": {"name": "refold", "version": "1"},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def asks(number: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def response_in(answer: Mapping[str, Any], number: int) -> Mapping[str, Any] | None:
    """Return the response to the request with this number from a result of the tool `http`:

    JSON, or an event stream.
    """
    messages = [answer["data"]] if answer["data"] is not None else _events(answer["text"] or "")
    for message in messages:
        for each in message if isinstance(message, list) else [message]:
            if isinstance(each, Mapping) and each.get("id") == number and ("result" in each or "error" in each):
                return each
    return None


def _events(text: str) -> Iterator[Any]:
    """Yield the data of server-sent events; what is not JSON is ignored."""
    for event in text.replace("\r\n", "\n").split("\n\n"):
        data = "\n".join(line[5:].removeprefix(" ") for line in event.split("\n") if line.startswith("data:"))
        try:
            yield json.loads(data)
        except ValueError:
            continue  # no message, for example a comment that keeps the line alive
