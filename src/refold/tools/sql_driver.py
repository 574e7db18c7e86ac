"""What all libraries that block have in common: statements in a transaction, faults, connections used from threads."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Generic, Protocol, Self, TypeVar

from msgspec import Struct

from refold.descriptions import ToolInfo
from refold.errors import ToolFailed
from refold.ports import Call
from refold.tools.keys import Keys
from refold.tools.sql_blocking import Blocking, GivenUp, Work
from refold.tools.sql_faults import timed_out
from refold.tools.sql_request import Request, request_of
from refold.tools.sql_text import Statement, Style


class Connection(Protocol):
    def execute(self, query: str, /) -> Any: ...

    def interrupt(self) -> Any: ...


Db = TypeVar("Db", bound=Connection)
Result = TypeVar("Result")


class Driver(Struct, frozen=True):
    """A library that blocks: what it raises, and what that means."""

    error: type[Exception]
    fault_of: Callable[[Any, Statement | None], ToolFailed]

    @contextmanager
    def faults(self, statement: Statement | None = None) -> Iterator[None]:
        try:
            yield
        except self.error as error:
            raise self.fault_of(error, statement) from None

    def answer(
        self, db: Connection, request: Request, work: Work, one: Callable[[Statement], dict[str, Any]]
    ) -> dict[str, Any]:
        """What the last statement comes to. A commit that another one's lock holds up fails as a whole."""
        with self.faults():
            if request.as_one:
                db.execute("begin")
            result = self._each(request, work, one)
            if request.as_one:
                work.check()
                db.execute("commit")
        return result

    def _each(self, request: Request, work: Work, one: Callable[[Statement], dict[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for statement in request.statements:
            work.check()
            with self.faults(statement):
                result = one(statement)
        return result


class BlockingTool:
    """A tool whose every call has a thread, and a connection that the thread opens and closes."""

    def __init__(
        self,
        info: ToolInfo,
        style: Style,
        timeout_code: str,
        answer: Callable[[Mapping[str, Any], Request, Work], dict[str, Any]],
    ) -> None:
        self._keys, self._style, self._timeout_code, self._answer = Keys(info), style, timeout_code, answer
        self.blocking = Blocking(info.kind)

    async def __call__(self, call: Call) -> Any:
        keys = self._keys.read(call).keys
        request, work = request_of(call, keys, self._style), Work()
        try:
            return await self.blocking.run(work, lambda: self._answer(keys, request, work), request.timeout)
        except TimeoutError as error:
            raise timed_out(request.timeout, self._timeout_code, stopped=not isinstance(error, GivenUp)) from None

    async def close(self) -> None:
        """Nothing stays open between two calls."""


class Held(Generic[Db]):
    """A connection that several calls use, one after the other, each on a thread; so are opening and closing it.

    It is closed in any case: at the end, or by the thread that does not give it back.
    """

    db: Db

    def __init__(self, driver: Driver, blocking: Blocking, connect: Callable[[], AbstractContextManager[Db]]) -> None:
        self._driver, self._blocking, self._connect = driver, blocking, connect
        self._open = ExitStack()
        self._work = Work()

    async def __aenter__(self) -> Self:
        try:
            self.db = await self._call(lambda: self._open.enter_context(self._connect()))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def run(self, do: Callable[[], Result]) -> Result:
        return await self._call(do, self.db.interrupt)

    def check(self) -> None:
        """On the thread, before what cannot be taken back."""
        self._work.check()

    async def _close(self) -> None:
        if not self._work.given_up:
            await self._call(self._open.close)

    async def _call(self, do: Callable[[], Result], stop: Callable[[], Any] | None = None) -> Result:
        self._work = Work(stop, at_last=self._open.close)
        with self._driver.faults():
            return await self._blocking.run(self._work, do, None)
