"""A deterministic asyncio event loop: simulated processes on a virtual clock, in an order drawn from a seed."""

import asyncio
import ctypes
import heapq
import itertools
import random
import sys
import warnings
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from math import inf
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from refold.body_tasks import note_task

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Ctx = Context | None
Coro = Generator[Any, None, T] | Coroutine[Any, Any, T]

_PROCESS: ContextVar["SimProcess"] = ContextVar("refold_simulated_process")
_UNWIND_LIMIT = 100  # awaits that the cleanup of one coroutine may still make when the loop is closed


def current_process() -> "SimProcess | None":
    """The process whose code is running, or None for code outside of every process (a test, a hook)."""
    return _PROCESS.get(None)


class Killed(BaseException):
    """The death of a process, raised by its own code.

    Making one inside a process kills it at once: an `async with` around the raise could else await and live on. Code
    that handles it runs up to its next await; what processes share should ask `current_process().alive` first.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if process := current_process():
            process.kill()


class _Handle(asyncio.TimerHandle):
    """A callback of one process, ready or waiting for its time."""

    __slots__ = ("order", "process")
    _callback: Callable[..., object]
    _context: Context
    _when: float
    order: int

    def __init__(self, outside: "SimProcess", callback: Callable[..., object], args: tuple[Any, ...], ctx: Ctx) -> None:
        self._context = copy_context() if ctx is None else ctx
        self._callback = callback
        self._args = args
        self._cancelled = False
        self.process = self._context.get(_PROCESS, outside)

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = bool, ()  # holds nothing, does nothing

    def __repr__(self) -> str:
        return f"<{self._callback!r} of {self.process.name}>"


class _Task(asyncio.Task[T]):
    """A task that hashes by its number, so that sets of tasks (TaskGroup, wait) iterate alike in every run."""

    spawned = False

    def __init__(self, coro: Coro[T], number: int, name: str, context: Context, loop: "SimLoop") -> None:
        self.number = number
        self.process = context.get(_PROCESS, loop._outside)
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number

    def unwind(self) -> None:
        """End the coroutine for good, whatever it does about it; only a closing loop does this."""
        coro = self.get_coro()
        for _ in range(_UNWIND_LIMIT):
            try:
                self.process._context.run(coro.throw, Killed())
            except BaseException:
                return  # its last words concern nobody
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(coro))  # never freed: that would run it again, perhaps for ever


class _Schedule:
    """What time it is and who may run next: one queue per process, drawn from by chance, and the timers of all."""

    def __init__(self, chance: random.Random, fifo: bool) -> None:
        self.now = 0.0
        self.runnable: list[SimProcess] = []  # alive, not paused, with something ready
        self._draw = None if fifo else chance.random
        self._order = itertools.count().__next__
        self.timers: list[tuple[float, int, _Handle]] = []

    def add(self, handle: _Handle) -> None:
        handle.order = self._order()
        process = handle.process
        if not process._ready and process.alive and process._wake is None:
            self.runnable.append(process)
        process._ready.append(handle)  # of the dead too: if it were freed, the coroutines it holds would notice

    def add_timer(self, handle: _Handle) -> None:
        if handle._when > self.now:
            heapq.heappush(self.timers, (handle._when, self._order(), handle))
        else:
            self.add(handle)

    def choose(self, until: float) -> "SimProcess | None":
        """The process to run next, with a live handle at the head of its queue; None if there is none in time."""
        while self.runnable or self._jump(until):
            if self._draw is None:
                process = min(self.runnable, key=lambda process: process._ready[0].order)
            else:
                process = self.runnable[int(self._draw() * len(self.runnable))]
            ready = process._ready
            while ready and ready[0]._cancelled:
                ready.popleft()
            if ready:
                return process
            self.runnable.remove(process)
        return None

    def _jump(self, until: float) -> bool:
        """Move the clock to the next timers that let a process run; False if there are none in time."""
        while self.timers and not self.runnable:
            when, _, handle = self.timers[0]
            if handle._cancelled or not handle.process.alive:
                self.add(heapq.heappop(self.timers)[2])
                continue
            self.now = max(self.now, min(when, until))  # it may have been moved on
            if when > until:
                break
            while self.timers and self.timers[0][0] <= when:
                self.add(heapq.heappop(self.timers)[2])
        return bool(self.runnable)


class SimProcess:
    """One simulated operating system process: the tasks, callbacks and timers that carry it in their context."""

    def __init__(self, name: str, loop: "SimLoop", schedule: _Schedule) -> None:
        self.name = name
        self.alive = True
        self.clock_skew = 0.0  # seconds that its wall clock is ahead of the loop
        self._loop = loop
        self._schedule = schedule
        self._context = Context()  # as empty as that of a new process should be
        self._context.run(_PROCESS.set, self)
        self._ready: deque[_Handle] = deque()
        self._wake: _Handle | None = None  # the end of a pause
        self._tasks: dict[int, _Task[Any]] = {}  # those not done, held: a collected coroutine would run its `finally`

    def __repr__(self) -> str:
        return f"<Process {self.name}{'' if self.alive else ' (dead)'}>"

    def now(self) -> float:
        return self._schedule.now + self.clock_skew

    def spawn(self, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine in this process; if it fails, that is recorded in `loop.errors` at once."""
        if not self.alive:
            coro.close()
            raise RuntimeError(f"process {self.name} is dead")
        task = self._loop.create_task(coro, name=name, context=self._context.copy())
        task.spawned = True
        return task

    def kill(self) -> None:
        """SIGKILL: nothing of it runs again, no `finally` either; if its own code calls this, up to its next await."""
        if self.alive:
            self._stop()
            self.alive = False
            for task in self._tasks.values():
                asyncio.tasks._unregister_task(task)  # `asyncio.all_tasks` lists the living

    def pause(self, seconds: float) -> None:
        """SIGSTOP now and SIGCONT in so many seconds: it then finds all its timers that came due meanwhile."""
        until = self._schedule.now + seconds
        if self.alive and until > (self._schedule.now if self._wake is None else self._wake._when):
            self._stop()
            self._wake = self._loop.call_at(until, self._go_on, context=Context())

    def _stop(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
        if self in self._schedule.runnable:
            self._schedule.runnable.remove(self)

    def _go_on(self) -> None:
        self._wake = None
        if self._ready:
            self._schedule.runnable.append(self)


class _Refused:
    """A call that would reach beyond the simulation; it is refused by the name it is set under."""

    def __set_name__(self, owner: type, name: str) -> None:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise RuntimeError(f"{name}: not in a simulation")

        setattr(owner, name, refuse)


_REFUSED: Any = _Refused()


class SimLoop(asyncio.AbstractEventLoop):
    """Runs one callback at a time, of a process drawn by chance; within a process the order is asyncio's own.

    Lock, Queue, wait_for and TaskGroup count on that order; chance plays between processes, where nothing is promised.
    The clock stands while anything is ready, then jumps to the next timer. Not under the seed are the moments of the
    cyclic garbage collector and the order of sets, but for sets of tasks. The hooks see each callback with its process
    (None: outside of all); `before_step` may kill or pause it instead. What a hook raises comes out of the run.
    """

    def __init__(self, chance: random.Random, *, fifo: bool = False) -> None:
        self.steps = 0
        self.errors: list[BaseException] = []  # nobody caught them; a note on each says where it was raised
        self.before_step: Callable[[SimProcess | None], None] | None = None
        self.after_step: Callable[[SimProcess | None], None] | None = None
        self._schedule = _Schedule(chance, fifo)
        self._outside = SimProcess("outside", self, self._schedule)
        self._processes = [self._outside]  # the dead too: what they left must not be collected while others run
        self._failed: list[weakref.ref[_Task[Any]]] = []
        self._next_task = itertools.count(1).__next__  # that of asyncio is shared by all loops
        self._on_task_done: Callable[..., object] = self._task_done  # one object, for call_soon to know it by
        self._closed = False
        self._factory: Any = None

    def process(self, name: str) -> SimProcess:
        """Start a process; its name is free again when it is dead."""
        if any(process.alive and process.name == name for process in self._processes):
            raise ValueError(f"process {name} is alive")
        self._processes.append(SimProcess(name, self, self._schedule))
        return self._processes[-1]

    def time(self) -> float:
        return self._schedule.now

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Ctx = None) -> _Handle:
        handle = _Handle(self._outside, callback, args, context)
        if callback is self._on_task_done:
            callback(*args)  # at once: a task that died takes its process along before anything else runs
        else:
            self._schedule.add(handle)
        return handle

    call_soon_threadsafe = call_soon  # nothing gives a simulation a second thread

    def call_later(self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Ctx = None) -> _Handle:
        return self.call_at(self._schedule.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Ctx = None) -> _Handle:
        handle = _Handle(self._outside, callback, args, context)
        handle._when = when
        self._schedule.add_timer(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coro[T], *, name: str | None = None, context: Ctx = None) -> _Task[T]:
        if self._factory is None:
            return self._make_task(self, coro, name=name, context=context)
        task: _Task[T] = self._factory(self, coro, name=name, context=context)
        return task

    def get_task_factory(self) -> Any:
        return self._factory or self._make_task

    def set_task_factory(self, factory: Any) -> None:
        self._factory = factory

    def _make_task(self, _: Any, coro: Coro[T], *, name: str | None = None, context: Ctx = None) -> _Task[T]:
        if self._closed:
            raise RuntimeError("the loop is closed")
        number = self._next_task()
        task = _Task(coro, number, name or f"Task-{number}", copy_context() if context is None else context, self)
        task.process._tasks[number] = task
        task.add_done_callback(self._on_task_done)
        note_task(task, context)
        return task

    def run_until(self, predicate: Callable[[], bool], limit_time: float = inf, limit_steps: float = inf) -> bool:
        """Run until the predicate holds; False if it does not within so many seconds and steps, or nothing is left."""
        until, last = self._schedule.now + limit_time, self.steps + limit_steps
        with self._running():
            while not predicate():
                process = self._schedule.choose(until) if self.steps < last else None
                if process is None:
                    return False
                self._step(process)
        return True

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        owner = task.process if isinstance(task, _Task) else self._outside
        self.run_until(lambda: task.done() or not owner.alive)
        if not task.done():
            raise RuntimeError(f"{task!r} can never be done: {owner if not owner.alive else 'nothing is left to run'}")
        return task.result()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        task = context.get("task", context.get("future"))
        process = task.process if isinstance(task, _Task) else _PROCESS.get(self._outside)
        self._record(process, context.get("exception") or RuntimeError(context["message"]), context["message"])

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: a generator is ended when its process drops it, or vanishes with the process."""

    shutdown_default_executor = shutdown_asyncgens  # nothing to do either: there is none

    def close(self) -> None:
        """Kill every process, then throw Killed into each coroutine that is left, in order of creation.

        Cleanup code runs there for the first time. No process is alive then, so nothing it schedules ever runs and
        what it raises or warns of is dropped; but what it writes to a shared object stays: check before closing.
        """
        if self._closed:
            return
        with self._running(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in filter(None, [reference() for reference in self._failed]):
                if task._log_traceback:
                    self.call_exception_handler({"message": "failed", "task": task, "exception": task._exception})
            for process in self._processes:
                process.kill()
            for process in self._processes:
                while process._tasks:  # unwinding may make new ones
                    process._tasks.pop(next(iter(process._tasks))).unwind()
                process._ready.clear()
            self._schedule.timers.clear()
        self._closed = True

    @contextmanager
    def _running(self) -> Iterator[None]:
        if self._closed or asyncio._get_running_loop() is not None:
            raise RuntimeError("the loop is closed" if self._closed else "a loop is running already")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._end_asyncgen)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _step(self, process: SimProcess) -> None:
        seen = None if process is self._outside else process
        if self.before_step is not None:
            self.before_step(seen)
            if process not in self._schedule.runnable:
                return
        handle = process._ready.popleft()
        if not process._ready:
            self._schedule.runnable.remove(process)
        self.steps += 1
        try:
            handle._context.run(handle._callback, *handle._args)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self._record(process, error, f"{handle!r} failed")
        if self.after_step is not None:
            self.after_step(seen)

    def _task_done(self, task: _Task[Any]) -> None:
        task.process._tasks.pop(task.number, None)
        error = task._exception
        if error is not None and (task.spawned or isinstance(error, Killed)):
            self._record(task.process, error, f"{task.get_name()} failed")
        elif error is not None:
            self._failed.append(weakref.ref(task))

    def _record(self, process: SimProcess, error: BaseException, message: str) -> None:
        if isinstance(error, Killed) and process is not self._outside:
            process.kill()
        if process.alive and error not in self.errors:  # what was said after death was never heard
            error.add_note(f"{process.name} at {self.time()}: {message}")
            self.errors.append(error)

    def _end_asyncgen(self, generator: AsyncGenerator[Any, Any]) -> None:
        if _PROCESS.get(self._outside).alive:
            self.create_task(generator.aclose())

    add_reader = add_signal_handler = add_writer = remove_reader = remove_signal_handler = remove_writer = _REFUSED
    connect_accepted_socket = connect_read_pipe = connect_write_pipe = create_connection = create_server = _REFUSED
    create_datagram_endpoint = create_unix_connection = create_unix_server = getaddrinfo = getnameinfo = _REFUSED
    default_exception_handler = get_exception_handler = run_forever = run_in_executor = _REFUSED
    sendfile = set_debug = set_default_executor = set_exception_handler = start_tls = _REFUSED
    sock_accept = sock_connect = sock_recv = sock_recv_into = sock_recvfrom = sock_recvfrom_into = _REFUSED
    sock_sendall = sock_sendfile = sock_sendto = stop = subprocess_exec = subprocess_shell = _REFUSED
