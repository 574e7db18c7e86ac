"""Reads agents: their strategy, their goal and their limits."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.playbooks.jamjet.drafts import GraphDraft
from refold.playbooks.jamjet.expressions import Expressions
from refold.playbooks.jamjet.fields import Field, ReadFields, read_fields
from refold.playbooks.jamjet.graph import with_servers
from refold.playbooks.jamjet.strategies import STRATEGIES, AgentDraft, unrolled
from refold.playbooks.jamjet.whole import read_whole
from refold.playbooks.reader.reading import Reading, kind_of
from refold.playbooks.yaml.text import Node

AGENT = (
    Field("id", "text", "its name", True),
    Field("strategy", "text", "how it works", True, choices=tuple(STRATEGIES)),
    Field("goal", "text", "what it works for", True),
    Field("model", "text", "the model that it asks", True),
    Field("limits", "map", "how long and how much", True),
    Field("version", "version", "its version (0.1.0)"),
    Field("tools", "list", "names of tools, or `{name, description, input_schema}`"),
    Field("strategy_config", "map", "what its strategy can be told"),
    Field("on_limit_exceeded", "text", "`return_partial`: an end by a limit is a completed one"),
    Field("uses", "names", "what it needs: `tool:x`, `mcp:y`, `agent:z`, `workflow:z`"),
    Field("state_schema", "any", "the inputs, as types or as a JSON Schema"),
)
LIMITS = (
    Field("max_iterations", "whole", "the most rounds", True, least=1),
    Field("max_cost_usd", "number", "the most that it may cost", True),
    Field("timeout_seconds", "number", "the most time", True, least=1),
)
MOST_ROUNDS = 500  # an unrolled graph has a few nodes for each round
KEPT = ("description", "name", "labels", "schedule", "autonomy", "metadata")


def read_agent_file(reading: Reading, root: Node) -> GraphDraft:
    return read_agent(reading, root.nodes["agent"], root, "agent")


def read_agent(
    reading: Reading, node: Node, root: Node, unit: str, defaults: Mapping[str, Node] | None = None
) -> GraphDraft:
    """Read an agent; `defaults` stand in for what it leaves out, `unit` is its name in a fleet."""
    whole = node
    owner = "`agent`" if unit == "agent" else f"agent `{unit}`"
    if defaults is not None and isinstance(node.value, dict):
        named = Node(unit, node.start, node.start)
        whole = _with(node, {**{"id": named}, **defaults})
    given = read_fields(reading, whole, AGENT, owner, KEPT, open=True)
    draft = GraphDraft(name=given.value("id", unit), root=root, version=given.value("version", "0.1.0"), bare=True)
    draft.metadata = {name: whole.value[name] for name in ("description", "labels") if name in (whole.value or {})}
    draft.metadata["version"] = draft.version
    parts = {name: each for name, each in root.nodes.items() if name not in ("agent", "agents", "workflows")}
    parts |= {"state_schema": given.found["state_schema"]} if "state_schema" in given else {}
    read_whole(reading, draft, with_servers(parts))
    limits = _limits(reading, given, owner, draft)
    draft.partial = given.value("on_limit_exceeded") == "return_partial"
    tools = _tools(reading, given, owner, draft.tools)
    if not all(name in given for name in ("strategy", "goal", "model")) or limits is None:
        return draft
    Expressions(reading, draft.bare).text(given.found["goal"], owner)
    config = given.value("strategy_config", {})
    rounds = limits
    if isinstance(config.get("max_steps"), int) and not isinstance(config["max_steps"], bool):
        rounds = max(1, min(rounds, config["max_steps"]))
    agent = AgentDraft(
        draft.name,
        given.value("strategy"),
        given.value("goal"),
        given.value("model"),
        rounds,
        config,
        tools,
        given.found["id"] if "id" in node.value else node,
    )
    draft.nodes = unrolled(agent)
    draft.start = next(iter(draft.nodes))
    draft.agent_tools = {name: _place(given, name) for name in tools}
    return draft


def _with(node: Node, defaults: Mapping[str, Node]) -> Node:
    """Return the map with what it leaves out."""
    missing = {name: each for name, each in defaults.items() if name not in node.nodes}
    value = {**node.value, **{name: each.value for name, each in missing.items()}}
    keys = {**node.keys, **{name: each.start for name, each in missing.items()}}
    return Node(value, node.start, node.end, node.style, {**node.nodes, **missing}, keys)


def _limits(reading: Reading, given: ReadFields, owner: str, draft: GraphDraft) -> int | None:
    node = given.get("limits")
    if node is None:
        return None
    limits = read_fields(reading, node, LIMITS, f"`limits` of {owner}", open=True)
    cost = limits.get("max_cost_usd")
    if cost is not None and cost.value <= 0:
        reading.at(cost, "bad-value", f"`max_cost_usd` of {owner} must be more than 0")
    draft.cost_limit, draft.timeout = limits.value("max_cost_usd"), limits.value("timeout_seconds")
    rounds: int | None = limits.value("max_iterations")
    if rounds is not None and rounds > MOST_ROUNDS:
        message = f"`max_iterations` of {owner} is {rounds:,}; at most {MOST_ROUNDS} rounds are unrolled"
        reading.at(limits.found["max_iterations"], "bad-value", message, "write a smaller number")
        return None
    return rounds


def _tools(
    reading: Reading, given: ReadFields, owner: str, described: Mapping[str, ReadFields]
) -> dict[str, Mapping[str, Any]]:
    """Return the tools of an agent with what is known about them: what it says itself, else what the file says."""
    found: dict[str, Mapping[str, Any]] = {}
    listed = given.get("tools")
    for each in listed.nodes if listed is not None else ():
        name = each.value.get("name") if isinstance(each.value, dict) else each.value
        if not isinstance(name, str):
            message = f"a tool of {owner} is a name, or a map with `name`, not {kind_of(each.value)}"
            reading.at(each, "wrong-type", message)
            continue
        found[name] = each.value if isinstance(each.value, dict) else {}
    used: Sequence[str] = given.value("uses", ())
    found |= {name.removeprefix("tool:"): {} for name in used if name.startswith("tool:") and name[5:] not in found}
    for name, about in found.items():
        if name in described and isinstance(text := described[name].value("description"), str):
            found[name] = {"description": text, **about}
    return found


def _place(given: ReadFields, name: str) -> Node:
    for field in ("tools", "uses"):
        listed = given.get(field)
        for each in listed.nodes if listed is not None else ():
            found: Node = each
            own = found.value.get("name") if isinstance(found.value, dict) else found.value
            if own in (name, f"tool:{name}"):
                return found
    return given.node
