"""The evaluation of the expressions of one text: what they may read, and how much they may create."""

from collections.abc import Iterator, Mapping
from typing import Any

from refold.core.codec import DEPTH_LIMIT
from refold.core.expressions import Aliased, CannotEvaluate, TemplateScope, unaliased
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

BUDGET = 8 * LARGEST  # for all that the expressions of one text read and create
TO_READ = 2 * ITEM
NO_VALUE = "the expression has no value; `| default(…)` can give it one"
_MOST_BITS = 127  # of a whole number


class EvaluationFailed(CannotEvaluate):
    """A part of an expression has no value; `at` is the character of its text where that part is."""

    def __init__(self, message: str, at: int) -> None:
        self.at = at
        super().__init__(message)


class Evaluation:
    """All expressions of one text share one budget."""

    def __init__(self, view: TemplateScope, lenient: bool) -> None:
        self.view = view
        self.lenient = lenient  # null counts as an empty text or list, and true is written True
        self._spent = 0

    def charge(self, weight: int) -> None:
        self._spent += weight
        if self._spent > BUDGET:
            raise CannotEvaluate(f"this handles more than {BUDGET >> 20} MiB, and that is work for a step")

    def room(self, weight: int) -> None:
        """Refuse a result that would be too large, before it is created."""
        if weight > LARGEST:
            raise CannotEvaluate(TOO_LARGE)

    def taken(self, value: Any, weight: int = 0) -> Any:
        """Return a value as expressions handle it: text is charged, lists and maps are views, the rest is JSON."""
        kind_of_value = type(value)
        if kind_of_value is str:
            self.charge(len(value))
            return value
        if kind_of_value is int:
            if value.bit_length() > _MOST_BITS:
                raise CannotEvaluate("the number is too large")
            return value
        if kind_of_value in SCALARS:
            return value
        if isinstance(value, str):
            return self.taken(str.__str__(value))
        view = self.shown(value, weight)
        if isinstance(view, VIEWS):
            return view
        if isinstance(value, Aliased):
            return self.taken(view)
        raise CannotEvaluate(f"a {type(value).__name__} is not a value")

    def read(self, container: Any, key: Any) -> Any:
        """Return an element of a list or map."""
        self.charge(TO_READ)
        return self.shown(container[key])

    def shown(self, value: Any, weight: int = 0) -> Any:
        """Return a view of a list or map, and other values unchanged."""
        if type(value) in SCALARS or isinstance(value, VIEWS):
            return value
        if isinstance(value, (list, tuple)):
            return ListView(value, weight)
        if isinstance(value, (dict, Mapping)):
            return MapView(value, weight)
        return self._shown_whole(value, weight) if isinstance(value, Aliased) else value

    def _shown_whole(self, value: Aliased, weight: int) -> Any:
        data = unaliased(value)
        if isinstance(data, (list, tuple)):
            return ListView(data, weight, value)
        return MapView(data, weight, value) if isinstance(data, (dict, Mapping)) else data

    def each(self, value: Any) -> Iterator[Any]:
        """Yield the elements of a list, the keys of a map or the characters of a text; each is charged."""
        if value is None and self.lenient:
            return
        if not isinstance(value, (str, *LISTS, Mapping)):
            raise CannotEvaluate(f"{kind(value)} is not a list")
        for element in bare(value):
            self.charge(ITEM)
            yield self.shown(element)

    def hold(self, value: Any, depth: int = 0) -> None:
        """Walk through a value that is bound to a name, and charge each element as often as it occurs."""
        self.charge(TO_READ)
        if type(value) in SCALARS:
            return
        if depth > DEPTH_LIMIT:
            raise CannotEvaluate(f"a value is nested deeper than {DEPTH_LIMIT}")
        data = bare(unaliased(value))
        for each in data.values() if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else ():
            self.hold(each, depth + 1)

    def written(self, value: Any) -> str:
        """Return a value as part of a text."""
        return text_of(value, self.lenient)

    def text(self, value: Any) -> str:
        if type(value) not in SCALARS or (value is None and not self.lenient):
            raise CannotEvaluate(f"{kind(value)} is not a text")
        return self.written(value)
