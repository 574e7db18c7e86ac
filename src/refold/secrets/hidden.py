"""A value that no log, traceback or debugger's `repr` shows."""

from collections.abc import Mapping
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
SHOWN = "***"


class Hidden(Generic[T]):
    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def open(self) -> T:
        return self._value

    def __repr__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return SHOWN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written down")


def leaves(value: Any, public: frozenset[str] = frozenset()) -> list[str]:
    """Texts and numbers within a value, except those in fields with public names."""
    if isinstance(value, Mapping):
        inner = (each for name, each in value.items() if str(name).lower() not in public)
        return [leaf for each in inner for leaf in leaves(each, public)]
    if isinstance(value, list | tuple):
        return [leaf for each in value for leaf in leaves(each, public)]
    if isinstance(value, str):
        return [value]
    return [str(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []
