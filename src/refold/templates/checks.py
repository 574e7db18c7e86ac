"""Tests of values, for `is` and `select`."""

from collections.abc import Callable, Mapping
from typing import Any

from refold.core.expressions import CannotEvaluate
from refold.templates.data import LISTS, UNDEFINED, bare, plain
from refold.templates.evaluation import NO_VALUE, Evaluation
from refold.templates.lists import order_of
from refold.templates.operators import operate

COMPARING = {"eq": "==", "equalto": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "in": "in"}
_NUMBER = (int, float)  # and booleans

Check = Callable[..., bool]


def _of_kind(*kinds: type) -> Check:
    return lambda evaluation, value: type(value) in kinds


def _is(wanted: Any) -> Check:
    return lambda evaluation, value: value is wanted


def _is_defined(evaluation: Evaluation, value: Any) -> bool:
    return value is not UNDEFINED


def _is_mapping(evaluation: Evaluation, value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_sequence(evaluation: Evaluation, value: Any) -> bool:
    return isinstance(value, LISTS) or value is UNDEFINED


def _is_iterable(evaluation: Evaluation, value: Any) -> bool:
    return isinstance(value, (str, Mapping, *LISTS)) or value is None or value is UNDEFINED


def _is_even(evaluation: Evaluation, value: Any) -> bool:
    value = plain(value)
    return isinstance(value, int) and value % 2 == 0


def _is_odd(evaluation: Evaluation, value: Any) -> bool:
    value = plain(value)
    return isinstance(value, int) and value % 2 == 1


def _is_divisible(evaluation: Evaluation, value: Any, by: Any) -> bool:
    if not isinstance(value, _NUMBER) or not isinstance(by, _NUMBER):
        return False
    if by:
        return bool(plain(value) % plain(by) == 0)
    if isinstance(value, float) or isinstance(by, float):
        return False
    raise CannotEvaluate("no number is divisible by zero")


def _is_lower(evaluation: Evaluation, value: Any) -> bool:
    return isinstance(value, str) and value.islower()


def _is_upper(evaluation: Evaluation, value: Any) -> bool:
    return isinstance(value, str) and value.isupper()


def _starts_with(evaluation: Evaluation, value: Any, part: Any) -> bool:
    return _written(evaluation, value).startswith(_written(evaluation, part))


def _ends_with(evaluation: Evaluation, value: Any, part: Any) -> bool:
    return _written(evaluation, value).endswith(_written(evaluation, part))


def _written(evaluation: Evaluation, value: Any) -> str:
    """Return the text that any value is compared as."""
    if isinstance(value, str):
        return value
    if value is UNDEFINED:
        if evaluation.lenient:
            return ""
        raise CannotEvaluate(NO_VALUE)
    return str(value) if value is None or isinstance(value, (bool, float)) else evaluation.written(plain(value))


def _is_equal(evaluation: Evaluation, value: Any, other: Any) -> bool:
    if value is UNDEFINED or other is UNDEFINED:
        return value is other
    return operate(("==",), evaluation, plain(value), plain(other)) is True


def _is_unequal(evaluation: Evaluation, value: Any, other: Any) -> bool:
    return not _is_equal(evaluation, value, other)


def _is_less(evaluation: Evaluation, value: Any, other: Any) -> bool:
    return order_of(evaluation, value) < order_of(evaluation, other)


def _is_greater(evaluation: Evaluation, value: Any, other: Any) -> bool:
    return order_of(evaluation, value) > order_of(evaluation, other)


def _is_at_most(evaluation: Evaluation, value: Any, other: Any) -> bool:
    return order_of(evaluation, value) <= order_of(evaluation, other)


def _is_at_least(evaluation: Evaluation, value: Any, other: Any) -> bool:
    return order_of(evaluation, value) >= order_of(evaluation, other)


def _is_in(evaluation: Evaluation, value: Any, container: Any) -> bool:
    """Whether a text contains a text, a map a key or a list an element; an undefined value counts as an empty text."""
    if container is UNDEFINED and not evaluation.lenient:
        raise CannotEvaluate(NO_VALUE)
    if isinstance(container, str):
        return value is UNDEFINED or _written(evaluation, value) in container
    if isinstance(container, Mapping):
        return isinstance(value, (str, *_NUMBER)) and value in bare(container)
    if not isinstance(container, LISTS) or value is UNDEFINED:
        return False
    return operate(("in",), evaluation, plain(value), plain(container)) is True


CHECKS: dict[str, Check] = {
    "boolean": _of_kind(bool),
    "defined": _is_defined,
    "divisibleby": _is_divisible,
    "endingwith": _ends_with,
    "eq": _is_equal,
    "equalto": _is_equal,
    "even": _is_even,
    "false": _is(False),
    "float": _of_kind(float),
    "ge": _is_at_least,
    "gt": _is_greater,
    "in": _is_in,
    "int": _of_kind(int),
    "integer": _of_kind(int),
    "iterable": _is_iterable,
    "le": _is_at_most,
    "lower": _is_lower,
    "lt": _is_less,
    "mapping": _is_mapping,
    "ne": _is_unequal,
    "none": _is(None),
    "number": _of_kind(int, float, bool),
    "odd": _is_odd,
    "sequence": _is_sequence,
    "startingwith": _starts_with,
    "string": _of_kind(str),
    "true": _is(True),
    "undefined": _is(UNDEFINED),
    "upper": _is_upper,
}
