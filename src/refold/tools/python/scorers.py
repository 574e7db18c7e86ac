"""Calls a scorer that a JamJet file names: a class with a method `score`, or a function."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def score(module: str, kwargs: Mapping[str, Any], output: Any) -> Any:
    """Return what the scorer says of an output."""
    name, _, path = module.partition(":")
    found: Any = import_module(name)
    for part in path.split(".") if path else ():
        found = getattr(found, part)
    if inspect.isclass(found):
        scorer = found(**kwargs)
        method: Any = getattr(scorer, "score", scorer)
        return method(output)
    return found(output, **kwargs)
