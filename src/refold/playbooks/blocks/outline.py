"""The steps and blocks of a playbook by name: which list each is in, and which arcs may lead to it."""

from collections import Counter
from collections.abc import Iterator

from refold.playbooks.key_types import block_word
from refold.playbooks.reader.reading import Fields, Reading, cut
from refold.playbooks.yaml.text import Node

FIRST = {"parallel": "fork", "while": "begin", "until": "begin", "if": "choose"}  # where a block is entered


def bodies_of(fields: Fields) -> Iterator[list[Fields]]:
    """Every list of steps in a block, in the order of the file."""
    yield from fields.get("branches", {}).values()
    for key in ("do", "then"):
        if key in fields.values:
            yield fields.get(key)
    for other in fields.get("elif", []):
        yield other.get("then", [])
    if "else" in fields.values:
        yield fields.get("else")


class Outline:
    """The lists of steps by number, and which list each name is in. Blocks without a name get one."""

    def __init__(self, reading: Reading, items: list[Fields]) -> None:
        self.reading = reading
        self.around: list[str] = []  # per list: the block that it stands in, or nothing
        self.home: dict[str, int] = {}  # name of a step or block -> its list
        self.entries: dict[str, str] = {}  # name of a block -> the step where it is entered
        self._above: list[int] = []
        self._names: dict[int, str] = {}
        self._lists: dict[int, int] = {}
        self._taken = set(self._given(items))
        self._made: Counter[str] = Counter()
        self._put(items, "")

    def name(self, item: Fields) -> str:
        """The name of a step or a block; "" if it has no valid name."""
        return self._names[id(item)]

    def entry(self, item: Fields) -> str:
        name = self.name(item)
        return self.entries.get(name, name) if block_word(item.node) else name

    def number(self, items: list[Fields]) -> int:
        return self._lists[id(items)]

    def _given(self, items: list[Fields]) -> Iterator[str]:
        for item in items:
            yield _own_name(item)
            for body in bodies_of(item) if block_word(item.node) else ():
                yield from self._given(body)

    def _put(self, items: list[Fields], around: str, above: int = -1) -> None:
        number = self._lists[id(items)] = len(self.around)
        self.around.append(around)
        self._above.append(above)
        for item in items:
            word = block_word(item.node)
            name = self._names[id(item)] = _own_name(item) or (self._make_up(word) if word else "")
            if name in self.home and (word or name in self.entries):
                message = f"`{name}` is already the name of a step or a block"
                self.reading.at(_name_node(item), "duplicate-step", message, "give one of them another name")
            self.home.setdefault(name, number)
            if word:
                self.entries.setdefault(name, f"{name}.{FIRST[word]}")
                for body in bodies_of(item):
                    self._put(body, name, number)

    def _make_up(self, word: str) -> str:
        while True:
            self._made[word] += 1
            name = f"{word}_{self._made[word]}"
            if name not in self._taken:
                return name

    def resolved(self, target: str, node: Node, number: int) -> str:
        """Where an arc of a list leads; an arc that leaves the list is reported."""
        there = self.home.get(target)
        if there is not None and there != number:
            if self._is_below(there, number):
                message = f"`{cut(target)}` is inside the block `{self.around[there]}`; no arc may lead into a block"
                self.reading.at(node, "enters-block", message, f"lead it to `{self._block_below(there, number)}`")
            else:
                block = self.around[number]
                message = f"`{cut(target)}` is outside of this list, and no arc may lead out of the block `{block}`"
                hint = f"what follows is for `{block}` itself to say, with its `next`"
                self.reading.at(node, "leaves-block", message, hint)
        return self.entries.get(target, target)

    def _is_below(self, inner: int, outer: int) -> bool:
        while inner >= 0 and inner != outer:
            inner = self._above[inner]
        return inner == outer

    def _block_below(self, inner: int, outer: int) -> str:
        """The block in the outer list that contains the inner list."""
        while self._above[inner] != outer:
            inner = self._above[inner]
        return self.around[inner]


def _own_name(item: Fields) -> str:
    word = block_word(item.node)
    name: str = item.get(word if word == "parallel" else "name" if word else "step", "")
    return name


def _name_node(item: Fields) -> Node:
    names = ("parallel", "name", "step", *FIRST)
    node: Node = item.node.nodes[next(each for each in names if each in item.node.nodes)]
    return node
