"""What JamJet's forms have, as data: the kinds of nodes and their fields, in the IR, in graphs and in lists."""

from collections.abc import Mapping

from refold.playbooks.jamjet.fields import Field

END = "end"

SCHEMA = Field("output_schema", "any", "a JSON Schema that the result has to fit; a text names code and is not read")
REPLY = Field("output_schema", "any", "a JSON Schema that the reply of a bound agent has to fit; a text is not read")
ANSWER = Field("output_schema", "any", "a JSON Schema: the answer is read as JSON; a text names code and is not read")
MAPPING = Field("input_mapping", "map", "the arguments, as values or expressions")

IR_KINDS: Mapping[str, tuple[Field, ...]] = {
    "model": (
        Field("model_ref", "text", "the model", True),
        Field("prompt_ref", "text", "the prompt, or its file", True),
        Field("output_schema", "any", ANSWER.about, True),
        Field("system_prompt", "text", "the system message"),
        Field("tools", "list", "tools that the model may ask for"),
    ),
    "python_fn": (
        Field("module", "text", "the module", True),
        Field("function", "text", "the function, which gets the state", True),
        Field("output_schema", "any", SCHEMA.about, True),
    ),
    "tool": (
        Field("tool_ref", "text", "the tool", True),
        Field("input_mapping", "map", MAPPING.about, True),
        Field("output_schema", "any", SCHEMA.about, True),
    ),
    "condition": (Field("branches", "list", "`[{condition, target}]`, the first that holds", True),),
    "parallel": (Field("branches", "names", "the nodes that start at once", True),),
    "join": (
        Field("wait_for", "names", "the nodes that it waits for", True),
        Field("merge_strategy", "any", "`collect`, `first`, or `{custom: {function_ref}}`", True),
    ),
    "human_approval": (
        Field("description", "text", "what a person is asked", True),
        Field("timeout_secs", "duration", "how long it waits", also=("timeout",)),
        Field("fallback_node", "text", "where it leads when time is up"),
    ),
    "wait": (
        Field(
            "condition", "text", "what it waits for", True, choices=("timer", "external_event", "either"), means="waits"
        ),
        Field("correlation_key", "text", "the name of the signal"),
        Field("timeout_secs", "duration", "how long it waits", also=("timeout",)),
    ),
    "subgraph": (
        Field("workflow_ref", "text", "a unit of this file, or a file next to it", True),
        Field("workflow_version", "version", "the version that it must have"),
        Field("input_mapping", "map", MAPPING.about, True),
        Field("output_mapping", "map", "state keys, as expressions over the state of the child", True),
    ),
    "mcp_tool": (
        Field("server", "text", "the MCP server", True),
        Field("tool", "text", "its tool", True),
        Field("input_mapping", "map", MAPPING.about, True),
        Field("output_schema", "any", SCHEMA.about, True),
    ),
    "a2a_task": (
        Field("remote_agent", "text", "the agent", True),
        Field("skill", "text", "what it is asked to do", True),
        Field("input_mapping", "map", MAPPING.about, True),
        Field("output_schema", "any", SCHEMA.about, True),
        Field("stream", "bool", "has no effect", True),
        Field("on_input_required", "text", "where it leads when the agent asks back"),
        Field("timeout_secs", "duration", "of one try", also=("timeout",), means="try_timeout"),
    ),
    "agent": (
        Field("agent_ref", "text", "the agent", True),
        Field("input_mapping", "map", MAPPING.about, True),
        Field("output_schema", "any", REPLY.about, True),
    ),
    "eval": (
        Field("scorers", "list", "what is judged, and how", True),
        Field(
            "on_fail",
            "text",
            "what follows a failed evaluation",
            True,
            choices=("retry_with_feedback", "escalate", "halt", "log_and_continue"),
        ),
        Field("max_retries", "whole", "how often the node before it is entered again"),
        Field("input_expr", "text", "what is judged, instead of the output of the node before it"),
    ),
    "finalizer": (
        Field("tool_ref", "text", "the tool", True),
        Field("run_on", "text", "when it runs", True, choices=("success", "failure", "always")),
        Field("input_mapping", "map", MAPPING.about),
    ),
    "limit_exceeded": (),
    "end": (),
}
EXTRA = ("expression", "input", "description", "type")  # fields that compiled kinds may have besides

INPUT = Field("input", "map", MAPPING.about, means="input_mapping", also=("arguments", "input_mapping"))
TIMEOUT = Field("timeout", "duration", "how long it waits", means="timeout_secs", also=("timeout_secs",))

GRAPH_KINDS: Mapping[str, tuple[Field, ...]] = {
    "model": (
        Field("model", "text", "the model (`default_chat`)", means="model_ref", also=("model_ref",)),
        Field("prompt", "text", "the prompt, or its file (`prompts/ID.md`)", means="prompt_ref", also=("prompt_ref",)),
        Field("system_prompt", "text", "the system message", also=("system",)),
        ANSWER,
        Field("tools", "list", "tools that the model may ask for"),
    ),
    "python_fn": (
        Field("module", "text", "the module", True),
        Field("function", "text", "the function, which gets the state", True),
        SCHEMA,
    ),
    "tool": (
        Field("tool_ref", "text", "the tool (the id of the node)"),
        Field("server", "text", "the MCP server that has the tool"),
        Field("tool", "text", "the tool of that server"),
        INPUT,
        SCHEMA,
    ),
    "condition": (
        Field("conditions", "list", "`[{if, next}]`, the first that holds", means="branches", also=("branches",)),
        Field("default", "text", "where it leads if none holds"),
    ),
    "parallel": (Field("branches", "names", "the nodes that start at once", True),),
    "join": (
        Field("wait_for", "names", "the nodes that it waits for", True),
        Field("merge", "any", "`collect` or `first`", means="merge_strategy", also=("merge_strategy",)),
    ),
    "human_approval": (
        Field("message", "text", "what a person is asked, also as `description`", means="description"),
        TIMEOUT,
        Field("fallback", "text", "where it leads when time is up", means="fallback_node", also=("fallback_node",)),
        Field("on_approved", "text", "where it leads when it is approved"),
        Field("on_rejected", "text", "where it leads when it is rejected"),
        Field("on_timeout", "text", "`reject`, or where it leads when time is up"),
    ),
    "wait": (
        Field("event", "text", "the signal that it waits for", means="correlation_key", also=("correlation_key",)),
        TIMEOUT,
        Field("timeout_hours", "number", "the same, in hours"),
        Field("on_timeout", "text", "where it leads when no signal came"),
    ),
    "subgraph": (
        Field("workflow_ref", "text", "a unit of this file, or a file next to it", True, also=("workflow",)),
        Field("workflow_version", "version", "the version that it must have"),
        INPUT,
        Field("output", "map", "state keys, as expressions over the state of the child", means="output_mapping"),
    ),
    "mcp_tool": (
        Field("server", "text", "the MCP server", True),
        Field("tool", "text", "its tool", True),
        INPUT,
        SCHEMA,
    ),
    "a2a_task": (
        Field("remote_agent", "text", "the agent"),
        Field("agent_uri", "text", "its address, in place of its name", also=("agent_url",)),
        Field("skill", "text", "what it is asked to do", True),
        INPUT,
        SCHEMA,
        Field("stream", "bool", "has no effect"),
        Field("timeout_seconds", "duration", "of one try", means="try_timeout"),
        Field("on_input_required", "text", "where it leads when the agent asks back"),
    ),
    "agent": (
        Field("agent_ref", "text", "the agent", True, also=("agent",)),
        INPUT,
        REPLY,
    ),
    "eval": (
        Field("scorers", "list", "what is judged, and how", True),
        Field(
            "on_fail",
            "text",
            "what follows a failed evaluation (`halt`)",
            choices=("retry_with_feedback", "escalate", "halt", "log_and_continue"),
        ),
        Field("max_retries", "whole", "how often the node before it is entered again"),
        Field("input_expr", "text", "what is judged, instead of the output of the node before it"),
    ),
    "finalizer": (
        Field("tool_ref", "text", "the tool (the id of the node)"),
        Field("run_on", "text", "when it runs (`always`)", choices=("success", "failure", "always")),
        INPUT,
    ),
    "limit_exceeded": (),
    "end": (),
}

RETRY_SHORT = (
    Field("max_attempts", "whole", "tries, the first included", least=1),
    Field("backoff", "text", "how delays grow", choices=("constant", "fixed", "linear", "exponential")),
    Field("delay_ms", "number", "the first delay, in milliseconds"),
    Field("max_delay_ms", "number", "the longest delay, in milliseconds"),
)
GRAPH_NODE = (
    Field("type", "text", "the kind (`tool`)"),
    Field("next", "any", "a node, a list of nodes, or a list of `{to, when}` and one `{else}`"),
    Field("output_key", "text", "the state key of the result"),
    Field("retry_policy", "text", "the name of a policy"),
    Field("retry", "map", "`{max_attempts, backoff, delay_ms, max_delay_ms}`"),
    Field("timeout", "duration", "of one try; of what waits, how long"),
    Field("policy", "map", "which tools and models are allowed"),
    Field("description", "text", "a sentence for people; of an approval, what is asked"),
    Field("labels", "map", "have no effect"),
    Field("data_policy", "any", "has no effect"),
)

LIST_MODEL = (
    Field("model", "text", "the model (`default_chat`)", means="model_ref"),
    Field("system", "text", "the system message", means="system_prompt", also=("system_prompt",)),
    Field("prompt_template", "text", "the prompt", means="prompt_ref", also=("prompt",)),
    Field("structured_output", "any", "whether the answer is JSON"),
    ANSWER,
    Field("tools", "list", "tools that the model may ask for"),
)
LIST_INPUTS = (
    INPUT,
    Field("input_from_state", "map", "arguments, by the state keys that they are taken from"),
)
LIST_KINDS: Mapping[str, tuple[Field, ...]] = {
    **GRAPH_KINDS,
    "model": LIST_MODEL,
    "tool": (Field("fn", "text", "the tool (the id of the node)", means="tool_ref", also=("tool_ref",)), *LIST_INPUTS),
    "mcp_tool": (
        Field("server", "text", "the MCP server, or its address as `server_url`"),
        Field("server_url", "text", "the address of the server"),
        Field("tool", "text", "its tool", True),
        *LIST_INPUTS,
    ),
    "a2a_task": (
        Field("agent_url", "text", "the address of the agent", means="agent_uri", also=("agent_uri",)),
        Field("remote_agent", "text", "its name, in place of its address"),
        Field("skill", "text", "what it is asked to do", True),
        *LIST_INPUTS,
        Field("stream", "bool", "has no effect"),
        Field("timeout_seconds", "duration", "of one try", means="try_timeout"),
        Field("on_input_required", "text", "where it leads when the agent asks back"),
    ),
    "human_approval": (
        Field(
            "prompt_template", "text", "what a person is asked", means="description", also=("description", "message")
        ),
        Field("timeout", "any", "`{node_seconds}`"),
        Field("on_timeout", "text", "`reject`, or where it leads when time is up"),
        Field("fallback", "text", "where it leads when time is up", means="fallback_node"),
    ),
    "parallel": (Field("branches", "names", "the nodes that start at once, besides those of its edges"),),
    "agent_discovery": (Field("agent_url", "text", "the address of the agent", True, means="agent_uri"),),
}
LIST_CONFIG = (Field("output_to_state", "map", "fields of the result, and the state keys that they go to"),)
LIST_NODE = (
    Field("id", "text", "its name", True),
    Field("kind", "text", "what it does", True),
    Field("label", "text", "for people"),
    Field("description", "text", "for people"),
    Field("config", "map", "the fields of its kind"),
    Field("edges", "list", "`[{to, condition}]`; none: the end"),
    Field("timeout", "any", "`{node_seconds}`"),
    Field("retry", "map", "`{max_attempts, backoff}`"),
    Field("retry_policy", "text", "the name of a policy"),
    Field("policy", "map", "which tools and models are allowed"),
    Field("labels", "map", "have no effect"),
)

UNSUPPORTED: Mapping[str, str] = {
    "java_fn": "run it with a tool that is bound to `shell` or `http`",
    "memory_retrieval": "bind a tool that looks things up, and write `type: tool`",
    "agent_tool": "bind a tool that asks the agent, and write `type: tool`",
    "coordinator": "name the agent in a node of kind `agent`",
    "agent_discovery": "name the agent in a node of kind `agent` or `a2a_task`",
    "policy": "write it as `policy:` of the workflow",
}
NAMED_RETRIES = ("io_default", "llm_default", "no_retry", "fast")
