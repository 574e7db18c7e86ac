"""Statements: the tree that they make of a text, and the paths in it that do not begin with a name they bind."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from refold.templates.compiler import Expression, Lookup, compiled
from refold.templates.grammar import DEEPEST, Parser
from refold.templates.paths import did_you_mean
from refold.templates.syntax import FunctionCall, Name, Node
from refold.templates.tokens import Wrong

RAW = "raw"
_WORDS = ("if", "for", "set", RAW)
_ELSEWHERE = frozenset({"elif", "else", "endif", "endfor", "endset", "endraw"})
_SPACE, _LOOP = "namespace", "loop"


class Tag(NamedTuple):
    """A statement before its body is read; `raw` is the text inside a raw statement."""

    at: int
    word: str
    rest: Parser
    raw: str = ""


class If(Struct, frozen=True):
    """The first arm whose condition holds; `else` is an arm without one."""

    arms: tuple[tuple[Expression | None, "Body"], ...]


class For(Struct, frozen=True):
    at: int
    names: tuple[str, ...]
    items: Expression
    condition: Expression | None
    body: "Body"
    otherwise: "Body"
    counts: bool  # its body reads `loop`


class Set(Struct, frozen=True):
    """Binds a value to a name, or values to several names; with `field`, changes a field of a name space."""

    at: int
    names: tuple[str, ...]
    field: str
    value: Expression
    space: bool  # whether the value is a new name space


class SetText(Struct, frozen=True):
    name: str
    body: "Body"


Part = str | Expression | If | For | Set | SetText
Body = tuple[Part, ...]


def tree_of(parts: Sequence[str | Expression | Tag], lenient: bool) -> Body:
    """Return the statements as a tree. Raises Wrong."""
    return _Reader(parts, lenient).body((), None)[0]


class _Reader:
    def __init__(self, parts: Sequence[str | Expression | Tag], lenient: bool) -> None:
        self._parts = iter(parts)
        self._lenient = lenient
        self._depth = 0

    def body(self, until: tuple[str, ...], opening: Tag | None) -> tuple[Body, Tag | None]:
        """Return the parts before one of these words, and the tag of that word."""
        self._depth += 1
        if opening is not None and self._depth > DEEPEST:
            raise Wrong(f"statements are at most {DEEPEST} deep", opening.at)
        found: list[Part] = []
        for part in self._parts:
            if not isinstance(part, Tag):
                found.append(part)
            elif part.word in until:
                self._depth -= 1
                return tuple(found), part
            else:
                found.append(self._statement(part))
        if opening is not None:
            raise Wrong(f"`{{% {opening.word} %}}` is not closed by `{{% {until[-1]} %}}`", opening.at)
        return tuple(found), None

    def _inner(self, opening: Tag, *until: str) -> tuple[Body, Tag]:
        body, closing = self.body(until, opening)
        assert closing is not None
        return body, closing

    def _statement(self, tag: Tag) -> Part:
        match tag.word:
            case "if":
                return self._if(tag)
            case "for":
                return self._for(tag)
            case "set":
                return self._set(tag)
            case "raw":
                return tag.raw
            case word if word in _ELSEWHERE:
                raise Wrong(f"`{{% {word} %}}` has nothing to belong to", tag.at)
            case word:
                known = ", ".join(f"`{each}`" for each in _WORDS)
                raise Wrong(f"there is no statement {word!r}{did_you_mean(word, _WORDS)}; there are {known}", tag.at)

    def _if(self, tag: Tag) -> If:
        arms: list[tuple[Expression | None, Body]] = []
        condition: Expression | None = self._last(tag)
        while True:
            body, closing = self._inner(tag, *(("elif", "else", "endif") if condition is not None else ("endif",)))
            arms.append((condition, body))
            if closing.word == "elif":
                condition = self._last(closing)
                continue
            closing.rest.end()
            if closing.word == "endif":
                return If(tuple(arms))
            condition = None

    def _for(self, tag: Tag) -> For:
        rest = tag.rest
        in_brackets = rest.skip("(")
        names = self._names(rest)
        if in_brackets:
            rest.expect(")", "`)`")
        rest.expect("in", "`in`")
        items = self._expression(rest.several(rest.either))
        condition = self._expression(rest.expression()) if rest.skip("if") else None
        rest.end()
        body, closing = self._inner(tag, "else", "endfor")
        otherwise: Body = ()
        if closing.word == "else":
            closing.rest.end()
            otherwise, closing = self._inner(tag, "endfor")
        closing.rest.end()
        counts = any(lookup.keys[0] == _LOOP for lookup in lookups(body, set(names)))
        return For(tag.at, names, items, condition, body, otherwise, counts)

    def _set(self, tag: Tag) -> Set | SetText:
        rest = tag.rest
        names = self._names(rest)
        field = rest.name() if len(names) == 1 and rest.skip(".") else ""
        if rest.skip("="):
            node = rest.several(rest.expression)
            rest.end()
            space = (
                isinstance(node, FunctionCall) and isinstance(node.of, Name) and node.of.name == _SPACE and not field
            )
            if space:
                assert isinstance(node, FunctionCall)
                node = FunctionCall(node.at, Name(node.of.at, "dict"), node.arguments)
            return Set(tag.at, names, field, self._expression(node), space)
        rest.expect("end", "`=` or the end")
        if field or len(names) > 1:
            raise Wrong("a block of text gets one name", tag.at)
        body, closing = self._inner(tag, "endset")
        closing.rest.end()
        return SetText(names[0], body)

    def _names(self, rest: Parser) -> tuple[str, ...]:
        names = [rest.name()]
        while rest.skip(","):
            names.append(rest.name())
        return tuple(names)

    def _last(self, tag: Tag) -> Expression:
        """Read the expression at the end of a statement."""
        node = tag.rest.several(tag.rest.expression)
        tag.rest.end()
        return self._expression(node)

    def _expression(self, node: Node) -> Expression:
        return compiled(node, node.at, self._lenient)


def lookups(body: Body, bound: set[str]) -> Iterator[Lookup]:
    """Yield the lookups that do not begin with a bound name; names that the body binds are added to `bound`."""
    for part in body:
        match part:
            case Expression():
                yield from _free(part, bound)
            case If():
                yield from _of_choice(part, bound)
            case For():
                yield from _of_loop(part, bound)
            case Set():
                yield from _free(part.value, bound)
                bound.update(() if part.field else part.names)
            case SetText():
                yield from lookups(part.body, set(bound))
                bound.add(part.name)


def _free(expression: Expression, bound: set[str]) -> Iterator[Lookup]:
    for lookup in expression.lookups:
        if lookup.keys[0] not in bound:
            yield lookup


def _of_choice(choice: If, bound: set[str]) -> Iterator[Lookup]:
    """After the choice, only names that every arm binds are bound; the others may still be read from the view."""
    ends: list[set[str]] = []
    for condition, body in choice.arms:
        if condition is not None:
            yield from _free(condition, bound)
        ends.append(set(bound))
        yield from lookups(body, ends[-1])
    if choice.arms[-1][0] is None:
        bound.update(set.intersection(*ends))


def _of_loop(loop: For, bound: set[str]) -> Iterator[Lookup]:
    """The list of a loop is looked up as a whole, so that it includes every path through the loop's names."""
    yield from _free(loop.items, bound)
    inside = bound | set(loop.names)
    if loop.condition is not None:
        yield from _free(loop.condition, inside)
    yield from lookups(loop.body, inside | {_LOOP})
    yield from lookups(loop.otherwise, set(bound))
