"""Operators, as in Python, with limits on what they create."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from refold.core.expressions import CannotEvaluate, unaliased
from refold.templates.data import ITEM, LISTS, SCALARS, bare, kind
from refold.templates.evaluation import Evaluation
from refold.templates.filters import printf
from refold.templates.paths import Absent, Key, look_up, not_defined, reach

_NUMBER = (int, float)
_MOST_BITS = 127
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "-": operator.sub,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


def operate(symbols: tuple[str, ...], evaluation: Evaluation, first: Any, *rest: Any) -> Any:
    """Evaluate a chain such as a + b - c, from left to right."""
    if symbols[0] == "~":
        return concatenate(evaluation, first, *rest)
    for symbol, operand in zip(symbols, rest, strict=True):
        first = OPERATORS[symbol](evaluation, first, operand)
    return first


def naming(paths: Sequence[Sequence[Key]], act: Callable[..., Any], evaluation: Evaluation, *operands: Any) -> Any:
    """Call an operator; if it cannot handle a null operand, raise an error with the path that led nowhere."""
    try:
        return act(evaluation, *operands)
    except CannotEvaluate:
        for path, operand in zip(paths, operands, strict=True):
            if path and operand is None:
                _be_defined(path, evaluation)
        raise


def _be_defined(path: Sequence[Key], evaluation: Evaluation) -> None:
    try:
        look_up(evaluation.view, path)
    except Absent as absent:
        raise CannotEvaluate(not_defined(path, absent, evaluation.view)) from None


def _reckon(symbol: str, evaluation: Evaluation, left: Any, right: Any) -> Any:
    if isinstance(left, _NUMBER) and isinstance(right, _NUMBER):
        return _ARITHMETIC[symbol](left, right)
    if symbol == "%" and evaluation.lenient and isinstance(left, str):
        return printf(evaluation, left, *(evaluation.each(right) if isinstance(right, LISTS) else [right]))
    raise _unfit(left, right)


def concatenate(evaluation: Evaluation, *operands: Any) -> str:
    texts = [evaluation.written(operand) for operand in operands]
    evaluation.room(sum(map(len, texts)))
    return "".join(texts)


def negate(evaluation: Evaluation, value: Any) -> Any:
    if not isinstance(value, _NUMBER):
        raise CannotEvaluate(f"{kind(value)} is not a number")
    return -value


def _add(evaluation: Evaluation, left: Any, right: Any) -> Any:
    if isinstance(left, _NUMBER) and isinstance(right, _NUMBER):
        return left + right
    if isinstance(left, str) and isinstance(right, str):
        return concatenate(evaluation, left, right)
    if isinstance(left, LISTS) and isinstance(right, LISTS):
        return [*evaluation.each(left), *evaluation.each(right)]
    raise _unfit(left, right)


def _multiply(evaluation: Evaluation, left: Any, right: Any) -> Any:
    if isinstance(left, _NUMBER) and isinstance(right, _NUMBER):
        return left * right
    many, times = (left, right) if isinstance(right, int) else (right, left)
    if not isinstance(times, int) or not isinstance(many, (str, *LISTS)):
        raise _unfit(left, right)
    evaluation.room(len(many) * max(times, 0) * (1 if isinstance(many, str) else ITEM))
    return (many if isinstance(many, str) else list(evaluation.each(many))) * times


def _power(evaluation: Evaluation, left: Any, right: Any) -> Any:
    if not isinstance(left, _NUMBER) or not isinstance(right, _NUMBER):
        raise _unfit(left, right)
    if isinstance(left, int) and isinstance(right, int) and right * left.bit_length() > _MOST_BITS + right:
        raise CannotEvaluate("the number is too large")
    return left**right


def _equal(evaluation: Evaluation, left: Any, right: Any) -> bool:
    """Compare two values; elements of lists and maps are charged to the budget, up to the first difference."""
    evaluation.charge(ITEM)
    if type(left) in SCALARS or type(right) in SCALARS:
        return bool(left == right)
    left, right = bare(unaliased(left)), bare(unaliased(right))
    if left is right:
        return True
    pairs: Iterable[tuple[Any, Any]] | None
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        pairs = [(left[key], right[key]) for key in left] if left.keys() == right.keys() else None
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        pairs = zip(left, right, strict=True) if len(left) == len(right) else None
    else:
        return bool(left == right)
    for pair in pairs if pairs is not None else ():
        if not _equal(evaluation, *pair):
            return False
    return pairs is not None


def _unequal(evaluation: Evaluation, left: Any, right: Any) -> bool:
    return not _equal(evaluation, left, right)


def _in_order(symbol: str, evaluation: Evaluation, left: Any, right: Any) -> bool:
    for kinds in (_NUMBER, str):
        if isinstance(left, kinds) and isinstance(right, kinds):
            return bool(_ORDER[symbol](left, right))
    if isinstance(left, LISTS) and isinstance(right, LISTS):
        return _lists_in_order(evaluation, symbol, bare(left), bare(right))
    if evaluation.lenient and (left is None or right is None):
        return False
    raise CannotEvaluate(f"{kind(left)} cannot be compared with {kind(right)}")


def _lists_in_order(evaluation: Evaluation, symbol: str, left: Sequence[Any], right: Sequence[Any]) -> bool:
    for pair in zip(left, right, strict=False):
        if not _equal(evaluation, *pair):
            return _in_order(symbol, evaluation, *pair)
    return bool(_ORDER[symbol](len(left), len(right)))


def _contained(evaluation: Evaluation, value: Any, container: Any) -> bool:
    if isinstance(container, str):
        return isinstance(value, str) and value in container
    return any(_equal(evaluation, value, each) for each in evaluation.each(container))


def _not_contained(evaluation: Evaluation, value: Any, container: Any) -> bool:
    return not _contained(evaluation, value, container)


def _unfit(left: Any, right: Any) -> CannotEvaluate:
    return CannotEvaluate(f"{kind(left)} and {kind(right)} do not go together")


OPERATORS: dict[str, Callable[..., Any]] = {
    **{symbol: partial(_reckon, symbol) for symbol in _ARITHMETIC},
    **{symbol: partial(_in_order, symbol) for symbol in _ORDER},
    "~": concatenate,
    "+": _add,
    "*": _multiply,
    "**": _power,
    "==": _equal,
    "!=": _unequal,
    "in": _contained,
    "not in": _not_contained,
}


def subscript(path: str, evaluation: Evaluation, value: Any, *keys: Any) -> Any:
    """Read a value by keys that were computed by the expression."""
    try:
        return evaluation.shown(reach(value, keys))
    except Absent as absent:
        raise CannotEvaluate(not_defined([path, *keys], absent, evaluation.view)) from None


def cut(evaluation: Evaluation, value: Any, *bounds: Any) -> Any:
    """Return a slice of a text or a list."""
    if value is None and evaluation.lenient:
        return []
    if not isinstance(value, (str, *LISTS)):
        raise CannotEvaluate(f"{kind(value)} has no slices")
    part = bare(value)[slice(*bounds)]
    return part if isinstance(part, str) else list(evaluation.each(part))
