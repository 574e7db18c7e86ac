"""One expression of a text to what comes of it, and where it stands in case it has no value."""

from collections.abc import Callable
from typing import Any

from refold.core.expressions import Aliased, CannotEvaluate, Missing, no_value, unaliased
from refold.templates.blocks import Expression
from refold.templates.data import in_plain_words
from refold.templates.engine import Evaluation, Failed
from refold.templates.paths import Absent
from refold.templates.text import place

_SHOWN = 80  # characters of a text in a message

Finish = Callable[[Any, bool], Any]
"""A value, and whether it was only named, to what comes of it."""


def evaluated(evaluation: Evaluation, text: str, expression: Expression, finish: Finish, nothing: Any = None) -> Any:
    """`nothing` stands for what is not defined, where that is no error."""
    path = expression.code.path
    try:
        if path is None:
            return finish(evaluation.value(expression.code, nothing), False)
        value = evaluation.look_up(path)
        return finish(unaliased(value) if type(value) is Aliased else value, True)
    except Absent:
        return finish(nothing, True)
    except CannotEvaluate as error:
        at = error.at if isinstance(error, Failed) else expression.at
        raise CannotEvaluate(f"{error} ({where(text, at)})") from None
    except (Missing, KeyboardInterrupt):
        raise
    except BaseException as error:  # the engine is written in Rust, and its panics are no exceptions
        raise CannotEvaluate(f"{in_plain_words(str(no_value(error)))} ({where(text, expression.at)})") from error


def where(text: str, at: int) -> str:
    line, column = place(text, at)
    shown = text.split("\n")[line - 1].strip()
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return f"column {column} of `{shown}`" if "\n" not in text.strip() else f"line {line}, column {column}: `{shown}`"
