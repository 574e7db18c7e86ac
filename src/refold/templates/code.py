"""The parts of an expression to code for the engine, in which all that is named or may grow goes through Refold."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, json

from refold.templates.filters import FILTERS, FUNCTIONS, kept, mapped, pluck
from refold.templates.grammar import DEEPEST, TOO_DEEP
from refold.templates.jinja import MORE_FILTERS, MORE_TESTS, compared, grouped, is_iterable, is_sequence, same
from refold.templates.methods import METHODS, METHODS_OF_MAPS
from refold.templates.operators import cut, naming, negate, operate, subscript, subscript_if_there
from refold.templates.paths import Key, did_you_mean, show
from refold.templates.syntax import (
    Argument,
    Call,
    Chain,
    Choice,
    Dot,
    Elements,
    Filter,
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
from refold.templates.tokens import Wrong

_MAKERS = (
    "chain",
    "dictsort",
    "groupby",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "sort",
    "unique",
    "zip",
)
NATIVE = frozenset({*_MAKERS, "bool", "d", "default", "first", "last", "map", "max", "min", "round"})
"""Filters of the engine; what its makers of lists make has to be paid for."""

_COMPARING = {"eq": "==", "equalto": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "in": "in"}
_OF_KINDS = (
    "boolean",
    "false",
    "float",
    "int",
    "integer",
    "iterable",
    "mapping",
    "none",
    "number",
    "sequence",
    "string",
    "true",
)
_OF_VALUES = ("defined", "divisibleby", "endingwith", "even", "lower", "odd", "startingwith", "undefined", "upper")
TESTS = dict.fromkeys(sorted((*_COMPARING, *_OF_KINDS, *_OF_VALUES)))
_OF_DATA: dict[str, Callable[..., Any]] = {"iterable": is_iterable, "sameas": same, "sequence": is_sequence}
_NAMES_A_TEST = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}  # by the argument at this place
_PATHS = (Name, Dot, Subscript)
_OF_EACH = frozenset({"bool", "first", "last", "max", "min", "round"})


class Lookup(Struct, frozen=True):
    """A path that an expression names; a soft one may lead nowhere."""

    at: int
    keys: tuple[Key, ...]
    soft: bool


class Deed(Struct, frozen=True):
    """What the engine has Refold do; `what` is told if it fails."""

    at: int
    what: str
    act: Callable[..., Any]


class Code(Struct, frozen=True):
    """For the engine, `_[n]` is the n-th part, a lookup, and `_(n, …)` the n-th part, a deed."""

    code: str
    parts: tuple[Lookup | Deed, ...]
    path: Lookup | None  # the expression is nothing but this


def code_of(node: Node, lenient: bool) -> Code:
    """Raises Wrong."""
    writer = _Writer(lenient)
    code = writer.write(node)
    path = writer.parts[0] if code == "_[0]" else None
    assert not isinstance(path, Deed)
    return Code(f"({code})|default(_[-1])", tuple(writer.parts), path)


class _Writer:
    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self.filters = MORE_FILTERS if lenient else FILTERS
        self.parts: list[Lookup | Deed] = []
        self._depth = 0

    def write(self, node: Node, soft: bool = False) -> str:
        """A soft path that leads nowhere is undefined; any other is an error."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise Wrong(TOO_DEEP, node.at)
        code = self._path(node, soft or self.lenient) if isinstance(node, _PATHS) else self._written(node)
        self._depth -= 1
        return code

    def _written(self, node: Node) -> str:
        match node:
            case Call():
                return self._called(node)
            case Filter():
                return self._filtered(node)
            case Test():
                return self._tested(node)
            case Chain() | Minus() | Slice():
                return self._operated(node)
            case _:
                return self._composed(node)

    def _composed(self, node: Node) -> str:
        match node:
            case Literal(value=value):
                return json.encode(value).decode() if value is not None else "none"
            case Elements(values=values):
                return f"[{', '.join(map(self.write, values))}]"
            case Pairs(pairs=pairs):
                return f"{{{', '.join(f'{self.write(key)}: {self.write(value)}' for key, value in pairs)}}}"
            case Not(of=of):
                return f"(not {self.write(of)})"
            case Logical(word=word, operands=operands):
                return f"({f' {word} '.join(map(self.write, operands))})"
            case Choice(value=value, condition=condition, other=other):
                return f"({self.write(value)} if {self.write(condition)} else {self.write(other)})"
            case _:
                raise AssertionError(node)

    def _path(self, node: Node, soft: bool) -> str:
        root, keys = _unfolded(node)
        if not isinstance(root, Name):
            return self._subscripts(node.at, "(…)", self.write(root), keys, soft)
        static: list[Key] = [root.name]
        for key in keys:
            if not isinstance(key, Literal) or type(key.value) not in (str, int):
                break
            static.append(key.value)
        code = f"_[{self._add(Lookup(node.at, tuple(static), soft))}]"
        return self._subscripts(node.at, show(static), code, keys[len(static) - 1 :], soft)

    def _subscripts(self, at: int, path: str, code: str, keys: Sequence[Node], soft: bool) -> str:
        if not keys:
            return code
        codes = [code, *map(self.write, keys)]
        if soft:
            return f"{self._deed(at, '', subscript_if_there, codes)}[0]"
        return self._deed(at, "", partial(subscript, path), codes)

    def _operated(self, node: Chain | Minus | Slice) -> str:
        match node:
            case Chain(symbols=symbols, operands=operands):
                codes = [self.write(each) for each in operands]
                return self._deed(node.at, f"`{symbols[0]}`", self._named(partial(operate, symbols), codes), codes)
            case Minus(of=of):
                codes = [self.write(of)]
                return self._deed(node.at, "`-`", self._named(negate, codes), codes)
            case Slice(of=of, bounds=bounds):
                return self._deed(node.at, "the slice", cut, [self.write(of), *map(self.write, bounds)])

    def _named(self, act: Callable[..., Any], codes: Sequence[str]) -> Callable[..., Any]:
        """An act that knows which of its operands are nothing but a path, if such a path may lead nowhere."""
        if not self.lenient:
            return act
        numbers = [int(code[2:-1]) if code.startswith("_[") and code[2:-1].isdigit() else -1 for code in codes]
        parts = [self.parts[number] if number >= 0 else None for number in numbers]
        return partial(naming, tuple(part.keys if isinstance(part, Lookup) else () for part in parts), act)

    def _called(self, node: Call) -> str:
        arguments = self._arguments(node.arguments)
        match node.of:
            case Name(name=name):
                act = _known("function", name, node.of.at, FUNCTIONS)
                return self._deed(node.of.at, f"`{name}`", act, arguments)
            case Dot(of=of, name=name):
                if name in FILTERS and not self.lenient and name not in METHODS_OF_MAPS:
                    raise Wrong(f"there is no method {name!r}, but a filter: `| {name}`", node.at)
                act = _known("method", name, node.at, METHODS if self.lenient else METHODS_OF_MAPS)
                return self._deed(node.of.at, f"`.{name}()`", act, [self.write(of), *arguments])
            case _:
                raise Wrong("only functions and methods can be called", node.at)

    def _filtered(self, node: Filter) -> str:
        name, what = node.name, f"the filter {node.name!r}"
        if name in ("default", "d"):
            arguments = self._arguments(node.arguments, soft=True)
            return f"({self.write(node.of, soft=True)})|default({', '.join(arguments)})"
        arguments = self._arguments(node.arguments)
        operand = self.write(node.of)
        if name == "map":
            return self._mapped(node, operand, arguments)
        if name in self.filters:
            return self._deed(node.at, what, self.filters[name], [operand, *arguments])
        _known("filter", name, node.at, {**self.filters, **dict.fromkeys(sorted(NATIVE))})
        test = self._name_test(node, arguments)
        if test in _COMPARING and self.lenient:
            act = partial(compared, _COMPARING[test], name.endswith("attr"), name.startswith("select"))
            return self._deed(node.at, what, act, [operand, *arguments[:-2], arguments[-1]])
        if name in ("first", "last") and self.lenient:
            operand = f"({operand})|default([], true)"
        code = f"({operand})|{name}({', '.join(arguments)})"
        if name not in _MAKERS:
            return code
        return self._deed(node.at, what, grouped if name == "groupby" and self.lenient else kept, [code])

    def _mapped(self, node: Filter, operand: str, arguments: list[str]) -> str:
        if any(each.name == "attribute" for each in node.arguments):
            return self._deed(node.at, "the filter 'map'", pluck, [operand, *arguments])
        name = _text(node.arguments, 0)
        if name in self.filters:
            act = partial(mapped, self.filters[name])
            return self._deed(node.at, f"the filter {name!r}", act, [operand, *arguments[1:]])
        if name not in _OF_EACH:
            raise Wrong("`map` takes the name of a filter for single values, or `attribute=`", node.at)
        return self._deed(node.at, f"the filter {name!r}", kept, [f"({operand})|map({', '.join(arguments)})"])

    def _name_test(self, node: Filter, arguments: list[str]) -> str:
        """What takes the name of a test takes it as a text, and there is such a test."""
        place = _NAMES_A_TEST.get(node.name)
        if place is None or len(node.arguments) <= place:
            return ""
        name = self._test(_text(node.arguments, place))
        _known("test", name, node.at, TESTS)
        arguments[place] = f"'{name}'"
        return name if len(arguments) == place + 2 else ""

    def _test(self, name: str) -> str:
        return MORE_TESTS.get(name, name) if self.lenient else name

    def _tested(self, node: Test) -> str:
        name, arguments = self._test(node.name), self._arguments(node.arguments)
        if name in _OF_DATA and self.lenient:
            return self._deed(node.at, f"`{name}`", _OF_DATA[name], [self.write(node.of), *arguments])
        _known("test", name, node.at, TESTS)
        operand = self.write(node.of, soft=name in ("defined", "undefined"))
        if name in _COMPARING and len(arguments) == 1:
            return self._deed(node.at, f"`{name}`", partial(operate, (_COMPARING[name],)), [operand, *arguments])
        return f"({operand} is {name}({', '.join(arguments)}))"

    def _arguments(self, arguments: Sequence[Argument], soft: bool = False) -> list[str]:
        codes = [(each.name, self.write(each.value, soft)) for each in arguments]
        return [f"{name}={code}" if name else code for name, code in codes]

    def _deed(self, at: int, what: str, act: Callable[..., Any], codes: Sequence[str]) -> str:
        return f"_({', '.join([str(self._add(Deed(at, what, act))), *codes])})"

    def _add(self, part: Lookup | Deed) -> int:
        self.parts.append(part)
        return len(self.parts) - 1


def _unfolded(node: Node) -> tuple[Node, list[Node]]:
    """What a path begins with, and its keys."""
    keys: list[Node] = []
    while isinstance(node, (Dot, Subscript)):
        keys.append(Literal(node.at, node.name) if isinstance(node, Dot) else node.key)
        node = node.of
    return node, keys[::-1]


def _text(arguments: Sequence[Argument], place: int) -> str:
    """An argument that is a text in quotes."""
    if place >= len(arguments):
        return ""
    value = arguments[place].value
    return value.value if isinstance(value, Literal) and isinstance(value.value, str) else ""


def _known(what: str, name: str, at: int, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise Wrong(f"there is no {what} {name!r}{did_you_mean(name, known)}", at)
    return known[name]
