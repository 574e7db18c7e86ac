"""What the tool `llm` is for its authors: its keys, its result, an example, and its checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem


def check_llm(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    if (keys.get("messages") is None) == (keys.get("prompt") is None):
        return [ToolProblem("", "exactly one of `messages` and `prompt` is needed", "write `prompt: …`")]
    if keys.get("messages") is not None and keys.get("system") is not None:
        hint = "write it as the first message, `{role: system, content: …}`"
        return [ToolProblem("system", "`system` belongs to `prompt`", hint)]
    return _price_problems(keys.get("price"))


def _price_problems(price: Any) -> Sequence[ToolProblem]:
    if not isinstance(price, Mapping) or price.keys() <= {"prompt", "completion"}:
        return []
    hint = "write `price: {prompt: 0.5, completion: 1.5}`"
    return [ToolProblem("price", "`price` has the keys `prompt` and `completion`, and no others", hint)]


LLM = ToolInfo(
    kind="llm",
    about="Asks a language model at any address that offers OpenAI's chat completions. The tokens are added to the"
    " run's usage as `tokens`, `prompt_tokens` and `completion_tokens`, which a budget can limit. Failures are those"
    " of the tool `http`; a request to slow down is a failure of kind `rate_limit`, with the time to wait.",
    keys=(
        ToolKey(
            name="base_url",
            type="text",
            required=True,
            about="the address of the server, such as `http://localhost:11434/v1`",
        ),
        ToolKey(name="model", type="text", required=True, about="the name of the model on that server"),
        ToolKey(name="messages", type="list", about="a list of `{role, content}`"),
        ToolKey(name="prompt", type="text", about="in place of `messages`: the text of the user"),
        ToolKey(name="system", type="text", about="with `prompt`: the text of the system message"),
        ToolKey(
            name="json",
            type="any",
            about="the answer must be JSON: `true`, or a JSON Schema; an answer that does not fit it is a failure of"
            " kind `schema`, which may be tried again",
        ),
        ToolKey(name="temperature", type="number", about="the temperature (the server's own)"),
        ToolKey(name="max_tokens", type="integer", about="the largest number of tokens in the answer"),
        ToolKey(name="api_key", type="text", about="sent as a bearer token; best from a secret"),
        ToolKey(name="headers", type="map", about="more headers"),
        ToolKey(name="options", type="map", about="more fields of the request, such as `{seed: 7}`"),
        ToolKey(
            name="price",
            type="map",
            about="`{prompt, completion}`, in USD for a million tokens; what the call costs is added to the run's usage"
            " as `usd`",
        ),
        ToolKey(name="timeout", type="duration", about="for the answer (2m)"),
    ),
    result="`{text, json, model, finish_reason, usage}`: `json` is the decoded answer, or null if none was asked for;"
    " `tool_calls` is there if the model asks for tools, which `options: {tools: …}` has offered",
    result_keys=("text", "json", "model", "finish_reason", "usage", "tool_calls"),
    check=check_llm,
    example="""\
tool:
  kind: llm
  base_url: http://localhost:11434/v1
  model: small
  system: Answer in one sentence.
  prompt: "{{ ctx.question }}"
  json: {type: object, properties: {answer: {type: string}}, required: [answer]}
""",
)
