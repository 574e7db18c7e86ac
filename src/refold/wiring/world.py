"""What a process gets from outside, and the languages of its plans."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from refold.core.expressions import unknown
from refold.core.outcomes import Instant
from refold.executors.process_services import ProcessServices
from refold.ports import Advance, AtOnce, Clock, Doorbell, Executor, Store
from refold.secrets.access import SecretAccess
from refold.stores.clock import StoreClock, machine_steady
from refold.worker.heartbeat import Heartbeat, as_task

if TYPE_CHECKING:
    from refold.templates import Templates


ARTIFACTS = os.path.join(".refold", "artifacts")


def wall() -> Instant:
    """What the machine's clock shows; somebody may set it."""
    return time.time_ns() // 1000


class WallClock:
    """For what is not judged by a store's clock; it does not go back either."""

    def __init__(self) -> None:
        self.now = StoreClock(wall, machine_steady()).now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class StoreTime:
    """The clock of a process is that of its store, so that all who set timers and judge them agree."""

    def __init__(self, store: Store) -> None:
        self.now = store.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class World(Struct):
    """What a process gets from outside: time, chance, names, and a thread to take turns on."""

    clock: Clock
    doorbell: Doorbell
    advance: Advance
    chance: Callable[[], float]
    new_id: Callable[[], str]
    heartbeat: Heartbeat = as_task
    executors: Mapping[str, Executor] = {}  # by the name of their isolation
    at_once: AtOnce = lambda work: (False, None)
    secrets: SecretAccess | None = None
    isolated: ProcessServices | None = None
    artifacts: str = ARTIFACTS  # the folder of the tool of that name
    docker: Mapping[str, str] = {}  # what the program docker sees of the environment, beside what all programs do


@cache
def language(name: str) -> "Templates":
    """The language of a plan's expressions; loaded when the first such plan appears."""
    from refold.templates import Templates

    if name not in ("refold", "noetl"):
        unknown(name)
    return Templates("strict" if name == "refold" else "chainable")
