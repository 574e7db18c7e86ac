"""The key `filter` of sources of maps: by column, the value or the values that are wanted."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from refold.sources.settings import did_you_mean
from refold.tool_api import name_of, refused

Filter = Mapping[str, Collection[Any]]


def filter_of(given: Mapping[str, Any], read: Callable[[str, Any], Any] = lambda column, value: value) -> Filter:
    """By column, all values that are let through; `read` gives a wanted value the form that it has in an item."""
    return {column: [read(column, each) for each in _wanted(column, values)] for column, values in given.items()}


def check_columns(given: Mapping[str, Any], known: Collection[str], what: str) -> None:
    for column in given:
        if column not in known:
            hint = did_you_mean(column, known) or f"; there are {', '.join(f'`{each}`' for each in known)}"
            raise refused(f"`{what}`: there is no column `{column}`{hint}")


def fits(item: Mapping[str, Any], wanted: Filter) -> bool:
    return all(any(_same(item.get(column), each) for each in values) for column, values in wanted.items())


def _wanted(column: str, values: Any) -> Iterator[Any]:
    for each in values if isinstance(values, list) else [values]:
        if isinstance(each, (list, Mapping)):
            raise refused(f"`filter.{column}` must be a value or a list of values, not {name_of(each)}")
        yield each


def _same(one: Any, other: Any) -> bool:
    """True is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
