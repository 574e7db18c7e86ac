"""Reads a file of bindings, and finds the one that belongs to a workflow."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import structs

from refold.core.pipeline import Task
from refold.errors import NotFound
from refold.playbooks.bindings import BINDINGS_FILE, NONE, Bindings, BoundGate, BoundItems
from refold.playbooks.children import ChildReader, Load
from refold.playbooks.key_types import READERS
from refold.playbooks.language.bindings import TABLES as BINDING_TABLES
from refold.playbooks.language.playbook import TABLES
from refold.playbooks.problems import InvalidPlaybook, in_order
from refold.playbooks.reader.kinds import Catalog
from refold.playbooks.reader.reading import Fields, Reading, ReadingOptions, Sources, TooMany, cut, kind_of
from refold.playbooks.reader.templates import templates_in
from refold.playbooks.tools import EVERY, bound_tool, resolved
from refold.playbooks.yaml import text as yaml_text
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node
from refold.templates import problem_of, uses_of
from refold.tool_api import ToolInfo

PROJECT_FOLDERS = (".conductor", ".claude")  # the folder that holds one of them is the root of a project
SECRET_SCOPES = ("secrets", "keychain")
NO_NAMES = ("tries", "reads", "by")  # keys of the tool `agent` that bound tools cannot read
ASKED = ("try", "retry_error")  # what they can read besides


def bindings_for(file: str, catalog: Catalog, load: Load, sources: Sources = dict) -> Bindings:
    """Read the bindings that belong to a workflow: the file of that name in its project, if there is one."""
    path = os.path.join(project_of(file), BINDINGS_FILE)
    return read_bindings(load(path), path, catalog, sources) if os.path.exists(path) else NONE


def project_of(file: str) -> str:
    """Return the nearest folder at or above a file that is the root of a project, else the folder of the file."""
    own = folder = os.path.abspath(os.path.dirname(file))
    while not any(os.path.isdir(os.path.join(folder, name)) for name in PROJECT_FOLDERS):
        above = os.path.dirname(folder)
        if above == folder:
            return own
        folder = above
    return folder


def read_bindings(text: str | bytes, file: str, catalog: Catalog, sources: Sources = dict) -> Bindings:
    """Raise InvalidPlaybook with everything that is wrong with the file."""
    source = yaml_text.decode(text, file) if isinstance(text, bytes) else text
    child_reader = ChildReader[Any](None, _no_child)
    child_reader.begin(file)
    options = ReadingOptions("a file of bindings", child_reader=child_reader, catalog=catalog, sources=sources)
    reading = Reading(source, {**TABLES, **BINDING_TABLES}, READERS, options)
    bindings = NONE
    with suppress(TooMany):  # a hundred of them are enough to begin with
        bindings = _bindings(reading, yaml_text.read(source, file), catalog, file)
    if reading.failed():
        raise InvalidPlaybook(in_order(reading.problems), file, source)
    return bindings


def _no_child(text: bytes, file: str, reader: Any) -> Any:
    raise NotFound(file)


def _bindings(reading: Reading, root: Node, catalog: Catalog, file: str) -> Bindings:
    fields = reading.table(root, "bindings")
    agent = catalog["agent"].keys if "agent" in catalog else ()
    readable = {key.name for key in agent if key.name not in NO_NAMES} | {*ASKED, *SECRET_SCOPES}
    models, servers = _with_optional(catalog, "llm", "model"), _with_optional(catalog, "mcp", "tool")
    found = Bindings(
        file=file,
        agents=_each(fields, "agents", lambda node: _tool(reading, node, catalog, readable)),
        gates=_each(fields, "gates", lambda node: _gate(reading, node, catalog)),
        items=_each(fields, "items", lambda node: _items(reading, node)),
        models=_each(fields, "models", lambda node: _tool(reading, node, models)),
        tools=_each(fields, "tools", lambda node: _tool(reading, node, catalog)),
        remote_agents=_each(fields, "remote_agents", lambda node: _tool(reading, node, catalog)),
        identities=_each(fields, "identities", lambda node: _identity(reading, node)),
        variables=fields.get("variables", {}),
    )
    tasks = _each(fields, "servers", lambda node: _server(reading, node, servers))
    return structs.replace(found, servers={name: task.keys for name, task in tasks.items()})


V = TypeVar("V")


def _each(fields: Fields, section: str, read: Callable[[Node], V | None]) -> dict[str, V]:
    """Read every entry of a section; those that cannot be read are left out."""
    nodes = fields.node.nodes[section].nodes if section in fields.values else {}
    found = {name: read(node) for name, node in nodes.items()}
    return {name: value for name, value in found.items() if value is not None}


def _with_optional(catalog: Catalog, kind: str, key: str) -> Mapping[str, ToolInfo]:
    """Return the catalog with a kind whose key may be missing, because the workflow gives it."""
    info = catalog.get(kind)
    if info is None:
        return catalog
    keys = tuple(structs.replace(each, required=False) if each.name == key else each for each in info.keys)
    return {**catalog, kind: structs.replace(info, keys=keys, check=None)}


def _tool(reading: Reading, node: Node, catalog: Catalog, readable: set[str] | None = None) -> Task | None:
    _check_templates(reading, node, readable)
    return bound_tool(reading, node, catalog)


def _server(reading: Reading, node: Node, catalog: Catalog) -> Task | None:
    """Read the server as the tool `mcp`, whose tool is named where it is called."""
    if not isinstance(node.value, dict):
        reading.at(node, "wrong-type", f"a server is a map, not {kind_of(node.value)}", "write `{command: [PROGRAM]}`")
        return None
    kind = Node("mcp", node.start, node.start)
    nodes = {"endpoint" if name == "url" else name: each for name, each in node.nodes.items()}
    keys = {"endpoint" if name == "url" else name: each for name, each in node.keys.items()}
    task = _tool(reading, Node({**node.value}, node.start, node.end, "", {**nodes, "kind": kind}, keys), catalog)
    if task is not None and ("command" in task.keys) == ("endpoint" in task.keys):
        reading.at(node, "missing-key", "a server has either `command` or `endpoint`", "add `command: [PROGRAM]`")
    return task


def _gate(reading: Reading, node: Node, catalog: Catalog) -> BoundGate | None:
    fields = reading.table(node, "bindings.gate")
    _check_templates(reading, node)
    check = bound_tool(reading, node.nodes["check"], catalog) if "check" in fields.values else None
    if check is None or "approved" not in fields.values:
        return None
    return BoundGate(check, fields.get("approved"), fields.get("rejected", False), fields.get("every", EVERY) or EVERY)


def _items(reading: Reading, node: Node) -> BoundItems | None:
    fields = reading.table(node, "bindings.items")
    _check_templates(reading, node)
    if "id" not in fields.values or fields.get("source") is None:
        return None
    return BoundItems(fields.get("source").source, fields.get("id"), fields.get("ref"), fields.get("after"))


def _identity(reading: Reading, node: Node) -> dict[str, Any]:
    env: dict[str, Any] = resolved(reading.table(node, "bindings.identity").get("env", {}))
    return env


def _check_templates(reading: Reading, node: Node, readable: set[str] | None = None) -> None:
    """Report templates that cannot be read, and names that a bound tool does not get."""
    for each in templates_in(node):
        problem = problem_of(each.value)
        if problem is not None:
            place = place_inside(reading.source, each, problem.line, problem.column)
            reading.at_place(place, "bad-template", problem.message, problem.hint)
            continue
        if readable is None:
            continue
        for use in uses_of(each.value):
            if use.path[0] not in readable and not use.soft:
                place = place_inside(reading.source, each, use.line, use.column)
                hint = f"a bound tool reads {', '.join(f'`{name}`' for name in sorted(readable - {*SECRET_SCOPES}))}"
                reading.at_place(place, "unknown-name", f"`{cut(use.path[0])}` is not defined here", hint)
