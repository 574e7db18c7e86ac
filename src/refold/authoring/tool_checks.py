"""What a tool wants of the input of its step, held against the names that the step binds."""

from refold.authoring.inside import place_inside
from refold.authoring.problems import Problem
from refold.authoring.reading import Reading
from refold.authoring.sketch import Sketch
from refold.authoring.steps import Draft
from refold.authoring.yaml_text import Node


def check_tools(reading: Reading, sketch: Sketch) -> None:
    for draft in sketch.drafts if reading.strict else ():
        node = draft.fields.get("tool")
        if isinstance(node, Node) and isinstance(node.value, dict):
            _check(reading, draft, node)


def _check(reading: Reading, draft: Draft, node: Node) -> None:
    kind = node.value.get("kind")
    info = reading.catalog.get(kind) if isinstance(kind, str) else None
    if info is None or info.check_bound is None:
        return
    for found in info.check_bound(node.value, draft.bound):
        child = node.nodes.get(found.key, node.nodes["kind"])
        place = place_inside(reading.source, child, found.line, found.column) if found.line else child.place
        reading.say(Problem(found.code, found.message, place, found.hint))
