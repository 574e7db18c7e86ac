"""The expression language of playbooks: templates in texts, evaluated within bounds against a lazy view."""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from refold.core.expressions import CannotEvaluate, Path, View
from refold.templates.data import LARGEST, TOO_LARGE, made, named, text_of
from refold.templates.engine import Evaluation, Failed
from refold.templates.paths import Absent
from refold.templates.text import IN, LET, Expression, is_let, is_plain, paths_of, place, read
from refold.templates.tokens import Wrong

_FALSE = frozenset({"", "false", "0", "no", "none", "null", "off", "{}", "[]"})
_SHOWN = 80  # characters of a text in a message

Finish = Callable[[Any, bool], Any]
"""A value, and whether it was only named, to what comes of it."""


class Templates:
    """Implements `Evaluate`. A name that leads nowhere is an error, or in chainable dialects null."""

    def __init__(self, undefined: Literal["strict", "chainable"] = "strict") -> None:
        self._lenient = undefined == "chainable"

    def value(self, template: Any, view: View) -> Any:
        """Plain data of its own; what was rendered is never rendered again."""
        if not is_let(template):
            return self._value(template, view, "")
        bound = self._value(template[LET], view, "input")
        return {"input": bound, "config": self._value(template[IN], _Bound(bound, view), "")}

    def truth(self, template: Any, view: View) -> bool:
        """As Python has it, but for texts that say no."""
        value = self._text(template, view, _as_it_is) if isinstance(template, str) else self.value(template, view)
        return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)

    def paths(self, template: Any) -> Sequence[Path]:
        return paths_of(template)

    def _value(self, template: Any, view: View, key: str) -> Any:
        if isinstance(template, dict):
            return {name: self._value(each, view, f"{key}.{name}" if key else name) for name, each in template.items()}
        if isinstance(template, (list, tuple)):
            return [self._value(each, view, f"{key}[{number}]") for number, each in enumerate(template)]
        if not isinstance(template, str):
            return template
        try:
            return self._text(template, view, _copied)
        except CannotEvaluate as error:
            raise CannotEvaluate(f"{key}: {error}" if key else str(error)) from None

    def _text(self, text: str, view: View, finish: Finish) -> Any:
        """`finish` makes the result of what a text that is one expression evaluates to."""
        if is_plain(text):
            return text
        try:
            template = read(text, self._lenient)
        except Wrong as wrong:
            raise CannotEvaluate(f"{wrong.message} ({_where(text, wrong.at)})") from None
        evaluation = Evaluation(view, self._lenient)
        if template.whole is not None:
            return self._evaluated(template.whole, text, evaluation, finish)
        parts: list[str] = []
        size = 0
        for piece in template.pieces:
            parts.append(piece if isinstance(piece, str) else self._evaluated(piece, text, evaluation, _shown))
            size += len(parts[-1])
            if size > LARGEST:
                raise CannotEvaluate(TOO_LARGE)
        return "".join(parts)

    def _evaluated(self, expression: Expression, text: str, evaluation: Evaluation, finish: Finish) -> Any:
        path = expression.code.path
        try:
            if path is None:
                return finish(evaluation.value(expression.code), False)
            return finish(evaluation.look_up(path), True)
        except Absent:
            return finish(None, True)
        except CannotEvaluate as error:
            at = error.at if isinstance(error, Failed) else expression.at
            raise CannotEvaluate(f"{error} ({_where(text, at)})") from None


class _Bound:
    """A view in which some names are bound, bare and under `input`."""

    def __init__(self, bound: dict[str, Any], view: View) -> None:
        self._bound, self._view = bound, view

    def __getitem__(self, name: str) -> Any:
        if name == "input":
            return ChainMap(self._bound, self._input())
        return self._bound[name] if name in self._bound else self._view[name]

    def _input(self) -> Any:
        """The run's input, as far as somebody has kept it."""
        try:
            found = self._view["input"]
        except (CannotEvaluate, KeyError):
            return {}
        return found if isinstance(found, Mapping) else {}


def _copied(value: Any, is_path: bool) -> Any:
    return named(value) if is_path else made(value)


def _shown(value: Any, is_path: bool) -> str:
    return text_of(value)


def _as_it_is(value: Any, is_path: bool) -> Any:
    return value


def _where(text: str, at: int) -> str:
    line, column = place(text, at)
    shown = text.split("\n")[line - 1].strip()
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return f"column {column} of `{shown}`" if "\n" not in text.strip() else f"line {line}, column {column}: `{shown}`"
