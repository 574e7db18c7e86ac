"""Executes one run, with what it starts, in this process, and shows how it goes on."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from msgspec import Struct

from refold.cli import exits, out, words
from refold.cli.screen import Screen
from refold.cli.shown import error_text, run_object, timed_out
from refold.cli.stuck import unless_stuck
from refold.core.progress import progress
from refold.runtime.engine import Engine, Shown
from refold.runtime.plainly import plainly
from refold.settings import Settings
from refold.wiring import Process, open_process
from refold.worker.stop import in_foreground

LOOK = 0.1  # seconds between two looks, at least
SHARE = 40  # and so many times as long as a look takes
SLOWEST = 1.0

Begin = Callable[[Engine], Awaitable[object]]
"""Starts the run, or lifts its pause."""


class Order(Struct, frozen=True):
    """Which run, where it is kept, and what to type to go on with it."""

    run: str
    db: str
    again: str
    settings: Settings
    objects: bool = False  # whether all of it is wanted afterwards, as data


class Ended(Struct, frozen=True):
    """How it ended."""

    status: str
    result: Any
    error: str
    code: int
    seen: dict[str, Any] | None


def execute(order: Order, begin: Begin, screen: Screen) -> Ended:
    """Raises Stopped if a signal came first."""
    last: list[str] = []  # words that stand below everything else

    def say(line: str) -> None:
        if line.startswith("to go on"):
            last.append(line)
        else:
            screen.say(line)

    gc.freeze()
    gc.enable()
    try:
        return asyncio.run(_execute(order, begin, screen, say))
    finally:
        screen.close()
        for line in last:
            out.tell(line)


async def _execute(order: Order, begin: Begin, screen: Screen, say: Callable[[str], object]) -> Ended:
    async with open_process(db=order.db, settings=order.settings, only=order.run) as process:
        engine = process.engine

        async def end() -> Shown:
            shown = await engine.wait(order.run)
            await _see_out(process, order.run)
            return shown

        async def work() -> Shown:
            await begin(engine)
            return await unless_stuck(process, end(), order.again, say)

        looking = asyncio.create_task(look(engine, order.run, screen))
        try:
            grace = order.settings.stop_grace
            shown = await in_foreground(work(), process.stop, grace=grace, resume=order.again, say=say)
        finally:
            looking.cancel()
        return await _ended(engine, shown, order, screen)


async def _see_out(process: Process, run: str) -> None:
    """Children that nobody waits for are executed to their ends all the same: nobody else may do it."""
    kin = process.kin
    while kin is not None and (others := kin.runs - {run}):
        child = min(others)
        await process.engine.wait(child)
        kin.ended(child)


async def _ended(engine: Engine, shown: Shown, order: Order, screen: Screen) -> Ended:
    graph, state = engine.mailroom.turns.graphs[shown.state.plan], shown.state
    screen.close(progress(graph, state, state.ended_at))
    late = await engine.advance(lambda: timed_out(engine.store, state))
    seen = await engine.advance(lambda: run_object(engine.store, graph, state, words.now())) if order.objects else None
    error = error_text(state.error) if state.error is not None else ""
    result = plainly(shown.result) if graph.by_events else shown.result
    return Ended(shown.status, result, error, exits.code_of_run(shown.status, late), seen)


async def look(engine: Engine, run: str, screen: Screen) -> None:
    """Now and then, so that looking takes a small share of the time."""
    wait = LOOK
    while True:
        await asyncio.sleep(wait)
        began = perf_counter()
        seen = await engine.progress(run)
        if seen is not None:
            screen.show(seen)
        wait = min(max(LOOK, SHARE * (perf_counter() - began)), SLOWEST)
