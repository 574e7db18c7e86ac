"""A value that is not shown by logs, tracebacks or a debugger's `repr`."""

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
        raise TypeError("a secret must not be pickled or copied")


def leaves(value: Any, public: frozenset[str] = frozenset()) -> list[str]:
    """The texts and numbers within a value, except those in fields with public names."""
    if isinstance(value, Mapping):
        fields = (field for name, field in value.items() if str(name).lower() not in public)
        return [leaf for field in fields for leaf in leaves(field, public)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item, public)]
    if isinstance(value, str):
        return [value]
    return [str(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []
