"""An expression language for tests: a list gives one value per visit, the last repeats."""

from collections.abc import Mapping, Sequence
from typing import Any

from refold.core.expressions import CannotEvaluate, Path, View, step_into, unaliased


class Scripted:
    """`{"script": [...]}` is the value for this visit, `{"path": [...]}` what a path holds; all else is itself."""

    def names(self, view: View) -> View:
        return view

    def value(self, template: Any, view: View) -> Any:
        match template:
            case {"script": [*values]} if values:
                return self._checked(values[min(view["visit"], len(values)) - 1])
            case {"path": [str() as first, *rest]}:
                return self._look_up(view, first, rest)
            case {"equal": [left, right]}:
                return self.value(left, view) == self.value(right, view)
            case dict():
                return {key: self.value(each, view) for key, each in template.items()}
            case list():
                return [self.value(each, view) for each in template]
            case _:
                return template

    def truth(self, template: Any, view: View) -> bool:
        return bool(self.value(template, view))

    def paths(self, template: Any) -> Sequence[Path]:
        match template:
            case {"path": [*names]}:
                return [tuple(names)]
            case {"script": _}:
                return []
            case dict():
                return [path for each in template.values() for path in self.paths(each)]
            case list():
                return [path for each in template for path in self.paths(each)]
            case _:
                return []

    def _checked(self, value: Any) -> Any:
        if value == "error":
            raise CannotEvaluate("the script says so")
        return value

    def _look_up(self, view: View, first: str, rest: list[str]) -> Any:
        try:
            value = view[first]
            for name in rest:
                value = step_into(value, name)
        except (KeyError, TypeError, IndexError):
            raise CannotEvaluate(f"{'.'.join([first, *rest])!r} is not defined") from None
        value = unaliased(value)
        return dict(value) if isinstance(value, Mapping) else value  # as it is now: the run's own tables go on
