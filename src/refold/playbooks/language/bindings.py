"""The language of a file of bindings: its tables."""

from refold.playbooks.language.tables import Key, Table

BINDINGS = Table(
    "bindings",
    "a file of bindings",
    "Which tool answers for a name.",
    (
        Key(
            name="agents",
            type="map",
            example='{"*": {kind: shell, command: [claude, -p], stdin: "{{ prompt }}"}}',
            about="a tool for each agent. It reads `agent`, `prompt`, `model`, `role`, `can_commit`, `schema`,"
            " `inputs`, `identity`, `plugin_dirs`, `max_turns`, `dry_run`, `try` and `retry_error`",
        ),
        Key(
            name="gates",
            type="map",
            example='{pr_checks: {check: {kind: http, url: "https://ci.example"}, approved: "{{ output.data.ok }}"}}',
            about="how a gate that no person decides is checked",
        ),
        Key(
            name="items",
            type="map",
            example='{tickets: {source: {kind: jsonl, path: tickets.jsonl}, id: "{{ item.number }}"}}',
            about="where the items of a loop come from",
        ),
        Key(
            name="models",
            type="map",
            example='{"*": {kind: llm, base_url: "http://localhost:11434/v1"}}',
            about="a tool for each model. Without the key `model` the model has the name that was asked for",
        ),
        Key(
            name="tools",
            type="map",
            example='{search: {kind: python, entry: "my_tools:search"}}',
            about="a tool for each name of a tool; its arguments are its `input`",
        ),
        Key(
            name="servers",
            type="map",
            example="{search: {command: [npx, -y, server-search]}}",
            about="MCP servers: `command` and `env`, or `endpoint`, `headers` and `auth`",
        ),
        Key(
            name="remote_agents",
            type="map",
            example='{research: {kind: http, url: "https://agents.example/a2a"}}',
            about="a tool for each remote agent",
        ),
        Key(
            name="identities",
            type="map",
            example="{developer: {env: {GH_TOKEN: {secret: dev_token}}}}",
            about="variables of the environment for programs that act under this name",
        ),
        Key(
            name="variables",
            type="values",
            example="{repo_name: acme/shop}",
            about="values that `.wf` files can read by these names",
        ),
    ),
    {
        "sources": "write `items`",
        "mcp_servers": "write `servers`",
        "mcp": "write `servers: {NAME: {command: […]}}`",
    },
)

GATE = Table(
    "bindings.gate",
    "a bound gate",
    "A gate that a tool decides.",
    (
        Key(
            name="check",
            type="any",
            required=True,
            example='{kind: http, url: "https://ci.example/state"}',
            about="the tool that is asked",
        ),
        Key(
            name="approved",
            type="condition",
            required=True,
            example='"{{ output.data.ok }}"',
            about="whether its result, `output.data`, approves",
        ),
        Key(
            name="rejected",
            type="condition",
            example='"{{ output.data.failed }}"',
            about="whether its result rejects (false). If neither holds, the tool is asked again",
        ),
        Key(name="every", type="duration", example="30s", about="how often (30s)"),
    ),
)

ITEMS = Table(
    "bindings.items",
    "bound items",
    "A source of items.",
    (
        Key(
            name="source",
            type="source",
            of="loop.source",
            required=True,
            example="{kind: jsonl, path: tickets.jsonl}",
            about="a source, as of a loop",
        ),
        Key(
            name="id",
            type="any",
            required=True,
            example='"{{ item.number }}"',
            about="what identifies an item",
        ),
        Key(name="ref", type="any", example='"{{ item.title }}"', about="how people call it"),
        Key(
            name="after",
            type="any",
            example='"{{ item.blocked_by }}"',
            about="the ids of the items that it waits for",
        ),
    ),
)

IDENTITY = Table(
    "bindings.identity",
    "an identity",
    "An identity.",
    (
        Key(
            name="env",
            type="templates",
            required=True,
            example="{GH_TOKEN: {secret: dev_token}}",
            about="variables of the environment; a value may be a secret",
        ),
    ),
)

TABLES = {table.name: table for table in (BINDINGS, GATE, ITEMS, IDENTITY)}
