"""Compiles the tree of an expression to functions: every name is checked once, before anything is evaluated."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

from msgspec import Struct

from refold.core.expressions import CannotEvaluate, Missing
from refold.templates.checks import CHECKS, COMPARING
from refold.templates.data import SCALARS, UNDEFINED, ListView, MapView, in_plain_words, kind, plain, weight_of
from refold.templates.evaluation import NO_VALUE, Evaluation, EvaluationFailed
from refold.templates.filters import FILTERS, FUNCTIONS, mapped, pluck
from refold.templates.grammar import DEEPEST, TOO_DEEP
from refold.templates.jinja import MORE_FILTERS, MORE_TESTS, compared, groups_with_names, is_iterable, is_sequence, same
from refold.templates.lists import FILTERS_OF_LISTS, chosen, default, mapped_raw, truth
from refold.templates.methods import METHODS, METHODS_OF_MAPS
from refold.templates.operators import OPERATORS, cut, naming, negate, operate, subscript
from refold.templates.paths import Absent, Key, did_you_mean, look_up, not_defined, reach, show
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
from refold.templates.tokens import Wrong

_OF_DATA: dict[str, Callable[..., Any]] = {"iterable": is_iterable, "sameas": same, "sequence": is_sequence}
_CHOOSING = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}  # the argument that names a test
_OF_EACH = frozenset({"bool", "first", "last", "max", "min", "round"})
_PATHS = (Name, Dot, Subscript)
_AS_THEY_ARE = frozenset({str, int, bool, type(None), ListView, MapView})
_FORESEEN = (CannotEvaluate, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)

LIST_FILTERS = frozenset({*FILTERS_OF_LISTS, *_CHOOSING, "map"})
"""Filters that get their operands unchanged."""

Run = Callable[[Evaluation], Any]
Act = Callable[..., Any]


class Lookup(Struct, frozen=True):
    """A path that an expression names; a soft one may lead nowhere."""

    at: int
    keys: tuple[Key, ...]
    soft: bool


class Expression(Struct, frozen=True):
    """An expression of a text, and at which character it is."""

    at: int
    run: Run
    lookups: tuple[Lookup, ...]
    path: Lookup | None  # set if the whole expression is this path
    size: int  # the number of compiled functions


def compiled(node: Node, at: int, lenient: bool) -> Expression:
    """Return the compiled expression. Raises Wrong."""
    compiler = _Compiler(lenient)
    run = compiler.run_of(node)
    is_path = isinstance(node, _PATHS) and bool(_static_path(node))
    return Expression(at, run, tuple(compiler.lookups), compiler.lookups[0] if is_path else None, compiler.size)


class _Compiler:
    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self.filters = MORE_FILTERS if lenient else FILTERS
        self.lookups: list[Lookup] = []
        self.size = 0
        self._depth = 0

    def run_of(self, node: Node, soft: bool = False) -> Run:
        """Compile a node. A soft path that leads nowhere is undefined; any other such path is an error."""
        self.size += 1
        self._depth += 1
        if self._depth > DEEPEST:
            raise Wrong(TOO_DEEP, node.at)
        run = self._path(node, soft or self.lenient) if isinstance(node, _PATHS) else self._run_of(node)
        self._depth -= 1
        return run

    def _run_of(self, node: Node) -> Run:
        match node:
            case FunctionCall():
                return self._call(node)
            case Filter():
                return self._filter(node)
            case Test():
                return self._test(node)
            case Chain(symbols=symbols, operands=operands):
                act = OPERATORS[symbols[0]] if len(symbols) == 1 else partial(operate, symbols)
                return self._operator(node.at, f"`{symbols[0]}`", act, operands)
            case Minus(of=of):
                return self._operator(node.at, "`-`", negate, (of,))
            case Slice(of=of, bounds=bounds):
                return _acting(node.at, "the slice", cut, [self.run_of(each) for each in (of, *bounds)])
            case _:
                return self._composed(node)

    def _composed(self, node: Node) -> Run:
        match node:
            case Literal(value=value):
                return lambda evaluation: value
            case Elements(values=values):
                return _elements([self.run_of(each) for each in values])
            case Pairs(pairs=pairs):
                return _pairs(node.at, [(self.run_of(key), self.run_of(value)) for key, value in pairs])
            case Not(of=of):
                return _negation(self.run_of(of))
            case Logical(word=word, operands=operands):
                return _logical(word == "and", [self.run_of(each) for each in operands])
            case Choice(value=value, condition=condition, other=other):
                return _choice(self.run_of(value), self.run_of(condition), self.run_of(other))
            case _:
                raise AssertionError(node)

    def _path(self, node: Node, soft: bool) -> Run:
        root, keys = _unfolded(node)
        if not isinstance(root, Name):
            return self._subscripts(node.at, "(…)", self.run_of(root), keys, soft)
        static = [root.name, *_static(keys)]
        lookup = Lookup(node.at, tuple(static), soft)
        self.lookups.append(lookup)
        return self._subscripts(node.at, show(static), _looked_up(lookup), keys[len(static) - 1 :], soft)

    def _subscripts(self, at: int, path: str, run: Run, keys: Sequence[Node], soft: bool) -> Run:
        if not keys:
            return run
        runs = [run, *(self.run_of(key) for key in keys)]
        return _subscript_if_there(at, runs) if soft else _acting(at, "", partial(subscript, path), runs)

    def _operator(self, at: int, what: str, act: Act, operands: Sequence[Node]) -> Run:
        """Compile an operator. In lenient dialects, an error about a null operand names the path that led nowhere."""
        runs = [self.run_of(each) for each in operands]
        if self.lenient:
            act = partial(naming, tuple(_static_path(each) for each in operands), act)
        return _acting(at, what, act, runs)

    def _call(self, node: FunctionCall) -> Run:
        arguments, named = _split(self._arguments(node.arguments))
        match node.of:
            case Name(name=name):
                act = _known("function", name, node.of.at, FUNCTIONS)
                return _acting(node.of.at, f"`{name}`", act, arguments, named)
            case Dot(of=of, name=name):
                if name in FILTERS and not self.lenient and name not in METHODS_OF_MAPS:
                    raise Wrong(f"there is no method {name!r}, but a filter: `| {name}`", node.at)
                act = _known("method", name, node.at, METHODS if self.lenient else METHODS_OF_MAPS)
                return _acting(node.of.at, f"`.{name}()`", act, [self.run_of(of), *arguments], named)
            case _:
                raise Wrong("only functions and methods can be called", node.at)

    def _filter(self, node: Filter) -> Run:
        name, what = node.name, f"the filter {node.name!r}"
        is_default = name in ("default", "d")
        given = self._arguments(node.arguments, soft=is_default)
        operand = self.run_of(node.of, soft=is_default)
        arguments, named = _split(given)
        if name == "map":
            return self._map(node, operand, given)
        if name in self.filters:
            return _acting(node.at, what, self.filters[name], [operand, *arguments], named)
        _known("filter", name, node.at, {**self.filters, **dict.fromkeys(sorted(LIST_FILTERS))})
        if name in _CHOOSING:
            return self._chosen(node, operand, given)
        act = FILTERS_OF_LISTS[name]
        if self.lenient and name in ("first", "last"):
            act = partial(_of_what_is_there, act)
        elif self.lenient and name == "groupby":
            act = partial(groups_with_names, act)
        return _acting_raw(node.at, what, act, [operand, *arguments], named)

    def _chosen(self, node: Filter, operand: Run, given: Sequence[tuple[str, Run]]) -> Run:
        """Compile a filter that takes the name of a test: a text in quotes that names an existing test."""
        name, place, what = node.name, _CHOOSING[node.name], f"the filter {node.name!r}"
        wanted, by_attribute = name.startswith("select"), name.endswith("attr")
        if len(node.arguments) <= place:
            arguments, named = _split(given)
            return _acting_raw(node.at, what, partial(chosen, None, wanted, by_attribute), [operand, *arguments], named)
        test = self._name_of_test(_text(node.arguments, place))
        check = _known("test", test, node.at, CHECKS)
        arguments, named = _split([*given[:place], *given[place + 1 :]])
        if test in COMPARING and self.lenient and len(node.arguments) == place + 2 and not named:
            act = partial(compared, COMPARING[test], by_attribute, wanted)
            return _acting(node.at, what, act, [operand, *arguments])
        return _acting_raw(node.at, what, partial(chosen, check, wanted, by_attribute), [operand, *arguments], named)

    def _map(self, node: Filter, operand: Run, given: Sequence[tuple[str, Run]]) -> Run:
        if any(name == "attribute" for name, _ in given):
            arguments, named = _split(given)
            return _acting(node.at, "the filter 'map'", pluck, [operand, *arguments], named)
        name = _text(node.arguments, 0)
        arguments, named = _split(given[1:])
        if name in self.filters:
            act = partial(mapped, self.filters[name])
            return _acting(node.at, f"the filter {name!r}", act, [operand, *arguments], named)
        if name not in _OF_EACH:
            raise Wrong("`map` takes the name of a filter for single values, or `attribute=`", node.at)
        act = partial(mapped_raw, FILTERS_OF_LISTS[name])
        return _acting_raw(node.at, f"the filter {name!r}", act, [operand, *arguments], named)

    def _name_of_test(self, name: str) -> str:
        return MORE_TESTS.get(name, name) if self.lenient else name

    def _test(self, node: Test) -> Run:
        name = self._name_of_test(node.name)
        arguments, named = _split(self._arguments(node.arguments))
        if name in _OF_DATA and self.lenient:
            return _acting(node.at, f"`{name}`", _OF_DATA[name], [self.run_of(node.of), *arguments], named)
        check = _known("test", name, node.at, CHECKS)
        operand = self.run_of(node.of, soft=name in ("defined", "undefined"))
        if name in COMPARING and len(arguments) == 1 and not named:
            return _acting(node.at, f"`{name}`", OPERATORS[COMPARING[name]], [operand, *arguments])
        return _acting_raw(node.at, f"`{name}`", check, [operand, *arguments], named)

    def _arguments(self, arguments: Sequence[Argument], soft: bool = False) -> list[tuple[str, Run]]:
        return [(each.name, self.run_of(each.value, soft)) for each in arguments]


def _split(arguments: Sequence[tuple[str, Run]]) -> tuple[list[Run], dict[str, Run]]:
    """Return the positional arguments and the named ones."""
    return [run for name, run in arguments if not name], {name: run for name, run in arguments if name}


def _looked_up(lookup: Lookup) -> Run:
    keys, at, soft = lookup.keys, lookup.at, lookup.soft

    def run(evaluation: Evaluation) -> Any:
        try:
            value = look_up(evaluation.view, keys)
        except Absent as absent:
            if soft:
                return UNDEFINED
            raise EvaluationFailed(not_defined(keys, absent, evaluation.view), at) from None
        return evaluation.taken(value)

    return run


def _elements(runs: Sequence[Run]) -> Run:
    return lambda evaluation: [run(evaluation) for run in runs]


def _pairs(at: int, runs: Sequence[tuple[Run, Run]]) -> Run:
    def run(evaluation: Evaluation) -> Any:
        made: dict[Any, Any] = {}
        for key_of, value_of in runs:
            key = plain(key_of(evaluation))
            if type(key) not in SCALARS:
                raise EvaluationFailed(f"{kind(key)} is not a key", at)
            made[key] = value_of(evaluation)
        return made

    return run


def _negation(of: Run) -> Run:
    return lambda evaluation: not truth(evaluation, of(evaluation))


def _logical(is_and: bool, runs: Sequence[Run]) -> Run:
    *others, last = runs

    def run(evaluation: Evaluation) -> Any:
        for each in others:
            value = each(evaluation)
            if truth(evaluation, value) is not is_and:
                return value
        return last(evaluation)

    return run


def _choice(value: Run, condition: Run, other: Run) -> Run:
    return lambda evaluation: (value if truth(evaluation, condition(evaluation)) else other)(evaluation)


def _subscript_if_there(at: int, runs: Sequence[Run]) -> Run:
    def act(evaluation: Evaluation, value: Any, *keys: Any) -> Any:
        try:
            return reach(value, keys)
        except Absent:
            return UNDEFINED

    return _acting(at, "", act, runs)


def _acting(at: int, what: str, act: Act, runs: Sequence[Run], named: Mapping[str, Run] | None = None) -> Run:
    """Compile an operator, a filter, a method or a function; `what` names it in error messages."""

    def run(evaluation: Evaluation) -> Any:
        arguments = [run(evaluation) for run in runs]
        for place, value in enumerate(arguments):
            if type(value) not in _AS_THEY_ARE:
                arguments[place] = plain(value)
        options = {name: plain(run(evaluation)) for name, run in named.items()} if named else {}
        try:
            result = act(evaluation, *arguments, **options)
            return _paid(evaluation, result)
        except (Missing, EvaluationFailed):
            raise
        except _FORESEEN as error:
            raise _failed(at, what, _misfit(act, arguments, options) or error) from None

    return run


def _acting_raw(at: int, what: str, act: Act, runs: Sequence[Run], named: Mapping[str, Run] | None = None) -> Run:
    """Compile a filter or a test that gets undefined values and floats unchanged."""

    def run(evaluation: Evaluation) -> Any:
        arguments = [run(evaluation) for run in runs]
        options = {name: run(evaluation) for name, run in named.items()} if named else {}
        try:
            result = act(evaluation, *arguments, **options)
            return _paid(evaluation, plain(result)) if type(result) in (list, dict) else result
        except (Missing, EvaluationFailed):
            raise
        except _FORESEEN as error:
            raise _failed(at, what, _misfit(act, arguments, options) or error) from None

    return run


def _paid(evaluation: Evaluation, result: Any) -> Any:
    """Return a result as expressions handle it; the contents of a new list or map are charged to the budget."""
    if result is True or result is False or result is UNDEFINED:
        return result
    if not isinstance(result, (list, dict)):
        return evaluation.taken(result)
    weight = weight_of(result)
    evaluation.charge(weight)
    return evaluation.taken(result, weight)


def _misfit(act: Act, arguments: Sequence[Any], options: Mapping[str, Any]) -> TypeError | None:
    """Return what is wrong with the arguments, in words that do not name the function."""
    try:
        signature(act).bind(None, *arguments, **options)
    except TypeError as error:
        return error
    return None


def _failed(at: int, what: str, error: Exception) -> EvaluationFailed:
    message = in_plain_words(str(error))
    return EvaluationFailed(f"{what}: {message}" if what and message != NO_VALUE else message, at)


def _of_what_is_there(act: Act, evaluation: Evaluation, value: Any) -> Any:
    """In dialects that accept null as an empty list, every value that is empty, zero or false is one too."""
    return act(evaluation, default(evaluation, value, (), True))


def _unfolded(node: Node) -> tuple[Node, list[Node]]:
    """Return the node that a path begins with, and its keys."""
    keys: list[Node] = []
    while isinstance(node, (Dot, Subscript)):
        keys.append(Literal(node.at, node.name) if isinstance(node, Dot) else node.key)
        node = node.of
    return node, keys[::-1]


def _static(keys: Sequence[Node]) -> list[Key]:
    """Return the keys up to the first that is known only when it is evaluated."""
    static: list[Key] = []
    for key in keys:
        if not isinstance(key, Literal) or type(key.value) not in (str, int):
            break
        static.append(key.value)
    return static


def _static_path(node: Node) -> tuple[Key, ...]:
    """Return all keys of a path; nothing if the node is not a path, or has a key that must be evaluated."""
    root, keys = _unfolded(node)
    static = _static(keys)
    return (root.name, *static) if isinstance(root, Name) and len(static) == len(keys) else ()


def _text(arguments: Sequence[Argument], place: int) -> str:
    """Return an argument that is a text in quotes; an empty text if it is not one."""
    if place >= len(arguments):
        return ""
    value = arguments[place].value
    return value.value if isinstance(value, Literal) and isinstance(value.value, str) else ""


def _known(what: str, name: str, at: int, known: Mapping[str, Any]) -> Any:
    if name not in known:
        raise Wrong(f"there is no {what} {name!r}{did_you_mean(name, known)}", at)
    return known[name]
