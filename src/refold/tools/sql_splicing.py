"""Values that stand in the text of SQL, made safe for the place where they stand.

For playbooks of others, which write `INSERT INTO t VALUES ('{{ x }}', {{ n }})`. A value never becomes SQL: it is bound
as a parameter, quoted as a name or a literal, taken as it is where only a plain name or number can stand, or refused.

| where it stands | what becomes of it |
| --- | --- |
| the whole text | the author's own SQL |
| in single quotes | with the text around it in the quotes, one parameter |
| in double quotes | part of a quoted name |
| bare, where a table, a schema or a column is named, or as part of a longer name | itself, if it is a plain name |
| bare, where a value can stand | a parameter |
| after `IN (` or `ARRAY [`, joined with commas (`1,2`), or in quotes with `','` | several of them |
| the same, where no parameter can stand: in CREATE or COPY, after FROM, after a type (`DATE '...'`) | a literal |
| in a comment | nothing |
| between dollar quotes, or in quotes with escapes (`E'...'`) | itself, if it is plain |
| anywhere else | refused |
"""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from refold.core.faults import LEFT_OUT, short
from refold.errors import ToolFailed
from refold.tools.keys import refused
from refold.tools.sql_text import Style, Token, tokens
from refold.tools.sql_values import json_text, json_value

PLAIN_NAME = re.compile(r"[A-Za-z_0-9]+(\.[A-Za-z_0-9]+)*")
PLAIN_TEXT = re.compile(r"[A-Za-z_0-9]+([.:-][A-Za-z_0-9]+)*")
WORD = re.compile(r"[\w$.]")
NUMBERS = re.compile(r"-?[0-9]+( *, *-?[0-9]+)+")
JOINED = re.compile(r"' *, *'")
OWN_QUOTING = re.compile(r"""\|\s*replace\(\s*(?:"'"|'\\'')\s*,\s*(?:"''"|'\\'\\'')\s*\)\s*$""")

NAMED_AFTER = {
    *("FROM", "INTO", "TABLE", "UPDATE", "JOIN", "EXISTS", "VIEW", "INDEX", "SCHEMA", "DATABASE", "SEQUENCE", "ONLY"),
    *("TRUNCATE", "DESCRIBE", "REFERENCES", "AS", "BY", "COLUMN", "CONSTRAINT", "ANALYZE", "USE", "TYPE", "FUNCTION"),
    *("ROLE", "USER", "EXTENSION", "DETACH", "COPY", "VACUUM", "SET"),
}
VALUE_AFTER = {
    *(
        "SELECT",
        "DISTINCT",
        "ALL",
        "WHERE",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "ILIKE",
        "BETWEEN",
        "THEN",
        "WHEN",
        "ELSE",
    ),
    *(
        "CASE",
        "LIMIT",
        "OFFSET",
        "VALUES",
        "RETURNING",
        "IS",
        "FIRST",
        "NEXT",
        "ON",
        "HAVING",
        "DEFAULT",
        "TO",
        "ESCAPE",
    ),
    *("ANY", "SOME", "SIMILAR", "GLOB", "REGEXP", "MATCH", "CALL", "ATTACH", "USING", "TOP", "QUALIFY", "ARRAY"),
}
TYPES = {
    *("INTERVAL", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMETZ", "ZONE", "JSON", "JSONB", "UUID", "NUMERIC"),
    *("DECIMAL", "INTEGER", "INT", "BIGINT", "BOOLEAN", "REAL", "POINT", "INET", "TEXT", "VARCHAR", "BYTEA", "BLOB"),
}
TAKING_PARAMETERS = {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "VALUES", "MERGE", "REPLACE", "FROM", "UPSERT"}


class Spliced(Struct, frozen=True):
    """A value where the text has an expression; `text`: how its language writes it between other text."""

    value: Any
    text: str | None = None


def spliced(pieces: Sequence[str | Spliced], style: Style, start: int = 1) -> tuple[str, list[Any]]:
    """The statement, and the values of its parameters, which are numbered from `start`. Raises ToolFailed."""
    texts = [piece for piece in pieces if isinstance(piece, str) and piece.strip()]
    values = [piece for piece in pieces if isinstance(piece, Spliced)]
    if not texts and len(values) == 1 and isinstance(values[0].value, str):
        return values[0].value, []
    writing = _Writing(style, start)
    for i, piece in enumerate(pieces):
        if isinstance(piece, str):
            writing.text(piece)
        else:
            writing.value(piece, _begins_with_word(pieces, i + 1))
    return writing.done()


def without_own_quoting(expression: str) -> str:
    """An expression that doubles quotes itself, which binding must not see: `x | replace("'", "''")` is `x`."""
    return OWN_QUOTING.sub("", expression).rstrip()


def _begins_with_word(pieces: Sequence[str | Spliced], at: int) -> bool:
    """Whether what follows belongs to the same name; another value does."""
    for piece in islice(pieces, at, None):
        if isinstance(piece, Spliced):
            return True
        if piece:
            return WORD.match(piece) is not None
    return False


class _Writing:
    """The text so far. What is open at its end, a quote or a comment, says where the next value stands."""

    def __init__(self, style: Style, start: int) -> None:
        self.style, self.start = style, start
        self.out: list[str] = []
        self.first = ""  # word of the statement
        self.last: list[Token] = []  # two, without spaces and comments
        self.open = ""  # the quote or comment that is not closed yet, with the values in it
        self.holds_value = False
        self.params: list[Any] = []

    def text(self, piece: str) -> None:
        if not piece:
            return
        held, self.open = self.open + piece, ""
        for token in tokens(held, self.style):
            if token.open:
                self.open = token.text
            elif self.holds_value and token.kind == "text" and token.text[0] == "'":
                self._literal(token.text[1:-1].replace("''", "'"))
            else:
                self._add(token)
            self.holds_value &= token.open  # it was the first token, if it was open before

    def value(self, piece: Spliced, goes_on: bool) -> None:
        if not self.open:
            self._bare(piece, goes_on)
        elif self.open.startswith(("--", "/*")):
            pass  # nobody reads it there
        elif self.open.startswith("'"):
            self.open += _told(piece).replace("'", "''")
            self.holds_value = True
        elif self.open.startswith(('"', "`", "[")):
            self.open += _in_name(_told(piece), self.open[0])
        else:
            self.open += _plain(_told(piece), PLAIN_TEXT, "between dollar quotes, or in quotes with escapes")

    def done(self) -> tuple[str, list[Any]]:
        if self.open and not self.open.startswith(("--", "/*")):
            raise refused(f"the statement has a quote that is never closed: {short(self.open, 20)!r}", "parse")
        return "".join(self.out) + self.open, self.params

    def _add(self, token: Token) -> None:
        self.out.append(token.text)
        if token.kind == "sign" and token.text == ";":
            self.first, self.last = "", []
        elif token.kind not in ("space", "comment"):
            self.first = self.first or token.text.upper()
            self.last = [*self.last[-1:], token]

    def _bare(self, piece: Spliced, goes_on: bool) -> None:
        touches = bool(self.out) and WORD.match(self.out[-1][-1]) is not None
        if touches and self.last[-1].kind == "placeholder":
            raise self._refused()
        if goes_on or touches or self._is_named():
            self._add(Token("word", _plain(_told(piece), PLAIN_NAME, "where a name stands")))
        elif not self._may_hold_a_value():
            raise self._refused()
        elif piece.value is None or isinstance(piece.value, bool):
            self._add(Token("word", {None: "NULL", True: "TRUE", False: "FALSE"}[piece.value]))
        elif isinstance(piece.value, str) and self._is_in_list() and NUMBERS.fullmatch(piece.value):
            self._add(Token("number", piece.value))
        elif self.first in TAKING_PARAMETERS:
            self._parameter(_scalar(piece.value))
        else:
            self._add(Token("number", _as_literal(_scalar(piece.value))))

    def _literal(self, content: str) -> None:
        """A parameter, except where the language wants a literal."""
        if self.out and WORD.match(self.out[-1][-1]):
            raise self._refused()  # X'...' and its like
        wants_literal = self._word() in TYPES or self._is_named()
        if self.first in TAKING_PARAMETERS and not wants_literal:
            parts = JOINED.split(content) if self._is_in_list() else [content]
            for i, part in enumerate(parts):
                if i:
                    self._add(Token("sign", ", "))
                self._parameter(part)
        else:
            self._add(Token("text", _as_literal(content)))

    def _parameter(self, value: Any) -> None:
        self.params.append(value)
        self._add(Token("placeholder", f"${self.start + len(self.params) - 1}"))

    def _word(self, back: int = 1) -> str:
        """The word that stands just before, in capitals, or the one before that."""
        token = self.last[-back] if len(self.last) >= back else None
        return token.text.upper() if token is not None and token.kind == "word" else ""

    def _is_named(self) -> bool:
        """Whether a name is what must stand here."""
        word = self._word()
        if word == "ON":
            return self.first not in TAKING_PARAMETERS  # CREATE INDEX ... ON
        return word in NAMED_AFTER and (self._word(2), word) != ("DISTINCT", "FROM")

    def _is_in_list(self) -> bool:
        """Whether it is the first of a list, as in `IN (`."""
        return self._word(2) in ("IN", "ARRAY") and self.last[-1].text in ("(", "[")

    def _may_hold_a_value(self) -> bool:
        """After a sign or a word that a value follows, and not after another value."""
        if not self.last:
            return False
        if self.last[-1].kind == "word":
            return self._word() in {"FROM", *VALUE_AFTER, *TYPES}  # FROM: where it is no name, IS DISTINCT FROM
        return self.last[-1].kind == "sign" and self.last[-1].text not in (")", "]", "::")

    def _refused(self) -> ToolFailed:
        whole = "".join(self.out)
        said = whole if len(whole) <= 30 else LEFT_OUT + whole[-30:]
        why = f"no value can stand after {said!r}: quote it, or write $1 there and give it in `params`"
        return refused(why, "parse")


def _told(piece: Spliced) -> str:
    """As text between other text."""
    if piece.text is not None:
        return piece.text
    if piece.value is None:
        return ""
    return piece.value if isinstance(piece.value, str) else json_text(piece.value)


def _scalar(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else json_text(value)


def _in_name(text: str, quote: str) -> str:
    if "\x00" in text or (quote == "[" and "]" in text):
        raise refused(f"{text!r} is no name", "parse")
    return text if quote == "[" else text.replace(quote, quote * 2)


def _plain(text: str, allowed: re.Pattern[str], where: str) -> str:
    if allowed.fullmatch(text) is None:
        hint = "letters, digits and _" if allowed is PLAIN_NAME else "letters and digits"
        raise refused(f"{short(text, 60)!r} cannot stand {where}: only {hint} can", "parse")
    return text


def _as_literal(value: str | int | float) -> str:
    told = json_value(value)
    if not isinstance(told, str):
        return str(told)
    if "\x00" in told:
        raise refused("a text with a NUL cannot be part of a statement", "parse")
    return "'" + told.replace("'", "''") + "'"
