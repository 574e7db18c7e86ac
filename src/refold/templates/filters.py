"""Filters that create texts and lists, each within limits."""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from msgspec import DecodeError, json

from refold.core import cut_text
from refold.core.expressions import CannotEvaluate, step_into
from refold.templates.data import ITEM, LISTS, bare, json_of, kind, whole
from refold.templates.evaluation import Evaluation
from refold.templates.paths import Absent, not_defined, reach

Filter = Callable[..., Any]

_WIDEST = 1000  # the largest width in a format, and the largest indentation
_MOST_PARTS = 100_000
_MOST_SLICES = 10_000
_MOST_STRIPPED = 1000  # different characters that one filter strips
_DIGITS = "0123456789"
_UNSET: Any = object()


def _plain(method: Callable[[str], str]) -> Filter:
    return lambda evaluation, value: method(evaluation.text(value))


def _trim(evaluation: Evaluation, value: Any, chars: str | None = None) -> str:
    return evaluation.text(value).strip(stripped(chars))


def _string(evaluation: Evaluation, value: Any) -> str:
    return evaluation.written(value)


def replace(evaluation: Evaluation, value: Any, old: str, new: Any, count: int = -1) -> str:
    text, new = evaluation.text(value), evaluation.written(new)
    found = text.count(old)
    evaluation.room(len(text) + (found if count < 0 else min(found, count)) * max(len(new) - len(old), 0))
    return text.replace(old, new, count)


def join(evaluation: Evaluation, value: Any, separator: Any = "", attribute: str | None = None) -> str:
    between = evaluation.written(separator)
    parts: list[str] = []
    size = 0
    for element in evaluation.each(value):
        parts.append(evaluation.written(element if attribute is None else attribute_of(evaluation, element, attribute)))
        size += len(parts[-1]) + len(between)
        evaluation.room(size)
    return between.join(parts)


def split(evaluation: Evaluation, value: Any, separator: str | None = None, maxsplit: int = -1) -> list[str]:
    text = evaluation.text(value)
    evaluation.charge(ITEM * (text.count(separator) if separator else len(text) // 2))
    return text.split(separator, maxsplit)


def _lines(evaluation: Evaluation, value: Any) -> list[str]:
    text = evaluation.text(value)
    evaluation.charge(ITEM * text.count("\n"))
    return text.splitlines()


def printf(evaluation: Evaluation, value: Any, /, *args: Any, **named: Any) -> str:
    """Format a text like printf; widths are limited, and must be written in the format."""
    pattern = evaluation.text(value)
    places = 0
    for widths in _conversions(pattern):
        places += 1
        for width in widths:
            if width == "*" or len(width) > 4 or int(width or 0) > _WIDEST:
                raise CannotEvaluate(f"the width {_short(width)!r} in a format is too wide")
    given = [each if isinstance(each, (int, float)) else evaluation.written(each) for each in (*args, *named.values())]
    longest = max((len(each) for each in given if isinstance(each, str)), default=0)
    evaluation.room(len(pattern) + places * (longest + _WIDEST))
    return pattern % (dict(zip(named, given, strict=True)) if named else tuple(given))


def _conversions(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield width and precision of each conversion in a printf format, as written, without leading zeros.

    Each character is looked at once: a pattern that backtracks takes hours for a long run of zeros.
    """
    at, end = 0, len(pattern)
    while (at := pattern.find("%", at)) >= 0:
        at += 1
        if pattern.startswith("(", at):
            open = 1
            while open and (at := at + 1) < end:
                open += (pattern[at] == "(") - (pattern[at] == ")")
            at += 1
        while at < end and pattern[at] in "-+ #0":
            at += 1
        width, at = _number_at(pattern, at)
        precision = ""
        if pattern.startswith(".", at):
            precision, at = _number_at(pattern, at + 1)
        yield width, precision
        at += 1  # the letter; Python itself refuses a wrong or missing one


def _number_at(pattern: str, at: int) -> tuple[str, int]:
    """Return the digits or the star that begin here, and the position after them."""
    if pattern.startswith("*", at):
        return "*", at + 1
    first = at
    while at < len(pattern) and pattern[at] in _DIGITS:
        at += 1
    return pattern[first:at].lstrip("0"), at


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def stripped(chars: str | None) -> str | None:
    """Return the characters to strip, each once, because Python compares every character of the text with them."""
    if chars is None:
        return None
    if not isinstance(chars, str):
        raise CannotEvaluate(f"{kind(chars)} is not a text")
    once = "".join(dict.fromkeys(chars))
    if len(once) > _MOST_STRIPPED:
        raise CannotEvaluate(f"at most {_MOST_STRIPPED} different characters can be stripped")
    return once


def _indent(evaluation: Evaluation, value: Any, width: int = 4, first: bool = False, blank: bool = False) -> str:
    lines = evaluation.text(value).split("\n")
    if not 0 <= width <= _WIDEST:
        raise CannotEvaluate(f"an indentation is between 0 and {_WIDEST}")
    evaluation.room(sum(map(len, lines)) + len(lines) * (width + 1))
    space = " " * width
    begin = 0 if first else 1
    return "\n".join(space + line if number >= begin and (line or blank) else line for number, line in enumerate(lines))


def _truncate(evaluation: Evaluation, value: Any, length: int = 255, killwords: bool = False, end: str = "...") -> str:
    text = evaluation.text(value)
    if len(text) <= length:
        return text
    kept = text[: max(length - len(end), 0)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end


def _tojson(evaluation: Evaluation, value: Any, indent: int | None = None) -> str:
    text = json_of(value)
    if indent is None:
        return text
    if not 0 <= indent <= 16:
        raise CannotEvaluate("an indentation is between 0 and 16")
    return json.format(text, indent=indent)


def _fromjson(evaluation: Evaluation, value: Any) -> Any:
    text = evaluation.text(value)
    evaluation.charge(ITEM * len(text) // 2)
    try:
        return json.decode(text)
    except DecodeError as error:
        left_out = cut_text.left_out_of(text)
        if left_out:
            why = f"this is not all of the JSON: {left_out} bytes were left out when it was printed"
            raise CannotEvaluate(f"{why}; raise `max_output` of that step, or let it write a `stdout_file`") from None
        raise CannotEvaluate(f"this is not JSON: {error}") from None


def _urlencode(evaluation: Evaluation, value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = [(str(key), evaluation.written(each)) for key, each in bare(value).items()]
        return "&".join(f"{quote(key, safe='')}={quote(each, safe='')}" for key, each in pairs)
    return quote(evaluation.text(value))


def _b64encode(evaluation: Evaluation, value: Any) -> str:
    return base64.b64encode(evaluation.text(value).encode()).decode()


def _b64decode(evaluation: Evaluation, value: Any) -> str:
    return base64.b64decode(evaluation.text(value), validate=True).decode()


def _length(evaluation: Evaluation, value: Any) -> int:
    if value is None and evaluation.lenient:
        return 0
    if not isinstance(value, (str, Mapping, *LISTS)):
        raise CannotEvaluate(f"{kind(value)} has no length")
    return len(value)


def _list(evaluation: Evaluation, value: Any) -> list[Any]:
    return list(evaluation.each(value))


def keys(evaluation: Evaluation, value: Any) -> list[str]:
    return list(evaluation.each(_map(evaluation, value)))


def values(evaluation: Evaluation, value: Any) -> list[Any]:
    data = _map(evaluation, value)
    return [evaluation.read(data, key) for key in data]


def items(evaluation: Evaluation, value: Any) -> list[list[Any]]:
    data = _map(evaluation, value)
    return [[key, evaluation.read(data, key)] for key in data]


def get(evaluation: Evaluation, value: Any, key: Any, otherwise: Any = None) -> Any:
    _map(evaluation, value)
    try:
        return evaluation.shown(step_into(whole(value), key))
    except (LookupError, TypeError):
        return otherwise


def _map(evaluation: Evaluation, value: Any) -> Any:
    if value is None and evaluation.lenient:
        return {}
    if not isinstance(value, Mapping):
        raise CannotEvaluate(f"{kind(value)} is not a map")
    return bare(value)


def _batch(evaluation: Evaluation, value: Any, linecount: int, fill_with: Any = _UNSET) -> list[list[Any]]:
    elements = list(evaluation.each(value))
    if not 0 < linecount <= _MOST_PARTS:
        raise CannotEvaluate(f"a batch has between 1 and {_MOST_PARTS} elements")
    batches = [elements[first : first + linecount] for first in range(0, len(elements), linecount)]
    if batches and fill_with is not _UNSET:
        evaluation.charge(ITEM * linecount)
        batches[-1] += [fill_with] * (linecount - len(batches[-1]))
    return batches


def _slice(evaluation: Evaluation, value: Any, slices: int, fill_with: Any = _UNSET) -> list[list[Any]]:
    elements = list(evaluation.each(value))
    if not 0 < slices <= _MOST_SLICES:
        raise CannotEvaluate(f"there can be between 1 and {_MOST_SLICES} slices")
    evaluation.charge(ITEM * slices)
    short, longer = divmod(len(elements), slices)
    parts, first = list[list[Any]](), 0
    for number in range(slices):
        last = first + short + (number < longer)
        parts.append(elements[first:last])
        if fill_with is not _UNSET and longer and number >= longer:
            parts[-1].append(fill_with)
        first = last
    return parts


def _abs(evaluation: Evaluation, value: Any) -> Any:
    return abs(_number(value))


def _sum(evaluation: Evaluation, value: Any, attribute: str | None = None, start: Any = 0) -> Any:
    total = _number(start)
    for element in evaluation.each(value):
        total += _number(element if attribute is None else attribute_of(evaluation, element, attribute))
    return total


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise CannotEvaluate(f"{kind(value)} is not a number")
    return value


def _int(evaluation: Evaluation, value: Any, default: Any = _UNSET) -> Any:
    return _converted(evaluation, int, value, default)


def _float(evaluation: Evaluation, value: Any, default: Any = _UNSET) -> Any:
    return _converted(evaluation, float, value, default)


def _converted(evaluation: Evaluation, to: type[int] | type[float], value: Any, default: Any) -> Any:
    """Convert a value to a number. A text that is not a number is an error, unless there is a default."""
    if default is _UNSET and evaluation.lenient:
        default = to(0)
    try:
        if isinstance(value, str):
            return to(value) if to is float or value.strip().lstrip("+-").isdigit() else to(float(value))
        return to(_number(value))
    except (CannotEvaluate, ValueError, OverflowError):
        if default is _UNSET:
            raise CannotEvaluate(f"{evaluation.written(value)!r} is not a number") from None
        return default


def pluck(evaluation: Evaluation, value: Any, attribute: str, default: Any = _UNSET) -> list[Any]:
    """`map(attribute=…)`: one field of each element."""
    return [attribute_of(evaluation, element, attribute, default) for element in evaluation.each(value)]


def attribute_of(evaluation: Evaluation, element: Any, attribute: Any, default: Any = _UNSET) -> Any:
    evaluation.charge(ITEM)
    keys = [int(key) if key.isdigit() else key for key in evaluation.written(attribute).split(".")]
    try:
        return evaluation.shown(reach(element, keys))
    except Absent as absent:
        if default is not _UNSET or evaluation.lenient:
            return None if default is _UNSET else default
        raise CannotEvaluate(not_defined(["element", *keys], absent, evaluation.view)) from None


def mapped(act: Filter, evaluation: Evaluation, value: Any, *args: Any, **options: Any) -> list[Any]:
    """`map('…')`: a filter applied to each element."""
    made = []
    for element in evaluation.each(value):
        made.append(act(evaluation, element, *args, **options))
        evaluation.charge(len(made[-1]) if isinstance(made[-1], (str, list)) else ITEM)
    return made


def numbers(evaluation: Evaluation, *bounds: int) -> list[int]:
    """`range(…)`"""
    every = range(*bounds)
    if len(every) > _MOST_PARTS:
        raise CannotEvaluate(f"a range has at most {_MOST_PARTS} numbers")
    return list(every)


def record(evaluation: Evaluation, /, **fields: Any) -> dict[str, Any]:
    """`dict(…)`"""
    return fields


def _of_times(name: str) -> Filter:
    """Return a filter of times; rules of zones are loaded with the first use."""

    def act(evaluation: Evaluation, value: Any, *args: Any, **named: Any) -> Any:
        from refold.templates.time_filters import TIME_FILTERS

        return TIME_FILTERS[name](evaluation, value, *args, **named)

    return act


FILTERS: dict[str, Filter] = {
    "abs": _abs,
    "add_time": _of_times("add_time"),
    "b64decode": _b64decode,
    "b64encode": _b64encode,
    "batch": _batch,
    "capitalize": _plain(str.capitalize),
    "count": _length,
    "float": _float,
    "format": printf,
    "format_time": _of_times("format_time"),
    "fromjson": _fromjson,
    "in_zone": _of_times("in_zone"),
    "indent": _indent,
    "int": _int,
    "items": items,
    "join": join,
    "keys": keys,
    "length": _length,
    "lines": _lines,
    "list": _list,
    "lower": _plain(str.lower),
    "replace": replace,
    "slice": _slice,
    "split": split,
    "start_of": _of_times("start_of"),
    "string": _string,
    "sum": _sum,
    "title": _plain(str.title),
    "tojson": _tojson,
    "trim": _trim,
    "truncate": _truncate,
    "unix_time": _of_times("unix_time"),
    "upper": _plain(str.upper),
    "urlencode": _urlencode,
    "values": values,
}
FUNCTIONS: dict[str, Filter] = {"dict": record, "range": numbers}
