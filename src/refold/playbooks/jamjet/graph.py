"""Reads the graph form: `workflow:` and `nodes:`, a map of nodes that say where they lead."""

from functools import cache
from typing import Any

from msgspec import structs

from refold.names import did_you_mean
from refold.playbooks.jamjet.drafts import GraphDraft, NodeDraft, Way
from refold.playbooks.jamjet.fields import Field, ReadFields, key_node, read_fields
from refold.playbooks.jamjet.tables import GRAPH_KINDS, GRAPH_NODE, UNSUPPORTED
from refold.playbooks.jamjet.whole import read_policy, read_short_retry, read_whole
from refold.playbooks.reader.reading import Reading, cut, kind_of
from refold.playbooks.yaml.text import Node

WORKFLOW = (
    Field("id", "text", "its name", True),
    Field("version", "version", "its version (0.1.0)"),
    Field("start", "text", "the first node (the first in the file)", also=("start_node",)),
    Field("state_schema", "any", "the inputs, as types or as a JSON Schema"),
    Field("name", "text", "for people"),
    Field("description", "text", "for people"),
    Field("labels", "map", "labels of its runs"),
    Field("schedule", "map", "has no effect here"),
    Field("timeouts", "map", "times"),
    Field("policy", "map", "which tools and models are allowed"),
    Field("token_budget", "map", "how many tokens it may use"),
    Field("cost_budget_usd", "number", "what it may cost"),
    Field("on_budget_exceeded", "text", "the node that runs then, `pause` or `fail` (fail)"),
)
WHOLE = (
    "workflow",
    "nodes",
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
    "labels",
)
APPROVED, REJECTED = "output.decision == 'approved'", "output.decision == 'rejected'"
KINDS = {"branch": "condition", "workflow": "subgraph", "approval": "human_approval"}


def read_graph(reading: Reading, root: Node) -> GraphDraft:
    head = root.nodes["workflow"]
    given = read_fields(reading, head, WORKFLOW, "`workflow`", open=True)
    for key in root.nodes:
        if key in ("edges", "start", "start_node"):
            hint = "write `next` in the nodes" if key == "edges" else "write `start` in `workflow`"
            reading.at_key(root, key, "unknown-key", f"a graph has no key `{key}`", hint)
        elif key not in WHOLE and not key.startswith("x-"):
            message = f"a graph has no key `{cut(key)}`; it has no effect"
            reading.warn_key(root, key, "unknown-key", message, did_you_mean(key, WHOLE))
    draft = GraphDraft(name=given.value("id", ""), root=root, version=given.value("version", "0.1.0"))
    draft.metadata = metadata(given)
    read_whole(
        reading, draft, with_servers(root.nodes) | {name: head.nodes[name] for name in MOVED if name in head.nodes}
    )
    nodes = root.nodes["nodes"]
    for name, node in nodes.nodes.items():
        draft.nodes[name] = read_node(reading, name, node, key_node(nodes, name))
    set_start(reading, draft, given.get("start"))
    return draft


MOVED = ("state_schema", "timeouts", "policy", "token_budget", "cost_budget_usd", "on_budget_exceeded")


def metadata(given: ReadFields) -> dict[str, Any]:
    found = {name: given.value(name) for name in ("name", "description", "labels") if name in given}
    found["version"] = given.value("version", "0.1.0")
    return found


def with_servers(nodes: dict[str, Node]) -> dict[str, Node]:
    """Return the parts of a file with servers and remote agents under the names that the IR has for them."""
    found = dict(nodes)
    for key, inside, name in (("mcp", "servers", "mcp_servers"), ("a2a", "remote_agents", "remote_agents")):
        node = nodes.get(key)
        if node is not None and isinstance(node.value, dict) and inside in node.nodes:
            found[name] = node.nodes[inside]
    return found


def set_start(reading: Reading, draft: GraphDraft, node: Node | None) -> None:
    """The start is the node that is named, or the first one."""
    draft.start, draft.started = (node.value, node) if node is not None else (next(iter(draft.nodes), ""), None)
    if not draft.nodes:
        reading.at(draft.root, "missing-key", "the workflow has no nodes", "add one under `nodes`")


def read_node(reading: Reading, name: str, node: Node, named: Node) -> NodeDraft:
    owner = f"node `{name}`"
    empty = NodeDraft(name, "", node, named, ReadFields(node, {}))
    if not isinstance(node.value, dict):
        reading.at(node, "wrong-type", f"{owner} must be a map, not {kind_of(node.value)}", "write `{type: tool}`")
        return empty
    kind = _kind(reading, node, owner)
    if kind not in GRAPH_KINDS:
        return empty
    if kind == "tool" and "server" in node.value:
        kind = "mcp_tool"
    given = read_fields(reading, node, _fields_of(kind), owner)
    draft = NodeDraft(name, kind, node, named, given)
    _read_node_keys(reading, draft, given, owner)
    draft.ways = _ways(reading, draft)
    return draft


@cache
def _fields_of(kind: str) -> tuple[Field, ...]:
    """Return what a node of a kind can have; a key that has another meaning for all nodes has that of the kind."""
    own = GRAPH_KINDS[kind]
    if kind == "mcp_tool":
        own = (*own, GRAPH_KINDS["tool"][0])  # the id of a node of type `tool`, which its server knows
    names = {each for field in own for each in (field.name, *field.also)}
    others = (field for field in GRAPH_NODE if field.name not in names)
    return (*own, *(structs.replace(field, also=tuple(sorted({*field.also} - names))) for field in others))


def _kind(reading: Reading, node: Node, owner: str) -> str:
    found = node.nodes.get("type")
    if found is None:
        return "tool"
    kind = KINDS.get(found.value, found.value) if isinstance(found.value, str) else ""
    if kind in GRAPH_KINDS:
        return str(kind)
    report_kind(reading, found, kind, owner, [*GRAPH_KINDS, *KINDS])
    return ""


def report_kind(reading: Reading, node: Node, kind: str, owner: str, known: list[str]) -> None:
    shown = cut(str(node.value))
    if kind in UNSUPPORTED:
        message = f"{owner}: Refold does not run nodes of kind `{shown}`"
        reading.at(node, "unsupported-node", message, UNSUPPORTED[kind])
    else:
        message = f"{owner}: there is no kind `{shown}`"
        reading.at(node, "unknown-node", message, did_you_mean(shown, known))


def _read_node_keys(reading: Reading, draft: NodeDraft, given: ReadFields, owner: str) -> None:
    draft.key = given.value("output_key", "")
    draft.retry = given.get("retry_policy")
    retry = given.get("retry")
    if retry is not None:
        draft.tries = read_short_retry(reading, retry, owner)
    draft.timeout = given.seconds("timeout") or given.seconds("try_timeout")
    policy = given.get("policy")
    if policy is not None:
        draft.policy = read_policy(reading, policy, owner)
    for name in ("data_policy", "stream"):
        if given.value(name):
            reading.warn(given.found[name], "no-effect", f"`{name}` of {owner} has no effect", "leave it out")


def _ways(reading: Reading, draft: NodeDraft) -> list[Way]:
    given, kind = draft.given, draft.kind
    if kind == "condition":
        ways = branches(reading, given.get("branches"), draft.owner)
        default = given.get("default")
        ways += [] if default is None else [Way(default.value, default)]
        onward = given.get("next")
        if ways and onward is not None:
            message = f"`next` of {draft.owner} has no effect, because its branches lead on"
            reading.warn(onward, "no-effect", message, "write it as `default`")
        return ways or following(reading, onward, draft.owner)
    ways = []
    for name, words in (("on_approved", APPROVED), ("on_rejected", REJECTED)):
        found = given.get(name)
        ways += [] if found is None else [Way(found.value, found, words=words)]
    if kind == "parallel":
        listed = given.get("branches")
        ways += [] if listed is None else [Way(each.value, each) for each in listed.nodes]
    return ways + following(reading, given.get("next"), draft.owner)


BRANCH = (
    Field("condition", "any", "when it is taken", also=("if", "when")),
    Field("target", "text", "where it leads", also=("next", "to")),
    Field("else", "text", "where it leads if no other is taken"),
)


def branches(reading: Reading, node: Node | None, owner: str) -> list[Way]:
    """`[{if, next}]`: a branch without a condition is the default."""
    if node is None:
        return []
    if not isinstance(node.value, list):
        reading.at(node, "wrong-type", f"`branches` of {owner} must be a list, not {kind_of(node.value)}")
        return []
    _check_else(reading, node, owner)
    return [way for each in node.nodes for way in _branch(reading, each, owner)]


def _check_else(reading: Reading, listed: Node, owner: str) -> None:
    others = [each.nodes["else"] for each in listed.nodes if isinstance(each.value, dict) and "else" in each.value]
    for each in others[1:]:
        reading.at(each, "bad-value", f"{owner} has a second `else`", "leave one of them out")


def _branch(reading: Reading, node: Node, owner: str) -> list[Way]:
    given = read_fields(reading, node, BRANCH, f"a branch of {owner}")
    other = given.get("else")
    if other is not None:
        return [Way(other.value, other)]
    target = given.get("target")
    if target is None:
        if isinstance(node.value, dict):
            reading.at(node, "missing-key", f"a branch of {owner} needs `target`", "add `to: NODE`")
        return []
    return [Way(target.value, target, given.get("condition"))]


def following(reading: Reading, node: Node | None, owner: str) -> list[Way]:
    """A name, a list of names, or a list of `{to, when}` and one `{else}`."""
    if node is None:
        return []
    if isinstance(node.value, str):
        return [Way(node.value, node)]
    if isinstance(node.value, dict):
        return _branch(reading, node, owner)
    if not isinstance(node.value, list):
        reading.at(node, "wrong-type", f"`next` of {owner} must be a name or a list, not {kind_of(node.value)}")
        return []
    _check_else(reading, node, owner)
    ways: list[Way] = []
    for each in node.nodes:
        ways += [Way(each.value, each)] if isinstance(each.value, str) else _branch(reading, each, owner)
    return ways
