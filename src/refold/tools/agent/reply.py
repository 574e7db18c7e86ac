"""Reads the reply of an agent: its text, and the JSON value in it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import DecodeError, Struct
from msgspec import json as fast_json

from refold.core.outcomes import Fault
from refold.errors import OverBound, ToolFailed
from refold.schemas import misfits, misfits_text

FENCE = re.compile(r"```[^\n`]*\n(.*?)```", re.S)
MOST_STARTS = 1_000  # places in a text at which a JSON value is looked for
SHOWN = 2_000  # characters of a reply that a failure keeps
PROGRAMS = ("shell", "container")  # their text is what they print


class AgentReply(Struct, frozen=True):
    """What a bound tool has answered. `value` is a map or list that was returned as data; then `text` is its JSON."""

    text: str
    value: Any = None


def reply_of(kind: str, result: Any) -> AgentReply:
    """Return the answer in the result of a tool of that kind."""
    if isinstance(result, Mapping):
        if kind in PROGRAMS:
            return AgentReply(result["stdout"])
        if kind == "llm":
            return AgentReply(result["text"])
        if kind == "mcp":
            return _reply_of_server(result)
        if kind == "http":
            data = result.get("data")
            return _as_reply(data if data is not None else result.get("text"))
    return _as_reply(result)


def _reply_of_server(result: Mapping[str, Any]) -> AgentReply:
    inner = result.get("result")
    structured = inner.get("structuredContent") if isinstance(inner, Mapping) else None
    return _as_reply(structured) if structured is not None else AgentReply(result["text"])


def _as_reply(value: Any) -> AgentReply:
    if value is None:
        return AgentReply("")
    if isinstance(value, str):
        return AgentReply(value)
    return AgentReply(fast_json.encode(value).decode(), value)


def read_json(reply: AgentReply, schema: Mapping[str, Any] | None) -> Any:
    """Return the value of a reply. Raises ToolFailed of kind `parse` or `schema`, whose message helps the agent."""
    value = reply.value if reply.value is not None else _json_in(reply.text)
    if schema is None:
        return value
    try:
        found = misfits(schema, value)
    except OverBound as error:
        why = f"the reply cannot be checked against its schema: {error}"
        raise ToolFailed(Fault("schema", why, retryable=False, data={"text": reply.text[:SHOWN]})) from None
    if found:
        why = f"the reply does not fit its schema: {misfits_text(found, 'reply')}"
        raise ToolFailed(Fault("schema", why, retryable=True, data={"text": reply.text[:SHOWN]}))
    return value


def _json_in(text: str) -> Any:
    """Return the JSON value of a text: the whole text, else its last fenced block, else the last map or list in it."""
    try:
        return fast_json.decode(text)
    except (DecodeError, RecursionError, UnicodeError):
        pass
    for block in reversed(FENCE.findall(text)):
        try:
            return fast_json.decode(block)
        except (DecodeError, RecursionError, UnicodeError):
            continue
    found = list(_values_in(text))
    if not found:
        why = "the reply has no JSON value" + (": it is empty" if not text.strip() else "")
        raise ToolFailed(Fault("parse", why, retryable=True, data={"text": text[:SHOWN]}))
    return found[-1]


def _values_in(text: str) -> Iterator[Any]:
    """Return the maps and lists in a text that are not inside of another one."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(MOST_STARTS):
        start = min((each for each in (text.find("{", at), text.find("[", at)) if each >= 0), default=-1)
        if start < 0:
            return
        try:
            value, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
        else:
            yield value
