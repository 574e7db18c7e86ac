"""Texts of NoETL tools into which values are put: each value is quoted for the place where it stands, or refused.

`problems_in` says before a run what `QUOTED` would refuse in it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from refold.core.pipeline import Task
from refold.templates import Piece
from refold.tool_api import ToolProblem, refused
from refold.tools.holes import HOLE, Holed, Misplaced, holed, holes_of
from refold.tools.noetl_text import python, sql
from refold.tools.noetl_text import shell as shell_quoting
from refold.tools.noetl_text.sql import STYLES

Pieces = Callable[[str], Sequence[str | Piece]]
EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.S)
OWN_JSON = re.compile(r"\|\s*tojson(?:\(\s*\))?\s*-?$")
Quote = Callable[[Task, str, Pieces, Mapping[str, Any]], dict[str, Any]]
CODE = "value-as-code"


def _shell(task: Task, name: str, pieces: Pieces, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Text for a shell. A map has the lines of one, and a list is a program and its arguments."""
    command = keys[name]
    if isinstance(command, str):
        return {name: _shell_texts(name, [command], pieces)[0]}
    if not isinstance(command, dict):
        return {name: command}
    written = [line if isinstance(line, str) else str(line) for line in command["lines"]]
    stops = ["-e"] if len(written) > 1 else []
    if any(_has_values(text) for text in written) and (why := _no_shell(str(command["shell"]))):
        raise refused(f"`{name}`: {why}")
    lines = _shell_texts(name, written, pieces)
    return {name: [str(command["shell"]), *stops, "-c", "\n".join(lines)]}


def _shell_texts(name: str, written: Sequence[str], pieces: Pieces) -> list[str]:
    texts = [holed(text, pieces(text)) for text in written]
    with _telling(name, texts):
        places = iter(shell_quoting.places_of([text.text for text in texts]))
        return [_filled(text, lambda value: shell_quoting.written(next(places), value)) for text in texts]


def _filled(text: Holed, quote: Callable[[Any], str]) -> str:
    parts = text.text.split(HOLE)
    return parts[0] + "".join(quote(value) + part for value, part in zip(text.values, parts[1:], strict=True))


def _sql(task: Task, name: str, pieces: Pieces, keys: Mapping[str, Any]) -> dict[str, Any]:
    """One statement or several, or a list of such texts; a text that is one value is the author's own SQL."""
    given = keys[name]
    if isinstance(given, list):
        return {name: [_statement(task, name, text, pieces) if isinstance(text, str) else text for text in given]}
    return {name: _statement(task, name, given, pieces) if isinstance(given, str) else given}


def _statement(task: Task, name: str, written: str, pieces: Pieces) -> str:
    text = holed(written, pieces(_without_own_quoting(written)))
    if text.is_one_value and isinstance(text.values[0], str):
        return text.values[0]
    style = STYLES[task.kind]
    with _telling(name, [text]):
        return sql.written(sql.parts_of(text.text, style), text.values, style)


def _without_own_quoting(text: str) -> str:
    end = _end_of_values(text)
    shown = EXPRESSION.sub(lambda found: f"{{{{{sql.without_own_quoting(found[1])}}}}}", text[:end])
    return shown + text[end:]


def _end_of_values(text: str) -> int:
    """Nothing behind it can be a value. Without it, each unclosed `{{` would be searched to the end of the text."""
    return text.rfind("}}") + 2 if "}}" in text else 0


def _python(task: Task, name: str, pieces: Pieces, keys: Mapping[str, Any]) -> dict[str, Any]:
    written = keys[name]
    if not isinstance(written, str):
        return {name: written}
    text = holed(written, pieces(_without_own_json(written)))
    with _telling(name, [text]):
        return {name: python.written(text.text, python.spots_of(text.text), text.values)}


def _without_own_json(written: str) -> str:
    """A bare `{{ x | tojson }}` was meant to become a literal, and x does."""
    text, found = holes_of(written), list(EXPRESSION.finditer(written, 0, _end_of_values(written)))
    if text is None or len(found) != len(text.places):
        return written
    try:
        spots = python.spots_of(text.text)
    except Misplaced:
        return written  # whoever puts the values in says why
    for spot, each in zip(reversed(spots), reversed(found), strict=True):
        if spot.prefix is None:
            written = written[: each.start(1)] + OWN_JSON.sub("", each[1]) + written[each.end(1) :]
    return written


class _telling:
    """Turns what is wrong with a place or a value into a refusal that says where it stands."""

    def __init__(self, name: str, texts: Sequence[Holed]) -> None:
        self.name, self.texts = name, texts

    def __enter__(self) -> None: ...

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, Misplaced):
            item, line, column = _place(self.texts, error.hole)
            where = f"line {line + sum(text.text.count(chr(10)) + 1 for text in self.texts[:item])}, column {column}"
            raise refused(f"`{self.name}`: {error.why} ({where}); {error.remedy}", "parse") from None
        if isinstance(error, ValueError):
            raise refused(f"`{self.name}`: {error}", "parse") from None


def _place(texts: Sequence[Holed], hole: int) -> tuple[int, int, int]:
    """Which of the texts has it, and its line and column there."""
    for item, text in enumerate(texts):
        if hole < len(text.places):
            return item, *text.places[hole]
        hole -= len(text.places)
    return 0, 1, 1


def _has_values(text: str) -> bool:
    return "{{" in text


def _no_shell(shell: str) -> str:
    if shell.rsplit("/", 1)[-1] in shell_quoting.SHELLS:
        return ""
    return f"values can be put into text for {', '.join(shell_quoting.SHELLS)}, and not for {shell!r}; use `env`"


QUOTED: dict[str, Quote] = {"shell": _shell, "sql": _sql, "python": _python}


def problems_in(kind: str, how: str, name: str, given: Any) -> Iterator[ToolProblem]:
    """What is wrong with values in a text, as far as it is known without them; `item`: its number in a list."""
    match how, given:
        case "shell", {"shell": shell, "lines": [*lines]}:
            if any(isinstance(line, str) and _has_values(line) for line in lines) and (why := _no_shell(str(shell))):
                yield ToolProblem(name, why, "write `shell: bash`, or pass the value in `env`")
            else:
                yield from _problem(name, [line for line in lines if isinstance(line, str)], _shell_places)
        case "sql", [*texts]:
            for item, text in enumerate(texts):
                for found in problems_in(kind, how, name, text) if isinstance(text, str) else ():
                    yield ToolProblem(
                        name, found.message, found.hint, found.line, found.column, found.code, item, found.severity
                    )
        case "sql", str():
            text = holes_of(given)
            if text is not None and text.places and text.is_one_value:
                message = f"`{name}` is one value, and what it holds is run as SQL"
                hint = "write the statement here, and put values into it"
                yield ToolProblem(name, message, hint, *text.places[0], CODE, None, "warning")
            else:
                yield from _problem(name, [given], lambda texts: sql.parts_of(texts[0], STYLES[kind]))
        case "shell", str():
            yield from _problem(name, [given], _shell_places)
        case "python", str():
            yield from _problem(name, [given], lambda texts: python.spots_of(texts[0]))


def _shell_places(texts: Sequence[str]) -> Any:
    return shell_quoting.places_of(texts)


def _problem(name: str, written: Sequence[str], read: Callable[[Sequence[str]], Any]) -> Iterator[ToolProblem]:
    found = [holes_of(text) for text in written]
    texts = [text for text in found if text is not None]
    if len(texts) < len(found):
        return  # it has statements: what comes of them is known in the run
    try:
        read([text.text for text in texts])
    except Misplaced as error:
        item, line, column = _place(texts, error.hole)
        yield ToolProblem(name, error.why, error.remedy, line, column, "bad-value", item if len(texts) > 1 else None)
