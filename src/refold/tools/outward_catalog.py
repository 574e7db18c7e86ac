"""The tools that reach beyond the run, as data: artifacts, events, containers, MCP servers and language models."""

from refold.tool_api import ToolInfo, ToolKey
from refold.tools.checks import programs_in
from refold.tools.outward_checks import check_artifact, check_container, check_emit, check_llm, check_mcp

ARTIFACT = ToolInfo(
    kind="artifact",
    about="Keeps files in the folder of artifacts, which is the setting `artifacts`, or beside the database its name"
    " with `-artifacts`; and reads what a reference stands for, such as the `_ref` of a large result. What is not there"
    " is a failure of kind `missing_reference`, code `REFERENCE_NOT_AVAILABLE`, that may be tried again. No path leads"
    " out of the folder.",
    keys=(
        ToolKey(
            name="action",
            type="text",
            choices=("get", "put", "list"),
            about="`get` (the default) reads, `put` writes, and `list` names the files in a folder and below it",
        ),
        ToolKey(
            name="ref",
            type="any",
            about="what to get: a reference object such as `put` gives, or its text,"
            " `refold://artifact/PATH` or `refold://execution/RUN/result/STEP/HASH`; it may also be given as"
            " `input.ref` or `input.result_ref`",
        ),
        ToolKey(name="uri", type="text", about="the path of a file in that folder, such as `reports/7.json`"),
        ToolKey(name="data", type="any", about="what to put"),
        ToolKey(
            name="format",
            type="text",
            choices=("auto", "json", "text", "base64"),
            about="how the file holds the data: `auto` is JSON if its name ends in `.json` or what is put is no text,"
            " and text otherwise; `base64` is for bytes",
        ),
        ToolKey(name="max_bytes", type="integer", about="the largest file that is read (10 MiB)"),
    ),
    result="of `get`, what was stored; of `put`, the reference `{kind, ref, store, scope, uri, meta}`, where `meta` is"
    " `{content_type, bytes, sha256}`; of `list`, `{files}`, each as `{uri, ref, bytes}`",
    check=check_artifact,
)

EMIT = ToolInfo(
    kind="emit",
    about="Says something to those who follow the run, at once: a line of the run's log, which `refold runs logs -f`"
    " shows. It is said again in another try of the step.",
    keys=(
        ToolKey(name="event", type="text", about="what it is called, without spaces (`message`)"),
        ToolKey(name="data", type="any", about="what belongs to it; it is shown as JSON"),
        ToolKey(name="message", type="text", about="a line of text, in place of `event` and `data`"),
    ),
    result="`{event, data}`; the data of a message is its text",
    result_keys=("event", "data"),
    check=check_emit,
)

CONTAINER = ToolInfo(
    kind="container",
    about="Runs a container with the program `docker`, and removes it afterwards. Its name comes from the idempotency"
    " key, so that a repetition ends what an earlier try left behind. When time is up, it is killed by its name."
    " The environment has REFOLD_RUN, REFOLD_STEP, REFOLD_ATTEMPT and REFOLD_IDEMPOTENCY_KEY. An exit code that is not"
    " among `ok_codes` is a failure of kind `exit`, one of docker itself of kind `container`, or `connection` if it"
    " cannot be reached.",
    keys=(
        ToolKey(name="image", type="text", required=True, about="such as `python:3.12-slim`"),
        ToolKey(name="command", type="list", about="the program in place of the image's own entry point"),
        ToolKey(name="args", type="list", about="its arguments; each value is one argument, whatever is in it"),
        ToolKey(
            name="env",
            type="any",
            about="variables, as a map or as a list of `{name, value}`; they reach the container alone and not docker"
            " itself, nor are their values seen among its arguments, so this is the place for secrets",
        ),
        ToolKey(name="volumes", type="list", about="such as `/data/in:/in:ro`, or `{source, target, read_only}`"),
        ToolKey(name="resources", type="map", about="`{cpus, memory}`, such as `{cpus: 1.5, memory: 512m}`"),
        ToolKey(name="network", type="text", about="the network it is in; `none` for none"),
        ToolKey(name="user", type="text", about="who runs it, such as `1000:1000`"),
        ToolKey(name="cwd", type="text", about="the folder it runs in"),
        ToolKey(name="stdin", type="any", about="what it reads: text as it is, other values as JSON"),
        ToolKey(
            name="pull",
            type="text",
            choices=("missing", "always", "never"),
            about="when the image is fetched (`missing`)",
        ),
        ToolKey(name="ok_codes", type="list", about="exit codes that are no failure ([0])"),
        ToolKey(name="timeout", type="duration", about="for all of it. Without it, only the step's own"),
    ),
    result="`{exit_code, stdout, stderr, truncated, name, image}`: the first MiB of each stream, and how many bytes"
    " were left out",
    result_keys=("exit_code", "stdout", "stderr", "truncated", "name", "image"),
    check=check_container,
    programs=programs_in("command", "args"),
)

MCP = ToolInfo(
    kind="mcp",
    about="Calls a tool of an MCP server, which is reached at an address (streamable HTTP, with the guards of the tool"
    " `http`) or started as a program (stdio) and ended afterwards. A tool that answers with an error is a failure of"
    " kind `tool_error`.",
    keys=(
        ToolKey(name="endpoint", type="text", about="the address of the server"),
        ToolKey(name="command", type="list", about="or the program and its arguments, as a list"),
        ToolKey(
            name="method",
            type="text",
            choices=("tools/call", "tools/list", "health"),
            about="`tools/call` (the default), `tools/list` for what there is, `health` to see whether it answers",
        ),
        ToolKey(name="tool", type="text", about="the tool to call"),
        ToolKey(name="arguments", type="map", about="what it gets ({})"),
        ToolKey(name="headers", type="map", about="for an address"),
        ToolKey(name="auth", type="map", about="for an address, as the tool `http` has it"),
        ToolKey(name="env", type="map", about="for a program: variables laid over the environment"),
        ToolKey(name="timeout", type="duration", about="for all of it (60s)"),
    ),
    result="`{status, server, endpoint, method, tool, arguments, text, result}`: `text` is all text of the answer,"
    " `result` the answer itself",
    result_keys=("status", "server", "endpoint", "method", "tool", "arguments", "text", "result"),
    check=check_mcp,
    programs=programs_in("command"),
)

LLM = ToolInfo(
    kind="llm",
    about="Asks a language model at any address that speaks OpenAI's chat completions. What it used up is added to the"
    " run's usage as `tokens`, `prompt_tokens` and `completion_tokens`, which a budget may limit. Failures are those of"
    " the tool `http`; to be asked to slow down is one of kind `rate_limit`, with the time to wait.",
    keys=(
        ToolKey(
            name="base_url",
            type="text",
            required=True,
            about="such as `http://localhost:11434/v1`",
        ),
        ToolKey(name="model", type="text", required=True, about="its name there"),
        ToolKey(name="messages", type="list", about="a list of `{role, content}`"),
        ToolKey(name="prompt", type="text", about="in place of `messages`: what the user says"),
        ToolKey(name="system", type="text", about="what is said before that, as `system`"),
        ToolKey(
            name="json",
            type="any",
            about="the answer is to be JSON: `true`, or a JSON Schema that it is held against; one that does not fit is"
            " a failure of kind `schema`, that may be tried again",
        ),
        ToolKey(name="temperature", type="number", about="the server's own without it"),
        ToolKey(name="max_tokens", type="integer", about="of the answer"),
        ToolKey(name="api_key", type="text", about="sent as a bearer token; best from a secret"),
        ToolKey(name="headers", type="map", about="more headers"),
        ToolKey(name="options", type="map", about="more fields of the request, such as `{seed: 7}`"),
        ToolKey(name="timeout", type="duration", about="for the answer (2m)"),
    ),
    result="`{text, json, model, finish_reason, usage}`: `json` is the decoded answer, or null if none was asked for",
    result_keys=("text", "json", "model", "finish_reason", "usage"),
    check=check_llm,
)

KINDS = (ARTIFACT, EMIT, CONTAINER, MCP, LLM)
