"""Reads the key `budget` of a playbook: limits by unit, and what happens when one is exceeded."""

from math import inf

from msgspec import Struct

from refold.names import NAME, did_you_mean, tidied
from refold.playbooks.language.tables import Key
from refold.playbooks.reader.reading import Reading, cut, kind_of
from refold.playbooks.yaml.text import Node

EXCEEDED = "on_exceeded"
CHOICES = ("pause", "fail")


class Budget(Struct):
    limits: dict[str, int | float]
    exceeded: str = "pause"
    step: Node | None = None  # where it names the step to go to


def read_budget(reading: Reading, node: Node, key: Key) -> Budget | None:
    if not isinstance(node.value, dict):
        reading.wrong(node, key, "a map of units to limits")
        return None
    found = Budget({})
    for name, child in node.nodes.items():
        if name == EXCEEDED:
            _exceeded(reading, child, found)
        elif not NAME.fullmatch(name):
            message = f"`{cut(name)}` is not a name for a unit: use lower-case letters, digits and `_`"
            reading.at_key(node, name, "bad-name", message, f"for example `{tidied(name) or 'tokens'}`")
        elif isinstance(child.value, bool) or not isinstance(child.value, int | float):
            message = f"the budget of `{name}` must be a number, not {kind_of(child.value)}"
            reading.at(child, "wrong-type", message, f"for example `{name}: 1000`")
        elif not 0 <= child.value < inf:
            message = f"the budget of `{name}` must be at least 0"
            reading.at(child, "out-of-range", message, f"for example `{name}: 1000`")
        else:
            found.limits[name] = child.value
    return found


def _exceeded(reading: Reading, node: Node, found: Budget) -> None:
    if isinstance(node.value, dict) and set(node.nodes) == {"goto"} and isinstance(node.value["goto"], str):
        found.exceeded, found.step = node.value["goto"], node.nodes["goto"]
    elif node.value in CHOICES and isinstance(node.value, str):
        found.exceeded = node.value
    else:
        guess = did_you_mean(node.value, CHOICES) if isinstance(node.value, str) else f"for example `{EXCEEDED}: pause`"
        reading.at(node, "bad-choice", f"`{EXCEEDED}` must be `pause`, `fail` or {{goto: a step}}", guess)
