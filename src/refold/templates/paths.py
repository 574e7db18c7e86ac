"""Looks up paths in a view, key by key, and describes a path that leads nowhere."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

from refold.core.expressions import CannotEvaluate, Missing, TemplateScope, step_into, unaliased
from refold.templates.data import kind, whole

Key = str | int

_OFFERED = 200  # names that are compared with one that does not exist
_LOOKED_AT = 10_000  # names from which these are chosen, by similar length and the same first letter
_LONGEST = 40  # characters of a name that is compared: the time grows with the square
_SCOPES = ("ctx", "steps", "input")


class Absent(Exception):
    """A path leads nowhere: `where` is the last value that was found, and it has no `key`."""

    def __init__(self, where: Any, key: Any, found: int) -> None:
        self.where, self.key, self.found = where, key, found
        super().__init__(key)


def look_up(view: TemplateScope, keys: Sequence[Key]) -> Any:
    """Return the value at the end of a path, with its aliases if it has any. Raises Absent or Missing."""
    try:
        value = view[str(keys[0])]
    except (CannotEvaluate, KeyError):
        raise Absent(view, keys[0], 0) from None
    return reach(value, keys[1:])


def reach(value: Any, keys: Sequence[Any]) -> Any:
    for found, key in enumerate(keys, 1):
        try:
            value = value[key] if type(value) is dict else step_into(whole(value), key)
        except (LookupError, TypeError):
            raise Absent(unaliased(whole(value)), key, found) from None
    return value


def not_defined(keys: Sequence[Any], absent: Absent, view: TemplateScope) -> str:
    path = show(keys)
    if absent.found == 0:
        return f"{path!r} is not defined" + _meant(str(absent.key), _names(view), "")
    before = show(keys[: absent.found])
    if isinstance(absent.where, (list, tuple)):
        return f"{path!r} is not defined: {before!r} is a list of {len(absent.where)}"
    if not isinstance(absent.where, Mapping):
        return f"{path!r} is not defined: {before!r} is {kind(absent.where)}"
    if not isinstance(absent.key, Key):
        return f"{path!r} is not defined: {kind(absent.key)} is not a key"
    meant = _meant(str(absent.key), absent.where, f"{before}.")
    return f"{path!r} is not defined: {before!r} has no {absent.key!r}{meant}"


def show(keys: Sequence[Any]) -> str:
    first, *rest = keys
    return str(first) + "".join(f".{key}" if isinstance(key, str) else f"[{_shown(key)}]" for key in rest)


def _shown(key: Any) -> str:
    return str(key) if isinstance(key, int) else kind(key)


def did_you_mean(name: str, known: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> str:
    """Return a question with a similar name, or an empty text."""
    return _meant(name, known, "")


def _meant(name: str, known: Any, before: str) -> str:
    guess = nearest(name, known)
    return f"; did you mean {before + guess!r}?" if guess else ""


def nearest(name: str, known: Iterable[Any]) -> str:
    """Return the most similar known name, or an empty text. Long names and the ends of long lists are not compared."""
    if not name or len(name) > _LONGEST:
        return ""
    some = (each for each in islice(known, _LOOKED_AT) if isinstance(each, str))
    names = [each for each in some if each and abs(len(each) - len(name)) <= len(name)]
    if len(names) > _OFFERED:
        names = [each for each in names if each[0] == name[0]]
    close = get_close_matches(name, names[:_OFFERED], 1)
    return close[0] if close else ""


def _names(view: TemplateScope) -> Iterator[str]:
    """Yield the names that can be read directly, as far as the view lists them."""
    if isinstance(view, Mapping):
        yield from view
    yield from _SCOPES
    for scope in _SCOPES:
        try:
            found = view[scope]
        except (CannotEvaluate, Missing, KeyError):
            continue
        if isinstance(found, Mapping):
            yield from found
