"""The expression language of playbooks: templates in texts, evaluated within limits against a lazy view."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from refold.core.expressions import CannotEvaluate, Path, TemplateScope, unaliased
from refold.core.read.template_scope import capture
from refold.templates.data import LARGEST, TOO_LARGE, made, named, text_of
from refold.templates.evaluation import Evaluation
from refold.templates.noetl_names import named as named_as_noetl
from refold.templates.rendering import Finish, evaluated, where
from refold.templates.statements import Walk
from refold.templates.text import IN, LET, SCOPE, EmbeddedValue, Text, is_let, is_plain, is_scoped, paths_of, read
from refold.templates.tokens import Wrong

_FALSE = frozenset({"", "false", "0", "no", "none", "null", "off", "{}", "[]"})
_FIRST = "$first"


class Templates:
    """Implements `Evaluate`. A name that leads nowhere is an error, or in chainable dialects null."""

    def __init__(self, undefined: Literal["strict", "chainable"] = "strict") -> None:
        self._lenient = undefined == "chainable"

    @property
    def lenient(self) -> bool:
        """Whether this is the language of NoETL files."""
        return self._lenient

    def names(self, view: TemplateScope) -> TemplateScope:
        return named_as_noetl(view) if self._lenient else view

    def value(self, template: Any, view: TemplateScope) -> Any:
        """Render a template to a plain copy of the data; a rendered text is never rendered again."""
        return self._given(template, self.names(view))

    def _given(self, template: Any, view: TemplateScope) -> Any:
        if is_scoped(template):
            bound = self._value(template[LET], view, "input")
            return {"input": bound, "scope": capture(view, [tuple(path) for path in template[SCOPE]], frozenset())}
        if not is_let(template):
            return self._value(template, view, "")
        bound = self._value(template[LET], view, "input")
        return {"input": bound, "config": self._value(template[IN], _Bound(bound, view), "")}

    def truth(self, template: Any, view: TemplateScope) -> bool:
        """Truth as in Python, except for texts that mean no; `$first` lists rules, each a condition and its answer."""
        return self._truth(template, self.names(view))

    def pieces(self, text: str, view: TemplateScope) -> list[str | EmbeddedValue]:
        """Return the parts of a text with its values as plain copies, for callers with their own way of quoting."""
        view = self.names(view)
        if is_plain(text):
            return [text] if text else []
        template = self._read(text)
        evaluation = Evaluation(view, self._lenient)
        if template.statements:
            return Walk(text, evaluation).pieces_of(template.statements)
        return [
            piece if isinstance(piece, str) else EmbeddedValue(evaluated(evaluation, text, piece, _copied), piece.at)
            for piece in template.pieces
        ]

    def paths(self, template: Any) -> Sequence[Path]:
        return paths_of(template)

    def _truth(self, template: Any, view: TemplateScope) -> bool:
        if _is_first(template):
            return next((decides for condition, decides in template[_FIRST] if self._truth(condition, view)), True)
        value = self._text(template, view, _as_it_is) if isinstance(template, str) else self._given(template, view)
        return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)

    def _value(self, template: Any, view: TemplateScope, key: str) -> Any:
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

    def _text(self, text: str, view: TemplateScope, finish: Finish) -> Any:
        """Render a text; `finish` makes the result from the value of a text that is a single expression."""
        if is_plain(text):
            return text
        template = self._read(text)
        evaluation = Evaluation(view, self._lenient)
        if template.whole is not None:
            return evaluated(evaluation, text, template.whole, finish)
        if template.statements:
            return Walk(text, evaluation).text_of(template.statements)
        parts: list[str] = []
        size = 0
        for piece in template.pieces:
            parts.append(piece if isinstance(piece, str) else evaluated(evaluation, text, piece, self._shown))
            size += len(parts[-1])
            if size > LARGEST:
                raise CannotEvaluate(TOO_LARGE)
        return "".join(parts)

    def _read(self, text: str) -> Text:
        try:
            return read(text, self._lenient)
        except Wrong as wrong:
            raise CannotEvaluate(f"{wrong.message} ({where(text, wrong.at)})") from None

    def _shown(self, value: Any, is_path: bool) -> str:
        return text_of(value, self._lenient)


class _Bound:
    """A view in which some names are bound, bare and under `input`."""

    def __init__(self, bound: dict[str, Any], view: TemplateScope) -> None:
        self._bound, self._view = bound, view

    def __getitem__(self, name: str) -> Any:
        if name == "input":
            return ChainMap(self._bound, self._input())
        return self._bound[name] if name in self._bound else self._view[name]

    def _input(self) -> Any:
        """Return the run's input, or an empty map where the view has none."""
        try:
            found = unaliased(self._view["input"])
        except (CannotEvaluate, KeyError):
            return {}
        return found if isinstance(found, Mapping) else {}


def _is_first(template: Any) -> bool:
    """Whether it is a list of rules: the first one that holds decides; if none holds, the answer is yes."""
    return isinstance(template, dict) and template.keys() == {_FIRST} and isinstance(template[_FIRST], (list, tuple))


def _copied(value: Any, is_path: bool) -> Any:
    return named(value) if is_path else made(value)


def _as_it_is(value: Any, is_path: bool) -> Any:
    return value
