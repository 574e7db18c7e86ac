"""The words of a `.wf` file: names, numbers, spans of time, texts and punctuation, each with its position."""

import re
from typing import NamedTuple

from refold.playbooks.problems import Place, Problem

NAME, NUMBER, SPAN, TEXT, END, BROKEN = "name", "number", "span", "text", "end", "broken"
"""Kinds of tokens; punctuation is a kind of its own: `{`, `=` and so on. A broken token is an error when it is read."""

LARGEST = 4_294_967_295
KEYWORDS = frozenset(
    [
        "workflow",
        "meta",
        "inputs",
        "call",
        "if",
        "unless",
        "while",
        "do",
        "parallel",
        "gate",
        "always",
        "script",
        "foreach",
        "required",
        "default",
        "description",
        "boolean",
    ]
)

SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_TOKEN = re.compile(
    rf"""[{SPACE}]*(?:
    (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
  | (?P<mark>[{{}}\[\],=.])
  | (?P<text>"[^"\\]*(?:\\.[^"\\]*)*")
  | (?P<span>[0-9]+(?:ms|s|m|h)(?![A-Za-z]))
  | (?P<number>[0-9]+)
  | (?P<comment>//[^\n]*)
  | (?P<old>\#[^\n]*|--[^\n]*|;)
  | (?P<end>\Z)
  | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANT = {"n": "\n", "t": "\t"}
_OLD = {
    "#": ("`#` begins a comment only in older files", "write `//`"),
    "-": ("`--` begins a comment only in older files", "write `//`"),
    ";": ("`;` has no meaning", "leave it out"),
}


class Token(NamedTuple):
    kind: str
    text: str  # of a text what it means, without quotes and escapes
    at: int  # the offset of its first character
    end: int


class Words(NamedTuple):
    """The tokens of a file, the last of which is its end or a broken one, and warnings about old forms."""

    tokens: list[Token]
    old: list[tuple[int, str, str]]  # offset, message, hint


def words_of(source: str) -> Words:
    """Split a text into tokens. The first word that cannot be read ends them."""
    tokens: list[Token] = []
    old: list[tuple[int, str, str]] = []
    add, new = tokens.append, tuple.__new__
    for found in _TOKEN.finditer(source):
        kind = found.lastgroup
        at, end = found.span(kind)  # type: ignore[arg-type]
        if kind == "name":
            add(new(Token, (NAME, source[at:end], at, end)))
        elif kind == "mark":
            mark = source[at]
            add(new(Token, (mark, mark, at, end)))
        elif kind == "text":
            text = source[at + 1 : end - 1]
            add(new(Token, (TEXT, _unescaped(text) if "\\" in text else text, at, end)))
        elif kind == "number" or kind == "span":
            text = source[at:end]
            if int(text.rstrip("msh")[:30]) > LARGEST:
                add(Token(BROKEN, "bad-number", at, end))
                break
            add(new(Token, (kind, text, at, end)))
        elif kind == "old":
            old.append((at, *_OLD[source[at]]))
        elif kind == "end":
            add(Token(END, "", at, end))
            break
        elif kind == "other":
            add(Token(BROKEN, "unterminated-string" if source[at] == '"' else "bad-character", at, end))
            break
    return Words(tokens, old)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _MEANT.get(found[1], found[1]), text)


def broken(token: Token, source: str, place: Place) -> Problem:
    """Return the problem of a word that cannot be read."""
    if token.text == "bad-number":
        message = f"the number is larger than {LARGEST}"
        return Problem(token.text, message, place, "write a smaller one", length=token.end - token.at)
    if token.text == "unterminated-string":
        return Problem(token.text, "this text is not closed", place, 'end it with `"`')
    char = source[token.at]
    hint = "numbers have no sign; a comment begins with `//`" if char == "-" else "texts stand in double quotes"
    return Problem(token.text, f"nothing begins with `{char}`", place, hint)
