"""The bench as async tests see it: the same calls, awaited, while the loop of the test goes on."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from refold.testing.bench.bench import EPOCH, PATIENCE, Bench, Target
from refold.testing.bench.fakes import Called
from refold.testing.bench.given import GivenRun
from refold.testing.bench.recordings import Recording
from refold.testing.bench.run import LONG, R, Run

if TYPE_CHECKING:
    from refold.python.workflow import Flow, Workflow

P = ParamSpec("P")
T = TypeVar("T")


class _Thread:
    """The one on which a bench is worked."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "refold-bench")

    async def do(self, work: Callable[..., T], *given: Any, **named: Any) -> T:
        work_here = partial(copy_context().run, work, *given, **named)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work_here)

    def close(self) -> None:
        self._pool.shutdown()


class AsyncRun(Generic[R]):
    """What a run is and does is at hand in `sync`; what lets time pass is awaited."""

    def __init__(self, thread: _Thread, run: Run[R]) -> None:
        self._thread, self.sync, self.id = thread, run, run.id

    def __repr__(self) -> str:
        return repr(self.sync)

    async def result(self, within: str | float = LONG) -> R:
        return await self._thread.do(self.sync.result, within)

    @property
    def status(self) -> str:
        return self.sync.status

    @property
    def error(self) -> str:
        return self.sync.error

    @property
    def waits(self) -> list[str]:
        return self.sync.waits

    def story(self) -> str:
        return self.sync.story()

    async def steps(self) -> Mapping[str, Mapping[str, Any]]:
        return await self._thread.do(self.sync.steps)

    async def signal(self, name: str, value: Any = None) -> None:
        await self._thread.do(self.sync.signal, name, value)

    async def answer(self, value: Any, request: str = "") -> None:
        await self._thread.do(self.sync.answer, value, request)

    async def decide(self, step: str, option: str = "approve", *, by: str = "", feedback: Any = None) -> None:
        await self._thread.do(self.sync.decide, step, option, by=by, feedback=feedback)

    async def pause(self) -> None:
        await self._thread.do(self.sync.pause)

    async def resume(self) -> None:
        await self._thread.do(self.sync.resume)

    async def cancel(self, reason: str = "") -> None:
        await self._thread.do(self.sync.cancel, reason)


class AsyncBench:
    def __init__(self, thread: _Thread, bench: Bench) -> None:
        self._thread, self.sync = thread, bench

    @overload
    async def run(self, workflow: "Flow[P, T]", /, *inputs: P.args, **named: P.kwargs) -> T: ...

    @overload
    async def run(self, workflow: "Workflow[T] | type[Workflow[T]]", /, *inputs: Any, **named: Any) -> T: ...

    @overload
    async def run(self, workflow: Target, /, *inputs: Any, **named: Any) -> Any: ...

    async def run(self, workflow: Target, /, *inputs: Any, **named: Any) -> Any:
        return await self._thread.do(self.sync.run, workflow, *inputs, **named)

    @overload
    async def start(self, workflow: "Flow[P, T]", /, *inputs: P.args, **named: P.kwargs) -> AsyncRun[T]: ...

    @overload
    async def start(
        self, workflow: "Workflow[T] | type[Workflow[T]]", /, *inputs: Any, **named: Any
    ) -> AsyncRun[T]: ...

    @overload
    async def start(self, workflow: Target, /, *inputs: Any, **named: Any) -> AsyncRun: ...

    async def start(self, workflow: Target, /, *inputs: Any, **named: Any) -> AsyncRun:
        return AsyncRun(self._thread, await self._thread.do(self.sync.start, workflow, *inputs, **named))

    async def advance(self, span: str | float) -> None:
        await self._thread.do(self.sync.advance, span)

    def given(self, workflow: Target, **inputs: Any) -> GivenRun:
        """The same as for others: what it does takes no time, so there is nothing to await."""
        return self.sync.given(workflow, **inputs)

    @property
    def now(self) -> datetime:
        return self.sync.now

    def fake(self, name: str, gives: Any = None) -> None:
        self.sync.fake(name, gives)

    def allow(self, *kinds: str) -> None:
        self.sync.allow(*kinds)

    def calls(self, name: str = "") -> list[Called]:
        return self.sync.calls(name)

    def record(self, run: "AsyncRun | Run | str", file: str | os.PathLike[str]) -> Recording:
        return self.sync.record(run.sync if isinstance(run, AsyncRun) else run, file)

    def replay(self, *files: str | os.PathLike[str], live: Sequence[str] = ()) -> None:
        self.sync.replay(*files, live=live)

    @property
    def unrecorded(self) -> list[str]:
        return self.sync.unrecorded


class engine:
    """`with engine() as t:` is a Bench, `async with engine() as t:` the same for async tests.

    `now` is when it begins, `seed` decides what chance brings, `secrets` are those that steps may read, `patience` is
    how much real time one call may take.
    """

    def __init__(
        self,
        *,
        now: str = EPOCH,
        seed: int = 0,
        secrets: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._options: dict[str, Any] = {"now": now, "seed": seed, "secrets": secrets, "patience": patience}
        self._bench: Bench | None = None
        self._thread: _Thread | None = None

    def __enter__(self) -> Bench:
        self._bench = Bench(**self._options)
        return self._bench

    def __exit__(self, *_: object) -> None:
        assert self._bench is not None
        self._bench.close()

    async def __aenter__(self) -> AsyncBench:
        self._thread = _Thread()
        self._bench = await self._thread.do(Bench, **self._options)
        return AsyncBench(self._thread, self._bench)

    async def __aexit__(self, *_: object) -> None:
        assert self._bench is not None and self._thread is not None
        await self._thread.do(self._bench.close)
        self._thread.close()
