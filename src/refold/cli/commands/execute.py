"""Executes one run and the runs it starts in this process, and shows their progress.

At Ctrl-C, SIGTERM and a closed terminal, the first signal lets steps finish or hands them back, and the second kills.
"""

import asyncio
import gc
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, perf_counter
from typing import Any, TypeVar

from msgspec import Struct

from refold.cli import exits, output, words
from refold.cli.progress import Screen
from refold.cli.settings import db_argument
from refold.core.outcomes import ANSWER
from refold.core.plain_values import to_plain_data
from refold.core.read.budget import PAUSED_BY_BUDGET, over_budget, over_budget_text
from refold.core.read.summary import progress, status_of
from refold.core.read.why import Reason, reasons
from refold.errors import NotFound, RefoldError, Stopped, Unavailable
from refold.logs import WARNING, event, logger
from refold.ports import Views
from refold.queries.idle import moving_run
from refold.queries.items import first_failure
from refold.queries.reading import RunReader
from refold.queries.runs import error_text, is_timed_out, run_object
from refold.queries.workers import world_of
from refold.runtime.engine import Engine, RunReport
from refold.settings import Settings
from refold.wiring import Process, open_process

T = TypeVar("T")
HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # the terminal was closed
SIGNALS = dict.fromkeys((signal.SIGINT, signal.SIGTERM, HANGUP))
LAST_MOMENT = 0.1  # seconds to learn that the last step has ended the run
TWICE = (
    0.25  # seconds in which the same signal comes again from a program such as `timeout`, which sends it to the group
)


async def in_foreground(
    work: Coroutine[Any, Any, T],
    stop: Callable[[float], Awaitable[object]],
    *,
    grace: float,
    resume: str,
    say: Callable[[str], object],
) -> T:
    """Return the result of the work. Raises Stopped if a signal came first and the work did not end within the grace.

    `stop` takes nothing new, and hands back what is not finished within the seconds it gets; `resume` is the command
    that resumes the work. The run is not paused: another process of the store may continue it immediately. The second
    signal ends this process without any cleanup, even if its event loop is blocked; processes it has started for steps
    end with it.
    """
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[int] = loop.create_future()
    working = loop.create_task(work)
    with _signals(asked, resume):
        try:
            first: set[asyncio.Future[Any]] = {working, asked}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                say(_stopping(grace))
                await stop(grace)
                await asyncio.wait({working}, timeout=LAST_MOMENT)
            if working.done():
                return working.result()
        finally:
            working.cancel()
    say(_to_continue(resume))
    raise Stopped(asked.result())


@contextmanager
def _signals(asked: "asyncio.Future[int]", resume: str) -> Iterator[None]:
    """Use signal handlers of Python and not those of the event loop, which are not called while it is blocked."""
    loop, seen, began = asyncio.get_running_loop(), list[int](), 0.0

    def on_signal(number: int, _: object) -> None:
        nonlocal began
        if number == HANGUP and number in seen:
            return  # the system and the shell may both send it
        if number in seen and not asked.done() and monotonic() - began < TWICE:
            return  # nobody can have seen what the first one did
        if seen:
            with suppress(OSError):  # the terminal may be closed
                line = "\n" if os.isatty(2) else ""  # below the progress that is drawn there
                os.write(2, f"{line}killed\n{_to_continue(resume)}\n".encode())
            os._exit(128 + number)
        seen.append(number)
        began = monotonic()
        loop.call_soon_threadsafe(asked.set_result, number)

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup does
    before = {number: signal.signal(number, on_signal) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _stopping(grace: float) -> str:
    if not grace:
        return "stopping"
    return f"stopping: steps may finish within {grace:g} s, then they are handed back; once more kills them"


def _to_continue(resume: str) -> str:
    return f"to continue: {resume}"


log = logger("cli")
EVERY = 1.0  # seconds between two looks
MANY = 50  # runs that are checked
TOLD = frozenset({"no_code", "no_tool", "no_queue"})
FOLLOWS = frozenset({"no_code", "child", "join", "loop", "final", "window", "order", "batch"})
"""Reasons that last as long as no worker has the code: no other step is running, and no outside event changes it."""


async def unless_stuck(process: Process, end: Coroutine[Any, Any, T], again: str, say: Callable[[str], object]) -> T:
    """Return the result of `end`. Raise NotFound if all that is left needs code that no live process has."""
    ending, watching = asyncio.create_task(end), asyncio.create_task(StuckWatch(process, again, say).run())
    try:
        await asyncio.wait({ending, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await watching
        return await ending
    finally:
        for task in (ending, watching):
            task.cancel()
        await asyncio.gather(ending, watching, return_exceptions=True)  # their errors were raised above


class StuckWatch:
    def __init__(self, process: Process, again: str, say: Callable[[str], object]) -> None:
        self.process, self.again, self.say = process, again, say
        self._seen: dict[str, int] = {}  # the last fact of each run at the last look
        self._told: set[tuple[str, str, str]] = set()

    async def run(self) -> None:
        """Watch the runs until cancelled. Raise NotFound if they are stuck without code."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                found: list[tuple[str, Reason]] = await self.process.engine.advance(self._look)
            except RefoldError as error:
                event(log, WARNING, "look at a run failed", why=str(error))
                continue  # the store is failing; look again later
            for run, reason in found:
                if reason.kind in TOLD and (run, reason.step, reason.kind) not in self._told:
                    self._told.add((run, reason.step, reason.kind))
                    self.say(f"{reason.step} waits: {words.why(reason, words.now())}")
            kinds = {reason.kind for _, reason in found}
            if "no_code" in kinds and kinds <= FOLLOWS and self._sees_all():
                reason = next(each for _, each in found if each.kind == "no_code")
                raise NotFound(f"{words.why(reason, words.now())}. To continue it: {self.again} --code MODULE:CLASS")

    def _sees_all(self) -> bool:
        return self.process.served_runs is not None and self.process.served_runs.runs <= self._seen.keys()

    def _look(self) -> list[tuple[str, Reason]]:
        """Return the reasons why runs wait; none while any run advances, to save the queries."""
        engine, served_runs = self.process.engine, self.process.served_runs
        runs = sorted(served_runs.runs)[:MANY] if served_runs is not None else []
        known = {run: seen for run in runs if (seen := engine.mailroom.turns.known.get(run)) is not None}
        moved = any(self._seen.get(run) != seen.state.seq for run, seen in known.items())  # a new run counts too
        self._seen = {run: seen.state.seq for run, seen in known.items()}
        if moved or not known:
            return []
        found, views = [], engine.store.views
        for run, seen in known.items():
            row = views.summary(run)
            if row is not None:
                world = world_of(views, row, (self.process.worker.can,))
                found += [(run, each) for each in reasons(seen.graph, seen.state, words.now(), world)]
        return found


LOOK = 0.1  # seconds between two looks, at least
SHARE = 40  # and at least this many times as long as a look took
SLOWEST = 1.0
LOOK_FOR_PAUSE = 0.25  # seconds between two looks whether the run is paused or only waits
DUE = 1000  # runs with letters or due timers that are looked at

Begin = Callable[[Engine], Awaitable[object]]
"""Starts the run, or lifts its pause."""


class Execution(Struct, frozen=True):
    """Which run to execute, where it is stored, and the command that resumes it."""

    run: str
    db: str
    again: str
    settings: Settings
    objects: bool = False  # whether the whole run is printed at the end, as data
    until_waiting: bool = False  # leave when only people, signals or timers can continue the run


class RunResult(Struct, frozen=True):
    """How a run ended."""

    status: str
    result: Any
    error: str
    code: int
    seen: dict[str, Any] | None
    cause: str  # why the first item of a loop failed, if that failed the run


def execute(order: Execution, begin: Begin, screen: Screen) -> RunResult:
    """Execute the run to its end. Raise Stopped if a signal came first."""
    last: list[str] = []  # lines that are printed below everything else

    def say(line: str) -> None:
        if line.startswith("to continue"):
            last.append(line)
        else:
            screen.say(line)

    gc.freeze()
    gc.enable()
    try:
        return asyncio.run(_execute(order, begin, screen, say, last.append))
    except asyncio.CancelledError:
        raise RefoldError(
            "all that this process did was cancelled, as the code of a step with `isolation: inline` can do; "
            "`refold runs resume` continues the run"
        ) from None
    finally:
        screen.close()
        for line in last:
            output.print_message(line)


async def _execute(
    order: Execution, begin: Begin, screen: Screen, say: Callable[[str], object], say_last: Callable[[str], object]
) -> RunResult:
    async with open_process(db=order.db, settings=order.settings, only=order.run) as process:
        engine = process.engine

        async def end() -> RunReport:
            shown = await engine.wait(order.run)
            await _see_out(process, order.run)
            return shown

        async def work() -> RunReport:
            await begin(engine)
            return await _unless_left(process, order, unless_stuck(process, end(), order.again, say), say_last)

        looking = asyncio.create_task(look(engine, order.run, screen))
        try:
            grace = order.settings.stop_grace
            shown = await in_foreground(work(), process.stop, grace=grace, resume=order.again, say=say)
        finally:
            looking.cancel()
        return await _ended(engine, shown, order, screen)


async def _unless_left(
    process: Process, order: Execution, end: Coroutine[Any, Any, RunReport], say_last: Callable[[str], object]
) -> RunReport:
    """Return the run when it has ended, when it is paused, or when it waits and the order says to leave then."""
    ending, leaving = asyncio.create_task(end), asyncio.create_task(_left(process, order))
    try:
        await asyncio.wait({ending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            say_last(await leaving)
            for way in await asyncio.to_thread(ways_on, process.engine.store.views, order):
                say_last(way)
            return await process.engine.show(order.run)
        return await ending
    finally:
        for task in (ending, leaving):
            task.cancel()
        await asyncio.gather(ending, leaving, return_exceptions=True)  # their errors were raised above


async def _left(process: Process, order: Execution) -> str:
    """Return why this process has nothing more to do for the run, as soon as that is so."""
    engine = process.engine
    while True:
        await asyncio.sleep(LOOK_FOR_PAUSE)
        try:
            state = (await engine.advance(lambda: engine.mailroom.turns.look(order.run))).state
            if not state.paused and not order.until_waiting:
                continue
            if await is_idle(process):
                return await asyncio.to_thread(why_left, engine.store.views, order.run)
        except (NotFound, Unavailable) as error:
            event(log, WARNING, "look at a run failed", run=order.run, why=str(error))


def why_left(views: Views, run: str) -> str:
    """Say why a run is paused, or what it waits for."""
    graph, state = RunReader(views, run).read()
    name, now = state.name or run, words.now()
    if state.paused:
        by = f" by {state.paused_by}" if state.paused_by else ""
        over = over_budget(state) if state.paused_by == PAUSED_BY_BUDGET else None
        return f"run {name} is paused{by}" + (f": {over_budget_text(*over)}" if over is not None else "")
    waits = {
        f"{each.step} {words.why(each, now)}": None for each in reasons(graph, state, now) if each.kind not in FOLLOWS
    }
    return f"run {name} is left: {'; '.join(waits) or status_of(graph, state, now)}"


def ways_on(views: Views, order: Execution) -> list[str]:
    """Return the commands with which a person decides the gates and answers the questions that a run waits for, and the
    one that continues it."""
    graph, state = RunReader(views, order.run).read()
    over = over_budget(state) if state.paused_by == PAUSED_BY_BUDGET else None
    more = f" --budget {shlex.quote(over[0])}=LIMIT" if over is not None else ""
    label, where = shlex.quote(state.name or order.run), db_argument(order.db)
    ways: dict[str, None] = {}
    for each in reasons(graph, state, words.now()):
        if each.kind == "gate":
            ways[f"to decide: refold gates approve {label}{where}, or reject"] = None
        elif each.kind == "signal" and each.signal.startswith(ANSWER):
            question = shlex.quote(each.signal.removeprefix(ANSWER))
            ways[f"to answer: refold gates answer {label} {question} VALUE{where}"] = None
    return [*ways, _to_continue(f"{order.again}{more}")]


async def is_idle(process: Process) -> bool:
    """Return whether nothing that this process serves can continue by itself, and no letter or due timer is left.

    These are several looks. A schedule may start a run, and a run may end, between two of them; so the looks count only
    if no run has changed meanwhile.
    """
    engine, served = process.engine, process.served_runs
    views, runs = engine.store.views, None if served is None else served.runs
    before = (await asyncio.to_thread(views.changed)).position
    if await asyncio.to_thread(moving_run, views, (process.worker.can,), runs) is not None:
        return False
    if process.schedules is not None and await process.schedules.has_work():
        return False
    due, _ = await engine.advance(lambda: engine.store.due(DUE))
    if due if runs is None else runs.intersection(due):
        return False
    return (await asyncio.to_thread(views.changed)).position == before


async def _see_out(process: Process, run: str) -> None:
    """Execute detached children to their ends too, because there may be no other process to do it."""
    served_runs = process.served_runs
    while served_runs is not None and (others := served_runs.runs - {run}):
        child = min(others)
        await process.engine.wait(child)
        served_runs.ended(child)


async def _ended(engine: Engine, shown: RunReport, order: Execution, screen: Screen) -> RunResult:
    graph, state = engine.mailroom.turns.graphs[shown.state.plan], shown.state
    screen.close(progress(graph, state, state.ended_at or words.now()))
    late, cause = False, ""
    if state.error is not None:
        late = await engine.advance(lambda: is_timed_out(engine.store.views, state))
        cause = await engine.advance(lambda: first_failure(engine.store.views, graph, state))
    seen = (
        await engine.advance(lambda: run_object(engine.store.views, graph, state, words.now()))
        if order.objects
        else None
    )
    error = "" if state.error is None else "; ".join(filter(None, (error_text(state.error), cause)))
    result = to_plain_data(shown.result) if graph.by_events else shown.result
    return RunResult(shown.status, result, error, exits.code_of_run(shown.status, late), seen, cause)


async def look(engine: Engine, run: str, screen: Screen) -> None:
    """Show the progress from time to time, so that looking takes a small share of the time."""
    wait = LOOK
    while True:
        await asyncio.sleep(wait)
        began = perf_counter()
        seen = await engine.progress(run)
        if seen is not None:
            screen.show(seen)
        wait = min(max(LOOK, SHARE * (perf_counter() - began)), SLOWEST)
