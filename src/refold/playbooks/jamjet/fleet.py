"""Reads a fleet: several agents and workflows in one file, which may start each other."""

from collections.abc import Callable, Mapping
from typing import Any

from refold.core.plan import Child, Plan, Work, plan_hash
from refold.names import did_you_mean
from refold.playbooks.children import ChildReader
from refold.playbooks.jamjet.agents import read_agent
from refold.playbooks.jamjet.drafts import GraphDraft
from refold.playbooks.jamjet.graph import WHOLE, read_graph, with_servers
from refold.playbooks.jamjet.listed import read_list
from refold.playbooks.jamjet.work import ChildPlans
from refold.playbooks.reader.reading import Reading, cut, kind_of
from refold.playbooks.yaml.text import Node

Compile = Callable[[GraphDraft, ChildPlans], Plan]
CODES = {
    "tool": ("unknown-tool", "tool"),
    "mcp": ("unknown-server", "MCP server"),
    "agent": ("unknown-agent", "agent"),
    "workflow": ("unknown-agent", "workflow"),
}
SUFFIXES = (".yaml", ".yml", ".json")
FILE_OF_AGENTS = "agents"


class FilesBeside:
    """Children in files next to this one, by their names, and the units of `agents.yaml`."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._reader: ChildReader[Any] = reading.child_reader
        self._versions: dict[str, str] = {}
        self._itself: set[str] = set()  # names of this very file

    def unit(self, node: Node, name: str, what: str) -> Work | None:
        if what == "agent":
            found = self._of_agents(node, name)
            if found is not None or name in self.reading.bindings().agents:
                return found
        return self._of_file(node, name)

    def _of_file(self, node: Node, name: str) -> Work | None:
        file = self._reader.named(name, SUFFIXES)
        if not self._reader.is_readable(file):
            return None
        if self._reader.is_itself(file):
            self._itself.add(name)
            return Child()
        found = self._reader.child(self.reading, node, file)
        if found is None:
            return Child()
        self._versions[name] = str(self._reader.playbooks[found[0]].metadata.get("version", ""))
        return Child(plan=plan_hash(found[1]))

    def _of_agents(self, node: Node, name: str) -> Work | None:
        """Return the agent of this name in the file that has all of them."""
        file = self._reader.named(FILE_OF_AGENTS, SUFFIXES)
        if not self._reader.is_readable(file) or self._reader.is_itself(file):
            return None
        found = self._reader.child(self.reading, node, file)
        if found is None:
            return Child()
        there, plan = found
        if plan.name != name:
            other = self._reader.playbooks.get(f"{there}#{name}")
            if other is None:
                return None
            plan = other.plan
        self._versions[name] = str(self._reader.playbooks[there].metadata.get("version", ""))
        return Child(plan=plan_hash(plan))

    def version(self, name: str) -> str:
        return self._versions.get(name, "")

    def is_itself(self, name: str) -> bool:
        return name in self._itself


class Fleet:
    """The units of a file, each read once, when somebody names it."""

    def __init__(self, reading: Reading, root: Node, compile: Compile) -> None:
        self.reading, self.root, self._compile = reading, root, compile
        self._beside = FilesBeside(reading)
        self.units: dict[str, tuple[str, Node]] = {}
        for section in ("agents", "workflows"):
            node = root.nodes.get(section)
            if node is not None and isinstance(node.value, dict):
                self.units |= {name: (section, each) for name, each in node.nodes.items()}
        self._above: list[str] = []
        self.plans: dict[str, Plan] = {}
        self.drafts: dict[str, GraphDraft] = {}

    def plan(self, name: str) -> Plan:
        """Return the plan of a unit; its problems are reported when it is first read."""
        if name not in self.plans:
            self._above.append(name)
            draft = self._draft(name)
            self.drafts[name] = draft
            self.plans[name] = self._compile(draft, self)
            self._above.pop()
        return self.plans[name]

    def unit(self, node: Node, name: str, what: str) -> Work | None:
        if name not in self.units:
            return self._beside.unit(node, name, what)
        if name in self._above:
            circle = " > ".join([*self._above[self._above.index(name) :], name])
            self.reading.at(node, "circle", f"these units start each other: {circle}", "leave one of the ways out")
            return Child()
        return Child(plan=plan_hash(self.plan(name)))

    def version(self, name: str) -> str:
        return self.drafts[name].version if name in self.drafts else self._beside.version(name)

    def is_itself(self, name: str) -> bool:
        return self._beside.is_itself(name)

    def _draft(self, name: str) -> GraphDraft:
        section, node = self.units[name]
        if not isinstance(node.value, dict):
            message = f"the unit `{cut(name)}` must be a map, not {kind_of(node.value)}"
            self.reading.at(node, "wrong-type", message)
            return GraphDraft(name=name, root=self.root)
        schedule = node.nodes.get("schedule")
        if schedule is not None:
            self._check_schedule(schedule, name)
        if section == "agents":
            draft = read_agent(self.reading, node, self.root, name, self._defaults())
            self._check_uses(node, name)
            return draft
        return self._workflow(name, node)

    def _defaults(self) -> Mapping[str, Node]:
        node = self.root.nodes.get("defaults")
        return node.nodes if node is not None and isinstance(node.value, dict) else {}

    def _workflow(self, name: str, node: Node) -> GraphDraft:
        """A workflow of a fleet: with a head of its own, or with its nodes beside what describes it."""
        shared = {
            key: each
            for key, each in self.root.nodes.items()
            if key not in ("agents", "workflows", "defaults", "schedule")
        }
        head = node.nodes.get("workflow")
        if head is None or not isinstance(head.value, dict):
            own = {key: each for key, each in node.nodes.items() if key not in WHOLE or key == "labels"}
            named = Node(name, node.start, node.start)
            nodes = {"id": named, **{key: each for key, each in own.items() if key != "schedule"}}
            if isinstance(node.value.get("nodes"), list):
                nodes["nodes"] = node.nodes["nodes"]
            head = _map(node, nodes)
        nodes = {key: each for key, each in node.nodes.items() if key in WHOLE}
        parts = {key: each for key, each in shared.items() if key in WHOLE and key not in nodes}
        root = _map(node, {**parts, **nodes, "workflow": head})
        if isinstance(head.value.get("nodes"), list):
            return read_list(self.reading, _map(node, {**parts, "workflow": head}))
        if not isinstance(node.value.get("nodes"), dict):
            self.reading.at(node, "missing-key", f"the workflow `{cut(name)}` needs `nodes`", "add `nodes: {…}`")
            return GraphDraft(name=name, root=root)
        return read_graph(self.reading, root)

    def _check_schedule(self, node: Node, name: str) -> None:
        cron = node.nodes.get("cron") if isinstance(node.value, dict) else None
        if cron is None or not isinstance(cron.value, str) or len(cron.value.split()) != 5:
            message = f"`schedule` of `{cut(name)}` needs `cron` with five fields"
            self.reading.at(node, "bad-value", message, 'write `{cron: "0 8 * * *"}`')
            return
        message = f"`schedule` of `{cut(name)}` is not started from here"
        self.reading.warn(node, "no-effect", message, "make a schedule with `refold schedules`")

    def _check_uses(self, node: Node, name: str) -> None:
        uses = node.nodes.get("uses")
        for each in uses.nodes if uses is not None and isinstance(uses.value, list) else ():
            sort, _, what = each.value.partition(":") if isinstance(each.value, str) else ("", "", "")
            if sort not in CODES or not what:
                message = f"`uses` of `{cut(name)}` names `tool:x`, `mcp:y`, `agent:z` or `workflow:z`"
                self.reading.at(each, "bad-value", message)
                continue
            if sort in ("agent", "workflow"):
                if self.unit(each, what, sort) is None and what not in self.reading.bindings().agents:
                    self._unknown(each, name, sort, what, [*self.units])
            elif sort == "mcp" and not self._has_server(what):
                self._unknown(each, name, sort, what, [])

    def _has_server(self, name: str) -> bool:
        servers = with_servers(self.root.nodes).get("mcp_servers")
        in_file = servers is not None and isinstance(servers.value, dict) and name in servers.value
        return in_file or self.reading.bindings().server(name) is not None

    def _unknown(self, node: Node, name: str, sort: str, what: str, known: list[str]) -> None:
        code, noun = CODES[sort]
        message = f"`{cut(name)}` uses the {noun} `{cut(what)}`, which is not in this file"
        self.reading.at(node, code, message, did_you_mean(what, known))


def _map(node: Node, nodes: Mapping[str, Node]) -> Node:
    """Return a map of these nodes, at the place of another one."""
    value = {name: each.value for name, each in nodes.items()}
    keys = {name: node.keys.get(name, each.start) for name, each in nodes.items()}
    return Node(value, node.start, node.end, "", dict(nodes), keys)
