"""Values in the Python code of a NoETL file: each becomes a literal, or is escaped for the string it stands in.

Python's own tokenizer says where a value stands, with a name of its own in the place of each. What is neither a whole
name nor inside of a string is refused: comments, parts of names and numbers, the expressions of f-strings, and strings
that the code hands to another interpreter. A literal has no line break, so lines of the code keep their numbers.
"""

import ast
import io
import math
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.core.pipeline import Task
from refold.templates.data import text_of
from refold.tool_api import ToolProblem
from refold.tools.noetl_text import (
    EXPRESSION,
    HOLE,
    Misplaced,
    Pieces,
    end_of_values,
    holed,
    holes_of,
    problems_in,
    refusing_misplaced,
)
from refold.tools.python.compile import InvalidCode, prepare

OWN_JSON = re.compile(r"\|\s*tojson(?:\(\s*\))?\s*-?$")
REMEDY = "bind it in `input`, and write its name"
OPENING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")
BESIDE = re.compile(r"[\w'\"\\]")  # what makes a name longer, or a string of it
ODD_BACKSLASH = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
RUNS_TEXT = {
    *("eval", "exec", "compile", "__import__", "import_module", "system", "popen", "getoutput", "getstatusoutput"),
    *("execute", "executemany", "executescript", "create_subprocess_shell", "execute_async", "run_line_magic"),
}


class Spot(Struct, frozen=True):
    """The place of a hole: bare if `prefix` is None, otherwise in a string with this prefix."""

    prefix: str | None = None
    quote: str = ""


def spots_of(text: str) -> list[Spot]:
    """Return the place of each hole. Raises Misplaced."""
    count = text.count(HOLE)
    if not count:
        return []
    if text.strip() == HOLE:
        raise Misplaced(0, "a value stands in the place of the whole code", "write the code here")
    stem = "Hole"
    while stem in text:
        stem += "H"
    names = [f"{stem}{number}_" for number in range(count)]
    code = "".join(_between(text.split(HOLE), names))
    found = dict(_spots(code, names))
    if len(found) < count:
        missing = next(number for number in range(count) if number not in found)
        raise Misplaced(missing, "a value stands where it is neither a value of its own nor in a string", REMEDY)
    spots = [found[number] for number in range(count)]
    _check(text, spots, names)
    return spots


def written(text: str, spots: Sequence[Spot], values: Sequence[Any]) -> str:
    """Return the code with its values. Raises ValueError for a value without a literal."""
    literals = [
        literal(value) if spot.prefix is None else _inside(spot, value)
        for spot, value in zip(spots, values, strict=True)
    ]
    return "".join(_between(text.split(HOLE), literals))


def literal(value: Any) -> str:
    """Return a literal that is complete by itself, whatever is next to it."""
    match value:
        case None | bool():
            return repr(value)
        case int():
            return f"({value})"
        case float():
            return (
                f"({value!r})"
                if math.isfinite(value)
                else "(1e999 - 1e999)"
                if math.isnan(value)
                else f"({'-' * (value < 0)}1e999)"
            )
        case str():
            return f"({value!a})"
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{literal(name)}: {literal(each)}" for name, each in value.items()) + "}"
        case _:
            raise ValueError(f"{type(value).__name__} has no form in Python code")


def _between(texts: Sequence[str], put: Sequence[str]) -> Iterator[str]:
    yield texts[0]
    for each, text in zip(put, texts[1:], strict=True):
        yield each
        yield text


def _inside(spot: Spot, value: Any) -> str:
    """Return the text of a value as part of a string, with every character except letters and spaces escaped."""
    assert spot.prefix is not None
    letters, text = spot.prefix.lower(), text_of(value, python=True)
    if "b" in letters:
        try:
            found = "".join(
                chr(byte) if chr(byte).isalpha() and byte < 128 else f"\\x{byte:02x}" for byte in text.encode()
            )
        except UnicodeEncodeError:
            raise ValueError("a value has half of a surrogate pair, which has no bytes") from None
    else:
        found = "".join(map(_escaped, text))
    if "r" not in letters:
        return found
    plain = letters.replace("r", "").replace("f", "")
    return f"{spot.quote} {plain}'{found}' {spot.prefix}{spot.quote}"  # strings side by side are one


def _escaped(char: str) -> str:
    if char == " " or (char.isalpha() and char < "\x80"):
        return char
    number = ord(char)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"


def _spots(code: str, names: Sequence[str]) -> Iterator[tuple[int, Spot]]:
    for kind, begin, end in _tokens(code):
        text = code[begin:end]
        held = [number for number, name in enumerate(names) if name in text]
        if not held:
            continue
        if kind == tokenize.COMMENT:
            raise Misplaced(held[0], "a value stands in a comment", "take it out of the comment")
        if kind == tokenize.STRING:
            yield from _in_string(text, held, names)
        elif kind == tokenize.NAME and text == names[held[0]]:
            beside = code[max(begin - 1, 0) : begin] + code[end : end + 1]
            if BESIDE.search(beside):
                raise Misplaced(held[0], "a value stands as part of a longer name, number or string", REMEDY)
            yield held[0], Spot()
        else:
            raise Misplaced(held[0], "a value stands as part of a longer name, number or string", REMEDY)


def _tokens(code: str) -> Iterator[tuple[int, int, int]]:
    """Yield kind, start and end of each token; an f-string is one string, whatever the tokenizer returns."""
    starts = [0]
    for line in code.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    depth, begun = 0, 0
    opening, closing = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)
    try:
        for token in tokenize.generate_tokens(io.StringIO(code, newline="\n").readline):
            begin, end = (starts[line - 1] + column for line, column in (token.start, token.end))
            if token.type == opening:
                depth, begun = depth + 1, begin if not depth else begun
            elif token.type == closing:
                depth -= 1
                if not depth:
                    yield tokenize.STRING, begun, end
            elif not depth:
                yield token.type, begin, end
    except (tokenize.TokenError, SyntaxError, IndexError) as error:
        raise Misplaced(0, f"a value stands in code that is not Python ({error.args[0]})", "fix the code") from None


def _in_string(text: str, held: Sequence[int], names: Sequence[str]) -> Iterator[tuple[int, Spot]]:
    found = OPENING.match(text)
    assert found is not None
    prefix, quote = found.groups()
    if "f" in prefix.lower():
        _check_f_string(text, held, names)
    for number in held:
        before = text[: text.index(names[number])]
        if "r" not in prefix.lower() and ODD_BACKSLASH.search(before):
            raise Misplaced(number, "a value stands behind a backslash", "write two of them, or none")
        yield number, Spot(prefix, quote)


def _check_f_string(text: str, held: Sequence[int], names: Sequence[str]) -> None:
    """Refuse values in the computed parts and the formats of an f-string."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise Misplaced(held[0], "a value stands in an f-string that is not Python", REMEDY) from None
    parts = tree.values if isinstance(tree, ast.JoinedStr) else [tree]
    shown = "".join(part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))
    for number in held:
        if names[number] not in shown or "r" in OPENING.match(text)[1].lower():  # type: ignore[index]
            raise Misplaced(number, "a value stands in an expression of an f-string", REMEDY)


def _check(text: str, spots: Sequence[Spot], names: Sequence[str]) -> None:
    """Check that the code is Python with any literal in these places, and passes none to another interpreter."""
    code = written(text, spots, names)
    try:
        prepare("".join(_between(text.split(HOLE), names)), "<code>")  # as names, `a b` is not a call of a
        prepare(code, "<code>")
        tree = ast.parse(code)
    except (InvalidCode, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Misplaced(0, f"a value stands in code that does not compile with it ({error})", "fix the code") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _runs_text(node):
            for number, name in enumerate(names):
                if any(_holds(each, name) for each in (*node.args, *(k.value for k in node.keywords))):
                    raise Misplaced(number, f"a value stands in a text that `{ast.unparse(node.func)}` runs", REMEDY)


def _runs_text(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    by_shell = any(key.arg == "shell" and getattr(key.value, "value", True) is not False for key in node.keywords)
    return name in RUNS_TEXT or by_shell


def _holds(node: ast.AST, name: str) -> bool:
    return any(
        isinstance(each, ast.Constant) and name in (each.value if isinstance(each.value, str) else str(each.value))
        for each in ast.walk(node)
    )


def quote(task: Task, key: str, pieces: Pieces, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Put values into Python code."""
    template = keys[key]
    if not isinstance(template, str):
        return {key: template}
    text = holed(template, pieces(_without_own_json(template)))
    with refusing_misplaced(key, [text]):
        return {key: written(text.text, spots_of(text.text), text.values)}


def _without_own_json(template: str) -> str:
    """Take `tojson` away from a bare `{{ x | tojson }}`: it was meant to make a literal, which x becomes anyway."""
    text, expressions = holes_of(template), list(EXPRESSION.finditer(template, 0, end_of_values(template)))
    if text is None or len(expressions) != len(text.places):
        return template
    try:
        spots = spots_of(text.text)
    except Misplaced:
        return template  # `quote` reads it again, and reports the reason
    for spot, match in zip(reversed(spots), reversed(expressions), strict=True):
        if spot.prefix is None:
            template = template[: match.start(1)] + OWN_JSON.sub("", match[1]) + template[match.end(1) :]
    return template


def problems(key: str, text: Any) -> Iterator[ToolProblem]:
    """Yield what `quote` would refuse in a text, as far as that is known without the values."""
    if isinstance(text, str):
        yield from problems_in(key, [text], lambda texts: spots_of(texts[0]))
