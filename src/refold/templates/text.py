"""Texts with expressions in them: where these are, what is wrong with them, and which paths they name."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from msgspec import Struct

from refold.core.expressions import Path
from refold.templates.code import Code, Lookup, code_of
from refold.templates.grammar import parse
from refold.templates.tokens import Wrong, tokens

LET, IN = "$let", "$in"

_OPENING = re.compile(r"\{[{%#]")
_MOST_EXPRESSIONS = 1000
_READ, _LONGEST_KEPT = 2048, 8192  # texts that are kept as they were read, and how long one may be
_STATEMENT = "`{% … %}` has no place here: there are only expressions, with `a if b else c` for a choice"
_LITERAL = "to write `{{` itself, write `{{ '{{' }}`"


class Expression(Struct, frozen=True):
    at: int
    text: str
    code: Code


class Text(Struct, frozen=True):
    """A text as it is put together; if it is nothing but one expression, `whole` is that."""

    pieces: tuple[str | Expression, ...]
    whole: Expression | None


class TemplateProblem(Struct, frozen=True):
    """What is wrong with a template; line and column count in its text from 1."""

    message: str
    line: int
    column: int
    hint: str = ""


class Use(Struct, frozen=True):
    """A path that a template names; a soft one may lead nowhere."""

    path: Path
    line: int
    column: int
    soft: bool


def is_plain(text: str) -> bool:
    return "{{" not in text and "{%" not in text and "{#" not in text


def read(text: str, lenient: bool) -> Text:
    """Raises Wrong. What was read is kept for a while."""
    return (_kept if len(text) <= _LONGEST_KEPT else _read)(text, lenient)


def _read(text: str, lenient: bool) -> Text:
    pieces: list[str | Expression] = []
    expressions: list[Expression] = []
    at = 0
    for begin, end, expression in _marked(text, lenient):
        pieces.append(text[at:begin])
        if expression is not None:
            pieces.append(expression)
            expressions.append(expression)
        if len(expressions) > _MOST_EXPRESSIONS:
            raise Wrong(f"a text has at most {_MOST_EXPRESSIONS} expressions", begin)
        at = end
    pieces.append(text[at:])
    alone = len(expressions) == 1 and all(isinstance(piece, Expression) or not piece.strip() for piece in pieces)
    return Text(tuple(piece for piece in pieces if piece), expressions[0] if alone else None)


_kept = lru_cache(maxsize=_READ)(_read)


def _marked(text: str, lenient: bool) -> Iterator[tuple[int, int, Expression | None]]:
    """Expressions and comments, each with where it begins and ends; what is not closed is no comment."""
    at = 0
    last = {"{%": text.rfind("%}"), "{#": text.rfind("#}")}
    while (found := _OPENING.search(text, at)) is not None:
        begin, mark = found.start(), found.group()
        if mark == "{{":
            written, end = tokens(text, begin)
            source = text[begin:end]
            before = _without_space(text, at, begin) if source.startswith("{{-") else begin
            at = end + (len(text) - end - len(text[end:].lstrip()) if source.endswith("-}}") else 0)
            yield before, at, Expression(begin, source, code_of(parse(written), lenient))
        elif last[mark] < begin + 2:
            at = begin + 2
        elif mark == "{%":
            raise Wrong(_STATEMENT, begin)
        else:
            at = text.index("#}", begin + 2) + 2
            yield begin, at, None


def _without_space(text: str, first: int, end: int) -> int:
    while end > first and text[end - 1].isspace():
        end -= 1
    return end


def place(text: str, at: int) -> tuple[int, int]:
    """Line and column of a character."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def problem_of(text: str, undefined: str = "strict") -> TemplateProblem | None:
    """The first thing that keeps a text from being a template, or None."""
    try:
        read(text, undefined == "chainable")
    except Wrong as wrong:
        hint = _LITERAL if text[wrong.at : wrong.at + 2] == "{{" or text[: wrong.at].rstrip().endswith("{{") else ""
        return TemplateProblem(wrong.message, *place(text, wrong.at), hint)
    return None


def uses_of(text: str, undefined: str = "strict") -> tuple[Use, ...]:
    """Every path that a text names, and where; none if it is no template."""
    try:
        found = _lookups(text, undefined == "chainable")
    except Wrong:
        return ()
    return tuple(Use(_names(each), *place(text, each.at), each.soft) for each in sorted(found, key=lambda use: use.at))


def paths_of(value: Any) -> tuple[Path, ...]:
    """Every path that the templates in a value name; of a let form, those that it does not bind itself."""
    if is_let(value):
        bound = value[LET]
        return tuple(dict.fromkeys((*paths_of(bound), *_free(paths_of(value[IN]), bound))))
    return tuple(dict.fromkeys(path for text in _texts(value) for path in _paths(text)))


def is_let(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {LET, IN} and isinstance(value[LET], dict)


def _free(paths: tuple[Path, ...], bound: dict[str, Any]) -> Iterator[Path]:
    for path in paths:
        name = path[1] if path[0] == "input" and len(path) > 1 else path[0]
        if name not in bound:
            yield path


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _paths(text: str) -> Iterator[Path]:
    try:
        yield from map(_names, _lookups(text, lenient=True))
    except Wrong:
        return  # whoever evaluates it is told


def _lookups(text: str, lenient: bool) -> list[Lookup]:
    pieces = () if is_plain(text) else read(text, lenient).pieces
    codes = (piece.code for piece in pieces if isinstance(piece, Expression))
    return [part for code in codes for part in code.parts if isinstance(part, Lookup)]


def _names(lookup: Lookup) -> Path:
    """The keys of a path up to the first that is no name: a list is taken as a whole."""
    names: list[str] = []
    for key in lookup.keys:
        if not isinstance(key, str):
            break
        names.append(key)
    return tuple(names)
