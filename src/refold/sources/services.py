"""What sources ask of the rest of Refold: other tools, the words of SQL, a process for Python code."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from refold.ports import Say


class Ask(Protocol):
    """Another tool, by its name, with these keys; it gives what the tool does. Raises ToolFailed."""

    async def __call__(self, tool: str, keys: Mapping[str, Any]) -> Any: ...


class Token(Protocol):
    """A piece of the text of SQL; spaces and comments are such too."""

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str: ...


class Lane(Protocol):
    """A process of its own: what is left there by one call is there in the next, unless it has died in between."""

    async def run(self, call: str, input: Any, say: Say | None = None) -> Any: ...

    async def close(self) -> None: ...


class Services(Struct, frozen=True, kw_only=True):
    ask: Ask
    tokens: Callable[[str, str], Iterable[Token]]  # of a text, for a kind of database
    lane: Callable[[], Lane] | None = None  # None: there are no processes here


class Secret(str):
    """A text that was read from a secret: a cursor is stored, and must not hold it."""

    __slots__ = ()
