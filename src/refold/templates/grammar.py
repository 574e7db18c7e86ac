"""Parses tokens to the tree of an expression: the grammar of Jinja."""

import math
from collections.abc import Callable, Sequence

from refold.templates.syntax import (
    Argument,
    Chain,
    Choice,
    Dot,
    Elements,
    Filter,
    FunctionCall,
    Literal,
    Logical,
    Minus,
    Name,
    Node,
    Not,
    Pairs,
    Slice,
    Subscript,
    Test,
)
from refold.templates.tokens import Token, Wrong, value_of

DEEPEST = 32
TOO_DEEP = f"an expression is at most {DEEPEST} deep, brackets and filters counted"
NULL = Literal(0, None)

_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}
_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "if", "else"})
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "not"})
_RANKS = (("+", "-"), ("~",), ("*", "/", "//", "%"), ("**",))
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def parse(tokens: Sequence[Token], lenient: bool = False) -> Node:
    """Return the tree of an expression. Raises Wrong."""
    parser = Parser(tokens, lenient)
    node = parser.expression()
    parser.end()
    return node


class Parser:
    """Parses an expression, or the words of a statement with expressions between them."""

    def __init__(self, tokens: Sequence[Token], lenient: bool = False) -> None:
        self.tokens = tokens
        self.lenient = lenient  # an element of a list may be written `a.0`
        self._next = 0
        self._depth = 0

    def expression(self) -> Node:
        node = self._nested(self.either)
        while self.skip("if"):
            condition = self.either()
            other = self._nested(self.expression) if self.skip("else") else NULL
            node = Choice(node.at, node, condition, other)
        return node

    def several(self, part: Callable[[], Node]) -> Node:
        """Parse a part; several parts between commas are a list."""
        first = part()
        if not self._is(","):
            return first
        values = [first]
        while self.skip(",") and self._token.kind != "end":
            values.append(part())
        return Elements(first.at, tuple(values))

    def name(self, wanted: str = "a name") -> str:
        """Read a name that may be bound to a value."""
        token = self._token
        if token.kind != "name" or token.text in _KEYWORDS or token.text in _CONSTANTS:
            raise self._unexpected(wanted)
        self._next += 1
        return token.text

    def end(self) -> None:
        self.expect("end", "an operator or the end")

    def expect(self, kind: str, wanted: str) -> Token:
        """Read a token of this kind, or this operator or word."""
        token = self._token
        if token.kind != kind and not self._is(kind):
            raise self._unexpected(wanted)
        self._next += 1
        return token

    def either(self) -> Node:
        return self._logical("or", lambda: self._logical("and", self._not))

    def _logical(self, word: str, operand: Callable[[], Node]) -> Node:
        operands = [operand()]
        while self.skip(word):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else Logical(operands[0].at, word, tuple(operands))

    def _not(self) -> Node:
        at = self._token.at
        return Not(at, self._nested(self._not)) if self.skip("not") else self._compared()

    def _compared(self) -> Node:
        left = self._chain(0)
        symbol = self._comparison()
        if not symbol:
            return left
        node = Chain(left.at, (symbol,), (left, self._chain(0)))
        if self._comparison():
            raise Wrong("two values can be compared, not more; join comparisons with `and`", left.at)
        return node

    def _comparison(self) -> str:
        token = self._token
        if token.kind not in ("op", "name") or token.text not in _COMPARISONS:
            return ""
        self._next += 1
        if token.text != "not":
            return token.text
        self.expect("in", "`in`")
        return "not in"

    def _chain(self, rank: int) -> Node:
        if rank == len(_RANKS):
            return self._filtered()
        operands = [self._chain(rank + 1)]
        symbols: list[str] = []
        while self._token.kind == "op" and self._token.text in _RANKS[rank]:
            symbols.append(self._token.text)
            self._next += 1
            operands.append(self._chain(rank + 1))
        return Chain(operands[0].at, tuple(symbols), tuple(operands)) if symbols else operands[0]

    def _filtered(self) -> Node:
        node = self._signed()
        while True:
            if self.skip("|"):
                name = self.expect("name", "the name of a filter")
                node = Filter(name.at, node, name.text, self._arguments() if self.skip("(") else ())
            elif self.skip("is"):
                node = self._tested(node)
            else:
                return node

    def _tested(self, node: Node) -> Node:
        negated = self.skip("not")
        name = self.expect("name", "the name of a test")
        arguments: tuple[Argument, ...] = ()
        if self.skip("("):
            arguments = self._arguments()
        elif self._begins_argument():
            arguments = (Argument("", self._postfix(self._primary())),)
        test = Test(name.at, node, name.text, arguments)
        return Not(name.at, test) if negated else test

    def _begins_argument(self) -> bool:
        """Whether the argument of a test begins here: it may be written without brackets."""
        token = self._token
        if token.kind == "name":
            return token.text not in _KEYWORDS
        return token.kind in ("string", "number") or self._is("[")

    def _signed(self) -> Node:
        at = self._token.at
        if not self.skip("-"):
            return self._postfix(self._primary())
        inner = self._nested(self._signed)
        if isinstance(inner, Literal) and type(inner.value) in (int, float):
            return Literal(at, -inner.value)
        return Minus(at, inner)

    def _postfix(self, node: Node) -> Node:
        while True:
            token = self._token
            if self.skip("."):
                node = self._dotted(node)
            elif self.skip("["):
                node = self._subscripted(node)
            elif self.skip("("):
                node = FunctionCall(token.at, node, self._arguments())
            else:
                return node

    def _dotted(self, node: Node) -> Node:
        token = self._token
        if token.kind != "number" or not self.lenient or not token.text.replace(".", "").isdigit():
            return Dot(node.at, node, self.expect("name", "a name").text)
        self._next += 1
        for key in token.text.split("."):
            node = Subscript(node.at, node, Literal(token.at, int(key)))
        return node

    def _subscripted(self, node: Node) -> Node:
        bounds: list[Node] = []
        key: Node | None = None
        while not self.skip("]"):
            if self.skip(":"):
                bounds.append(key or NULL)
                key = None
            elif key is None:
                key = self.expression()
            else:
                raise self._unexpected("`]`")
        if bounds and len(bounds) < 3:
            return Slice(node.at, node, (*bounds, key or NULL))
        if key is None or bounds:
            raise Wrong("in the brackets stands one value, or up to three with `:` between them", self._token.at)
        return Subscript(node.at, node, key)

    def _arguments(self) -> tuple[Argument, ...]:
        """Read all arguments up to the closing bracket."""
        found: list[Argument] = []
        while not self.skip(")"):
            if found:
                self.expect(",", "`,` or `)`")
                if self.skip(")"):
                    break
            name = self._argument_name()
            if not name and found and found[-1].name:
                raise Wrong("arguments without a name come first", self._token.at)
            found.append(Argument(name, self.expression()))
        return tuple(found)

    def _argument_name(self) -> str:
        name = self._token
        if name.kind != "name":
            return ""
        following = self.tokens[self._next + 1]
        if following.kind != "op" or following.text != "=":
            return ""
        if name.text in _KEYWORDS or name.text in _CONSTANTS or not name.text.isascii():
            raise self._unexpected("the name of an argument")
        self._next += 2
        return name.text

    def _primary(self) -> Node:
        token = self._token
        if token.kind == "name" and token.text not in _KEYWORDS:
            self._next += 1
            if token.text in _CONSTANTS:
                return Literal(token.at, _CONSTANTS[token.text])
            return Name(token.at, token.text)
        if token.kind == "number":
            self._next += 1
            return Literal(token.at, _number(token))
        if token.kind == "string":
            return self._text()
        if token.kind == "op" and token.text in _CLOSING:
            self._next += 1
            return self._pairs(token.at) if token.text == "{" else self._elements(token)
        raise self._unexpected("a value")

    def _text(self) -> Node:
        """Read a text; texts that follow each other are joined."""
        at, parts = self._token.at, list[str]()
        while self._token.kind == "string":
            parts.append(value_of(self._token))
            self._next += 1
        return Literal(at, "".join(parts))

    def _elements(self, opening: Token) -> Node:
        close = _CLOSING[opening.text]
        values: list[Node] = []
        comma = True
        while not self.skip(close):
            if not comma:
                raise self._unexpected(f"`,` or `{close}`")
            values.append(self.expression())
            comma = self.skip(",")
        if opening.text == "(" and len(values) == 1 and not comma:
            return values[0]
        return Elements(opening.at, tuple(values))

    def _pairs(self, at: int) -> Node:
        pairs: list[tuple[Node, Node]] = []
        comma = True
        while not self.skip("}"):
            if not comma:
                raise self._unexpected("`,` or `}`")
            key = self.expression()
            self.expect(":", "`:`")
            pairs.append((key, self.expression()))
            comma = self.skip(",")
        return Pairs(at, tuple(pairs))

    @property
    def _token(self) -> Token:
        return self.tokens[self._next]

    def _is(self, text: str) -> bool:
        return self._token.text == text and self._token.kind in ("op", "name")

    def skip(self, text: str) -> bool:
        if not self._is(text):
            return False
        self._next += 1
        return True

    def _nested(self, part: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Wrong(TOO_DEEP, self._token.at)
        node = part()
        self._depth -= 1
        return node

    def _unexpected(self, wanted: str) -> Wrong:
        token = self._token
        found = "the end" if token.kind == "end" else f"`{token.text}`"
        return Wrong(f"{found} stands where {wanted} should be", token.at)


def _number(token: Token) -> int | float:
    text = token.text.replace("_", "")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text.isdigit():
        return int(text)
    if not math.isfinite(float(text)):
        raise Wrong("a number as large as this has no place in an expression", token.at)
    return float(text)
