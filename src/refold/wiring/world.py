"""What a process gets from outside, and the languages of its plans."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from refold.core.expressions import Evaluate, unknown
from refold.core.outcomes import Fault, Instant
from refold.errors import ToolFailed
from refold.executors.process_services import ProcessServices
from refold.ports import Advance, AtOnce, Clock, Cluster, ClusterNeeds, Doorbell, Executor, Say, Store
from refold.secrets.access import SecretAccess
from refold.stores.clock import StoreClock, machine_steady
from refold.worker.leases import Heartbeat, as_task

if TYPE_CHECKING:
    from refold.templates.language import Templates
    from refold.tools.pipeline.secrets import Vault


InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function that may block, and returns its result."""

ARTIFACTS = os.path.join(".refold", "artifacts")


def wall() -> Instant:
    """The time of the machine's clock, which may be set back."""
    return time.time_ns() // 1000


def working_directory() -> str:
    """Return the folder of this process; an empty text if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


class WallClock:
    """A clock for what does not depend on a store's clock; it does not go back either."""

    def __init__(self) -> None:
        self.now = StoreClock(wall, machine_steady()).now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class StoreTime:
    """The clock of a process is that of its store, so that all processes agree when a timer is due."""

    def __init__(self, store: Store) -> None:
        self.now = store.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class NoCluster:
    """In the place of a cluster where none is configured."""

    async def run(self, call: str, input: Any, needs: ClusterNeeds, say: Say | None = None) -> Any:
        why = "this worker knows no Ray cluster: set REFOLD_RAY, or give the step a queue of workers that have one"
        raise ToolFailed(Fault("no_ray", why, retryable=False))

    async def close(self) -> None:
        """There is nothing to leave."""


class World(Struct):
    """What a process gets from outside: time, random numbers, ids, and a thread for its turns."""

    clock: Clock
    doorbell: Doorbell
    advance: Advance
    chance: Callable[[], float]
    new_id: Callable[[], str]
    heartbeat: Heartbeat = as_task
    executors: Mapping[str, Executor] = {}  # by isolation
    at_once: AtOnce = lambda work: (False, None)
    secrets: SecretAccess | None = None
    isolated: ProcessServices | None = None
    artifacts: str = ARTIFACTS  # the folder of the tool `artifact`
    docker: Mapping[str, str] = {}  # environment of docker, added to that of all programs
    vault: "Vault | None" = None  # the secrets of pipelines, where they do not come from `secrets`
    in_thread: InThread | None = None  # runs the bodies without `async`; None: a pool of threads
    places: Mapping[str, int] = {}  # how many bodies may run at a time, by kind of executor; others have no limit
    cluster: Cluster | None = None  # runs bodies on other machines
    isolated_bodies: Executor | None = None  # runs the bodies in processes; None: the executor `process`
    folder: str = ""  # the working directory of the process; empty: runs that start here record none


@cache
def language(name: str) -> Evaluate:
    """The language of a plan's expressions; loaded when the first such plan appears."""
    if name == "jamjet":
        from refold.templates.jamjet.language import JamjetLanguage

        return JamjetLanguage()
    if name == "wf":
        from refold.templates.wf_language import WfLanguage

        return WfLanguage()
    return templates(name)


@cache
def templates(name: str) -> "Templates":
    """The templates of a language of playbooks, which the worker renders too."""
    from refold.templates.language import Templates

    if name not in ("refold", "noetl"):
        unknown(name)
    return Templates("strict" if name == "refold" else "chainable")
