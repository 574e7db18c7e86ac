"""Methods that templates may call: those of maps everywhere, those of texts where a dialect has them."""

import itertools
import re
from collections.abc import Callable
from typing import Any

from refold.core.expressions import CannotEvaluate
from refold.templates.data import ITEM, LISTS, bare, kind
from refold.templates.evaluation import Evaluation
from refold.templates.filters import get, items, join, keys, replace, split, stripped, values
from refold.templates.jinja import width

_PLAIN = (
    "capitalize casefold endswith find isalnum isalpha isdigit islower isnumeric isspace isupper lower"
    " partition removeprefix removesuffix startswith swapcase title upper"
)
_FIELD = re.compile(r"\{\{|\}\}|\{(\w*)(?::([^{}]*))?\}|[{}]")
_WIDTH = re.compile(r"\d+")


def _of_text(name: str) -> Callable[..., Any]:
    def call(evaluation: Evaluation, value: Any, *args: Any) -> Any:
        result = getattr(str, name)(evaluation.text(value), *args)
        return list(result) if isinstance(result, tuple) else result

    return call


def _padded(name: str) -> Callable[..., Any]:
    def call(evaluation: Evaluation, value: Any, columns: Any, *fill: Any) -> Any:
        return getattr(str, name)(evaluation.text(value), width(columns), *fill)

    return call


def _stripping(name: str) -> Callable[..., Any]:
    def call(evaluation: Evaluation, value: Any, chars: str | None = None) -> Any:
        return getattr(str, name)(evaluation.text(value), stripped(chars))

    return call


def _find_from_behind(evaluation: Evaluation, value: Any, part: str, *bounds: Any) -> int:
    """Like `str.rfind`, whose time grows with the product of both lengths; a forward search, as used here, is fast."""
    text = evaluation.text(value)
    first, last, _ = slice(*(bounds if len(bounds) > 1 else (*bounds, None))).indices(len(text))
    found = _from_behind(text[first:last], part) if first <= last else -1
    return found + first if found >= 0 else -1


def _from_behind(text: str, part: str) -> int:
    if not isinstance(part, str):
        raise CannotEvaluate(f"{kind(part)} is not a text")
    found = text[::-1].find(part[::-1])
    return len(text) - found - len(part) if found >= 0 else -1


def _parted_from_behind(evaluation: Evaluation, value: Any, separator: str) -> list[str]:
    text = evaluation.text(value)
    if not separator:
        raise CannotEvaluate("the separator is empty")
    at = _from_behind(text, separator)
    return ["", "", text] if at < 0 else [text[:at], separator, text[at + len(separator) :]]


def _joined(evaluation: Evaluation, value: Any, parts: Any) -> str:
    return join(evaluation, parts, value)


def _lines(evaluation: Evaluation, value: Any) -> list[str]:
    return split(evaluation, evaluation.text(value).removesuffix("\n"), "\n")


def _split_from_behind(
    evaluation: Evaluation, value: Any, separator: str | None = None, maxsplit: int = -1
) -> list[str]:
    text = evaluation.text(value)
    evaluation.charge(ITEM * (text.count(separator) if separator else len(text) // 2))
    if not separator:
        return text.rsplit(separator, maxsplit)
    parts = text[::-1].split(separator[::-1], maxsplit)  # reversed, because a search from the end is slow, as above
    return [part[::-1] for part in reversed(parts)]


def _count(evaluation: Evaluation, value: Any, part: Any) -> int:
    if isinstance(value, LISTS):
        return sum(bare(part) == bare(each) for each in evaluation.each(value))
    return evaluation.text(value).count(part)


def _formatted(evaluation: Evaluation, value: Any, /, *args: Any, **named: Any) -> str:
    """`'{} of {n}'.format(1, n=2)`: fields have no attributes or subscripts, so only the arguments can be read."""
    known = named | {str(at): each for at, each in enumerate(args)}
    numbers = itertools.count()
    size = 0

    def field(match: re.Match[str]) -> str:
        nonlocal size
        name, spec = match.groups()
        if name is None:
            if len(match.group()) == 1:
                raise CannotEvaluate(f"a field is a name or a number in braces, such as {{0}} or {{name:>8}}: {text!r}")
            return match.group()[0]
        if any(len(width) > 3 for width in _WIDTH.findall(spec or "")):
            raise CannotEvaluate(f"{match.group()!r} is too wide")
        at = name or str(next(numbers))
        if at not in known:
            raise CannotEvaluate(f"the field {match.group()!r} has no argument: {text!r}")
        given = known[at]
        shown = given if isinstance(given, (int, float)) else evaluation.written(given)
        evaluation.charge(len(shown) if isinstance(shown, str) else 0)
        made = format(shown, spec or "")
        size += len(made)
        evaluation.room(size)
        return made

    text = evaluation.text(value)
    return _FIELD.sub(field, text)


METHODS_OF_MAPS: dict[str, Callable[..., Any]] = {"get": get, "items": items, "keys": keys, "values": values}
METHODS: dict[str, Callable[..., Any]] = {
    **METHODS_OF_MAPS,
    **{name: _of_text(name) for name in _PLAIN.split()},
    **{name: _stripping(name) for name in ("lstrip", "rstrip", "strip")},
    **{name: _padded(name) for name in ("center", "ljust", "rjust", "zfill")},
    "count": _count,
    "format": _formatted,
    "join": _joined,
    "replace": replace,
    "rfind": _find_from_behind,
    "rpartition": _parted_from_behind,
    "rsplit": _split_from_behind,
    "split": split,
    "splitlines": _lines,
}
