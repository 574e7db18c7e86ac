"""Reads the list form, in which JamJet's examples are published: `workflow:` with a list of nodes in it."""

import os
import re
from functools import cache
from typing import Any

from refold.playbooks.jamjet.drafts import GraphDraft, NodeDraft, Way
from refold.playbooks.jamjet.fields import Field, ReadFields, read_fields, seconds_of
from refold.playbooks.jamjet.graph import KINDS, branches, following, metadata, report_kind, set_start, with_servers
from refold.playbooks.jamjet.tables import LIST_CONFIG, LIST_KINDS, LIST_NODE
from refold.playbooks.jamjet.whole import read_policy, read_short_retry, read_whole
from refold.playbooks.jamjet.work import VARIABLE, from_environment
from refold.playbooks.reader.reading import Reading, cut, kind_of
from refold.playbooks.yaml.text import Node

WORKFLOW = (
    Field("id", "text", "its name", True),
    Field("version", "version", "its version (0.1.0)"),
    Field("name", "text", "for people"),
    Field("description", "text", "for people"),
    Field("start_node", "text", "the first node (the first in the list)", also=("start",)),
    Field("state_schema", "any", "the inputs, as types or as a JSON Schema"),
    Field("nodes", "list", "the nodes", True),
    Field("labels", "map", "labels of its runs"),
)
PARTS = (
    "policy",
    "retry_policies",
    "timeouts",
    "models",
    "tools",
    "mcp",
    "a2a",
    "data_policy",
    "token_budget",
    "cost_budget_usd",
    "on_budget_exceeded",
    "mcp_servers",
    "remote_agents",
)


def read_list(reading: Reading, root: Node) -> GraphDraft:
    head = root.nodes["workflow"]
    given = read_fields(reading, head, WORKFLOW, "`workflow`", PARTS, open=True)
    draft = GraphDraft(name=given.value("id", ""), root=head, version=given.value("version", "0.1.0"), bare=True)
    draft.metadata = metadata(given)
    beside = {name: node for name, node in root.nodes.items() if name != "workflow"}
    for name in beside:
        if name not in PARTS:
            reading.warn_key(root, name, "unknown-key", f"a workflow has no key `{cut(name)}`; it has no effect")
    read_whole(reading, draft, with_servers({**beside, **head.nodes}))
    nodes = given.get("nodes")
    for node in nodes.nodes if nodes is not None else ():
        found = _node(reading, node)
        if found is None:
            continue
        if found.id in draft.nodes:
            reading.at(found.named, "wrong-id", f"two nodes are called `{cut(found.id)}`", "rename one of them")
            continue
        draft.nodes[found.id] = found
    set_start(reading, draft, given.get("start_node"))
    return draft


def _node(reading: Reading, node: Node) -> NodeDraft | None:
    name = node.value.get("id") if isinstance(node.value, dict) else None
    owner = f"node `{cut(name)}`" if isinstance(name, str) else "a node"
    given = read_fields(reading, node, LIST_NODE, owner)
    if not isinstance(name, str):
        return None
    draft = NodeDraft(name, "", node, node.nodes["id"], ReadFields(node, {}))
    kind = given.get("kind")
    if kind is None:
        return draft
    sort = KINDS.get(kind.value, kind.value)
    config = given.get("config") or Node({}, node.start, node.start, "", {}, {})
    if sort not in LIST_KINDS or (sort == "agent_discovery" and "agent_url" not in config.value):
        report_kind(reading, kind, sort, owner, [*LIST_KINDS])
        return draft
    draft.kind = sort
    config = _with_variables(reading, config, owner)
    draft.given = read_fields(reading, config, _fields_of(sort), owner, open=True)
    _read_result(reading, draft)
    _read_node_keys(reading, draft, given)
    draft.ways = _ways(reading, draft, given)
    return draft


ADDRESSES = ("server_url", "agent_url")


def _with_variables(reading: Reading, node: Node, owner: str, key: str = "") -> Node:
    """Return the config with variables of the environment; those in addresses are read in the worker, as secrets."""
    if isinstance(node.value, dict):
        nodes: Any = {name: _with_variables(reading, each, owner, name) for name, each in node.nodes.items()}
        value: Any = {name: each.value for name, each in nodes.items()}
        return Node(value, node.start, node.end, node.style, nodes, node.keys)
    if isinstance(node.value, list):
        nodes = [_with_variables(reading, each, owner, key) for each in node.nodes]
        return Node([each.value for each in nodes], node.start, node.end, node.style, nodes, node.keys)
    if not isinstance(node.value, str) or "${" not in node.value:
        return node

    def read(found: re.Match[str]) -> str:
        name = found[1]
        if name not in os.environ:
            message = f"{owner}: the environment has no variable `{name}`"
            reading.at(node, "bad-value", message, f"set it before the run: `{name}=… refold run FILE`")
        return from_environment(name) if key in ADDRESSES else os.environ.get(name, "")

    return Node(VARIABLE.sub(read, node.value), node.start, node.end, node.style)


@cache
def _fields_of(kind: str) -> tuple[Field, ...]:
    return (*LIST_KINDS[kind], *LIST_CONFIG)


def _read_result(reading: Reading, draft: NodeDraft) -> None:
    draft.fields, draft.from_state = draft.given.get("output_to_state"), draft.given.get("input_from_state")
    draft.json = bool(draft.given.value("structured_output"))
    for found, what in ((draft.fields, "output_to_state"), (draft.from_state, "input_from_state")):
        for each in found.nodes.values() if found is not None else ():
            if not isinstance(each.value, str):
                message = f"`{what}` of {draft.owner} must be names of state keys, not {kind_of(each.value)}"
                reading.at(each, "wrong-type", message)


def _read_node_keys(reading: Reading, draft: NodeDraft, given: ReadFields) -> None:
    draft.retry = given.get("retry_policy")
    retry = given.get("retry")
    if retry is not None:
        draft.tries = read_short_retry(reading, retry, draft.owner)
    draft.timeout = _seconds(reading, given.get("timeout"), draft.owner) or draft.given.seconds("try_timeout")
    if draft.kind in ("human_approval", "wait"):
        inside = draft.given.get("timeout_secs") or draft.given.get("timeout")
        draft.timeout = _seconds(reading, inside, draft.owner) or draft.timeout
    policy = given.get("policy")
    if policy is not None:
        draft.policy = read_policy(reading, policy, draft.owner)


def _seconds(reading: Reading, node: Node | None, owner: str) -> float | None:
    """A time, or `{node_seconds: 30}`."""
    value: Any = None if node is None else node.value
    if isinstance(value, dict):
        value = value.get("node_seconds", value.get("seconds"))
    found = None if value is None or isinstance(value, bool) else seconds_of(value)
    if node is not None and node.value is not None and found is None:
        reading.at(node, "bad-value", f"`timeout` of {owner} is no time", "write `{node_seconds: 30}`")
    return found


def _ways(reading: Reading, draft: NodeDraft, given: ReadFields) -> list[Way]:
    ways = branches(reading, given.get("edges"), draft.owner)
    own = draft.given
    if draft.kind == "condition" and not ways:
        ways = branches(reading, own.get("branches"), draft.owner)
        default = own.get("default")
        ways += [] if default is None else [Way(default.value, default)]
    if draft.kind == "parallel":
        listed = own.get("branches")
        ways += [Way(each.value, each) for each in (listed.nodes if listed is not None else ())]
    return ways + following(reading, own.get("next"), draft.owner)
