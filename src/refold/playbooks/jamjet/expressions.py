"""Expressions in JamJet files: conditions, mappings and texts, checked with their places, as templates of the plan."""

import re
from typing import Any

from refold.playbooks.jamjet.drafts import Way
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Reading
from refold.playbooks.yaml.positions import place_at, place_inside
from refold.playbooks.yaml.text import Node
from refold.templates import problem_of, uses_of
from refold.templates.jamjet import conditions
from refold.templates.jamjet.conditions import WrongCondition
from refold.templates.text import is_plain

_PATH = re.compile(r"\$?(?:state|output)(?:[.\[]|\s*$)")
_HAS_PATH = re.compile(r"\b(?:state|output)[.\[]")
FILES = (".md", ".txt")


class Expressions:
    """Checks the expressions of one file."""

    def __init__(self, reading: Reading, bare: bool) -> None:
        self.reading, self.bare = reading, bare

    def condition(self, node: Node | None, owner: str) -> str:
        """Return the text of a condition; empty: there is none, or it cannot be read, which was reported."""
        if node is None or node.value is None or node.value == "":
            return ""
        if isinstance(node.value, bool):
            return "true" if node.value else "false"
        if not isinstance(node.value, str):
            self.reading.at(node, "bad-expression", f"a condition of {owner} must be text", "put it in quotes")
            return ""
        text, begin = _inside(node.value)
        return text if self.check(node, text, owner, begin) else ""

    def check(self, node: Node, text: str, owner: str, begin: int = 0) -> bool:
        try:
            conditions.read(text, self.bare)
        except WrongCondition as wrong:
            place = place_at(self.reading.source, node, begin + wrong.at)
            message = f"a condition of {owner} cannot be read: {wrong.message}"
            self.reading.say(Problem("bad-expression", message, place, wrong.hint, length=wrong.length))
            return False
        return True

    def ways(self, ways: list[Way], owner: str) -> list[tuple[Way, str]]:
        """Return each way with its condition; a way whose condition cannot be read is left out."""
        found = []
        for way in ways:
            text = way.words or self.condition(way.condition, owner)
            has_one = way.condition is not None and way.condition.value not in (None, "")
            if text or not has_one:
                found.append((way, text))
        return found

    def mapping(self, node: Node | None, owner: str) -> dict[str, Any]:
        """Return the values of a mapping as templates."""
        if node is None or not isinstance(node.value, dict):
            return {}
        return {name: self.mapped(each, owner) for name, each in node.nodes.items()}

    def mapped(self, node: Node, owner: str) -> Any:
        if isinstance(node.value, dict):
            inside = {name: self.mapped(each, owner) for name, each in node.nodes.items()}
            return {"$map": list(inside.items())} if any(name.startswith("$") for name in inside) else inside
        if isinstance(node.value, list):
            return [self.mapped(each, owner) for each in node.nodes]
        return self.text_value(node, owner) if isinstance(node.value, str) else node.value

    def text_value(self, node: Node, owner: str) -> Any:
        """A text may be an expression as a whole: `state.x`, `$state.x`, `len(state.x)`."""
        text: str = node.value
        if not is_plain(text):
            self.text(node, owner)
            return text
        if _PATH.match(text):
            begin = 1 if text.startswith("$") else 0
            return {"$value": text[begin:]} if self.check(node, text[begin:], owner, begin) else None
        if _HAS_PATH.search(text):
            try:
                conditions.read(text, self.bare)
            except WrongCondition:
                return text  # words that only mention the state
            return {"$value": text}
        return text

    def text(self, node: Node, owner: str) -> None:
        """Check the expressions in a text."""
        if not isinstance(node.value, str) or is_plain(node.value):
            return
        problem = problem_of(node.value, "chainable")
        if problem is not None:
            place = place_inside(self.reading.source, node, problem.line, problem.column)
            message = f"a text of {owner} cannot be read: {problem.message}"
            self.reading.say(Problem("bad-expression", message, place, problem.hint))
            return
        for use in uses_of(node.value, "chainable") if not self.bare else ():
            if use.path and use.path[0] != "state":
                place = place_inside(self.reading.source, node, use.line, use.column)
                name = use.path[0]
                message = f"a text of {owner} reads `{name}`, and there is only `state`"
                self.reading.say(Problem("bad-expression", message, place, f"write `state.{name}`", length=len(name)))


def _inside(text: str) -> tuple[str, int]:
    """A condition may be written as `{{ … }}`, or with a dollar before it."""
    bare = text.strip()
    if bare.startswith("{{") and bare.endswith("}}") and bare.count("{{") == 1:
        return bare[2:-2], text.index("{{") + 2
    if bare.startswith("$state"):
        return text[text.index("$") + 1 :], text.index("$") + 1
    return text, 0
