"""The kinds of tools in NoETL, and which key of a Refold tool each of their keys is."""

from collections.abc import Mapping

from msgspec import Struct

SQL = {"command": "query", "query": "query", "script": "query", "commands": "commands"}
OLD_SPEC = (
    "code",
    "input",
    "args",
    "url",
    "endpoint",
    "method",
    "params",
    "headers",
    "auth",
    "command",
    "query",
    "payload",
)
"""Keys of a tool that older files have under `spec`."""


class Kind(Struct, frozen=True):
    kind: str  # here
    keys: Mapping[str, str] = {}  # NoETL's key: the tool's; any other keeps its name
    needs: tuple[str, ...] = ()  # one of these must be there
    quoted: Mapping[str, str] = {}  # texts in which values are quoted for the place they stand in
    idle: frozenset[str] = frozenset()  # keys that are hints, and change nothing here
    takes: frozenset[str] = frozenset()  # keys that mean something else to any other kind


ARTIFACT = Kind("artifact", {"result_ref": "ref"}, idle=frozenset({"prefer", "flight_endpoint", "bearer_token"}))
KINDS: Mapping[str, Kind] = {
    "python": Kind("python", {}, ("code", "script"), {"code": "python"}, frozenset({"python", "auth"})),
    "http": Kind(
        "http",
        {
            "endpoint": "url",
            "payload": "json",
            "body": "json",
            "data": "json",
            "form": "data",
            "verify_ssl": "verify",
            "response_type": "response",
        },
        ("url", "endpoint"),
    ),
    "shell": Kind(
        "shell",
        {"cmds": "command"},
        ("command", "cmds", "script"),
        {"command": "shell", "script": "shell"},
        frozenset({"capture"}),
    ),
    "postgres": Kind(
        "postgres",
        {**SQL, "credential": "auth", "connection_string": "url"},
        ("command", "query", "script", "commands"),
        {"query": "sql", "commands": "sql"},
        frozenset({"pool"}),
    ),
    "duckdb": Kind(
        "duckdb",
        {**SQL, "db_path": "database"},
        ("command", "query", "script", "commands"),
        {"query": "sql", "commands": "sql"},
    ),
    "sqlite": Kind(
        "sqlite",
        {**SQL, "db_path": "database"},
        ("command", "query", "script", "commands"),
        {"query": "sql", "commands": "sql"},
    ),
    "noop": Kind("noop"),
    "artifact": ARTIFACT,
    "result_fetch": ARTIFACT,
    "resolve": ARTIFACT,
    "container": Kind(
        "container",
        {},
        ("image",),
        takes=frozenset({"args"}),
        idle=frozenset(
            {"service_account", "namespace", "backoff_limit", "restart_policy", "node_selector", "tolerations"}
        ),
    ),
    "mcp": Kind(
        "mcp",
        {"url": "endpoint", "server_url": "endpoint", "base_url": "endpoint", "params": "arguments"},
        ("endpoint", "url", "server_url", "base_url", "command"),
        idle=frozenset({"protocol_version", "client_name"}),
    ),
}


def kind_of(name: str) -> Kind:
    return KINDS.get(name) or Kind(name)


FOREIGN: Mapping[str, str] = {
    "auth": "write the token as an entry of `keychain`",
    "ducklake": "`kind: duckdb` reads and writes such files",
    "gateway": "",
    "gcs": "`kind: shell` with `gcloud storage cp`, or `kind: http`, can do it",
    "ibkr": "",
    "iterator": "write `loop: {in: …, iterator: …}` on the step",
    "nats": "`kind: shell` with the program `nats` can do it",
    "ollama_bridge": "`kind: http` can reach it",
    "playbooks": "make a step with `kind: playbook` for each",
    "provider": "`kind: shell` can run the tool of the provider",
    "rhai": "write it as Python code",
    "script": "`kind: python` runs a file that is next to the playbook, `kind: container` an image",
    "secrets": "name it in `keychain`, and read `{{ keychain.alias.field }}`",
    "sink": "write it with `kind: python`, `duckdb` or `postgres`",
    "snowflake": "`kind: python` with its own library can reach it",
    "snowflake_transfer": "`kind: transfer` moves rows between databases that Refold knows",
    "subscription": "start a run for each message from outside",
    "task_sequence": "write the tasks as a list under `tool`",
    "wasm": "run it as a program with `kind: shell`",
}
"""Kinds of NoETL that Refold does not have, and what to write instead."""
