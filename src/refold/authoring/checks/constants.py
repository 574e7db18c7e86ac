"""Conditions that are the same in every run: computed without a run."""

import re
from functools import lru_cache
from typing import Any

from refold import templates
from refold.core.expressions import CannotEvaluate

CALL = re.compile(r"\w\s*\(")  # what a function gives may change
PATH = re.compile(r"\s*\{\{\s*(?:not\s+)?(?!(?:true|false|none|not)\b)[a-z_]\w*\s*[.\[=<>!|}]", re.I)
"""Begins with a name: most conditions do, and depend on it."""


def constant(condition: Any) -> bool | None:
    """Whether it always or never holds; None if that depends."""
    if condition is None:
        return True
    if isinstance(condition, bool):
        return condition
    return _folded(condition) if isinstance(condition, str) and not PATH.match(condition) else None


@lru_cache(maxsize=1024)
def _folded(text: str) -> bool | None:
    if "{{" not in text or CALL.search(text) or templates.uses_of(text) or templates.problem_of(text) is not None:
        return None
    try:
        return bool(templates.Templates().truth(text, {}))  # the engine is loaded only where it is needed
    except CannotEvaluate:
        return None
