"""Splits an expression into tokens, and finds its end, which is not inside quotes or open brackets."""

import re

from msgspec import Struct

LONGEST_EXPRESSION = 8192

_SPACE = re.compile(r"\s+")
_TOKEN = re.compile(
    r"""(?P<number>0[xX][0-9a-fA-F]+|\d+(?:_\d+)*(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<op>\*\*|//|==|!=|<=|>=|[-+*/%~<>|.,:=()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "/": "/", "\\": "\\", "'": "'", '"': '"'}
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


class Wrong(Exception):
    """A text is not a template; `at` is the character where the error is."""

    def __init__(self, message: str, at: int) -> None:
        self.message, self.at = message, at
        super().__init__(message)


class Token(Struct, frozen=True):
    kind: str  # number, name, string, op or end
    text: str
    at: int


def tokens(text: str, begin: int, close: str = "}}") -> tuple[list[Token], int]:
    """Return the tokens of the expression or statement that begins here, and the position after its end."""
    found: list[Token] = []
    open: list[Token] = []
    at = begin + 2
    if text.startswith(("-", "+") if close == "%}" else "-", at):
        at += 1
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        end = 0 if open else _end(text, at, close)
        if end:
            found.append(Token("end", close, at))
            return found, end
        if at >= len(text) or at - begin > LONGEST_EXPRESSION:
            closed = f"`{text[begin : begin + 2]}` is not closed by `{close}`"
            raise Wrong(closed if at >= len(text) else "the expression is too long", begin)
        token = _token(text, at)
        if token.kind == "op":
            _balance(token, open)
        found.append(token)
        at += len(token.text)


def _end(text: str, at: int, close: str) -> int:
    """Return the position after the end of the expression, if it ends here; else 0."""
    for end in (close, f"-{close}", f"+{close}") if close == "%}" else (close, f"-{close}"):
        if text.startswith(end, at):
            return at + len(end)
    return 0


def _balance(token: Token, open: list[Token]) -> None:
    """Keep track of open brackets, because an expression ends only where none is open."""
    if token.text in _BRACKETS:
        open.append(token)
    elif open and token.text in _BRACKETS.values():
        opening = open.pop()
        if _BRACKETS[opening.text] != token.text:
            raise Wrong(f"this `{opening.text}` is not closed", opening.at)


def _token(text: str, at: int) -> Token:
    match = _TOKEN.match(text, at)
    if match is None:
        if text[at] in "'\"":
            raise Wrong("this text is not closed", at)
        raise Wrong(f"{text[at]!r} has no meaning here", at)
    assert match.lastgroup is not None
    token = Token(match.lastgroup, match.group(), at)
    if token.kind == "string":
        value_of(token)
    elif token.kind == "number" and not _fits(token.text):
        raise Wrong("a number as large as this has no place in an expression", at)
    return token


def _fits(number: str) -> bool:
    return len(number) <= 32 and (not number.replace("_", "").isdigit() or int(number) < 1 << 64)


def value_of(token: Token) -> str:
    """Return the text inside quotes, with its escapes replaced."""

    def plain(match: re.Match[str]) -> str:
        code, short, letter = match.groups()
        if code or short:
            char = chr(int(code or short, 16))
            if not "\ud800" <= char <= "\udfff":
                return char
        elif letter in _ESCAPES:
            return _ESCAPES[letter]
        raise Wrong(f"{match.group()!r} has no meaning in a text", token.at + 1 + match.start())

    return _ESCAPE.sub(plain, token.text[1:-1])
