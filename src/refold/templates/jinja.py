"""Further filters and tests of Jinja: playbooks written for it may use them, in the chainable dialect."""

import re
import textwrap
from collections.abc import Mapping
from html import escape, unescape
from typing import Any

from refold.core.expressions import Aliased, CannotEvaluate
from refold.templates.data import LISTS, kind, plain, weight_of
from refold.templates.evaluation import Evaluation
from refold.templates.filters import FILTERS, Filter, attribute_of, get
from refold.templates.operators import operate

_WIDEST = 1000
_WORD = re.compile(r"\w+")
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")
_LEEWAY = 5
_LONGEST_LINE = 10_000  # the time to wrap a line grows with the square of its length


def width(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= _WIDEST:
        raise CannotEvaluate(f"a width is between 0 and {_WIDEST}")
    return value


def _center(evaluation: Evaluation, value: Any, columns: Any = 80) -> str:
    return evaluation.text(value).center(width(columns))


def _wordcount(evaluation: Evaluation, value: Any) -> int:
    return sum(1 for _ in _WORD.finditer(evaluation.text(value)))


def _wordwrap(
    evaluation: Evaluation, value: Any, columns: Any = 79, break_long_words: bool = True, wrapstring: str | None = None
) -> str:
    text, between = evaluation.text(value), "\n" if wrapstring is None else wrapstring
    evaluation.room(len(text) * (1 + len(between)))
    evaluation.charge(8 * len(text))
    columns = max(width(columns), 1)
    if any(len(line) > _LONGEST_LINE for line in text.splitlines()):
        raise CannotEvaluate(f"a line to wrap has at most {_LONGEST_LINE} characters")
    lines = [
        textwrap.wrap(line, columns, expand_tabs=False, replace_whitespace=False, break_long_words=break_long_words)
        for line in text.splitlines()
    ]
    return between.join(between.join(each) for each in lines)


def _escape(evaluation: Evaluation, value: Any) -> str:
    text = evaluation.written(value)
    evaluation.room(len(text) + 5 * sum(map(text.count, "&<>\"'")))
    return escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def _striptags(evaluation: Evaluation, value: Any) -> str:
    text = _without(_without(evaluation.text(value), "<!--", "-->"), "<", ">")
    return unescape(" ".join(text.split()))


def _without(text: str, begin: str, end: str) -> str:
    """Remove everything from each `begin` to its `end`; a part that is not closed is kept."""
    kept: list[str] = []
    at = 0
    while (first := text.find(begin, at)) >= 0 and (last := text.find(end, first)) >= 0:
        kept.append(text[at:first])
        at = last + len(end)
    return "".join([*kept, text[at:]])


def _filesizeformat(evaluation: Evaluation, value: Any, binary: bool = False) -> str:
    try:
        size = float(value if isinstance(value, (int, float)) else evaluation.text(value))
    except ValueError:
        raise CannotEvaluate(f"{kind(value)} is not a size") from None
    base = 1024 if binary else 1000
    if abs(size) < base:
        return "1 Byte" if size == 1 else f"{int(size)} Bytes"
    unit = 0
    while abs(size) >= base * base and unit < len(_UNITS) - 1:
        size, unit = size / base, unit + 1
    name = _UNITS[unit]
    return f"{size / base:.1f} {f'{name[0].upper()}i{name[1:]}' if binary else name}"


def _truncate(
    evaluation: Evaluation,
    value: Any,
    length: int = 255,
    killwords: bool = False,
    end: str = "...",
    leeway: int = _LEEWAY,
) -> str:
    """Shorten a text; one that is only a little too long is kept."""
    text = evaluation.text(value)
    if len(text) <= length + leeway:
        return text
    kept = text[: max(length - len(end), 0)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end


def _int(evaluation: Evaluation, value: Any, default: Any = 0, base: int = 10) -> Any:
    if base == 10 or not isinstance(value, str):
        return FILTERS["int"](evaluation, value, default)
    try:
        return int(value[:_WIDEST], base)
    except ValueError:
        return default


def _safe(evaluation: Evaluation, value: Any) -> Any:
    """Return the value unchanged, because nothing is escaped here."""
    return value


def same(evaluation: Evaluation, left: Any, right: Any) -> bool:
    """`is sameas`: equal, and of the same kind."""
    return kind(left) == kind(right) and operate(("==",), evaluation, left, right) is True


def is_iterable(evaluation: Evaluation, value: Any) -> bool:
    return isinstance(value, (str, *LISTS, Mapping))


def is_sequence(evaluation: Evaluation, value: Any) -> bool:
    return isinstance(value, LISTS)


def compared(
    symbol: str, by_attribute: bool, wanted: bool, evaluation: Evaluation, value: Any, *given: Any
) -> list[Any]:
    """`select('gt', …)` and similar: an attribute that leads nowhere is neither greater nor less than any value."""
    chosen: list[Any] = []
    for element in evaluation.each(value):
        left = attribute_of(evaluation, element, given[0]) if by_attribute else element
        if operate((symbol,), evaluation, left, given[-1]) is wanted:
            chosen.append(element)
    return chosen


def groups_with_names(groupby: Filter, evaluation: Evaluation, value: Any, /, *given: Any, **options: Any) -> list[Any]:
    """`groupby`: pairs, whose parts can also be read as `grouper` and `list`."""
    groups = plain(groupby(evaluation, value, *given, **options))
    evaluation.charge(weight_of(groups))
    return [Aliased([name, rows], {"grouper": name, "list": rows}) for name, rows in groups]


MORE_FILTERS: dict[str, Filter] = {
    **FILTERS,
    "center": _center,
    "e": _escape,
    "escape": _escape,
    "filesizeformat": _filesizeformat,
    "get": get,
    "int": _int,
    "safe": _safe,
    "striptags": _striptags,
    "truncate": _truncate,
    "wordcount": _wordcount,
    "wordwrap": _wordwrap,
}
MORE_TESTS = {
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "greaterthan": "gt",
    "lessthan": "lt",
}
"""Other names of tests."""
