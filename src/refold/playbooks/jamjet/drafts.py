"""The intermediate form: a graph of nodes as any of the five forms was read, with the places of its parts."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from refold.core.plan import Input, Retry
from refold.playbooks.jamjet.fields import ReadFields
from refold.playbooks.jamjet.tables import END
from refold.playbooks.yaml.text import Node


class Way(Struct):
    """An edge. `words` is a condition that nobody wrote, such as that of `on_approved`."""

    to: str
    node: Node  # where its target stands
    condition: Node | None = None
    words: str = ""

    @property
    def text(self) -> str:
        return self.words or ("" if self.condition is None else self.condition.value)


class NamePolicy(Struct, frozen=True):
    """Names, with * and ?."""

    blocked: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


class NodeDraft(Struct):
    id: str
    kind: str
    node: Node  # the map of the node
    named: Node  # where its name stands
    given: ReadFields  # the fields of its kind, by the names of the IR
    ways: list[Way] = []
    key: str = ""  # the state key of its result
    json: bool = False  # whether the answer of a model is JSON
    fields: Node | None = None  # fields of the result, and the state keys that they go to
    from_state: Node | None = None  # arguments, by the state keys that they are taken from
    retry: Node | None = None  # the name of a policy
    tries: Retry | None = None
    timeout: float | None = None  # of one try
    policy: NamePolicy = NamePolicy()
    texts: Mapping[str, str] = {}  # fields that no file has: prompts of strategies

    @property
    def owner(self) -> str:
        return f"node `{self.id}`"

    def text(self, name: str, default: str = "") -> str:
        return self.texts[name] if name in self.texts else self.given.value(name, default)

    def place(self, name: str) -> Node:
        """The node of a field, or that of the name."""
        return self.given.get(name) or self.named

    def targets(self) -> Iterator[tuple[str, Node]]:
        """Every name of another node that is in it, and where."""
        for way in self.ways:
            yield way.to, way.node
        for name in LEADS.get(self.kind, ()):
            found = self.given.get(name)
            if found is not None and (name, found.value) != ("on_timeout", "reject"):
                yield found.value, found


LEADS: Mapping[str, tuple[str, ...]] = {
    "human_approval": ("fallback_node", "on_timeout"),
    "wait": ("on_timeout",),
    "a2a_task": ("on_input_required",),
}
"""Fields that name another node, besides ways."""


class GraphDraft(Struct):
    name: str
    root: Node  # the map that the graph stands in
    version: str = ""
    start: str = ""
    started: Node | None = None  # where the start is named
    nodes: dict[str, NodeDraft] = {}
    bare: bool = False  # lists and goals of agents: bare names are keys of the state
    metadata: dict[str, Any] = {}
    retries: dict[str, Retry] = {}
    node_timeout: float | None = 300.0
    approval_timeout: float | None = None
    timeout: float | None = None
    models: Mapping[str, ReadFields] = {}
    tools: Mapping[str, ReadFields] = {}
    servers: Mapping[str, ReadFields] = {}
    remotes: Mapping[str, ReadFields] = {}
    policy: NamePolicy = NamePolicy()
    budget: dict[str, int | float] = {}
    on_budget: Node | None = None
    inputs: tuple[Input, ...] = ()
    defaults: dict[str, Any] = {}
    cost_limit: float | None = None
    partial: bool = False  # an end by a limit is a completed one
    ahead: dict[str, list[str]] | None = None  # the nodes that each leads to, when they are known
    agent_tools: Mapping[str, Node] = {}  # tools that an agent may run, and where they are named

    def is_end(self, name: str) -> bool:
        return name == END or (name in self.nodes and self.nodes[name].kind == END)


EMPTY = Retry()
NAMED = {
    "io_default": Retry(
        attempts=5,
        backoff="exponential",
        delay=1.0,
        max_delay=30.0,
        jitter=0.5,
        on=("connection", "io", "io_error", "connection_reset", "timeout"),
    ),
    "llm_default": Retry(
        attempts=3,
        backoff="exponential",
        delay=2.0,
        max_delay=60.0,
        jitter=0.5,
        on=("rate_limit", "timeout", "server_error"),
    ),
    "no_retry": EMPTY,
    "fast": Retry(attempts=2, backoff="fixed", delay=1.0),
}
CLASSES: Mapping[str, tuple[str, ...]] = {
    "io_error": ("connection", "io", "io_error"),
    "connection_reset": ("connection", "connection_reset"),
    "timeout": ("timeout",),
    "rate_limit": ("rate_limit",),
    "server_error": ("server_error",),
}
