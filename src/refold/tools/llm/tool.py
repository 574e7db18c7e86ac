"""The tool `llm`: asks a language model through the tool `http`, with the same guards."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from refold.core.outcomes import Failed, Fault, Succeeded
from refold.errors import OverBound, ToolFailed
from refold.ports import Done, Tool, ToolCall
from refold.schemas import misfits, misfits_text, schema_flaw
from refold.tool_api import Keys, refused, type_name
from refold.tools.llm.info import LLM

TIMEOUT = 120.0
LARGE = 16 * 1024  # characters of an answer that is read in a thread, so that nothing else has to wait
PATH = "/chat/completions"
UNITS = {"total_tokens": "tokens", "prompt_tokens": "prompt_tokens", "completion_tokens": "completion_tokens"}


class LlmTool:
    """Asks language models; `http` is the tool of that name."""

    def __init__(self, http: Tool) -> None:
        self._http = http
        self._keys = Keys(LLM)

    async def __call__(self, call: ToolCall) -> Done:
        keys = self._keys.read(call).keys
        answer = await self._http(_request(call, keys))
        told = _told(answer)
        choice, used = told["choices"][0], told.get("usage")
        text, json = choice["message"].get("content") or "", None
        if keys.get("json"):
            try:
                json = await _read_json(text, keys["json"])
            except ToolFailed as error:
                return Done(Failed(error.fault), usage=_usage(used, keys.get("price")))  # it is used up in any case
        result = {
            "text": text,
            "json": json,
            "model": told.get("model", keys["model"]),
            "finish_reason": choice.get("finish_reason"),
            "usage": used or {},
            **({"tool_calls": calls} if (calls := choice["message"].get("tool_calls")) else {}),
        }
        return Done(Succeeded(result), usage=_usage(used, keys.get("price")))


def _request(call: ToolCall, keys: Mapping[str, Any]) -> ToolCall:
    if not keys["model"]:
        raise refused("`model` names one that the server has")
    config = {
        "url": keys["base_url"].rstrip("/") + PATH,
        "json": _body(keys),
        "timeout": keys.get("timeout", TIMEOUT),
        "headers": keys.get("headers"),
        "auth": {"bearer": keys["api_key"]} if keys.get("api_key") else None,
    }
    command = structs.replace(call.command, input={"config": config})
    return structs.replace(call, command=command, settings={"response": "json"})


def _body(keys: Mapping[str, Any]) -> dict[str, Any]:
    body = {**keys.get("options", {}), "model": keys["model"], "messages": _messages(keys)}
    body |= {name: keys[name] for name in ("temperature", "max_tokens") if name in keys}
    match keys.get("json"):
        case None | False:
            pass
        case True:
            body["response_format"] = {"type": "json_object"}
        case Mapping() as schema:
            if (wrong := schema_flaw(schema)) is not None:
                raise refused(f"`json` is not JSON Schema: {wrong[1]}")
            form = {"name": "answer", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        case other:
            raise refused(f"`json` is true or a JSON Schema, not {type_name(other)}")
    return body


def _messages(keys: Mapping[str, Any]) -> list[Any]:
    messages, prompt, system = keys.get("messages"), keys.get("prompt"), keys.get("system")
    if (messages is None) == (prompt is None):
        raise refused("llm needs exactly one of `messages` and `prompt`")
    if messages is None:
        before = [{"role": "system", "content": system}] if system is not None else []
        return [*before, {"role": "user", "content": prompt}]
    if system is not None:
        raise refused("`system` belongs to `prompt`; among `messages` it is the first of them")
    if not messages or not all(isinstance(each, Mapping) and "role" in each for each in messages):
        raise refused("`messages` is a list of `{role, content}`")
    return list(messages)


def _told(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    data = answer["data"]
    match data:
        case {"choices": [{"message": {}}, *_]}:
            found: Mapping[str, Any] = data
            return found
        case _:
            why = f"{answer['url']} did not answer as a language model does: there is no `choices[0].message`"
            raise ToolFailed(Fault("parse", why, retryable=False))


def _usage(told: Any, price: Mapping[str, Any] | None = None) -> dict[str, int | float]:
    """Return the used tokens, and what they cost, by the units of budgets."""
    found = told if isinstance(told, Mapping) else {}
    counts = {unit: found.get(name) for name, unit in UNITS.items()}
    used: dict[str, int | float] = {
        unit: count for unit, count in counts.items() if isinstance(count, int) and not isinstance(count, bool)
    }
    if price is None:
        return used
    tokens = {"prompt": used.get("prompt_tokens", 0), "completion": used.get("completion_tokens", 0)}
    return {**used, "usd": sum(_usd(price, name) * count for name, count in tokens.items()) / 1_000_000}


def _usd(price: Mapping[str, Any], name: str) -> float:
    value = price.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise refused(f"`price.{name}` must be a number that is not negative, not {type_name(value)}")
    return value


async def _read_json(text: str, schema: Any) -> Any:
    if len(text) <= LARGE:
        return _json(text, schema)
    return await asyncio.to_thread(_json, text, schema)


def _json(text: str, schema: Any) -> Any:
    """Return the decoded answer of the model, without the code fence that models often put around it."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```"):
        bare = bare.removeprefix("```json").removeprefix("```").removesuffix("```")
    try:
        value = msgspec.json.decode(bare)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        why = f"the answer is not JSON: {error}"
        raise ToolFailed(Fault("parse", why, retryable=True, data={"text": text})) from None
    try:
        found = misfits(schema, value) if isinstance(schema, Mapping) else []
    except OverBound as error:
        why = f"the answer cannot be checked against its schema: {error}"
        raise ToolFailed(Fault("schema", why, retryable=False, data={"text": text})) from None
    if found:
        why = f"the answer does not fit its schema: {misfits_text(found, 'json')}"
        raise ToolFailed(Fault("schema", why, retryable=True, data={"text": text}))
    return value
