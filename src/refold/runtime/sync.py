"""The engine and the handle for code without `async`: Flask, Django, scripts. The same engine, on a thread of its own.

Nothing is implemented here: every call is the call of the engine, made on the thread of its event loop, and waited for.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from refold.errors import Conflict
from refold.ports import FeedFact
from refold.runtime.engine import Engine, Starter
from refold.runtime.handle import Handle, Shown
from refold.runtime.keys import KeyPolicy, OnTaken

if TYPE_CHECKING:
    from refold.core.plan import Plan
    from refold.playbooks.playbook import Playbook
    from refold.python.startable import AnyWorkflow, StartInput
    from refold.python.workflow import Flow, Workflow

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", covariant=True)


class LoopThread:
    """A thread with an event loop, in which an engine is open until `close`."""

    def __init__(self, opening: AbstractAsyncContextManager[Engine]) -> None:
        self._opening = opening
        self._opened: Future[tuple[Engine, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="refold-engine", daemon=True)
        self._error: BaseException | None = None
        self._thread.start()
        try:
            self.engine, self._loop, self._stop = self._opened.result()
        except BaseException:
            self._thread.join()
            raise

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
            if not self._opened.done():
                self._opened.set_exception(error)

    async def _serve(self) -> None:
        async with self._opening as engine:
            stop = asyncio.Event()
            self._opened.set_result((engine, asyncio.get_running_loop(), stop))
            await stop.wait()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work on the loop and return its result. If the caller is interrupted, the work is cancelled."""
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            work.close()
            inside = "it was called on the thread of its own event loop; use `async with refold.open_engine()` there"
            raise Conflict(f"the engine cannot be used here: {inside if self._thread.is_alive() else 'it is closed'}")
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except CancelledError:
            self._thread.join()
            raise (self._error or Conflict("the engine was closed while a call waited for it")) from None
        except BaseException:
            done.cancel()
            raise

    def close(self) -> None:
        """Close the engine and wait until that is done. Raises what has ended the engine."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._error is not None:
            raise self._error


class Face(Protocol):
    """An object whose calls are those of another one, on the thread of the engine."""

    @property
    def inner(self) -> Any: ...

    @property
    def thread(self) -> LoopThread: ...


class BlockingMethod(Generic[P, T]):
    """A method of the inner object, which returns when it is done."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._name, self.__doc__ = method.__name__, method.__doc__

    def __get__(self, face: Face, owner: type | None = None) -> Callable[P, T]:
        def call(*inputs: P.args, **named: P.kwargs) -> T:
            work: Coroutine[Any, Any, T] = getattr(face.inner, self._name)(*inputs, **named)
            return face.thread.wait(work)

        call.__name__, call.__doc__ = self._name, self.__doc__
        return call


class SyncHandle(Generic[R]):
    """What `Handle` is, for code without `async`."""

    def __init__(self, handle: Handle[R], thread: LoopThread) -> None:
        self.inner, self.thread, self.id = handle, thread, handle.id

    def result(self, answer: Callable[[Any], Any] | None = None) -> R:
        """Wait for the end of the run and return its result; see `Handle.result`."""
        return self.thread.wait(self.inner.result(answer))

    def stream(self, after: int = 0, *, children: bool | None = None) -> Iterator[Shown]:
        """All that the run shows, until the run is over; see `Handle.stream`."""
        shown = self.inner.stream(after, children=children)
        while (each := self.thread.wait(_next(shown))) is not None:
            yield each

    def migrate(self, workflow: "AnyWorkflow", by: str = "") -> "SyncHandle[Any]":
        """Let the run follow this workflow from here on; see `Handle.migrate`."""
        return SyncHandle(self.thread.wait(self.inner.migrate(workflow, by)), self.thread)

    pause = BlockingMethod(Handle.pause)
    resume = BlockingMethod(Handle.resume)
    cancel = BlockingMethod(Handle.cancel)
    get = BlockingMethod(Handle.get)
    latest = BlockingMethod(Handle.latest)
    request = BlockingMethod(Handle.request)
    signal = BlockingMethod(Handle.signal)
    requests = BlockingMethod(Handle.requests)
    answer = BlockingMethod(Handle.answer)
    export = BlockingMethod(Handle.export)
    why = BlockingMethod(Handle.why)
    usage = BlockingMethod(Handle.usage)
    progress = BlockingMethod(Handle.progress)


async def _next(shown: AsyncIterator[T]) -> T | None:
    return await anext(shown, None)


class SyncStarter:
    """What `engine.options` returns, for code without `async`. All its keywords are inputs."""

    def __init__(self, starter: Starter | Engine, thread: LoopThread) -> None:
        self.inner, self.thread = starter, thread

    @overload
    def start(self, workflow: "Flow[P, T]", /, *inputs: P.args, **named: P.kwargs) -> SyncHandle[T]: ...

    @overload
    def start(
        self, workflow: "Workflow[T] | type[Workflow[T]]", input: "StartInput" = None, /, **named: Any
    ) -> SyncHandle[T]: ...

    @overload
    def start(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> SyncHandle[Any]: ...

    def start(self, workflow: Any, /, *inputs: Any, **named: Any) -> SyncHandle[Any]:
        """Start a run and return its handle."""
        return SyncHandle(self.thread.wait(self.inner.start(workflow, *inputs, **named)), self.thread)

    @overload
    def run(self, workflow: "Flow[P, T]", /, *inputs: P.args, **named: P.kwargs) -> T: ...

    @overload
    def run(self, workflow: "Workflow[T] | type[Workflow[T]]", input: "StartInput" = None, /, **named: Any) -> T: ...

    @overload
    def run(self, workflow: "Plan | Playbook", input: "StartInput" = None, /, **named: Any) -> Any: ...

    def run(self, workflow: Any, /, *inputs: Any, **named: Any) -> Any:
        """Start a run and wait for its result. Raises RunFailed or RunCancelled."""
        return self.thread.wait(self.inner.run(workflow, *inputs, **named))


class SyncEngine(SyncStarter):
    """What `Engine` is, for code without `async`. Any number of threads may use it at the same time."""

    def __init__(self, thread: LoopThread) -> None:
        super().__init__(thread.engine, thread)
        self.engine = thread.engine

    def options(
        self,
        *,
        key: str = "",
        name: str = "",
        run: str = "",
        labels: Mapping[str, str] | None = None,
        key_policy: KeyPolicy = "forever",
        on_taken: OnTaken = "return",
        cancel_with_caller: bool = False,
        queue: str = "",
        priority: int | None = None,
        share: str = "",
        limit: str = "",
    ) -> SyncStarter:
        """What is said about a run beside its inputs; see `Engine.options`."""
        starter = self.engine.options(
            key=key,
            name=name,
            run=run,
            labels=labels,
            key_policy=key_policy,
            on_taken=on_taken,
            cancel_with_caller=cancel_with_caller,
            queue=queue,
            priority=priority,
            share=share,
            limit=limit,
        )
        return SyncStarter(starter, self.thread)

    @overload
    def attach(self, run: str, workflow: "Flow[P, T]") -> SyncHandle[T]: ...

    @overload
    def attach(self, run: str, workflow: "Workflow[T] | type[Workflow[T]]") -> SyncHandle[T]: ...

    @overload
    def attach(self, run: str, workflow: "Plan | Playbook | None" = None) -> SyncHandle[Any]: ...

    def attach(self, run: str, workflow: Any = None) -> SyncHandle[Any]:
        """A handle for a run that exists; see `Engine.attach`."""
        return SyncHandle(self.thread.wait(self.engine.attach(run, workflow)), self.thread)

    register = BlockingMethod(Engine.register)
    result = BlockingMethod(Engine.result)
    wait = BlockingMethod(Engine.wait)
    show = BlockingMethod(Engine.show)
    runs = BlockingMethod(Engine.runs)
    history = BlockingMethod(Engine.history)
    logs = BlockingMethod(Engine.logs)
    export = BlockingMethod(Engine.export)
    restore = BlockingMethod(Engine.restore)
    signal = BlockingMethod(Engine.signal)
    decide = BlockingMethod(Engine.decide)
    pause = BlockingMethod(Engine.pause)
    resume = BlockingMethod(Engine.resume)
    retry = BlockingMethod(Engine.retry)
    cancel = BlockingMethod(Engine.cancel)
    migrate = BlockingMethod(Engine.migrate)
    migrate_all = BlockingMethod(Engine.migrate_all)
    retry_items = BlockingMethod(Engine.retry_items)
    cancel_items = BlockingMethod(Engine.cancel_items)
    progress = BlockingMethod(Engine.progress)
    questions = BlockingMethod(Engine.questions)
    current = BlockingMethod(Engine.current)
    request = BlockingMethod(Engine.request)

    def feed(self, cursor: str = "", *, follow: bool = False) -> Iterator[FeedFact]:
        """Every fact of every run behind a cursor; see `Engine.feed`."""
        facts = self.engine.feed(cursor, follow=follow)
        while (each := self.thread.wait(_next(facts))) is not None:
            yield each

    def follow(self, run: str, after: int = 0) -> Iterator[tuple[int, Any]]:
        """The lines of its side stream, each with its number, until the run has ended; see `Engine.follow`."""
        lines = self.engine.follow(run, after)
        while (each := self.thread.wait(_next(lines))) is not None:
            yield each
