"""Filters that pick, order and group the elements of lists, and the order of all values that they share."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.core.codec import DEPTH_LIMIT
from refold.core.expressions import CannotEvaluate
from refold.templates.data import ITEM, LISTS, SCALARS, UNDEFINED, bare, kind, plain
from refold.templates.evaluation import NO_VALUE, TO_READ, Evaluation
from refold.templates.paths import Absent, not_defined

Check = Callable[..., Any]

_FEWEST_DIGITS, _MOST_DIGITS = -(1 << 31), (1 << 31) - 1
_MOST_PRECISE = 400  # digits: no number has more before or after the point
_UNSET: Any = object()


def elements(evaluation: Evaluation, value: Any) -> Sequence[Any]:
    """Return the elements of a list, the keys of a map or the characters of a text; reading is charged."""
    if isinstance(value, (list, tuple)):
        return value  # the expression has just created it
    if value is None:
        return ()
    if value is UNDEFINED:
        if evaluation.lenient:
            return ()
        raise CannotEvaluate(NO_VALUE)
    if isinstance(value, str):
        evaluation.charge(ITEM * len(value))
        return list(value)
    if isinstance(value, Mapping):
        data = bare(value)
        evaluation.charge(ITEM * len(data))
        return list(data)
    if not isinstance(value, LISTS):
        raise CannotEvaluate(f"{kind(value)} is not a list")
    evaluation.charge(TO_READ * len(value))
    return [evaluation.taken(each) for each in bare(value)]


def read(evaluation: Evaluation, container: Any, key: Any) -> Any:
    """Return an element; an element of a list that the expression has just created needs no view."""
    if isinstance(container, (list, tuple, dict)):
        return container[key]
    return evaluation.taken(bare(container)[key])


def read_path(evaluation: Evaluation, value: Any, path: Sequence[Any]) -> Any:
    """Return the value at a path in an element. A missing last key is undefined; any other missing key is an error."""
    before: Any = None
    for number, key in enumerate(path):
        if value is UNDEFINED:
            absent = Absent(bare(before), path[number - 1], number)
            raise CannotEvaluate(not_defined(["element", *path], absent, evaluation.view))
        evaluation.charge(TO_READ)
        before, value = value, _under(evaluation, value, key)
    return value


def _under(evaluation: Evaluation, value: Any, key: Any) -> Any:
    if not isinstance(value, Mapping) and not (isinstance(key, int) and isinstance(value, (str, *LISTS))):
        return UNDEFINED
    try:
        return read(evaluation, value, key)
    except LookupError:
        return UNDEFINED


def path_of(attribute: Any) -> list[Any]:
    return [int(part) if part.isascii() and part.isdigit() else part for part in attribute.split(".")]


def order_of(evaluation: Evaluation, value: Any, depth: int = 0) -> tuple[Any, ...]:
    """Return a key that sorts values of any kind: undefined, null, booleans, numbers, texts, lists, maps."""
    kind_of_value = type(value)
    if kind_of_value is str:
        return (4, value)
    if kind_of_value is bool:
        return (2, value)
    if kind_of_value is int or kind_of_value is float:
        return (3, value) if not math.isnan(value) else (3.5,)
    if value is None or value is UNDEFINED:
        return (1,) if value is None else (0,)
    if depth > DEPTH_LIMIT:
        raise CannotEvaluate(f"a value is nested deeper than {DEPTH_LIMIT}")
    evaluation.charge(ITEM + TO_READ * len(value))
    if not isinstance(value, Mapping):
        places = range(len(value))
        return (5, tuple(order_of(evaluation, read(evaluation, value, place), depth + 1) for place in places))
    pairs = ((key, order_of(evaluation, read(evaluation, value, key), depth + 1)) for key in bare(value))
    return (6, tuple((order_of(evaluation, key), order) for key, order in pairs))


def _orders(evaluation: Evaluation, values: Sequence[Any], case_sensitive: Any) -> Sequence[Any]:
    """Return a sort key for each value; case is ignored unless the caller asks for it."""
    exact = _flag(case_sensitive)
    if all(type(value) is str for value in values):
        return values if exact else [value.casefold() for value in values]
    if all(type(value) is int for value in values):
        return values
    keys = [order_of(evaluation, value) for value in values]
    return keys if exact else [(4, key[1].casefold()) if key[0] == 4 else key for key in keys]


def _flag(value: Any) -> bool:
    """Return an option as true or false."""
    if value is None or value is UNDEFINED:
        return False
    if not isinstance(value, bool):
        raise CannotEvaluate(f"{kind(value)} is neither true nor false")
    return value


def _attribute(value: Any) -> str | None:
    if value is None or value is UNDEFINED:
        return None
    if not isinstance(value, str):
        raise CannotEvaluate(f"{kind(value)} is not a name of an attribute")
    return value


def _attributes_of(evaluation: Evaluation, values: Sequence[Any], attribute: str | None) -> list[Any]:
    """Return the attributes by which each element is compared; a path that leads nowhere is undefined."""
    if attribute is None:
        return list(values)
    path = path_of(attribute)
    return [_attribute_or(evaluation, value, path, UNDEFINED) for value in values]


def _attribute_or(evaluation: Evaluation, value: Any, path: Sequence[Any], otherwise: Any) -> Any:
    found = value
    for key in path:
        if found is UNDEFINED:
            return otherwise
        found = read_path(evaluation, found, (key,))
    return otherwise if found is UNDEFINED else found


def first(evaluation: Evaluation, value: Any) -> Any:
    if isinstance(value, Mapping):
        return next(iter(bare(value)), UNDEFINED)
    return _element(evaluation, value, 0)


def last(evaluation: Evaluation, value: Any) -> Any:
    return _element(evaluation, value, -1)


def _element(evaluation: Evaluation, value: Any, place: int) -> Any:
    if not isinstance(value, (str, *LISTS)):
        raise CannotEvaluate(f"{kind(value)} is not a list")
    evaluation.charge(TO_READ)
    return read(evaluation, value, place) if len(value) else UNDEFINED


def largest(evaluation: Evaluation, value: Any, *, attribute: Any = None, case_sensitive: Any = False) -> Any:
    """`max`: the last of those that are equal."""
    values = elements(evaluation, value)
    keys = _orders(evaluation, _attributes_of(evaluation, values, _attribute(attribute)), case_sensitive)
    return values[max(reversed(range(len(values))), key=keys.__getitem__)] if values else UNDEFINED


def smallest(evaluation: Evaluation, value: Any, *, attribute: Any = None, case_sensitive: Any = False) -> Any:
    """`min`: the first of those that are equal."""
    values = elements(evaluation, value)
    keys = _orders(evaluation, _attributes_of(evaluation, values, _attribute(attribute)), case_sensitive)
    return values[min(range(len(values)), key=keys.__getitem__)] if values else UNDEFINED


def in_order(
    evaluation: Evaluation, value: Any, *, case_sensitive: Any = False, attribute: Any = None, reverse: Any = False
) -> list[Any]:
    """`sort`: elements that are equal keep their order; of several attributes the first counts most."""
    values = elements(evaluation, value)
    name = _attribute(attribute)
    columns = [_attributes_of(evaluation, values, part) for part in (name.split(",") if name is not None else (None,))]
    keys = list(zip(*(_orders(evaluation, column, case_sensitive) for column in columns), strict=True))
    return [values[number] for number in sorted(range(len(values)), key=keys.__getitem__, reverse=_flag(reverse))]


def pairs_in_order(
    evaluation: Evaluation, value: Any, *, by: Any = None, case_sensitive: Any = False, reverse: Any = False
) -> list[Any]:
    """`dictsort`: keys with their values, in the order of the keys, or of the values."""
    if not isinstance(value, Mapping):
        raise CannotEvaluate(f"{kind(value)} is not a map")
    if not isinstance(by, str) and by is not None and by is not UNDEFINED:
        raise CannotEvaluate(f"{kind(by)} is not a text")
    evaluation.charge(TO_READ * len(value))
    pairs = [[key, read(evaluation, value, key)] for key in bare(value)]
    keys = _orders(evaluation, [pair[by == "value"] for pair in pairs], case_sensitive)
    return [pairs[number] for number in sorted(range(len(pairs)), key=keys.__getitem__, reverse=_flag(reverse))]


def backwards(evaluation: Evaluation, value: Any) -> Any:
    """`reverse`: the elements, the keys or the characters from the last to the first."""
    if value is None or value is UNDEFINED:
        return value
    return value[::-1] if isinstance(value, str) else elements(evaluation, value)[::-1]


def without_repeats(
    evaluation: Evaluation, value: Any, *, attribute: Any = None, case_sensitive: Any = False
) -> list[Any]:
    """`unique`: the first of those that are equal."""
    name, exact = _attribute(attribute), _flag(case_sensitive)
    values = elements(evaluation, value)
    compared = _attributes_of(evaluation, values, name)
    if not exact:
        compared = [each.lower() if isinstance(each, str) else each for each in compared]
    keys = _orders(evaluation, compared, True)
    kept: list[int] = []
    for number in sorted(range(len(values)), key=keys.__getitem__):  # not hashed: an attacker can choose equal hashes
        if not kept or keys[number] != keys[kept[-1]]:
            kept.append(number)
    return [values[number] for number in sorted(kept)]


def grouped(
    evaluation: Evaluation,
    value: Any,
    by: Any = None,
    *,
    attribute: Any = None,
    default: Any = None,
    case_sensitive: Any = False,
) -> list[list[Any]]:
    """`groupby`: a list of pairs, an attribute and the elements that have it, in the order of the attribute."""
    name = _attribute(by) or _attribute(attribute)
    if name is None:
        raise CannotEvaluate("it needs the name of an attribute")
    values = elements(evaluation, () if value is UNDEFINED else value)
    path, otherwise = path_of(name), UNDEFINED if default is None else default
    names = [_attribute_or(evaluation, each, path, otherwise) for each in values]
    keys = _orders(evaluation, names, case_sensitive)
    groups: list[list[Any]] = []
    before: Any = None
    for number in sorted(range(len(values)), key=keys.__getitem__):
        if keys[number] != before:
            before = keys[number]
            groups.append([names[number], []])
        groups[-1][0] = names[number]
        groups[-1][1].append(values[number])
    return groups


def one_after_the_other(evaluation: Evaluation, value: Any, *others: Any) -> Any:
    """`chain`: the elements of several lists; of several maps one map, in which the last value of a key counts."""
    every = [value, *others]
    if all(isinstance(each, Mapping) for each in every):
        merged: dict[Any, Any] = {}
        for each in every:
            evaluation.charge(TO_READ * len(each))
            merged.update((key, read(evaluation, each, key)) for key in bare(each))
        return {key: merged[key] for key in sorted(merged, key=lambda key: order_of(evaluation, key))}
    return [element for each in every if each is not UNDEFINED for element in elements(evaluation, each)]


def side_by_side(evaluation: Evaluation, value: Any, *others: Any) -> list[list[Any]]:
    """`zip`: the first elements of all lists, then the second ones, as long as all have one."""
    every: list[Sequence[Any]] = []
    for each in (value, *others):
        if each is None or each is UNDEFINED:
            return []
        every.append(elements(evaluation, each))
    evaluation.charge(ITEM * len(every) * min(map(len, every)))
    return [list(each) for each in zip(*every, strict=False)]


def chosen(
    check: Check | None,
    wanted: bool,
    by_attribute: bool,
    evaluation: Evaluation,
    value: Any,
    *arguments: Any,
    **named: Any,
) -> list[Any]:
    """`select`, `reject`, `selectattr` and `rejectattr`: the elements that pass a test, or those that do not."""
    path: list[Any] | None = None
    if by_attribute:
        if not arguments:
            raise CannotEvaluate("it needs the name of an attribute")
        path, arguments = path_of(_text_of(arguments[0])), arguments[1:]
    if check is None and (arguments or named):
        raise CannotEvaluate("after the name of a test come its arguments")
    kept: list[Any] = []
    for each in elements(evaluation, value):
        compared = each if path is None else read_path(evaluation, each, path)
        passed = check(evaluation, compared, *arguments, **named) if check is not None else compared
        if bool(passed) is wanted:
            kept.append(each)
    return kept


def _text_of(attribute: Any) -> str:
    if isinstance(attribute, str):
        return attribute
    if type(attribute) not in SCALARS:
        raise CannotEvaluate(f"{kind(attribute)} is not a name of an attribute")
    return str(plain(attribute))


def mapped_raw(act: Check, evaluation: Evaluation, value: Any, *arguments: Any, **named: Any) -> list[Any]:
    """`map('first')` and similar: applies one of the filters of this file to each element."""
    return [act(evaluation, each, *arguments, **named) for each in elements(evaluation, value)]


def truth(evaluation: Evaluation, value: Any) -> bool:
    """`bool`"""
    if value is UNDEFINED and not evaluation.lenient:
        raise CannotEvaluate(NO_VALUE)
    return bool(value)


def default(evaluation: Evaluation, value: Any, other: Any = "", also_for_empty: Any = False) -> Any:
    """Return the default for an undefined value; on request also for one that is empty, zero or false."""
    lax = truth(evaluation, also_for_empty)
    return other if value is UNDEFINED or (lax and not value) else value


def rounded(evaluation: Evaluation, value: Any, digits: Any = _UNSET, how: Any = _UNSET, **named: Any) -> Any:
    """`round`: to the nearest number, up or down; of two that are equally near, to the even one."""
    digits = named.pop("precision", None) if digits is _UNSET else digits
    how = named.pop("method", None) if how is _UNSET else how
    if named:
        raise CannotEvaluate(f"there is no argument {next(iter(named))!r}")
    digits, how = _digits(digits), "common" if how is None or how is UNDEFINED else how
    if not isinstance(how, str) or how not in ("common", "ceil", "floor"):
        raise CannotEvaluate("the method is 'common', 'ceil' or 'floor'")
    if type(value) not in (int, float):
        raise CannotEvaluate(f"{kind(value)} is not a number")
    if how == "common":
        return round(value, max(min(digits, _MOST_PRECISE), -_MOST_PRECISE))
    return _rounded_to_one_side(value, digits, math.ceil if how == "ceil" else math.floor)


def _digits(value: Any) -> int:
    value = plain(value)
    if value is None:
        return 0
    if not isinstance(value, int) or not _FEWEST_DIGITS <= value <= _MOST_DIGITS:
        raise CannotEvaluate(f"{kind(value)} is not a number of digits")
    return int(value)


def _rounded_to_one_side(value: Any, digits: int, act: Callable[[Any], Any]) -> Any:
    if isinstance(value, int):
        if digits >= 0:
            return value
        unit = 10 ** min(-digits, _MOST_PRECISE)
        return (-(-value // unit) if act is math.ceil else value // unit) * unit
    factor = 10.0 ** max(min(digits, 308), -308)
    if not math.isfinite(value * factor) or digits > 308:
        return value
    result = act(value * factor) / factor
    if not math.isfinite(result) or (digits < -308 and result):
        raise CannotEvaluate("the number is too large")
    return result


FILTERS_OF_LISTS: dict[str, Callable[..., Any]] = {
    "bool": truth,
    "chain": one_after_the_other,
    "d": default,
    "default": default,
    "dictsort": pairs_in_order,
    "first": first,
    "groupby": grouped,
    "last": last,
    "max": largest,
    "min": smallest,
    "reverse": backwards,
    "round": rounded,
    "sort": in_order,
    "unique": without_repeats,
    "zip": side_by_side,
}
"""They get values unchanged: undefined ones too, and whole numbers as floats."""
