"""Where operators, filters and methods work: what they are given, and how much they may make of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from refold.core.codec import DEPTH_LIMIT
from refold.core.expressions import Aliased, CannotEvaluate, View, unaliased
from refold.templates.data import (
    ITEM,
    LARGEST,
    LISTS,
    SCALARS,
    TOO_LARGE,
    VIEWS,
    ListView,
    MapView,
    bare,
    kind,
    text_of,
)

BUDGET = 8 * LARGEST  # of all that the expressions of one text take up and make
TO_READ = 2 * ITEM  # it takes the engine longer than us


class Workbench:
    """Of the expressions of one text, which share a budget."""

    def __init__(self, view: View, lenient: bool) -> None:
        self.view = view
        self.lenient = lenient  # null is taken for an empty text or list, and true is written True
        self._spent = 0

    def charge(self, weight: int) -> None:
        self._spent += weight
        if self._spent > BUDGET:
            raise CannotEvaluate(f"this handles more than {BUDGET >> 20} MiB, and that is work for a step")

    def room(self, weight: int) -> None:
        """Refuse what would be too large before it is made."""
        if weight > LARGEST:
            raise CannotEvaluate(TOO_LARGE)

    def read(self, container: Any, key: Any) -> Any:
        """An element, for those who read views."""
        self.charge(TO_READ)
        return self.shown(container[key])

    def shown(self, value: Any, weight: int = 0) -> Any:
        """Lists and maps are shown as views."""
        if type(value) in SCALARS or isinstance(value, VIEWS):
            return value
        if isinstance(value, (list, tuple)):
            return ListView(value, self.read, weight)
        if isinstance(value, (dict, Mapping)):
            return MapView(value, self.read, weight)
        return self._shown_whole(value, weight) if isinstance(value, Aliased) else value

    def _shown_whole(self, value: Aliased, weight: int) -> Any:
        data = unaliased(value)
        if isinstance(data, (list, tuple)):
            return ListView(data, self.read, weight, value)
        return MapView(data, self.read, weight, value) if isinstance(data, (dict, Mapping)) else data

    def each(self, value: Any) -> Iterator[Any]:
        """The elements of a list, the keys of a map or the characters of a text, each paid for."""
        if value is None and self.lenient:
            return
        if not isinstance(value, (str, *LISTS, Mapping)):
            raise CannotEvaluate(f"{kind(value)} is no list")
        for element in bare(value):
            self.charge(ITEM)
            yield self.shown(element)

    def hold(self, value: Any, depth: int = 0) -> None:
        """Go through all of a value that gets a name: each of its elements is paid for, as often as it is in it."""
        self.charge(TO_READ)
        if type(value) in SCALARS:
            return
        if depth > DEPTH_LIMIT:
            raise CannotEvaluate(f"a value is nested deeper than {DEPTH_LIMIT}")
        data = bare(unaliased(value))
        for each in data.values() if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else ():
            self.hold(each, depth + 1)

    def written(self, value: Any) -> str:
        """A value as it stands in a text."""
        return text_of(value, self.lenient)

    def text(self, value: Any) -> str:
        if type(value) not in SCALARS or (value is None and not self.lenient):
            raise CannotEvaluate(f"{kind(value)} is no text")
        return self.written(value)
