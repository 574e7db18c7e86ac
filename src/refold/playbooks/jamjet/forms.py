"""Tells the forms of JamJet files apart, by what is in a file."""

from refold.playbooks.yaml.text import Node

SIGNS = frozenset(
    {
        "workflow_id",
        "start_node",
        "nodes",
        "edges",
        "agent",
        "agents",
        "workflows",
        "policy",
        "models",
        "tools",
        "mcp",
        "a2a",
        "retry_policies",
        "timeouts",
        "defaults",
    }
)


def form_of(root: Node) -> str:
    """Return the form of a file by what is in it; `other` if it is JamJet's and no workflow, empty if it is not."""
    keys = root.value
    if not isinstance(keys, dict) or "apiVersion" in keys:
        return ""
    if "workflow_id" in keys and "nodes" in keys:
        return "ir"
    workflow = keys.get("workflow")
    if isinstance(workflow, dict) and isinstance(keys.get("nodes"), dict):
        return "graph"
    if isinstance(workflow, dict) and isinstance(workflow.get("nodes"), list):
        return "list"
    if isinstance(keys.get("agent"), dict):
        return "agent"
    if isinstance(keys.get("agents"), dict) or isinstance(keys.get("workflows"), dict):
        return "fleet"
    if "metadata" in keys:
        return ""
    return "other" if SIGNS.intersection(keys) or isinstance(workflow, dict) else ""
