"""What a `.wf` file says, as a tree: its inputs and nodes, with the offset of each part in the text."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct


class Scalar(Struct, frozen=True, gc=False):
    text: str
    at: int
    end: int
    quoted: bool = False


class ListValue(Struct, frozen=True, gc=False):
    items: "tuple[Value, ...]"
    at: int
    end: int


class MapValue(Struct, frozen=True, gc=False):
    pairs: "tuple[Pair, ...]"
    at: int
    end: int


Value = Scalar | ListValue | MapValue


class Pair(Struct, frozen=True, gc=False):
    key: str
    at: int
    value: Value


class Input(Struct, frozen=True, gc=False):
    name: Scalar
    boolean: bool
    required: bool
    default: str | None
    description: str


class Node(Struct, gc=False):  # a tree, so nothing has to be looked for in circles
    """A node; `keys` has what its pairs mean, and `values` where they stand."""

    at: int  # its keyword
    end: int
    keys: dict[str, Any]
    values: dict[str, Value]


class Call(Node):
    agent: Scalar

    @property
    def key(self) -> str:
        """The name of its result: its own, or the stem of its file."""
        return stem(self.agent.text) if self.agent.quoted else self.agent.text


class ChildCall(Node):
    name: Scalar


class Test(Node):
    """`if` or `unless`."""

    word: str
    condition: Scalar  # `step.marker`, or an input
    body: list[Node]
    otherwise: list[Node]


class Loop(Node):
    """`while`, or `do` with a `while` behind it."""

    word: str
    condition: Scalar
    body: list[Node]


class Do(Node):
    body: list[Node]


class Block(Node):
    """`always` inside a body, which is nothing but its nodes."""

    body: list[Node]


class Parallel(Node):
    calls: list[Call]


class Gate(Node):
    name: Scalar


class Script(Node):
    name: Scalar


class Foreach(Node):
    name: Scalar


class File(Struct):
    name: str
    meta: dict[str, Any]
    inputs: list[Input]
    body: list[Node]
    finally_body: list[Node]
    finally_at: int = 0


def stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".md").replace("#", "_")


def _bodies_of(node: Node) -> "tuple[Sequence[Node], ...]":
    """Return the lists of nodes that stand inside a node."""
    match node:
        case Test():
            return node.body, node.otherwise
        case Loop() | Do() | Block():
            return (node.body,)
        case Parallel():
            return (node.calls,)
    return ()


FLAT = (Call, Script, Gate, ChildCall, Foreach)  # nodes in which no others stand


def walk(nodes: "Sequence[Node]") -> list[Node]:
    """Return all nodes, in the order of the file."""
    found: list[Node] = []
    for node in nodes:
        found.append(node)
        if type(node) not in FLAT:
            for body in _bodies_of(node):
                found += walk(body)
    return found


def key_of(node: Node) -> str:
    """Return the key under which a node leaves its result; empty if it leaves none."""
    match node:
        case Call():
            return node.key
        case ChildCall() | Script() | Foreach():
            return node.name.text
        case _:
            return ""


Texts = Mapping[str, str]
