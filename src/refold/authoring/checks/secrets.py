"""Checks of secrets: whoever names one names one that some provider has."""

from collections.abc import Iterator

from refold.authoring.inside import place_inside
from refold.authoring.names import did_you_mean
from refold.authoring.problems import Place
from refold.authoring.reading import Reading, cut
from refold.authoring.sketch import Sketch
from refold.authoring.template_text import is_secret, templates
from refold.authoring.yaml_text import Node
from refold.templates import uses_of

SCOPE = "secrets"


def check_secrets(reading: Reading, sketch: Sketch) -> None:
    """Who has which is asked only if one is named; where that cannot be told, nothing is said."""
    looks = reading.has_secrets and reading.secrets is not None
    named = [found for draft in sketch.drafts for found in _named(reading, draft.node)] if looks else []
    known = reading.secrets() if named and reading.secrets is not None else None
    if known is None:
        return
    for name, place in named:
        if name not in known:
            message = f"no provider has a secret `{cut(name)}`"
            hint = did_you_mean(name, sorted(known)) if known else f"`refold secret set {name}` keeps one"
            reading.at_place(place, "unknown-secret", message, hint, len(name))


def _named(reading: Reading, node: Node) -> Iterator[tuple[str, Place]]:
    """Every secret that a step names, and where: by reference, or in a template."""
    todo = [node]
    while todo:
        each = todo.pop()
        if is_secret(each.value):
            yield each.value["secret"], each.nodes["secret"].place
        todo.extend(each.nodes.values() if isinstance(each.nodes, dict) else each.nodes)
    for text in templates(node):
        for use in uses_of(text.value):
            if use.path[0] == SCOPE and len(use.path) > 1:
                column = use.column + len(SCOPE) + 1
                yield use.path[1], place_inside(reading.source, text, use.line, column)
