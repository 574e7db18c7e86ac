"""Lists of steps and blocks as they are written: which table each item is read by, and what branches there are."""

from refold.authoring.blocks.tables import WORDS
from refold.authoring.names import NAME, tidied
from refold.authoring.names import WORDS as SAID
from refold.authoring.reading import Fields, Reading, cut, kind_of
from refold.authoring.tables import Key
from refold.authoring.template_text import is_expression
from refold.authoring.yaml_text import Node


def block_word(node: Node) -> str:
    """The word that makes an item a block, or nothing if it is a step."""
    if not isinstance(node.value, dict) or "step" in node.value:
        return ""
    return next((word for word in WORDS if word in node.value), "")


def read_body(reading: Reading, node: Node, key: Key) -> list[Fields] | None:
    if not isinstance(node.value, list):
        reading.wrong(node, key, "a list of steps and blocks")
        return None
    if not node.value:
        reading.at(node, "wrong-type", f"`{key.name}` is empty", f"for example `{key.name}: {key.example}`")
    return [reading.table(each, block_word(each) or "step") for each in node.nodes]


def read_branches(reading: Reading, node: Node, key: Key) -> dict[str, list[Fields]] | None:
    if not isinstance(node.value, dict | list) or not node.value:
        reading.wrong(node, key, "a map of names to lists of steps, or a list of such lists")
        return None
    named = isinstance(node.value, dict)
    nodes = node.nodes if named else {f"branch_{number}": each for number, each in enumerate(node.nodes, 1)}
    found = {}
    for name, each in nodes.items():
        if named and (not NAME.fullmatch(name) or name in SAID):
            message = f"`{cut(name)}` is no name for a branch: it has lower-case letters, digits and `_`"
            reading.at_key(node, name, "bad-name", message, f"for example `{tidied(name) or 'branch_1'}`")
            continue
        if isinstance(each.value, dict):
            hint = f"write a list: `{name}: [{{step: …}}]`"
            reading.at(each, "wrong-type", "a branch must be a list of steps, not a map", hint)
            continue
        found[name] = read_body(reading, each, key) or []
    return found


def read_expression(reading: Reading, node: Node, key: Key) -> str | None:
    if isinstance(node.value, str) and is_expression(node.value):
        return node.value
    message = f"`{key.name}` must be one {{{{ expression }}}}, not {kind_of(node.value)}"
    reading.at(node, "wrong-type", message, f"for example `{key.name}: {key.example}`")
    return None
