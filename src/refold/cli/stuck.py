"""Says of a run that is executed here what nobody takes, and gives up if nobody ever will."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from refold.cli import words
from refold.cli.served import world_of
from refold.core.why import Reason, reasons
from refold.errors import NotFound, RefoldError
from refold.stores.sqlite.store import SqliteStore
from refold.wiring import Process

T = TypeVar("T")
EVERY = 1.0  # seconds between two looks
MANY = 50  # runs that are looked at
TOLD = frozenset({"no_code", "no_tool", "no_queue"})
FOLLOWS = frozenset({"no_code", "child", "join", "loop", "final", "window", "order", "batch"})
"""What lasts as long as nobody has the code: nothing else goes on, and nothing from outside can change that."""


async def unless_stuck(process: Process, end: Coroutine[Any, Any, T], again: str, say: Callable[[str], object]) -> T:
    """What comes of it. Raises NotFound if all that is left needs code that neither this process nor a live one has."""
    ending, watching = asyncio.create_task(end), asyncio.create_task(Watch(process, again, say).run())
    try:
        await asyncio.wait({ending, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await watching
        return await ending
    finally:
        for task in (ending, watching):
            task.cancel()
        await asyncio.gather(ending, watching, return_exceptions=True)


class Watch:
    def __init__(self, process: Process, again: str, say: Callable[[str], object]) -> None:
        self.process, self.again, self.say = process, again, say
        self._seen: dict[str, int] = {}  # how far each run was at the last look
        self._told: set[tuple[str, str, str]] = set()

    async def run(self) -> None:
        """For ever, unless it is in vain."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                found: list[tuple[str, Reason]] = await self.process.engine.advance(self._look)
            except RefoldError:
                continue  # the store has other worries
            for run, reason in found:
                if reason.kind in TOLD and (run, reason.step, reason.kind) not in self._told:
                    self._told.add((run, reason.step, reason.kind))
                    self.say(f"{reason.step} waits: {words.why(reason, words.now())}")
            kinds = {reason.kind for _, reason in found}
            if "no_code" in kinds and kinds <= FOLLOWS and self._sees_all():
                reason = next(each for _, each in found if each.kind == "no_code")
                raise NotFound(f"{words.why(reason, words.now())}. To go on with it: {self.again} --code MODULE:CLASS")

    def _sees_all(self) -> bool:
        return self.process.kin is not None and self.process.kin.runs <= self._seen.keys()

    def _look(self) -> list[tuple[str, Reason]]:
        """Nothing is asked while all runs move."""
        engine, kin = self.process.engine, self.process.kin
        runs = sorted(kin.runs)[:MANY] if kin is not None else []
        known = {run: seen for run in runs if (seen := engine.mailroom.turns.known.get(run)) is not None}
        moved = any(self._seen.get(run) != seen.state.seq for run, seen in known.items())  # also one that is new
        self._seen = {run: seen.state.seq for run, seen in known.items()}
        if moved or not known or not isinstance(engine.store, SqliteStore):
            return []
        found = []
        for run, seen in known.items():
            row = engine.store.summary(run)
            if row is not None:
                world = world_of(engine.store, row, (self.process.worker.can,))
                found += [(run, each) for each in reasons(seen.graph, seen.state, words.now(), world)]
        return found
