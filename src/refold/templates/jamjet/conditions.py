"""Conditions of JamJet files: their grammar, and their values. A path that leads nowhere is null."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from msgspec import Struct, json

from refold.core.expressions import CannotEvaluate
from refold.templates.tokens import Token, Wrong

LONGEST = 8192  # characters of a condition
DEEPEST = 50  # brackets inside each other
MADE = 1 << 20  # characters or elements that one call may handle
DIGITS = 400  # of a text that is read as a number

_SPACE = re.compile(r"\s*")
_TOKEN = re.compile(
    r"""(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d][\w-]*(?<!-))
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<op>==|!=|<=|>=|[-<>.,()\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_INSTEAD = {
    "===": "write `==`",
    "!==": "write `!=`",
    "=": "write `==`",
    "&&": "write `and`",
    "||": "write `or`",
    "!": "write `not`",
    "&": "write `and`",
    "|": "filters belong to templates, `{{ … }}`; a condition has `or`",
}
_ODD = re.compile(r"===|!==|&&|\|\||.", re.DOTALL)
CONSTANTS: Mapping[str, Any] = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
WORDS = frozenset({"and", "or", "not", "in", *CONSTANTS})
ROOTS = ("state", "output")


class ConditionRoots(Protocol):
    """The roots of paths: `state`, `output`, and in lists of nodes the keys of both."""

    def root(self, name: str) -> Any: ...


Value = Callable[[ConditionRoots], Any]


class Condition(Struct, frozen=True):
    """A condition that was read; `roots` are the names that its paths begin with, and their characters in its text."""

    value: Value
    roots: tuple[tuple[str, int], ...]


class WrongCondition(Wrong):
    """A text is not a condition; `length` characters from `at` on are wrong."""

    def __init__(self, message: str, at: int, hint: str = "", length: int = 1) -> None:
        self.hint, self.length = hint, length
        super().__init__(message, at)


@lru_cache(maxsize=4096)
def read(text: str, bare: bool) -> Condition:
    """Read a condition; `bare` allows names that are keys of the state. Raises WrongCondition."""
    return _Parser(text, bare).read()


class _Parser:
    def __init__(self, text: str, bare: bool) -> None:
        if len(text) > LONGEST:
            raise WrongCondition(f"a condition has at most {LONGEST:,} characters", 0)
        self.text, self.bare = text, bare
        self.tokens = _tokens(text)
        self.at = self.depth = 0
        self.roots: list[tuple[str, int]] = []

    @property
    def here(self) -> Token:
        return self.tokens[self.at]

    def read(self) -> Condition:
        if self.here.kind == "end":
            raise WrongCondition("the condition is empty", 0, "leave it out, or write for example `state.ready`")
        value = self.either()
        if self.here.kind != "end":
            self.unexpected("an operator")
        return Condition(value, tuple(self.roots))

    def unexpected(self, wanted: str) -> None:
        token = self.here
        if token.kind == "end":
            raise WrongCondition(f"the condition ends where {wanted} is expected", max(0, len(self.text) - 1))
        raise WrongCondition(f"`{token.text}` stands where {wanted} is expected", token.at, "", len(token.text))

    def takes(self, *texts: str) -> bool:
        token = self.here
        if token.kind in ("op", "name") and token.text in texts:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.takes(text):
            self.unexpected(f"`{text}`")

    def nested(self) -> Value:
        self.depth += 1
        if self.depth > DEEPEST:
            raise WrongCondition(f"brackets are nested more than {DEEPEST} deep", self.here.at)
        value = self.either()
        self.depth -= 1
        return value

    def either(self) -> Value:
        parts = [self.both()]
        while self.takes("or"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else lambda names: _first(names, parts, True)

    def both(self) -> Value:
        parts = [self.negated()]
        while self.takes("and"):
            parts.append(self.negated())
        return parts[0] if len(parts) == 1 else lambda names: _first(names, parts, False)

    def negated(self) -> Value:
        if not self.takes("not"):
            return self.test()
        value = self.test()
        return lambda names: not value(names)

    def test(self) -> Value:
        left = self.value()
        symbol = self.operator()
        if not symbol:
            return left
        right, compare = self.value(), OPERATORS[symbol]
        return lambda names: compare(left(names), right(names))

    def operator(self) -> str:
        token = self.here
        if token.text == "not" and token.kind == "name" and self.tokens[self.at + 1].text == "in":
            self.at += 2
            return "not in"
        if token.kind in ("op", "name") and token.text in OPERATORS:
            self.at += 1
            return token.text
        return ""

    def value(self) -> Value:
        value = self.beginning()
        while True:
            if self.takes("."):
                value = self.part(value)
            elif self.takes("["):
                index = self.nested()
                self.expect("]")
                value = _indexed(value, index)
            else:
                return value

    def beginning(self) -> Value:
        token = self.here
        if token.kind == "op":
            return self.bracketed(token)
        if token.kind == "end":
            self.unexpected("a value")
        self.at += 1
        if token.kind == "number":
            return _constant(_number(token.text))
        if token.kind == "string":
            return _constant(_unquoted(token.text))
        if token.text in CONSTANTS:
            return _constant(CONSTANTS[token.text])
        if self.here.text == "(" and self.here.kind == "op":
            return self.call(token)
        if token.text in WORDS:
            self.at -= 1
            self.unexpected("a value")
        return self.root(token)

    def bracketed(self, token: Token) -> Value:
        if self.takes("("):
            value = self.nested()
            self.expect(")")
            return value
        if self.takes("["):
            elements = self.listed("]")
            return lambda names: [element(names) for element in elements]
        if self.takes("-") and self.here.kind == "number":
            self.at += 1
            return _constant(-_number(self.tokens[self.at - 1].text))
        self.unexpected("a value")
        raise AssertionError(token)

    def listed(self, end: str) -> list[Value]:
        found: list[Value] = []
        while not self.takes(end):
            if found:
                self.expect(",")
            found.append(self.nested())
        return found

    def root(self, token: Token) -> Value:
        name = token.text
        if name not in ROOTS and not self.bare:
            hint = f"write `state.{name}`" if name not in FUNCTIONS else f"`{name}` is a function: write `{name}(…)`"
            raise WrongCondition(f"`{name}` is neither `state` nor `output`", token.at, hint, len(name))
        self.roots.append((name, token.at))
        return lambda names: names.root(name)

    def call(self, token: Token) -> Value:
        function = FUNCTIONS.get(token.text)
        if function is None:
            hint = f"there are {', '.join(FUNCTIONS)}"
            raise WrongCondition(f"there is no function `{token.text}`", token.at, hint, len(token.text))
        self.at += 1
        given = self.listed(")")
        if len(given) != 1:
            message = f"`{token.text}` takes one value, not {len(given)}"
            raise WrongCondition(message, token.at, "", len(token.text))
        argument = given[0]
        return lambda names: function(argument(names))

    def part(self, value: Value) -> Value:
        token = self.here
        if token.kind == "number" and token.text.isdigit():
            self.at += 1
            return _indexed(value, _constant(int(token.text)))
        if token.kind == "number" and re.fullmatch(r"\d+\.\d+", token.text):  # `state.rows.0.1`
            self.at += 1
            first, second = token.text.split(".")
            return _indexed(_indexed(value, _constant(int(first))), _constant(int(second)))
        if token.kind != "name":
            self.unexpected("a name")
        self.at += 1
        if self.takes("("):
            return self.method(value, token)
        name = token.text
        return lambda names: _get(value(names), name)

    def method(self, value: Value, token: Token) -> Value:
        method = METHODS.get(token.text)
        if method is None:
            hint = f"there are {', '.join(METHODS)}"
            raise WrongCondition(f"there is no method `{token.text}`", token.at, hint, len(token.text))
        given = self.listed(")")
        return lambda names: _called(method, value(names), [each(names) for each in given])


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = _SPACE.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or (match.group() == "!" and match.group() != "!="):
            odd = _ODD.match(text, at)
            assert odd is not None
            raise _odd(text, at, odd.group())
        word = match.group()
        if word in ("==", "!=") and text.startswith("=", match.end()):
            raise _odd(text, at, word + "=")
        assert match.lastgroup is not None
        found.append(Token(match.lastgroup, word, at))
        at = _SPACE.match(text, match.end()).end()  # type: ignore[union-attr]
    return [*found, Token("end", "", len(text))]


def _odd(text: str, at: int, word: str) -> WrongCondition:
    message = "a text is not closed" if word in "'\"" else f"`{word}` means nothing in a condition"
    return WrongCondition(message, at, _INSTEAD.get(word, ""), len(word))


def _number(text: str) -> int | float:
    if len(text) > DIGITS:
        return float("inf")
    return int(text) if text.isdigit() else float(text)


def _unquoted(text: str) -> str:
    def meant(found: re.Match[str]) -> str:
        code, char = found.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(char, char)

    return _ESCAPE.sub(meant, text[1:-1])


def _constant(value: Any) -> Value:
    return lambda names: value


def _indexed(value: Value, index: Value) -> Value:
    return lambda names: _get(value(names), index(names))


def _first(names: ConditionRoots, parts: Sequence[Value], wanted: bool) -> Any:
    """Return the first value that is true, or false, and else the last one."""
    found = None
    for part in parts:
        found = part(names)
        if bool(found) is wanted:
            break
    return found


def _get(value: Any, key: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(key if isinstance(key, str) else str(key) if _is_number(key) else "")
    if isinstance(value, (list, tuple, str)):
        index = int(key) if isinstance(key, str) and key.isdigit() and len(key) < 16 else key
        if isinstance(index, int) and not isinstance(index, bool) and -len(value) <= index < len(value):
            return value[index]
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(left: Any, right: Any) -> bool:
    """Equality as of JSON: a number is no truth value, and no text."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        have_order = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
        return have_order and compare(left, right)

    return ordered


def _within(left: Any, right: Any) -> bool:
    if isinstance(right, (list, tuple)):
        return any(same(left, each) for each in right)
    return isinstance(left, str) and isinstance(right, (str, Mapping)) and left in right


OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": same,
    "!=": lambda left, right: not same(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "in": _within,
    "not in": lambda left, right: not _within(left, right),
}


def _len(value: Any) -> int | None:
    return len(value) if isinstance(value, (str, list, tuple, Mapping)) else None


def _int(value: Any) -> int | None:
    if isinstance(value, str) and len(value) > DIGITS:
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _float(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) < float("inf") else None


def text_of(value: Any) -> str:
    """Return a value as text: a text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.encode(plain(value)).decode()


def plain(value: Any) -> Any:
    """Return maps and lists as plain data."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "len": _len,
    "int": _int,
    "float": _float,
    "str": text_of,
    "bool": bool,
}


def _of_text(method: Callable[..., Any], least: int = 0, most: int = 0) -> Callable[[Any, list[Any]], Any]:
    def called(value: Any, given: list[Any]) -> Any:
        if not isinstance(value, str) or not least <= len(given) <= most:
            return None
        if len(value) > MADE:
            raise CannotEvaluate("this handles more than 1 MiB, and that is work for a node")
        return method(value, *given)

    return called


def _map_get(value: Any, given: list[Any]) -> Any:
    if not isinstance(value, Mapping) or not 1 <= len(given) <= 2:
        return None
    found = _get(value, given[0])
    return given[1] if found is None and len(given) == 2 else found


METHODS: Mapping[str, Callable[[Any, list[Any]], Any]] = {
    "split": _of_text(str.split, 0, 2),
    "lower": _of_text(str.lower),
    "upper": _of_text(str.upper),
    "strip": _of_text(str.strip, 0, 1),
    "startswith": _of_text(str.startswith, 1, 1),
    "endswith": _of_text(str.endswith, 1, 1),
    "get": _map_get,
}


def _called(method: Callable[[Any, list[Any]], Any], value: Any, given: list[Any]) -> Any:
    """Return what a method gives; null if its arguments do not fit."""
    try:
        return method(value, given)
    except (TypeError, ValueError):
        return None
