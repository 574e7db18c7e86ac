"""What the code of a NoETL file can use: its `context`, modules without an import, and its printed output."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

from refold.templates.sql_results import STATEMENTS, is_sql_result

MODULES = ("os", "json", "datetime", "uuid")
KEPT = 64 * 1024  # characters of each stream that a result can hold


class StepResult(dict[str, Any]):
    """The result of a step; if it has no `data`, the whole result is the data."""

    def __missing__(self, key: str) -> Any:
        if key == "data":
            return self
        raise KeyError(key)

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if key in self or key == "data" else default


def _read_only(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("`context` can be read and not changed: what a step gives is its result")


class ReadOnlyDict(dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = _read_only
    clear = pop = popitem = setdefault = update = _read_only


class SqlResult(StepResult):
    """What a statement has returned; it is also under the number that NoETL gives to the statement."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        super().__init__({"command_0": dict(value), **value})

    def __missing__(self, key: str) -> Any:
        return self["command_0"] if key in STATEMENTS else super().__missing__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key, self["command_0"] if key in STATEMENTS else default)

    def __contains__(self, key: object) -> bool:
        return key in STATEMENTS or super().__contains__(key)


def with_statements(value: Any) -> Any:
    """Return a value in which each result of SQL, at any depth, is also under the number of its statement."""
    if type(value) is list:
        return [with_statements(each) for each in value] if any(type(each) is dict for each in value) else value
    if type(value) is not dict:
        return value
    if is_sql_result(value):
        return SqlResult(value)
    return {name: with_statements(each) for name, each in value.items()}


def scope_of(given: Mapping[str, Any]) -> ReadOnlyDict:
    found = {name: with_statements(value) for name, value in given.items()}
    return ReadOnlyDict({name: StepResult(each) if type(each) is dict else each for name, each in found.items()})


def modules() -> dict[str, Any]:
    return {name: import_module(name) for name in MODULES}


class Overheard:
    """The output of a call, up to a limit, for a result that is nothing but output."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._room = dict.fromkeys(self._texts, KEPT)

    def hear(self, stream: str, text: str) -> None:
        if self._room[stream] > 0:
            self._texts[stream].append(text[: self._room[stream]])
            self._room[stream] -= len(text)

    def told(self) -> dict[str, str]:
        return {stream: "".join(texts) for stream, texts in self._texts.items()}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """To the streams of this process, which has one call at a time."""
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = _Ear(before[0], self, "stdout"), _Ear(before[1], self, "stderr")
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


class _Ear:
    def __init__(self, stream: Any, overheard: Overheard, name: str) -> None:
        self._stream, self._overheard, self._name = stream, overheard, name

    def write(self, text: str) -> int:
        self._overheard.hear(self._name, text)
        written: int = self._stream.write(text)
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
