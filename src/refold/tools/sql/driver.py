"""Libraries that block run on threads, and are interrupted for real when time is up or nobody waits any longer.

A thread that hears no interruption is given up after a patience: whoever waits goes on, and no exit waits for it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from threading import Lock, Thread
from typing import Any, Generic, Protocol, Self, TypeVar

from msgspec import Struct

from refold.errors import ToolFailed
from refold.logs import DEBUG, WARNING, event, logger
from refold.ports import ToolCall
from refold.time_limits import waiting
from refold.tool_api import Keys, ToolInfo
from refold.tools.sql.faults import failure, timed_out
from refold.tools.sql.request import SqlRequest, file_of, request_of
from refold.tools.sql.text import Statement, Style

log = logger("tools")

THREADS = 32  # at once, and as many again that were given up
AGAIN = 0.05  # seconds between two interruptions: one that comes before the statement begins is not heard
PATIENCE = 5.0  # seconds of interrupting

Answer = TypeVar("Answer")


class GivenUp(TimeoutError):
    """Time is up, and the thread could not be stopped: it continues, and its result is dropped."""


class Work:
    """What one call does on its thread; all but `check` may be called from another, at any time.

    `at_last` is called when a thread that was given up ends after all: what it held is free then, and not before.
    """

    def __init__(self, stop: Callable[[], Any] | None = None, at_last: Callable[[], Any] | None = None) -> None:
        self.stop, self.at_last = stop, at_last
        self.given_up = False
        self._ended = False
        self._lock = Lock()

    def interrupt(self) -> None:
        if self.stop is not None:
            try:
                self.stop()
            except Exception as error:  # closed in the meantime: then there is nothing left to stop
                event(log, DEBUG, "a statement could not be interrupted", why=type(error).__name__)

    def give_up(self) -> bool:
        """Give the work up. Return False if it has just ended."""
        with self._lock:
            self.given_up = not self._ended
            return self.given_up

    def end(self) -> bool:
        """Return False if the caller has given up, so that the result is dropped."""
        with self._lock:
            self._ended = True
            return not self.given_up

    def check(self) -> None:
        """Before what cannot be taken back: nobody would learn of it, and it may have been done again by others."""
        if self.given_up:
            raise GivenUp


class BlockingCalls:
    def __init__(self, name: str, patience: float = PATIENCE) -> None:
        self.name, self.patience = name, patience
        self._room = asyncio.Semaphore(THREADS)
        self._lost: set[Work] = set()

    async def run(self, work: Work, do: Callable[[], Answer], timeout: float | None) -> Answer:
        """Raises TimeoutError when time is up. It returns when the thread is done, however it ends, or given up."""
        if len(self._lost) >= THREADS:
            why = f"{len(self._lost)} calls of {self.name} do not end, though they were interrupted; start it anew"
            raise failure("db_connection", why, "THREADS_LOST")
        with waiting():
            await self._room.acquire()
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            doing = self._begun(work, do)
            try:
                async with asyncio.timeout_at(until):
                    return await asyncio.shield(doing)
            except (TimeoutError, asyncio.CancelledError) as why:
                await self._stop(work, doing)
                if work.given_up and isinstance(why, TimeoutError):
                    raise GivenUp from None
                if doing.cancelled() or doing.exception() is not None or isinstance(why, asyncio.CancelledError):
                    raise
                return doing.result()  # it was done in the same moment: what is committed counts
        finally:
            self._room.release()

    def _begun(self, work: Work, do: Callable[[], Answer]) -> "asyncio.Future[Answer]":
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()
        Thread(target=self._serve, args=(work, do, future), name=f"refold-{self.name}", daemon=True).start()
        return asyncio.wrap_future(future)

    def _serve(self, work: Work, do: Callable[[], Answer], future: "Future[Answer]") -> None:
        try:
            come: tuple[Any, BaseException | None] = do(), None
        except BaseException as error:
            come = None, error
        if work.end():
            _settle(future, *come)
            return
        self._lost.discard(work)
        if work.at_last is not None:
            try:
                work.at_last()
            except Exception as error:  # nobody waits who could be told
                event(log, WARNING, "what a lost thread held was not freed", thread=self.name, why=type(error).__name__)

    async def _stop(self, work: Work, doing: "asyncio.Future[Any]") -> None:
        now = asyncio.get_running_loop().time
        until = now() + self.patience
        while not doing.done() and now() < until:
            work.interrupt()
            await _settled(doing)
        if doing.done():
            return
        self._lost.add(work)  # before its thread can take it away again
        if work.give_up():
            doing.cancel()
        else:
            self._lost.discard(work)
            await _settled(doing)


def _settle(future: "Future[Answer]", value: Answer, error: BaseException | None) -> None:
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


async def _settled(doing: "asyncio.Future[Any]") -> None:
    """Wait until the work is done, for a short time at most. Another cancellation does not leave the thread behind."""
    with suppress(asyncio.CancelledError):
        await asyncio.wait([doing], timeout=AGAIN)


class SqlConnection(Protocol):
    def execute(self, query: str, /) -> Any: ...

    def interrupt(self) -> Any: ...


Db = TypeVar("Db", bound=SqlConnection)
Result = TypeVar("Result")


class Driver(Struct, frozen=True):
    """A library that blocks: the exceptions it raises, and what they mean."""

    error: type[Exception]
    fault_of: Callable[[Any, Statement | None], ToolFailed]

    @contextmanager
    def faults(self, statement: Statement | None = None) -> Iterator[None]:
        try:
            yield
        except self.error as error:
            raise self.fault_of(error, statement) from None

    def answer(
        self, db: SqlConnection, request: SqlRequest, work: Work, one: Callable[[Statement], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the result of the last statement. A commit that another lock delays too long fails as a whole."""
        with self.faults():
            if request.as_one:
                db.execute("begin")
            result = self._each(request, work, one)
            if request.as_one:
                work.check()
                db.execute("commit")
        return result

    def _each(self, request: SqlRequest, work: Work, one: Callable[[Statement], dict[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for statement in request.statements:
            work.check()
            with self.faults(statement):
                result = one(statement)
        return result


class BlockingTool:
    """A tool that runs each call on a thread, which opens and closes a connection."""

    def __init__(
        self,
        info: ToolInfo,
        style: Style,
        timeout_code: str,
        answer: Callable[[Mapping[str, Any], SqlRequest, Work], dict[str, Any]],
    ) -> None:
        self._keys, self._style, self._timeout_code, self._answer = Keys(info), style, timeout_code, answer
        self.blocking = BlockingCalls(info.kind)

    async def __call__(self, call: ToolCall) -> Any:
        keys = _with_files(call, self._keys.read(call).keys)
        request, work = request_of(call, keys, self._style), Work()
        try:
            return await self.blocking.run(work, lambda: self._answer(keys, request, work), request.timeout)
        except TimeoutError as error:
            raise timed_out(request.timeout, self._timeout_code, stopped=not isinstance(error, GivenUp)) from None

    async def close(self) -> None:
        """Do nothing: no connection stays open between two calls."""


def _with_files(call: ToolCall, keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keys with the files of databases as this process finds them."""
    files: dict[str, Any] = {}
    if isinstance(keys.get("database"), str):
        files["database"] = file_of(call, keys["database"])
    if isinstance(keys.get("attach"), Mapping):
        attached = keys["attach"].items()
        files["attach"] = {name: file_of(call, each) if isinstance(each, str) else each for name, each in attached}
    return {**keys, **files}


class SharedConnection(Generic[Db]):
    """A connection that several calls use, one after the other, each on a thread; so are opening and closing it.

    It is closed in any case: at the end, or by the thread that does not give it back.
    """

    db: Db

    def __init__(
        self, driver: Driver, blocking: BlockingCalls, connect: Callable[[], AbstractContextManager[Db]]
    ) -> None:
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
