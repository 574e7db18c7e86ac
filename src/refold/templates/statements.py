"""Executes statements: walks through the tree of a text, with names of its own and within limits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.core.expressions import CannotEvaluate, TemplateScope
from refold.templates.blocks import Body, For, If, Part, Set, SetText
from refold.templates.compiler import Expression
from refold.templates.data import ITEM, LARGEST, TOO_LARGE, Copies, bare, kind
from refold.templates.evaluation import Evaluation
from refold.templates.rendering import Finish, evaluated, where
from refold.templates.text import EmbeddedValue

MOST_TURNS = 100_000  # of all loops of one text together
_TO_TURN, _TO_WALK = 2 * ITEM, 3 * ITEM
_TO_EVALUATE = 8 * ITEM  # for each part of an expression
_TOO_MANY_TURNS = f"the loops of this text take more than {MOST_TURNS:,} turns, and that is work for a step"
_UNDEFINED = object()

Put = Callable[[str | Expression], None]


class _Space(dict[str, Any]):
    """A value that `namespace(…)` created: only such values have fields that can be set."""


class _Names:
    """The view, with the names that statements bind merged over it."""

    def __init__(self, view: TemplateScope) -> None:
        self.view = view
        self.frames: list[dict[str, Any]] = [{}]

    def __getitem__(self, name: str) -> Any:
        frame = self.frame_of(name)
        if frame is None:
            return self.view[name]
        if frame[name] is _UNDEFINED:
            raise KeyError(name)
        return frame[name]

    def frame_of(self, name: str) -> dict[str, Any] | None:
        for frame in self.frames[::-1]:
            if name in frame:
                return frame
        return None


class Walk:
    """Executes the statements of one text, once."""

    def __init__(self, text: str, evaluation: Evaluation) -> None:
        self.text, self.evaluation = text, evaluation
        self._names = _Names(evaluation.view)
        evaluation.view = self._names
        self._turns = 0

    def text_of(self, body: Body) -> str:
        written = _Written(self)
        self._through(body, written)
        return "".join(written.parts)

    def pieces_of(self, body: Body) -> list[str | EmbeddedValue]:
        collected = _Collected(self)
        self._through(body, collected)
        return collected.pieces

    def evaluated(self, expression: Expression, finish: Finish, nothing: Any = None) -> Any:
        self.evaluation.charge(_cost(expression))
        return evaluated(self.evaluation, self.text, expression, finish, nothing)

    def _through(self, body: Body, put: Put) -> None:
        for part in body:
            self.evaluation.charge(ITEM if isinstance(part, str) else _TO_WALK)
            if isinstance(part, (str, Expression)):
                put(part)
            else:
                self._do(part, put)

    def _do(self, part: Part, put: Put) -> None:
        match part:
            case If():
                self._choose(part, put)
            case For():
                self._repeat(part, put)
            case Set():
                self._bind(part)
            case SetText():
                text = self.text_of(part.body)
                self.evaluation.charge(len(text))
                self._names.frames[-1][part.name] = text

    def _choose(self, choice: If, put: Put) -> None:
        for condition, body in choice.arms:
            if condition is None or self.evaluated(condition, _is_true):
                return self._through(body, put)
        return None

    def _repeat(self, loop: For, put: Put) -> None:
        elements = self.evaluated(loop.items, self._elements)
        if loop.condition is not None:
            elements = [each for each in elements if self._in_turn(loop, each, {}, self._holds)]
        count = len(elements)
        for index, each in enumerate(elements):
            names = {"loop": _place(elements, index, count)} if loop.counts else {}
            self._in_turn(loop, each, names, lambda loop: self._through(loop.body, put))
        if not count:
            self._names.frames.append({})
            self._through(loop.otherwise, put)
            self._names.frames.pop()

    def _elements(self, value: Any, is_path: bool) -> Sequence[Any]:
        data = bare(self._held(value, is_path))
        if data is None and self.evaluation.lenient:
            return ()
        if not isinstance(data, (list, tuple, str, Mapping)):
            raise CannotEvaluate(f"{kind(data)} is not a list to go through")
        if len(data) > MOST_TURNS:
            raise CannotEvaluate(_TOO_MANY_TURNS)
        return list(data) if isinstance(data, Mapping) else data

    def _holds(self, loop: For) -> bool:
        assert loop.condition is not None
        return bool(self.evaluated(loop.condition, _is_true))

    def _in_turn(self, loop: For, element: Any, names: dict[str, Any], act: Callable[[For], Any]) -> Any:
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise CannotEvaluate(f"{_TOO_MANY_TURNS} ({where(self.text, loop.at)})")
        self.evaluation.charge(_TO_TURN)
        names.update(self._unpacked(loop.names, self.evaluation.shown(element), loop.at))
        self._names.frames.append(names)
        result = act(loop)
        self._names.frames.pop()
        return result

    def _bind(self, part: Set) -> None:
        value = self.evaluated(part.value, self._held, _UNDEFINED)
        if part.field:
            self._change(part, value)
        elif part.space:
            self._names.frames[-1][part.names[0]] = _Space(bare(value))
        else:
            self._names.frames[-1].update(self._unpacked(part.names, value, part.at))

    def _change(self, part: Set, value: Any) -> None:
        """Replace a name space by a copy with one field changed."""
        name = part.names[0]
        frame = self._names.frame_of(name)
        space = frame[name] if frame is not None else None
        if frame is None or not isinstance(space, _Space):
            message = f"{name!r} is not made by `namespace(…)`, and only fields of such names can be set"
            raise CannotEvaluate(f"{message} ({where(self.text, part.at)})")
        changed = _Space({**space, part.field: None if value is _UNDEFINED else value})
        self.evaluation.hold(changed)
        frame[name] = changed

    def _held(self, value: Any, is_path: bool) -> Any:
        """Return a value to be bound to a name. A new value is charged in full; existing data is not."""
        if not is_path and value is not _UNDEFINED:
            self.evaluation.hold(value)
        return value

    def _unpacked(self, names: tuple[str, ...], value: Any, at: int) -> dict[str, Any]:
        if len(names) == 1:
            return {names[0]: value}
        data = bare(value)
        if not isinstance(data, (list, tuple)) or len(data) != len(names):
            what = f"a list of {len(data)}" if isinstance(data, (list, tuple)) else kind(data)
            raise CannotEvaluate(f"{what} cannot be unpacked into {len(names)} names ({where(self.text, at)})")
        return {name: self.evaluation.shown(each) for name, each in zip(names, data, strict=True)}


class _Written:
    """Collects the rendered text."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.parts: list[str] = []
        self._size = 0

    def __call__(self, part: str | Expression) -> None:
        text = part if isinstance(part, str) else self.walk.evaluated(part, self._shown)
        self.parts.append(text)
        self._size += len(text)
        if self._size > LARGEST:
            raise CannotEvaluate(TOO_LARGE)

    def _shown(self, value: Any, is_path: bool) -> str:
        text = self.walk.evaluation.written(value)
        self.walk.evaluation.charge(2 * len(text))
        return text


class _Collected:
    """Collects the parts of a text with plain copies of its values; all of them together are limited."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.pieces: list[str | EmbeddedValue] = []
        self._copies = Copies(free=False)

    def __call__(self, part: str | Expression) -> None:
        if isinstance(part, str):
            self.pieces.append(self._copies.of(part))
        else:
            self.pieces.append(EmbeddedValue(self.walk.evaluated(part, self._copied), part.at))

    def _copied(self, value: Any, is_path: bool) -> Any:
        return self._copies.of(value)


def _cost(expression: Expression) -> int:
    """Return the cost of evaluating an expression, without the cost of what its parts create."""
    return _TO_WALK + _TO_EVALUATE * expression.size if expression.path is None else _TO_WALK


def _is_true(value: Any, is_path: bool) -> bool:
    return bool(value)


def _place(elements: Sequence[Any], index: int, count: int) -> dict[str, Any]:
    """Return the value of `loop` in one turn of a loop."""
    place: dict[str, Any] = {
        "index": index + 1,
        "index0": index,
        "revindex": count - index,
        "revindex0": count - index - 1,
        "first": index == 0,
        "last": index == count - 1,
        "length": count,
    }
    if index:
        place["previtem"] = elements[index - 1]
    if index + 1 < count:
        place["nextitem"] = elements[index + 1]
    return place
