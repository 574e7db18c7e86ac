"""The engine, minijinja, with what it may read and have done, and with what it raises and swallows."""

from typing import Any

from minijinja import Environment, TemplateError

from refold.core.expressions import Aliased, CannotEvaluate, Missing
from refold.templates.code import NATIVE, Code, Deed, Lookup
from refold.templates.data import SCALARS, VIEWS, in_plain_words, weight_of
from refold.templates.paths import Absent, look_up, not_defined
from refold.templates.workbench import TO_READ, Workbench

FUEL = 100_000  # steps of the engine
_MOST_BITS = 127  # of a number that the engine keeps exactly
_NOTHING = object()
_NO_VALUE = "the expression has no value; `| default(…)` can give it one"
_FILTERS = (
    "abs attr batch bool capitalize chain count d default dictsort e escape filesizeformat first float format groupby"
    " indent int items join last length lines list lower map max min pluralize pprint reject rejectattr replace"
    " reverse round safe select selectattr slice sort split string striptags sum title tojson trim truncate unique"
    " upper urlencode wordwrap zip"
)


def _engine(chainable: bool) -> Environment:
    engine = Environment(undefined_behavior="chainable" if chainable else "strict", fuel=FUEL, pycompat=False)
    for name in set(_FILTERS.split()) - NATIVE:
        engine.remove_filter(name)
    for name in ("escaped", "filter", "safe", "sameas", "test"):
        engine.remove_test(name)
    for name in ("cycler", "debug", "dict", "joiner", "range"):
        engine.remove_global(name)
    return engine


_ENGINES = {chainable: _engine(chainable) for chainable in (False, True)}


class Failed(CannotEvaluate):
    """A part of an expression that has no value, and at which character of its text it stands."""

    def __init__(self, message: str, at: int) -> None:
        self.at = at
        super().__init__(message)


class Evaluation(Workbench):
    """Of the expressions of one text. The first error is kept, because the engine takes some for undefined."""

    __iter__ = None  # else the engine would look for what is undefined by going through all
    _parts: tuple[Lookup | Deed, ...] = ()
    _error: Exception | None = None

    def value(self, code: Code, nothing: Any = None) -> Any:
        """As the engine has it, with lists and maps of its own, and views; raises CannotEvaluate or Missing."""
        self._parts = code.parts
        try:
            value = _ENGINES[self.lenient].eval_expr(code.code, _=self)
        except TemplateError as error:
            raise self._error or CannotEvaluate(_said(error)) from None
        if self._error is not None:
            raise self._error
        if value is not _NOTHING:
            return value
        if self.lenient:
            return nothing
        raise CannotEvaluate(_NO_VALUE)

    def look_up(self, path: Lookup) -> Any:
        """The value as it stands, with its aliases; raises Failed or Missing, and Absent if the path is soft."""
        try:
            return look_up(self.view, path.keys)
        except Absent as absent:
            if path.soft:
                raise
            raise Failed(not_defined(path.keys, absent, self.view), path.at) from None

    def read(self, container: Any, key: Any) -> Any:
        """For the engine: an element of a view."""
        try:
            self.charge(TO_READ)
            return self._handed(container[key])
        except (CannotEvaluate, Missing) as error:
            raise self._noted(error) from None

    def __getitem__(self, number: int) -> Any:
        """For the engine: a lookup. An index error means undefined there."""
        if number < 0:
            return _NOTHING
        part = self._parts[number]
        assert isinstance(part, Lookup)
        try:
            return self._handed(self.look_up(part))
        except Absent:
            raise IndexError(number) from None
        except (CannotEvaluate, Missing) as error:
            raise self._noted(error) from None

    def __call__(self, number: int, *args: Any, **named: Any) -> Any:
        """For the engine: a deed."""
        if self._error is not None:
            raise self._error
        deed = self._parts[number]
        assert isinstance(deed, Deed)
        try:
            result = deed.act(self, *args, **named)
            weight = weight_of(result) if isinstance(result, (list, dict)) else 0
            self.charge(weight)
            return self._handed(result, weight)
        except (Missing, Failed) as error:
            raise self._noted(error) from None
        except (CannotEvaluate, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            message = in_plain_words(str(error))
            raise self._noted(Failed(f"{deed.what}: {message}" if deed.what else message, deed.at)) from None

    def _noted(self, error: Exception) -> Exception:
        self._error = self._error or error
        return self._error

    def _handed(self, value: Any, weight: int = 0) -> Any:
        """As it is given to the engine: text paid for, lists and maps as views, and nothing that JSON has not."""
        if isinstance(value, str):
            self.charge(len(value))
            return str.__str__(value)
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise CannotEvaluate("the number is too large")
        if type(value) in SCALARS:
            return value
        view = self.shown(value, weight)
        if isinstance(view, VIEWS):
            return view
        if isinstance(value, Aliased):
            return self._handed(view)
        raise CannotEvaluate(f"a {type(value).__name__} is no value")


def _said(error: TemplateError) -> str:
    """What the engine says, without the code that it was given."""
    if error.kind == "UndefinedError":
        return _NO_VALUE
    return "this takes too many steps" if error.kind == "OutOfFuel" else error.detail or error.message
