"""Recognises templates and references to secrets in values."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import json

from refold.playbooks.yaml.text import Node

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*(')?|\"(?:[^\"\\]|\\.)*(\")?", re.S)  # one that is never closed is met once


def is_template(value: Any) -> bool:
    return isinstance(value, str) and ("{{" in value or "{%" in value or "{#" in value)


def is_secret(value: Any) -> bool:
    """Whether the value is a reference to a secret."""
    return isinstance(value, dict) and value.keys() == {"secret"} and isinstance(value["secret"], str)


def holds_secret(value: Any) -> bool:
    """Whether the value contains a reference to a secret."""
    if isinstance(value, dict):
        return is_secret(value) or any(map(holds_secret, value.values()))
    return isinstance(value, list) and any(map(holds_secret, value))


def literal(value: Any) -> Any:
    """The value quoted, so that rendering returns it unchanged."""
    return f"{{{{ {json.encode(value).decode()} }}}}" if is_template(value) else value


def is_expression(text: str) -> bool:
    """Whether the text is exactly one `{{ }}`, so that its value keeps its type."""
    text = text.strip()
    return text.startswith("{{") and text.endswith("}}") and "}}" not in _without_strings(text)[2:-2]


def templates_in(node: Node) -> Iterator[Node]:
    """All texts inside a value that are templates."""
    if not node.nodes:
        if is_template(node.value):
            yield node
        return
    todo = [node]
    while todo:
        each = todo.pop()
        if isinstance(each.value, str):
            if is_template(each.value):
                yield each
        elif each.nodes:
            inside = each.nodes.values() if isinstance(each.nodes, dict) else each.nodes
            todo.extend(reversed(list(inside)))


def _without_strings(text: str) -> str:
    return _QUOTED.sub(lambda found: "_" * len(found.group()) if any(found.groups()) else found.group(), text)
