"""Steps whose result is secret: it is stored encrypted, so that only tools can read what is in it."""

from refold.authoring.inside import place_inside
from refold.authoring.reading import Reading
from refold.authoring.sketch import Sketch
from refold.authoring.template_text import templates
from refold.authoring.yaml_text import Node
from refold.templates import uses_of

HINT = "read it in `input` or in the keys of a tool; a worker opens it there"


def sealed_steps(reading: Reading, root: Node) -> frozenset[str]:
    """The steps of a file that say so, wherever they stand."""
    found: set[str] = set()
    if not reading.has_secrets or not isinstance(root.value, dict) or "workflow" not in root.nodes:
        return frozenset()
    todo = [root.nodes["workflow"]]
    while todo:
        node = todo.pop()
        value = node.value
        if isinstance(value, dict) and isinstance(value.get("step"), str):
            output = value.get("output")
            if isinstance(output, dict) and output.get("secret") is True:
                found.add(value["step"])
        todo.extend(node.nodes.values() if isinstance(node.nodes, dict) else node.nodes)
    return frozenset(found)


def check_sealed(reading: Reading, sketch: Sketch) -> None:
    """Conditions, and what is set, are evaluated where nothing is opened."""
    for draft in sketch.drafts if reading.sealed else ():
        for value in draft.values:
            if value.scope in ("run", "outcome") and reading.strict:
                for node in templates(value.node):
                    _check(reading, node, draft.name)


def _check(reading: Reading, node: Node, step: str) -> None:
    for use in uses_of(node.value):
        path = use.path[1:] if use.path[0] == "steps" else use.path
        own = path[0] == "output" and len(path) > 2 and step in reading.sealed
        if own or (len(path) > 1 and path[0] in reading.sealed):
            place = place_inside(reading.source, node, use.line, use.column)
            name = step if own else path[0]
            message = f"the result of `{name}` is secret, and cannot be read here"
            reading.at_place(place, "sealed-result", message, HINT, len(path[0]))
