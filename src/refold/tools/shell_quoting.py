"""Values in the text of a shell command, each quoted for the place it stands in, so that it is data and nothing else.

The text between the values is read as a POSIX shell and bash read it, as far as to know where quotes are open. Where
that cannot be known for sure, or where no quoting keeps a value from being code, it is refused.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

BARE, DOUBLE, SINGLE, HERE, LITERAL, COMMENT, SUM = "bare", "double", "single", "here", "literal", "comment", "sum"
HEREDOC = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n$`\\]+)\"|((?:\\?[\w.+-])+))")
CLOSED = re.compile(r"\$\{[^{}'\"\\`\n]*\}|`[^`\\\n]*`")  # what begins and ends here, without quotes
WORD = re.compile(r"[^\s;&|()<>'\"\\$`#]+")
BEFORE_A_WORD = " \t\n;&|()"
COMPARES = re.compile(r"-(?:eq|ne|lt|le|gt|ge)\s+[\"']?$")
COMPARED = re.compile(r"[\"']?\s+-(?:eq|ne|lt|le|gt|ge)\b")
LET = re.compile(r"(?:^|[\s;&|(])(?:let|declare\s+-i)\s[^;&|\n]*$")
WHOLE = re.compile(r"-?\d{1,18}")

ANSI = "after `$'...'`, which shells read differently; use plain quotes"
BACKTICKS = "inside backticks; write $(...) in their stead"
PARAMETERS = "inside `${...}`; set a variable to the value first, and use that"
CASES = "after a `case` inside $(...); move it out of there"
SUMS = "in arithmetic, where only a whole number may stand; the value is another"


class Rendered(Protocol):
    """What a template has given, to be put into the text."""

    @property
    def value(self) -> Any: ...


class Value(Struct, frozen=True):
    value: Any


class Unquotable(ValueError):
    """A value stands where it cannot be made safe; says where, and what to do."""

    kind, retryable = "invalid_settings", False


def quoted(pieces: Sequence[str | Rendered]) -> str:
    """The text for a shell. Raises Unquotable."""
    reader = _Reader()
    for place, piece in enumerate(pieces):
        if isinstance(piece, str):
            reader.read(piece)
            continue
        text = _text(piece.value)
        if _is_computed(pieces, place) and not WHOLE.fullmatch(text):
            raise Unquotable(f"a value stands {SUMS}")
        reader.put(text)
    return "".join(reader.out)


def _is_computed(pieces: Sequence[str | Rendered], place: int) -> bool:
    """Beside a comparison of numbers, or after `let`: bash takes even a quoted text there for a sum, and runs it."""
    before = pieces[place - 1] if place else ""
    after = pieces[place + 1] if place + 1 < len(pieces) else ""
    behind = isinstance(before, str) and (COMPARES.search(before) or LET.search(before))
    return bool(behind or (isinstance(after, str) and COMPARED.match(after)))


class _Place(Struct):
    """What is open: a quote, a $(...), a here-document."""

    kind: str
    until: str = ""  # the line that ends a here-document
    tabs: bool = False  # whether tabs before that line do not count
    depth: int = 0  # of parentheses
    closes: bool = False  # a `)` ends it


class _Reader:
    def __init__(self) -> None:
        self.out: list[str] = []
        self._places = [_Place(BARE)]
        self._awaited: list[_Place] = []  # here-documents that begin with the next line
        self._line: list[str] = []  # of a here-document, up to here
        self._mixed = False  # whether that line has a part of a value
        self._unsure = ""  # why nobody knows what is open
        self._last = "\n"
        self._escaped = False

    @property
    def _place(self) -> _Place:
        return self._places[-1]

    def put(self, text: str) -> None:
        kind = self._place.kind
        self._check(text, kind)
        if kind in (HERE, LITERAL):
            for part in re.split(r"(\n)", text):
                self._grow(part, True)
        self.out.append(FORMS[kind](text))
        self._last = "'"

    def _check(self, text: str, kind: str) -> None:
        if self._unsure:
            raise Unquotable(f"a value stands {self._unsure}")
        if "\0" in text:
            raise Unquotable("a value has a NUL character, which no program can be given")
        if self._escaped:
            raise Unquotable("a value stands behind a backslash; take the backslash away, or write two of them")
        if self._last == "$" and kind in (BARE, DOUBLE, HERE):
            raise Unquotable("a value stands behind a `$`; write \\$ for the sign itself")
        for outer in self._places[:-1]:
            if outer.kind == HERE and ("\n" in text or outer.until in text):
                raise Unquotable(f"a value might end the here-document {outer.until!r}; set a variable to it before")
        if kind == SUM and not WHOLE.fullmatch(text):
            raise Unquotable(f"a value stands {SUMS}")

    def read(self, text: str) -> None:
        self.out.append(text)
        at = 0
        while at < len(text):
            if self._escaped:
                self._escape(text[at])
                at += 1
            else:
                at += READERS[self._place.kind](self, text, at)

    def _escape(self, char: str) -> None:
        """What stands behind a backslash; a line that goes on is as if it were one with the next."""
        self._escaped = False
        if char != "\n":
            self._last = "\\"
        elif self._last in "$<(" or self._place.kind == HERE:
            self._unsure = self._unsure or "behind a line that a backslash ends; write it as one line"
        self._grow(char)

    def _step(self, text: str, at: int) -> int:
        self._last = text[at]
        return 1

    def _bare(self, text: str, at: int) -> int:
        char = text[at]
        if char in "\\'\"\n":
            return self._quote_or_line(text, at)
        if char in "$`":
            return self._expansion(text, at)
        if char in "()":
            return self._parenthesis(text, at)
        if text.startswith("<<", at):
            return self._heredoc(text, at)
        if self._last in BEFORE_A_WORD:
            self._begin_word(text, at)
        return self._step(text, at)

    def _begin_word(self, text: str, at: int) -> None:
        if text[at] == "#":
            self._places.append(_Place(COMMENT))
        elif self._places[1:] and (word := WORD.match(text, at)) and word[0] == "case":
            self._unsure = self._unsure or CASES

    def _quote_or_line(self, text: str, at: int) -> int:
        match text[at]:
            case "\\":
                self._escaped = True
                return 1
            case "'":
                if self._last == "$":
                    self._unsure = self._unsure or ANSI
                self._places.append(_Place(SINGLE))
            case '"':
                self._places.append(_Place(DOUBLE))
            case _:
                self._begin_heredoc()
        return self._step(text, at)

    def _parenthesis(self, text: str, at: int) -> int:
        place = self._place
        if text.startswith("((", at) and self._last in BEFORE_A_WORD:
            self._places.append(_Place(SUM, depth=2, closes=True))
            self._last = "("
            return 2
        place.depth += 1 if text[at] == "(" else -1
        if place.closes and place.depth == 0:
            self._places.pop()
        return self._step(text, at)

    def _sum(self, text: str, at: int) -> int:
        if text[at] in "'\"\\`":
            self._unsure = self._unsure or "in arithmetic with quotes; set a variable first"
        if text[at] in "()":
            self._place.depth += 1 if text[at] == "(" else -1
            if self._place.depth == 0:
                self._places.pop()
        return self._step(text, at)

    def _double(self, text: str, at: int) -> int:
        if text[at] == "\\":
            self._escaped = True
            return 1
        if text[at] == '"':
            self._places.pop()
        elif text[at] in "$`":
            return self._expansion(text, at)
        return self._step(text, at)

    def _single(self, text: str, at: int) -> int:
        if text[at] == "'":
            self._places.pop()
        return self._step(text, at)

    def _comment(self, text: str, at: int) -> int:
        if text[at] == "\n":
            self._places.pop()
            self._begin_heredoc()
        return self._step(text, at)

    def _expansion(self, text: str, at: int) -> int:
        """What `$` or a backtick begins."""
        self._grow(text[at])
        if found := CLOSED.match(text, at):
            self._grow(found[0])
            self._last = "}"
            return len(found[0])
        if text[at] == "`":
            self._unsure = self._unsure or BACKTICKS
        elif text.startswith("$((", at):
            self._places.append(_Place(SUM, depth=2, closes=True))
            self._last = "("
            return 3
        elif text.startswith("$(", at):
            self._places.append(_Place(BARE, depth=1, closes=True))
            self._last = "("
            return 2
        elif text.startswith("${", at):
            self._unsure = self._unsure or PARAMETERS
        return self._step(text, at)

    def _heredoc(self, text: str, at: int) -> int:
        if text.startswith("<<<", at):
            self._last = "<"
            return 3
        found = HEREDOC.match(text, at)
        if found is None or found.end() == len(text):  # a value may be a part of the word
            self._unsure = self._unsure or "behind a `<<` whose end is not plain"
            return self._step(text, at)
        tabs, literal, also, plain = found.groups()
        word = literal or also or plain.replace("\\", "")
        is_literal = plain is None or "\\" in plain
        self._awaited.append(_Place(LITERAL if is_literal else HERE, until=word, tabs=bool(tabs)))
        self._last = "<"
        return len(found[0])

    def _begin_heredoc(self) -> None:
        self._places += reversed(self._awaited)
        self._awaited.clear()

    def _here(self, text: str, at: int) -> int:
        """A line of a here-document; what is expanded there is as in double quotes."""
        if self._place.kind == HERE and text[at] == "\\":
            self._escaped = True
            self._grow("\\")
            return 1
        if self._place.kind == HERE and text[at] in "$`":
            return self._expansion(text, at)
        self._grow(text[at])
        return self._step(text, at)

    def _grow(self, part: str, of_a_value: bool = False) -> None:
        place = self._place
        if place.kind not in (HERE, LITERAL):
            return
        if part != "\n":
            self._line.append(part)
            self._mixed = self._mixed or (of_a_value and part != "")
            return
        line = "".join(self._line)
        if (line.lstrip("\t") if place.tabs else line) == place.until:
            if self._mixed or of_a_value:
                raise Unquotable(
                    f"a value would end the here-document {place.until!r}; choose another word for its end"
                )
            self._places.pop()
        self._line.clear()
        self._mixed = of_a_value


def _text(value: Any) -> str:
    """As programs write it."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _in_double(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _in_here(text: str) -> str:
    return re.sub(r"([\\$`])", r"\\\1", text)


FORMS: Mapping[str, Callable[[str], str]] = {
    BARE: lambda text: "'" + text.replace("'", "'\\''") + "'",
    DOUBLE: _in_double,
    SINGLE: lambda text: text.replace("'", "'\\''"),
    HERE: _in_here,
    LITERAL: str,
    COMMENT: lambda text: re.sub(r"[\r\n]", " ", text),
    SUM: str,
}
READERS: Mapping[str, Callable[[_Reader, str, int], int]] = {
    BARE: _Reader._bare,
    DOUBLE: _Reader._double,
    SINGLE: _Reader._single,
    HERE: _Reader._here,
    LITERAL: _Reader._here,
    COMMENT: _Reader._comment,
    SUM: _Reader._sum,
}
