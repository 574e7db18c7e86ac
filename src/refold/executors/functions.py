"""Finds the function that a name such as `module:function` stands for, and how to call it with the input of a step."""

import inspect
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from msgspec import Struct

from refold.core.outcomes import Fault
from refold.errors import ToolFailed


class Function(Struct, frozen=True):
    call: Callable[..., Any]
    takes_input: bool  # False: it has no parameters and is called without arguments
    is_async: bool

    def __call__(self, input: Any) -> Any:
        return self.call(input) if self.takes_input else self.call()


@lru_cache(maxsize=1000)
def resolve(name: str) -> Function:
    """Raise ToolFailed if there is no such function; what the import of its module raises is not changed."""
    module, _, path = name.partition(":")
    if not module or not path:
        raise _refused(f"{name!r} does not name a function: write 'module:function'")
    function: Any = imported(module)
    if function is None:
        raise _refused(f"there is no module {module!r}")
    for part in path.split("."):
        try:
            function = getattr(function, part)
        except AttributeError:
            raise _refused(f"module {module!r} has no {path!r}") from None
    if not callable(function):
        raise _refused(f"{name!r} is a {type(function).__name__} and cannot be called")
    return Function(function, _takes_input(function), _is_async(function))


def imported(module: str) -> ModuleType | None:
    """Return None if there is no such module; what its own import raises, even for a missing module, is not changed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            return None
        raise


def _refused(why: str) -> ToolFailed:
    return ToolFailed(Fault("no_function", why, retryable=False))


def _takes_input(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True  # written in C, without a signature
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(parameter.kind in (*positional, inspect.Parameter.VAR_POSITIONAL) for parameter in parameters)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
