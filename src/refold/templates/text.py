"""Texts with expressions in them: where these are, what is wrong with them, and which paths they name."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from msgspec import Struct

from refold.core.expressions import Path
from refold.templates.blocks import RAW, Body, Tag, lookups, tree_of
from refold.templates.compiler import Expression, Lookup, compiled
from refold.templates.grammar import Parser, parse
from refold.templates.tokens import Wrong, tokens

LET, IN, SCOPE = "$let", "$in", "$scope"

_OPENING = re.compile(r"\{[{%#]")
_END_OF_RAW = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_MOST_EXPRESSIONS = 1000
_READ, _LONGEST_KEPT = 2048, 8192  # how many parsed texts are cached, and how long one may be
_STATEMENT = "`{% … %}` has no place here: there are only expressions, with `a if b else c` for a choice"
_LITERAL = "to write `{{` itself, write `{{ '{{' }}`"


class Text(Struct, frozen=True):
    """A parsed text; if it is nothing but one expression, `whole` is that expression."""

    pieces: tuple[str | Expression, ...]
    whole: Expression | None
    statements: Body = ()  # the text as a tree, if it has statements


class EmbeddedValue(Struct, frozen=True):
    """A value inside a text, for callers that write it in their own way; `at` is the position of its expression."""

    value: Any
    at: int = 0


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
    """Parse a text. Raises Wrong. Recently parsed texts are cached."""
    return (_kept if len(text) <= _LONGEST_KEPT else _read)(text, lenient)


def _read(text: str, lenient: bool) -> Text:
    pieces: list[str | Expression | Tag] = []
    marks: list[Expression | Tag] = []
    at = 0
    for begin, end, mark in _marked(text, lenient):
        pieces.append(text[at:begin])
        if mark is not None:
            pieces.append(mark)
            marks.append(mark)
        if len(marks) > _MOST_EXPRESSIONS:
            raise Wrong(f"a text has at most {_MOST_EXPRESSIONS} expressions", begin)
        at = end
    pieces.append(text[at:])
    written = tuple(piece for piece in pieces if piece and not isinstance(piece, Tag))
    if any(isinstance(mark, Tag) for mark in marks):
        return Text(written, None, tree_of([piece for piece in pieces if piece], lenient))
    alone = len(marks) == 1 and all(isinstance(piece, Expression) or not piece.strip() for piece in written)
    return Text(written, next(piece for piece in written if isinstance(piece, Expression)) if alone else None)


_kept = lru_cache(maxsize=_READ)(_read)


def _marked(text: str, lenient: bool) -> Iterator[tuple[int, int, Expression | Tag | None]]:
    """Yield begin and end of each expression, statement and comment; one that is not closed is plain text."""
    at = 0
    last = {"{{": len(text), "{%": text.rfind("%}"), "{#": text.rfind("#}")}
    while (found := _OPENING.search(text, at)) is not None:
        begin, mark = found.start(), found.group()
        if last[mark] < begin + 2:
            at = begin + 2
            continue
        if mark == "{%" and not lenient:
            raise Wrong(_STATEMENT, begin)
        end, what = _MARKS[mark](text, begin, lenient)
        begin, at = _without_space(text, at, begin), _behind_space(text, end)
        yield begin, at, what


def _expression(text: str, begin: int, lenient: bool) -> tuple[int, Expression]:
    written, end = tokens(text, begin)
    return end, compiled(parse(written, lenient), begin, lenient)


def _statement(text: str, begin: int, lenient: bool) -> tuple[int, Tag]:
    written, end = tokens(text, begin, "%}")
    rest = Parser(written, lenient)
    word = rest.expect("name", "the name of a statement").text
    if word != RAW:
        return end, Tag(begin, word, rest)
    rest.end()
    closing = _END_OF_RAW.search(text, end)
    if closing is None:
        raise Wrong("`{% raw %}` is not closed by `{% endraw %}`", begin)
    first, last = _behind_space(text, end), closing.start()
    return closing.end(), Tag(begin, word, rest, text[first : max(_without_space(text, first, last), first)])


def _comment(text: str, begin: int, lenient: bool) -> tuple[int, None]:
    return text.index("#}", begin + 2) + 2, None


_MARKS: dict[str, Callable[[str, int, bool], tuple[int, Expression | Tag | None]]] = {
    "{{": _expression,
    "{%": _statement,
    "{#": _comment,
}


def _without_space(text: str, first: int, end: int) -> int:
    """Return where the text before a mark ends: a mark that begins with `-` removes the space before it."""
    if not text.startswith("-", end + 2):
        return end
    while end > first and text[end - 1].isspace():
        end -= 1
    return end


def _behind_space(text: str, end: int) -> int:
    """Return where the text after a mark begins: a mark that ends with `-` removes the space after it."""
    if text[end - 3] != "-":
        return end
    while end < len(text) and text[end].isspace():
        end += 1
    return end


def place(text: str, at: int) -> tuple[int, int]:
    """Return line and column of a character."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def problem_of(text: str, undefined: str = "strict") -> TemplateProblem | None:
    """Return the first error of a template, or None."""
    try:
        read(text, undefined == "chainable")
    except Wrong as wrong:
        hint = _LITERAL if text[wrong.at : wrong.at + 2] == "{{" or text[: wrong.at].rstrip().endswith("{{") else ""
        return TemplateProblem(wrong.message, *place(text, wrong.at), hint)
    return None


def pieces_of(text: str) -> list[str | EmbeddedValue] | None:
    """Return the text with an empty piece for each expression; None if it has statements, or is not a template."""
    try:
        found = read(text, lenient=True)
    except Wrong:
        return None
    if found.statements:
        return None
    return [piece if isinstance(piece, str) else EmbeddedValue(None, piece.at) for piece in found.pieces]


def uses_of(text: str, undefined: str = "strict") -> tuple[Use, ...]:
    """Return every path that a text names, and where; none if it is not a template."""
    try:
        found = _lookups(text, undefined == "chainable")
    except Wrong:
        return ()
    return tuple(Use(_names(each), *place(text, each.at), each.soft) for each in sorted(found, key=lambda use: use.at))


def paths_of(value: Any) -> tuple[Path, ...]:
    """Return every path that the templates in a value name; of a let form, those that it does not bind itself."""
    if is_let(value):
        bound = value[LET]
        return tuple(dict.fromkeys((*paths_of(bound), *_free(paths_of(value[IN]), bound))))
    if is_scoped(value):
        return tuple(dict.fromkeys((*paths_of(value[LET]), *map(tuple, value[SCOPE]))))
    return tuple(dict.fromkeys(path for text in _texts(value) for path in _paths(text)))


def is_scoped(value: Any) -> bool:
    """Whether it has bound names, and paths whose values are sent with them because they are rendered elsewhere."""
    return isinstance(value, dict) and value.keys() == {LET, SCOPE}


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
        return  # the evaluation reports the error


def _lookups(text: str, lenient: bool) -> list[Lookup]:
    return [] if is_plain(text) else list(lookups(_tree(read(text, lenient)), set()))


def _tree(text: Text) -> Body:
    return text.statements or text.pieces


def _names(lookup: Lookup) -> Path:
    """Return the keys of a path up to the first that is not a name: a list is taken as a whole."""
    names: list[str] = []
    for key in lookup.keys:
        if not isinstance(key, str):
            break
        names.append(key)
    return tuple(names)
