"""Bindings as data: tools by the names that files of other systems, and the tool `agent`, use for them."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from msgspec import Struct, structs, to_builtins

from refold.core.pipeline import Task, Template
from refold.core.plan import Source

V = TypeVar("V")

PLAIN: Mapping[str, Any] = {}


class BoundGate(Struct, frozen=True):
    """A gate that nobody decides: a tool is asked again and again. The templates read its result as `output.data`."""

    check: Task
    approved: Template
    rejected: Template = False
    every: float = 30.0


class BoundItems(Struct, frozen=True):
    """A source of items. The templates read one item as `item`."""

    source: Source
    id: Template
    ref: Template = None
    after: Template = None


class Bindings(Struct, frozen=True):
    """Everything that a file of bindings says. A name is looked up exactly, then by pattern, then as `*`."""

    file: str = ""  # empty: there is none
    agents: Mapping[str, Task] = PLAIN
    gates: Mapping[str, BoundGate] = PLAIN
    items: Mapping[str, BoundItems] = PLAIN
    models: Mapping[str, Task] = PLAIN  # without `model` among its keys if the file does not name one
    tools: Mapping[str, Task] = PLAIN
    servers: Mapping[str, Mapping[str, Template]] = PLAIN  # keys of the tool `mcp`, of MCP servers
    remote_agents: Mapping[str, Task] = PLAIN
    identities: Mapping[str, Mapping[str, Template]] = PLAIN  # variables of the environment
    variables: Mapping[str, Any] = PLAIN

    def agent(self, name: str) -> Task | None:
        return _found(self.agents, name)

    def gate(self, name: str) -> BoundGate | None:
        return _found(self.gates, name)

    def item_source(self, name: str) -> BoundItems | None:
        return _found(self.items, name)

    def model(self, name: str) -> Task | None:
        return _found(self.models, name)

    def tool(self, name: str) -> Task | None:
        return _found(self.tools, name)

    def server(self, name: str) -> Mapping[str, Template] | None:
        return _found(self.servers, name)

    def remote_agent(self, name: str) -> Task | None:
        return _found(self.remote_agents, name)

    def identity(self, name: str) -> Mapping[str, Template] | None:
        return self.identities.get(name)


NONE = Bindings()


def _found(named: Mapping[str, V], name: str) -> V | None:
    if name in named:
        return named[name]
    for pattern, found in named.items():
        if pattern != "*" and fnmatchcase(name, pattern):
            return found
    return named.get("*")


def bound_data(task: Task) -> dict[str, Any]:
    """Return a bound tool as plain data, for the setting `bound` of the tool `agent`."""
    data: dict[str, Any] = to_builtins(task)
    return data


WITH_ENVIRONMENT = ("shell", "python", "container", "mcp")


def with_environment(task: Task, env: Mapping[str, Template]) -> Task:
    """Return a bound tool that runs with these variables; its own win. Other kinds of tools have no environment."""
    if not env or task.kind not in WITH_ENVIRONMENT or "endpoint" in task.keys:
        return task
    own = task.keys.get("env")
    return structs.replace(task, keys={**task.keys, "env": {**env, **(own if isinstance(own, dict) else {})}})


def command_for_agents(argv: list[str]) -> Task:
    """Return the tool that starts a program for each prompt, which it gets on its standard input."""
    return Task(name="agent", kind="shell", keys={"command": list(argv), "stdin": "{{ prompt }}"})


def with_agent(bindings: Bindings, task: Task) -> Bindings:
    """Return the bindings with this tool for all agents that are not bound by name or by pattern."""
    return structs.replace(bindings, agents={**bindings.agents, "*": task})


SHORTEST = {  # what a line of the file looks like
    "agents": '{kind: shell, command: [PROGRAM], stdin: "{{ prompt }}"}',
    "gates": "{check: {kind: shell, command: [PROGRAM]}, approved: \"{{ output.status == 'ok' }}\"}",
    "items": '{source: {kind: jsonl, path: FILE}, id: "{{ item.id }}"}',
    "models": '{kind: llm, base_url: "http://localhost:11434/v1"}',
    "tools": '{kind: python, entry: "MODULE:FUNCTION"}',
    "servers": "{command: [PROGRAM]}",
    "remote_agents": '{kind: http, url: "https://…"}',
    "identities": "{env: {NAME: VALUE}}",
}
BINDINGS_FILE = "refold-bindings.yaml"


def how_to_bind(section: str, name: str) -> str:
    """Return the shortest way to bind a name, as the hint of a problem."""
    quoted = name if name.replace("_", "").replace("-", "").isalnum() else f'"{name}"'
    hint = f"write `{section}: {{{quoted}: {SHORTEST[section]}}}` in {BINDINGS_FILE} next to this file"
    return hint + (", or run it with `--agent PROGRAM`" if section == "agents" else "")
