"""Checks of a whole graph: names that lead nowhere, nodes that nothing leads to, and circles without a way out."""

from collections.abc import Iterable, Iterator

from refold.names import did_you_mean
from refold.playbooks.jamjet.drafts import LEADS, GraphDraft, NodeDraft
from refold.playbooks.reader.reading import Reading, cut
from refold.playbooks.yaml.text import Node

APART = ("finalizer",)


def check_graph(reading: Reading, draft: GraphDraft) -> None:
    """Report problems of the whole. A graph with names that do not exist is not looked at further."""
    good = _check_names(reading, draft)
    if good and draft.start in draft.nodes:
        _check_reached(reading, draft)
        _check_circles(reading, draft)


ENDINGS = ("pause", "fail")  # what a run does whose budget is used up, besides a node that runs then


def _check_names(reading: Reading, draft: GraphDraft) -> bool:
    known = [*draft.nodes, "end"]
    before = len(reading.problems)
    if draft.started is not None and draft.start not in draft.nodes:
        message = f"the start `{cut(draft.start)}` is no node"
        reading.at(draft.started, "unknown-step", message, did_you_mean(draft.start, list(draft.nodes)))
    for node in draft.nodes.values():
        if not node.id or "/" in node.id or "#" in node.id or (node.id == "end" and node.kind != "end"):
            message = f"`{cut(node.id)}` is not a name for a node"
            reading.at(
                node.named,
                "wrong-id",
                message,
                "a name is not empty and has no `/` or `#`; `end` is the end, of type `end`",
            )
        for name, place in (*node.targets(), *_waited(node)):
            if name not in draft.nodes and not draft.is_end(name):
                message = f"{node.owner} leads to `{cut(name)}`, which is no node"
                reading.at(place, "unknown-step", message, did_you_mean(name, known))
    if draft.on_budget is not None and draft.on_budget.value not in (*ENDINGS, *draft.nodes):
        message = f"`on_budget_exceeded` names `{cut(draft.on_budget.value)}`, which is no node"
        reading.at(
            draft.on_budget, "unknown-step", message, did_you_mean(draft.on_budget.value, [*draft.nodes, *ENDINGS])
        )
    return len(reading.problems) == before


def _waited(node: NodeDraft) -> Iterator[tuple[str, Node]]:
    listed = node.given.get("wait_for")
    for each in listed.nodes if listed is not None and node.kind == "join" else ():
        yield each.value, each


def ahead(draft: GraphDraft) -> dict[str, list[str]]:
    """Return for each node the nodes that it leads to, those that wait for it included."""
    if draft.ahead is not None:
        return draft.ahead
    found = draft.ahead = {
        node.id: [name for name, _ in node.targets() if name in draft.nodes and not draft.is_end(name)]
        for node in draft.nodes.values()
    }
    for node in draft.nodes.values():
        for name, _ in _waited(node):
            if name in found and node.id not in found[name]:
                found[name].append(node.id)
    return found


def reached(draft: GraphDraft) -> set[str]:
    ways = ahead(draft)
    found, todo = {draft.start}, [draft.start]
    while todo:
        for name in ways.get(todo.pop(), ()):
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


CHOOSING = ("condition", "human_approval", "wait", "eval")


def certain(draft: GraphDraft) -> list[NodeDraft]:
    """Return nodes that are entered in every run that does not fail: those before the first that may choose."""
    found, todo = dict[str, NodeDraft](), [] if draft.on_budget is not None else [draft.start]
    while todo:
        node = draft.nodes.get(todo.pop())
        if node is None or node.id in found:
            continue
        found[node.id] = node
        leads = any(node.given.get(name) is not None for name in LEADS.get(node.kind, ()))
        if node.kind not in CHOOSING and not leads and all(way.text in ("", None) for way in node.ways):
            todo += ahead(draft).get(node.id, [])
    return [*found.values()]


def is_apart(draft: GraphDraft, node: NodeDraft) -> bool:
    """Whether a node is no part of the graph: finalizers, and the node for a budget that is used up."""
    budget = draft.on_budget.value if draft.on_budget is not None else ""
    return node.kind in (*APART, "end") or node.id == budget


def _check_reached(reading: Reading, draft: GraphDraft) -> None:
    found = reached(draft)
    for node in draft.nodes.values():
        if node.id in found or is_apart(draft, node) or node.kind == "limit_exceeded" or not node.kind:
            continue
        message = f"nothing leads to {node.owner}"
        reading.at(node.named, "unreachable", message, "name it in the `next`, the branches or the edges of a node")


def _check_circles(reading: Reading, draft: GraphDraft) -> None:
    """Report circles that no node with a choice can leave."""
    ways = ahead(draft)
    for circle in _components(ways):
        inside = set(circle)
        if len(circle) == 1 and circle[0] not in ways[circle[0]]:
            continue
        choosers = {name for name in circle if _can_choose(draft, draft.nodes[name])}
        leaves = any(_leads_out(draft, draft.nodes[name], inside) for name in choosers)
        rest = {name: [to for to in ways[name] if to in inside - choosers] for name in circle if name not in choosers}
        wrong = [each for each in _components(rest) if len(each) > 1 or each[0] in rest[each[0]]]
        for names in wrong if leaves else [circle]:
            ordered = [name for name in draft.nodes if name in names]
            listed = ", ".join(f"`{name}`" for name in ordered)
            message = f"{listed} lead to each other in a circle, and no condition has a way out of it"
            hint = "add a node of type `condition` to the circle, with a way that leaves it"
            reading.at(draft.nodes[ordered[0]].named, "circle", message, hint)


def _can_choose(draft: GraphDraft, node: NodeDraft) -> bool:
    """Whether a node takes one of its ways: by branches, by conditions of its edges, or by a decision."""
    conditional = any(way.text not in ("", None) for way in node.ways)
    return conditional and (len({way.to for way in node.ways}) > 1 or _may_end(node))


def _may_end(node: NodeDraft) -> bool:
    """Whether none of the ways of a node may be taken."""
    return all(way.text not in ("", None) for way in node.ways)


def _leads_out(draft: GraphDraft, node: NodeDraft, inside: set[str]) -> bool:
    return _may_end(node) or any(way.to not in inside for way in node.ways)


def _components(ways: dict[str, list[str]]) -> Iterable[list[str]]:
    """Return the groups of nodes that lead to each other (Tarjan's algorithm, without recursion)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in ways:
        if root in number:
            continue
        path = [(root, iter(ways[root]))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while path:
            name, rest = path[-1]
            for to in rest:
                if to not in ways:
                    continue
                if to not in number:
                    number[to] = lowest[to] = len(number)
                    stack.append(to)
                    on_stack.add(to)
                    path.append((to, iter(ways[to])))
                    break
                if to in on_stack:
                    lowest[name] = min(lowest[name], number[to])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
                if lowest[name] == number[name]:
                    group: list[str] = []
                    while not group or group[-1] != name:
                        group.append(stack.pop())
                        on_stack.discard(group[-1])
                    found.append(group)
    return found
