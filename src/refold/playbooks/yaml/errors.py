"""Translates errors of the YAML parser into messages that say what to do."""

import re
from typing import Any

from yaml import YAMLError

from refold.playbooks.problems import BREAK, Place, Problem

UNQUOTED = "a template must be in quotes"
QUOTE_TEMPLATE = 'write "{{ … }}"'
UNQUOTED_TEMPLATE = re.compile(r"^\s*(?:- +)*(?:[\w.]+: +)?\{\{")

# What the parser says: the code, what it means, the hint, and whether the place is where the construct began.
SAID: dict[str, tuple[str, str, str, bool]] = {
    "mapping values are not allowed": (
        "yaml-syntax",
        "a `:` is not allowed here",
        "put text that contains `: ` in quotes, or fix the indentation",
        False,
    ),
    "did not find expected key": (
        "yaml-syntax",
        "a key was expected here",
        "fix the indentation, or put the whole text in quotes",
        False,
    ),
    "did not find expected '-' indicator": (
        "yaml-syntax",
        "an item of a list was expected here",
        "fix the indentation, or begin the item with `- `",
        False,
    ),
    "did not find expected ',' or ']'": ("yaml-syntax", "this list is not closed", "close it with `]`", True),
    "did not find expected ',' or '}'": ("yaml-syntax", "this map is not closed", "close it with `}`", True),
    "did not find expected node content": (
        "yaml-syntax",
        "a value was expected here",
        "add one, or fix the brackets",
        False,
    ),
    "could not find expected ':'": ("yaml-syntax", "this is not `key: value`", "add the `:` or fix the quotes", True),
    "found unexpected end of stream": ("yaml-syntax", "this quote is never closed", "close it", True),
    "found unexpected document indicator": ("yaml-syntax", "this quote is never closed", "close it", True),
    "found unknown escape character": (
        "yaml-syntax",
        "there is no such escape",
        "write `\\\\` for a backslash, or use single quotes",
        False,
    ),
    "found a tab character": ("yaml-tab", "a tab cannot indent", "indent with spaces", False),
    "found undefined tag handle": ("yaml-tag", "tags are not read", "leave it out", False),
}


def explain(error: YAMLError, text: str) -> Problem:
    said = getattr(error, "problem", None) or "this is not YAML"
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    for fragment, (code, message, hint, at_start) in SAID.items():
        if fragment in said:
            mark = context if at_start and context is not None else mark
            return _problem(code, message, hint, mark, text)
    if "cannot start any token" in said and mark is not None:
        return _no_token(mark, text)
    return _problem("yaml-syntax", said, "fix the quotes, brackets or indentation here", mark, text)


def _no_token(mark: Any, text: str) -> Problem:
    char = text[mark.index : mark.index + 1]
    if char == "\t":
        return _problem("yaml-tab", "a tab cannot indent", "indent with spaces", mark, text)
    return _problem("yaml-syntax", f"plain text cannot begin with `{char}`", "put it in quotes", mark, text)


def _problem(code: str, message: str, hint: str, mark: Any, text: str) -> Problem:
    lines = BREAK.split(text)
    place = Place(mark.line + 1, mark.column + 1) if mark is not None else Place(1, 1)
    if place.line > len(lines):
        place = Place(len(lines), len(lines[-1]) + 1)
    if UNQUOTED_TEMPLATE.match(lines[place.line - 1]):
        return Problem("unquoted-template", UNQUOTED, place, QUOTE_TEMPLATE)
    return Problem(code, message, place, hint)
