"""Evaluates one expression of a text; an error says where in the text the expression is."""

from collections.abc import Callable
from typing import Any

from refold.core.expressions import CannotEvaluate, Missing, no_value, unaliased
from refold.templates.compiler import Expression
from refold.templates.data import ITEM, UNDEFINED, in_plain_words, plain
from refold.templates.evaluation import NO_VALUE, Evaluation, EvaluationFailed
from refold.templates.paths import Absent, look_up, not_defined
from refold.templates.text import place

_SHOWN = 80  # characters of a text in a message

Finish = Callable[[Any, bool], Any]
"""Makes the result from a value, and from whether the expression is only a path."""


def evaluated(evaluation: Evaluation, text: str, expression: Expression, finish: Finish, nothing: Any = None) -> Any:
    """Evaluate an expression. `nothing` is the value of an undefined result, where that is not an error."""
    path = expression.path
    try:
        if path is None:
            return finish(_value(evaluation, expression, nothing), False)
        try:
            value = look_up(evaluation.view, path.keys)
        except Absent as absent:
            if path.soft:
                return finish(nothing, True)
            raise EvaluationFailed(not_defined(path.keys, absent, evaluation.view), path.at) from None
        return finish(unaliased(value), True)
    except CannotEvaluate as error:
        at = error.at if isinstance(error, EvaluationFailed) else expression.at
        raise CannotEvaluate(f"{error} ({where(text, at)})") from None
    except Missing:
        raise
    except Exception as error:
        raise CannotEvaluate(f"{in_plain_words(str(no_value(error)))} ({where(text, expression.at)})") from error


def _value(evaluation: Evaluation, expression: Expression, nothing: Any) -> Any:
    evaluation.charge(ITEM * expression.size)
    value = expression.run(evaluation)
    if value is not UNDEFINED:
        return plain(value)
    if evaluation.lenient:
        return nothing
    raise CannotEvaluate(NO_VALUE)


def where(text: str, at: int) -> str:
    line, column = place(text, at)
    shown = text.split("\n")[line - 1].strip()
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return f"column {column} of `{shown}`" if "\n" not in text.strip() else f"line {line}, column {column}: `{shown}`"
