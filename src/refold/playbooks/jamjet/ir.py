"""Reads the IR: nodes by their ids, and edges between them, as JamJet's compilers write them."""

from refold.names import did_you_mean
from refold.playbooks.jamjet.drafts import GraphDraft, NodeDraft, Way
from refold.playbooks.jamjet.fields import Field, ReadFields, key_node, read_fields
from refold.playbooks.jamjet.graph import branches, report_kind
from refold.playbooks.jamjet.tables import EXTRA, IR_KINDS, UNSUPPORTED
from refold.playbooks.jamjet.whole import read_policy, read_whole
from refold.playbooks.reader.reading import Reading, cut, kind_of
from refold.playbooks.yaml.text import Node

ROOT = (
    Field("workflow_id", "text", "its name", True),
    Field("version", "version", "its version", True),
    Field("name", "text", "for people"),
    Field("description", "text", "for people"),
    Field("state_schema", "any", "the inputs"),
    Field("start_node", "text", "the first node", True),
    Field("nodes", "map", "the nodes by their ids", True),
    Field("edges", "list", "the edges", True),
    Field("labels", "map", "labels of its runs"),
    Field("strategy_metadata", "any", "what an agent was compiled with"),
)
PARTS = (
    "retry_policies",
    "timeouts",
    "models",
    "tools",
    "mcp_servers",
    "remote_agents",
    "policy",
    "token_budget",
    "cost_budget_usd",
    "on_budget_exceeded",
    "continue_as_new",
    "data_policy",
    "registered_at",
)
NODE = (
    Field("id", "text", "its id, which is its key"),
    Field("kind", "map", "what it does", True),
    Field("retry_policy", "text", "the name of a policy"),
    Field("node_timeout_secs", "duration", "of one try", also=("timeout",)),
    Field("description", "text", "for people"),
    Field("labels", "map", "labels"),
    Field("policy", "map", "which tools and models are allowed"),
    Field("data_policy", "any", "has no effect"),
)
EDGE = (
    Field("from", "text", "where it begins", True),
    Field("to", "text", "where it leads", True),
    Field("condition", "any", "when it is taken"),
    Field("label", "any", "for people"),
)
STRATEGY = "jamjet.strategy.node"


def read_ir(reading: Reading, root: Node) -> GraphDraft:
    given = read_fields(reading, root, ROOT, "the workflow", PARTS, open=True)
    draft = GraphDraft(name=given.value("workflow_id", ""), root=root, version=given.value("version", ""))
    draft.metadata = {name: given.value(name) for name in ("name", "description", "labels", "version") if name in given}
    read_whole(reading, draft, root.nodes, strict=True)
    _read_limit(draft, given.get("strategy_metadata"))
    nodes = given.get("nodes")
    for name, node in nodes.nodes.items() if nodes is not None else ():
        assert nodes is not None
        draft.nodes[name] = _node(reading, name, node, key_node(nodes, name))
    draft.start, draft.started = given.value("start_node", ""), given.get("start_node")
    edges = given.get("edges")
    for edge in edges.nodes if edges is not None else ():
        _add_edge(reading, draft, edge)
    for each in draft.nodes.values():
        own = branches(reading, each.given.get("branches"), each.owner) if each.kind == "condition" else []
        if own:
            each.ways = own  # edges that no branch names are dead
        plain = [way for way in each.ways if way.condition is None or not way.condition.value]
        if each.kind == "python_fn" and len(plain) > 1 and len(plain) == len(each.ways):
            message = f"{each.owner} has {len(plain)} edges without conditions, and all of them are taken"
            hint = "conditions that were Python functions are lost when a workflow is compiled: write them as text"
            reading.warn(plain[0].node, "lost-condition", message, hint)
        if each.kind == "parallel":
            listed = each.given.get("branches")
            known = {way.to for way in each.ways}
            added = [Way(name.value, name) for name in (listed.nodes if listed is not None else ())]
            each.ways = [*(way for way in added if way.to not in known), *each.ways]
    return draft


def _read_limit(draft: GraphDraft, node: Node | None) -> None:
    limits = node.value.get("limits") if node is not None and isinstance(node.value, dict) else None
    limit = limits.get("max_cost_usd") if isinstance(limits, dict) else None
    if isinstance(limit, int | float) and not isinstance(limit, bool):
        draft.cost_limit = limit


def _node(reading: Reading, name: str, node: Node, named: Node) -> NodeDraft:
    owner = f"node `{name}`"
    given = read_fields(reading, node, NODE, owner, open=True)
    draft = NodeDraft(name, "", node, named, ReadFields(node, {}))
    if given.value("id", name) != name:
        message = f"{owner} has another id: `{cut(str(given.value('id')))}`"
        reading.at(given.found["id"], "wrong-id", message, f'write `"id": "{name}"`')
    kind = given.get("kind")
    if kind is None:
        return draft
    typed = kind.nodes.get("type")
    if typed is None or not isinstance(typed.value, str):
        found = "no `type`" if typed is None else f"{kind_of(typed.value)} as its `type`"
        reading.at(kind, "missing-key", f"the kind of {owner} has {found}", 'add `"type": "tool"`')
        return draft
    if typed.value not in IR_KINDS:
        report_kind(reading, typed, typed.value, owner, [*IR_KINDS, *UNSUPPORTED])
        return draft
    draft.kind = typed.value
    own = IR_KINDS[draft.kind]
    draft.given = read_fields(reading, kind, own, f"{owner} ({draft.kind})", EXTRA, open=True)
    if draft.given.value("stream"):
        reading.warn(draft.given.found["stream"], "no-effect", f"`stream` of {owner} has no effect")
    draft.retry, draft.timeout = given.get("retry_policy"), given.seconds("node_timeout_secs")
    draft.timeout = draft.timeout or draft.given.seconds("try_timeout")
    if given.get("policy") is not None:
        draft.policy = read_policy(reading, given.found["policy"], owner)
    if given.get("data_policy") is not None:
        reading.warn(given.found["data_policy"], "no-effect", f"`data_policy` of {owner} is not applied")
    _read_key(draft, given.get("labels"))
    return draft


def _read_key(draft: NodeDraft, labels: Node | None) -> None:
    """A node that a strategy was compiled to keeps its parsed answer under the name in its `output_schema`."""
    schema = draft.given.value("output_schema")
    if labels is not None and STRATEGY in labels.value and isinstance(schema, str) and schema:
        draft.key, draft.json = schema, True


def _add_edge(reading: Reading, draft: GraphDraft, node: Node) -> None:
    given = read_fields(reading, node, EDGE, "an edge", open=True)
    origin, target = given.get("from"), given.get("to")
    if origin is None or target is None:
        return
    if origin.value not in draft.nodes:
        hint = did_you_mean(origin.value, list(draft.nodes))
        reading.at(origin, "unknown-step", f"an edge begins at `{cut(origin.value)}`, which is no node", hint)
        return
    draft.nodes[origin.value].ways.append(Way(target.value, target, given.get("condition")))
