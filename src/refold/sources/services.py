"""What sources need of the rest of Refold: other tools, the tokens of SQL, a process for Python code."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from refold.ports import Say


class Ask(Protocol):
    """Calls another tool by its name with these keys, and returns its result. Raises ToolFailed."""

    async def __call__(self, tool: str, keys: Mapping[str, Any]) -> Any: ...


class SqlToken(Protocol):
    """A piece of the text of SQL; spaces and comments are tokens too."""

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str: ...


class SourceInterpreter(Protocol):
    """A process that keeps its state from one call to the next, unless it has ended in between."""

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any: ...

    async def close(self) -> None: ...


class Services(Struct, frozen=True, kw_only=True):
    ask: Ask
    tokens: Callable[[str, str], Iterable[SqlToken]]  # of a text, for a kind of database
    lane: Callable[[], SourceInterpreter] | None = None  # None: there are no processes here


class Secret(str):
    """A text from a secret. It is marked, because a cursor is stored and must not contain it."""

    __slots__ = ()
