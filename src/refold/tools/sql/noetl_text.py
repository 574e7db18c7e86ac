"""Values in the text of SQL, as playbooks of others have them: `INSERT INTO t VALUES ('{{ x }}', {{ n }})`.

Each value becomes a quoted literal of that database, or part of a name where only a name can stand. It never becomes
SQL. What a place asks for follows from the author's text alone, and a place that is not in this table is refused.

| where it stands | what becomes of it |
| --- | --- |
| in single quotes, also with escapes (`E'...'`) | with the text around it, one literal |
| the only thing between dollar quotes, in a query | a literal |
| in double quotes | part of a quoted name |
| bare, where a value can stand | a literal; a number, true, false or null as it is |
| bare, where a table, a schema or a column is named, or as part of a longer name | itself, if it is a plain name |
| after `IN (` or `ARRAY [`, a list, or numbers joined with commas (`1,2`) | several literals |
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from refold.core.faults import short
from refold.core.pipeline import Task
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
from refold.tools.sql.text import SqlToken, Style, tokens
from refold.tools.sql.values import json_text

PLAIN_NAME = re.compile(r"[A-Za-z_0-9]+(\.[A-Za-z_0-9]+)*", re.A)
WORD = re.compile(r"[\w$.]")
NUMBERS = re.compile(r"-?[0-9]+( *, *-?[0-9]+)+", re.A)
BEGUN_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:x[0-9a-fA-F]?|u\w{0,3}|U\w{0,7}|[0-7]{1,2})?\Z")
OWN_QUOTING = re.compile(r"""\|\s*replace\(\s*(?:"'"|'\\'')\s*,\s*(?:"''"|'\\'\\'')\s*\)\s*$""")
OWN_LIST = re.compile(r"""\|\s*join\(\s*(?:"' *, *'"|'\\' *, *\\'')\s*\)\s*$""")
SPACES = re.compile("[\u00a0\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff]")
REMEDY = "write $1 there, and give the value in `params`"

NAMED_AFTER = {
    *("FROM", "INTO", "TABLE", "UPDATE", "JOIN", "EXISTS", "VIEW", "INDEX", "SCHEMA", "DATABASE", "SEQUENCE", "ONLY"),
    *("TRUNCATE", "DESCRIBE", "REFERENCES", "AS", "BY", "COLUMN", "CONSTRAINT", "ANALYZE", "USE", "TYPE"),
    *("ROLE", "USER", "DETACH", "COPY", "VACUUM", "SET"),
}
VALUE_AFTER = {
    *("SELECT", "DISTINCT", "ALL", "WHERE", "AND", "OR", "NOT", "IN", "LIKE", "ILIKE", "BETWEEN", "THEN", "WHEN"),
    *("ELSE", "CASE", "LIMIT", "OFFSET", "VALUES", "RETURNING", "IS", "FIRST", "NEXT", "ON", "HAVING", "DEFAULT", "TO"),
    *("ESCAPE", "ANY", "SOME", "SIMILAR", "GLOB", "REGEXP", "MATCH", "ATTACH", "USING", "TOP", "QUALIFY", "ARRAY"),
}
VALUE_AFTER_SIGN = set("(,=<>+-*/%|[!~^:?{")
TYPES = {
    *("INTERVAL", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMETZ", "ZONE", "JSON", "JSONB", "UUID", "NUMERIC"),
    *("DECIMAL", "INTEGER", "INT", "BIGINT", "BOOLEAN", "REAL", "POINT", "INET", "TEXT", "VARCHAR", "BYTEA", "BLOB"),
}
QUERIES = {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "VALUES", "MERGE", "REPLACE", "FROM", "UPSERT"}
# Statements and functions to which a text is a program.
PROGRAMS = {"DO", "EXECUTE", "PREPARE", "LOAD", "INSTALL", "IMPORT"}
DEFINED = {"FUNCTION", "PROCEDURE", "TRIGGER", "RULE", "MACRO", "EVENT", "EXTENSION", "SECRET"}
RUNNING = {
    *("DBLINK", "DBLINK_EXEC", "DBLINK_SEND_QUERY", "DBLINK_OPEN", "QUERY", "QUERY_TABLE", "QUERY_TO_XML"),
    *("QUERY_TO_XMLSCHEMA", "QUERY_TO_XML_AND_XMLSCHEMA", "CURSOR_TO_XML", "CROSSTAB", "CONNECTBY", "TS_STAT"),
    *("TS_REWRITE", "POSTGRES_QUERY", "POSTGRES_EXECUTE", "MYSQL_QUERY", "MYSQL_EXECUTE", "SQLITE_QUERY", "EVAL"),
    *("LOAD_EXTENSION", "JSON_EXECUTE_SERIALIZED_SQL", "SET_CONFIG"),
}


class Part(Struct, frozen=True):
    """A piece of the statement that holds values; `texts` stand around the holes, one more than there are."""

    kind: str  # literal, escaped, name, plain or bare
    holes: tuple[int, ...]
    texts: tuple[str, ...] = ("", "")
    quote: str = ""  # of a name
    in_list: bool = False


def parts_of(text: str, style: Style) -> list[str | Part]:
    """The text, and what each of its holes is to be. Raises Misplaced."""
    return _Reader(text, style).read() if HOLE in text else [text]


def written(parts: Sequence[str | Part], values: Sequence[Any], style: Style) -> str:
    """Raises ValueError for a value that its place cannot hold."""
    return "".join(part if isinstance(part, str) else _part(part, values, style) for part in parts)


def without_own_quoting(expression: str) -> str:
    """What an author does against quotes in values, which is done here: `x | replace("'", "''")` is `x`."""
    return OWN_LIST.sub("", OWN_QUOTING.sub("", expression)).rstrip()


class _Reader:
    def __init__(self, text: str, style: Style) -> None:
        self.whole, self.style = text, style
        self.tokens = list(tokens(text, style))
        self.out: list[str | Part] = []
        self.words: list[str] = []  # of the statement, in capitals
        self.called: set[str] = set()  # functions among them
        self.last: list[SqlToken] = []  # two, without spaces and comments
        self.hole = 0  # the next one
        self.first_hole = -1  # of the statement
        self.at = 0

    def read(self) -> list[str | Part]:
        if "standard_conforming_strings" in self.whole.lower():
            raise Misplaced(0, "a value stands in a text that changes how quotes are read", REMEDY)
        for number, token in enumerate(self.tokens):
            if token.open and token.kind != "comment":
                raise self._misplaced("in a text with a quote that is never closed", "close it")
            self._token(number, token)
            self.at += len(token.text)
        self._end_statement()
        return self.out

    def _token(self, number: int, token: SqlToken) -> None:
        if HOLE in token.text:
            if self.first_hole < 0:
                self.first_hole = self.hole
            self._holed(number, token)
            return
        if not token.text.isascii() and token.kind in ("sign", "space"):
            raise self._misplaced(f"in a text with {token.text!r} outside of quotes", "take that character away")
        if token.kind == "text" and (self._before() == HOLE or (self._is_after("number") and self._touches())):
            raise self._misplaced("just before a quoted text", "put an operator between them")
        if self.style == "sqlite" and token.kind == "placeholder" and self._following(number, "(", ":"):
            raise self._misplaced("in a text with a parameter of a form of its own", REMEDY)
        self.out.append(token.text)
        self._note(token)

    def _note(self, token: SqlToken) -> None:
        if token.kind == "sign" and token.text == ";":
            self._end_statement()
        elif token.kind not in ("space", "comment"):
            if token.text == "(" and self._word() and self._word(2) not in ("INTO", "TABLE", "EXISTS"):
                self.called.add(self._word())
            if token.kind == "word":
                self.words.append(token.text.upper())
            elif not self.words:
                self.words.append("")
            self.last = [*self.last[-1:], token]

    def _end_statement(self) -> None:
        """What a statement must not be to hold values: one that runs a text."""
        words, first = self.words, self.words[0] if self.words else ""
        defines = first in ("CREATE", "ALTER") and DEFINED & set(words[1:6])
        runs = first in PROGRAMS or defines or RUNNING & self.called or (first == "COPY" and "PROGRAM" in words)
        if self.first_hole >= 0 and (runs or "CRON" in words):
            why = f"a value stands in a statement that runs a text ({' '.join(words[:3]).lower()})"
            raise Misplaced(self.first_hole, why, "write that text without values")
        self.words, self.called, self.last, self.first_hole = [], set(), [], -1

    def _holed(self, number: int, token: SqlToken) -> None:
        match token.kind:
            case "hole":
                self._bare(number)
            case "comment":
                raise self._misplaced("in a comment", "take it out of the comment")
            case "text":
                self._text(number, token)
            case "name":
                if self._before() == "&":
                    raise self._misplaced("in a name with escapes of its own", "write a plain name")
                self._put("name", token.text[1:-1].split(HOLE), token, token.text[0])
            case _:
                self._dollar(token)

    def _text(self, number: int, token: SqlToken) -> None:
        """One literal. Two that stand side by side are read as one by some databases, and in the way of the first."""
        escaped = token.text[0] in "eE"
        if self._touches() or self._before() == "&":
            raise self._misplaced("in quotes with a letter before them", "write plain quotes")
        if self._is_after("text", "hole", "dollar", "placeholder", "number") or self._next_kind(number) == "text":
            raise self._misplaced("in one of two quoted texts side by side", "write `||` between them")
        texts = token.text[2:-1].split(HOLE) if escaped else token.text[1:-1].split(HOLE)
        if escaped and any(BEGUN_ESCAPE.search(text) for text in texts[:-1]):
            raise self._misplaced("behind a backslash", "write it apart from the escape")
        self._put("escaped" if escaped else "literal", texts, token)

    def _dollar(self, token: SqlToken) -> None:
        tag = token.text[: token.text.index("$", 1) + 1]
        if token.text != f"{tag}{HOLE}{tag}" or not self.words or self.words[0] not in QUERIES:
            raise self._misplaced("between dollar quotes with other text", "write that text without values")
        if self._is_after("text", "hole", "dollar", "placeholder", "number") or WORD.fullmatch(self._before()):
            raise self._misplaced("in one of two quoted texts side by side", "write `||` between them")
        self._put("literal", ["", ""], token)

    def _bare(self, number: int) -> None:
        before, following = self._before(), self.whole[self.at + 1 : self.at + 2]
        if following and following in "'\"$&`":
            raise self._misplaced("just before a quote", "put a space or an operator between them")
        if before == "$" and self.last[-1].text == "$":
            raise self._misplaced("behind a `$`", REMEDY)
        if WORD.fullmatch(before) and self._is_after("placeholder", "number"):
            raise self._misplaced("as part of a number or a parameter", REMEDY)
        goes_on = following == HOLE or WORD.fullmatch(following) is not None
        if goes_on or before == HOLE or WORD.fullmatch(before) or self._is_named():
            if not self.last:
                raise self._misplaced("where a statement begins", "write the statement out")
            self._put("plain", ["", ""], SqlToken("word", HOLE))
            return
        if not self._may_hold_a_value() or self._next_kind(number) in ("text", "hole", "dollar"):
            said = self.whole[: self.at].replace(HOLE, "…")[-30:]
            raise self._misplaced(f"after {said!r}, where no value can stand", f"quote it, or {REMEDY}")
        self._put("bare", ["", ""], SqlToken("hole", HOLE))

    def _put(self, kind: str, texts: list[str], token: SqlToken, quote: str = "") -> None:
        count = len(texts) - 1
        holes = tuple(range(self.hole, self.hole + count))
        self.hole += count
        self.out.append(Part(kind, holes, tuple(texts), quote, self._is_in_list()))
        self._note(token)

    def _misplaced(self, where: str, remedy: str) -> Misplaced:
        count = self.whole.count(HOLE)
        return Misplaced(min(self.hole, count - 1), f"a value stands {where}", remedy)

    def _before(self) -> str:
        """The character that stands just before."""
        return self.whole[self.at - 1 : self.at] if self.at else ""

    def _touches(self) -> bool:
        return WORD.fullmatch(self._before()) is not None or self._before() == HOLE

    def _is_after(self, *kinds: str) -> bool:
        return bool(self.last) and self.last[-1].kind in kinds

    def _next_kind(self, number: int) -> str:
        """Of the next token that is no space and no comment."""
        rest = self.tokens[number + 1 :]
        return next((token.kind for token in rest if token.kind not in ("space", "comment")), "")

    def _following(self, number: int, *signs: str) -> bool:
        return number + 1 < len(self.tokens) and self.tokens[number + 1].text[:1] in signs

    def _word(self, back: int = 1) -> str:
        """The word that stands just before, in capitals, or the one before that."""
        token = self.last[-back] if len(self.last) >= back else None
        return token.text.upper() if token is not None and token.kind == "word" else ""

    def _is_named(self) -> bool:
        """Whether a name is what must stand here."""
        word = self._word()
        if word == "ON":
            return self.words[0] not in QUERIES  # CREATE INDEX ... ON
        return word in NAMED_AFTER and (self._word(2), word) != ("DISTINCT", "FROM")

    def _is_in_list(self) -> bool:
        """Whether it is the first of a list, as in `IN (`."""
        return self._word(2) in ("IN", "ARRAY") and self.last[-1].text in ("(", "[")

    def _may_hold_a_value(self) -> bool:
        """After a sign or a word that a value follows, and not after another value."""
        if not self.last:
            return False
        if self.last[-1].kind == "word":
            return self._word() in {"FROM", *VALUE_AFTER, *TYPES}  # FROM: where it is not a name, IS DISTINCT FROM
        return self.last[-1].kind == "sign" and self.last[-1].text in VALUE_AFTER_SIGN


def _part(part: Part, values: Sequence[Any], style: Style) -> str:
    first = values[part.holes[0]]
    match part.kind:
        case "plain":
            return _plain(_told(first))
        case "name":
            told = [_in_name(_told(values[hole]), part.quote, style) for hole in part.holes]
            close = "]" if part.quote == "[" else part.quote
            return part.quote + _around(part.texts, told) + close
        case "escaped":
            told = [_with_escapes(_told(values[hole]), style) for hole in part.holes]
            return f"E'{_around(part.texts, told)}'"
        case "literal":
            if part.in_list and part.texts == ("", "") and isinstance(first, list) and first:
                return ", ".join(quoted(_told(each), style) for each in first)
            texts = tuple(text.replace("''", "'") for text in part.texts)
            return quoted(_around(texts, [_told(values[hole]) for hole in part.holes]), style)
        case _:
            return _value(first, part.in_list, style)


def _around(texts: Sequence[str], told: Sequence[str]) -> str:
    return texts[0] + "".join(value + text for value, text in zip(told, texts[1:], strict=True))


def _value(value: Any, in_list: bool, style: Style) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) if value >= 0 else f"({value})"  # `--5` would be a comment
        case float() if math.isfinite(value):
            return repr(value) if value > 0 or repr(value) == "0.0" else f"({value!r})"
        case str() if in_list and NUMBERS.fullmatch(value):
            return value
        case list() if in_list and value:
            return ", ".join(_value(each, False, style) for each in value)
        case _:
            return quoted(_told(value), style)


def _told(value: Any) -> str:
    """As text between other text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


def quoted(text: str, style: Style) -> str:
    """A literal that is read in one way only.

    PostgreSQL has a setting for what a backslash is in plain quotes, and none for quotes with escapes. DuckDB makes
    spaces of all kinds plain ones before it reads a statement, and its idea of quotes is a rough one then.
    """
    if (style == "postgres" and "\\" in text) or (style == "duckdb" and SPACES.search(text)):
        return f" E'{_with_escapes(text, style)}'"
    doubled = _checked(text).replace("'", "''")
    return f"'{doubled}'"


def _with_escapes(text: str, style: Style) -> str:
    escaped = _checked(text).replace("\\", "\\\\").replace("'", "''")
    return SPACES.sub(_bytes, escaped) if style == "duckdb" else escaped


def _bytes(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in found[0].encode())


def _checked(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a value has a NUL character, which no statement can hold")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a value has half of a surrogate pair, which is not a character") from None
    return text


def _in_name(text: str, quote: str, style: Style) -> str:
    if style == "duckdb" and SPACES.search(text):
        raise ValueError(f"{short(text, 60)!r} has a space that DuckDB would change in a name")
    if quote == "[" and "]" in text:
        raise ValueError(f"{short(text, 60)!r} is not a name in square brackets")
    return _checked(text) if quote == "[" else _checked(text).replace(quote, quote * 2)


def _plain(text: str) -> str:
    if PLAIN_NAME.fullmatch(text) is None:
        raise ValueError(f"{short(text, 60)!r} cannot stand where a name stands: only letters, digits and _ can")
    return text


STYLES: Mapping[str, Style] = {"sqlite": "sqlite", "duckdb": "duckdb", "postgres": "postgres"}


def quote(task: Task, key: str, pieces: Pieces, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Put values into SQL, one text or a list of them; a text that is one value is SQL of the author's own."""
    query = keys[key]
    if isinstance(query, list):
        return {key: [_statement(task, key, text, pieces) if isinstance(text, str) else text for text in query]}
    return {key: _statement(task, key, query, pieces) if isinstance(query, str) else query}


def _statement(task: Task, key: str, template: str, pieces: Pieces) -> str:
    text = holed(template, pieces(_without_own_quoting(template)))
    if text.is_one_value and isinstance(text.values[0], str):
        return text.values[0]
    style = STYLES[task.kind]
    with refusing_misplaced(key, [text]):
        return written(parts_of(text.text, style), text.values, style)


def _without_own_quoting(text: str) -> str:
    end = end_of_values(text)
    return EXPRESSION.sub(lambda match: f"{{{{{without_own_quoting(match[1])}}}}}", text[:end]) + text[end:]


def problems(kind: str, key: str, text: Any) -> Iterator[ToolProblem]:
    """Yield what `quote` would refuse in a text, as far as that is known without the values."""
    match text:
        case [*texts]:
            for item, each in enumerate(texts):
                for problem in problems(kind, key, each) if isinstance(each, str) else ():
                    yield structs.replace(problem, item=item)
        case str():
            holes = holes_of(text)
            if holes is not None and holes.places and holes.is_one_value:
                message = f"`{key}` is one value, and what it holds is run as SQL"
                hint = "write the statement here, and put values into it"
                yield ToolProblem(key, message, hint, *holes.places[0], "value-as-code", None, "warning")
            else:
                yield from problems_in(key, [text], lambda texts: parts_of(texts[0], STYLES[kind]))
