"""Runs bodies on a Ray cluster. Ray only executes: Refold retries, Refold limits the time, Refold knows what runs.

A body that raises has failed. A body whose process, node or data has died was lost, which is not a try.
"""

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import json

from refold.core.faults import text_of
from refold.core.outcomes import Fault
from refold.errors import BodyLost, ToolFailed
from refold.executors.ray_body import Messages, RayAnswer, carry_out
from refold.logs import INFO, WARNING, event, logger
from refold.ports import ClusterNeeds, Say
from refold.time_limits import waiting as not_started

log = logger("ray")

STREAM = "ray"  # of the lines that say where a body waits or runs
LOOK = 0.5  # seconds between two looks at a body that has not started
FETCH = 5.0  # seconds for which the worker waits for messages
REACH = 5.0  # seconds for the cluster to accept a connection
NAMES = {"CPU": "cpu", "GPU": "gpu"}
SETUP = "refold"  # the namespace in Ray

Ref = Any


class RayCluster:
    """One driver for each process, which joins the cluster at the first step that needs it."""

    def __init__(self, address: str, grace: float = 2.0) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.address, self.grace = address, grace
        self._joining: asyncio.Task[Any] | None = None
        self._messages: Any = None
        self._fetching: asyncio.Task[None] | None = None
        self._numbers = map(str, itertools.count(1))
        self._bodies: dict[str, _Waiting] = {}

    async def run(self, call: str, input: Any, needs: ClusterNeeds, say: Say | None = None) -> Any:
        """Return what the function returns. Raises ToolFailed, or BodyLost if that is not the body's fault. Cancelling
        kills the body."""
        ray = await self._ray()
        number = next(self._numbers)
        waiting = self._bodies[number] = _Waiting(say)
        ref: Ref = None
        try:
            ref = await asyncio.to_thread(self._submit, number, call, json.encode(input), needs)
            ended = asyncio.wrap_future(ref.future())
            ended.add_done_callback(_ignore)
            try:
                await self._until_started(ended, waiting, needs)
                data = await asyncio.shield(ended)
            except (asyncio.CancelledError, ToolFailed):
                await self._kill(ref, ended)
                raise
        except (asyncio.CancelledError, ToolFailed):
            raise
        except Exception as error:
            raise _meaning(ray, error) from error
        finally:
            del self._bodies[number]
        answer = json.decode(data, type=RayAnswer)
        for stream, line in answer.lines:
            waiting.print(stream, line)
        if answer.fault is not None:
            raise ToolFailed(answer.fault)
        return answer.result

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        if self._joining is not None and self._joining.done() and self._joining.exception() is None:
            await asyncio.to_thread(self._joining.result().shutdown)

    def resources(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """What is free, and what there is."""
        import ray

        found: Any = ray
        return found.available_resources(), found.cluster_resources()

    async def _ray(self) -> Any:
        if self._joining is None or (self._joining.done() and self._joining.exception() is not None):
            self._joining = asyncio.create_task(self._join())
        ray = await asyncio.shield(self._joining)
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch(ray))
        return ray

    async def _join(self) -> Any:
        try:
            import ray
        except ImportError as error:
            why = f"a step with `isolation: ray` needs the package ray ({error}): install refold[ray]"
            raise ToolFailed(Fault("no_ray", why, retryable=False)) from error
        try:
            await asyncio.to_thread(self._connect, ray)
        except Exception as error:
            why = f"the Ray cluster at {self.address} cannot be joined: {text_of(error)}"
            raise ToolFailed(Fault("ray", why, retryable=True)) from error
        event(log, INFO, "joined a Ray cluster", address=self.address, ray=ray.__version__)
        return ray

    def _connect(self, ray: Any) -> None:
        join(self.address)
        self._messages = self._new_actor(ray)

    def _new_actor(self, ray: Any) -> Any:
        """On the node of this process, so that it does not die with another one."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        return ray.remote(Messages).options(num_cpus=0, scheduling_strategy=here, max_restarts=-1).remote()

    def _submit(self, number: str, call: str, data: bytes, needs: ClusterNeeds) -> Ref:
        import ray

        options: dict[str, Any] = {
            "num_cpus": needs.cpus,
            "num_gpus": needs.gpus,
            "resources": dict(needs.custom),
            "max_retries": 0,
            "retry_exceptions": False,
            "name": f"refold {call}",
        }
        if needs.memory:
            options["memory"] = needs.memory
        if needs.runtime_env:
            options["runtime_env"] = dict(needs.runtime_env)
        if needs.strategy:
            options["scheduling_strategy"] = needs.strategy.upper()
        if needs.labels:
            options["label_selector"] = dict(needs.labels)
        return ray.remote(carry_out).options(**options).remote(number, call, data, self._messages)

    async def _until_started(self, ended: "asyncio.Future[bytes]", waiting: "_Waiting", needs: ClusterNeeds) -> None:
        """Return when the body has begun or ended. Time that it waits for the cluster is not part of its timeout."""
        now = asyncio.get_running_loop().time
        began, told = now(), ""
        started = asyncio.ensure_future(waiting.started.wait())
        try:
            with not_started():
                while True:
                    both: set[asyncio.Future[Any]] = {ended, started}
                    await asyncio.wait(both, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
                    if started.done() or ended.done():
                        break
                    lacking = await self._lacking(needs)
                    if lacking and lacking != told:
                        told = lacking
                        waiting.print(STREAM, f"pending on Ray: {told}")
                    if needs.pending_timeout is not None and now() - began >= needs.pending_timeout:
                        why = f"not started on Ray within {needs.pending_timeout:g} s: {told or 'no node has begun it'}"
                        raise ToolFailed(Fault("ray_pending", why, retryable=True))
        finally:
            started.cancel()
        if told:
            waiting.print(STREAM, "running on Ray")

    async def _lacking(self, needs: ClusterNeeds) -> str:
        """Name what the cluster has too little of, as `gpu 1, 0 of 4 free`."""
        try:
            free, all_ = await asyncio.to_thread(self.resources)
        except Exception as error:
            return f"the cluster does not answer: {text_of(error)}"
        wanted = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": float(needs.memory), **needs.custom}
        short = [
            f"{NAMES.get(name, name)} {amount:g}, {free.get(name, 0):g} of {all_.get(name, 0):g} free"
            for name, amount in wanted.items()
            if amount > free.get(name, 0)
        ]
        return "; ".join(short)

    async def _kill(self, ref: Ref, ended: "asyncio.Future[bytes]") -> None:
        """Return when the body is gone, or the grace is over."""
        import ray

        with suppress(Exception):  # it may have ended
            await asyncio.to_thread(partial(ray.cancel, ref, force=True))
        await asyncio.wait({ended}, timeout=self.grace)

    async def _fetch(self, ray: Any) -> None:
        """Pass on what bodies tell while they run."""
        while True:
            try:
                messages = await self._messages.fetch.remote(FETCH)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # the actor has died; the next one starts with nothing
                event(log, WARNING, "lines of bodies on Ray were lost", why=text_of(error))
                await asyncio.sleep(LOOK)
                continue
            for number, lines in messages:
                waiting = self._bodies.get(number)
                if waiting is not None:
                    waiting.started.set()
                    for stream, line in lines:
                        waiting.print(stream, line)


class _Waiting:
    """A body on the cluster, as its worker sees it."""

    def __init__(self, say: Say | None) -> None:
        self._say = say
        self.started = asyncio.Event()

    def print(self, stream: str, line: str) -> None:
        if self._say is not None:
            self._say(stream, line)


def _ignore(ended: "asyncio.Future[bytes]") -> None:
    if not ended.cancelled():
        ended.exception()


def _meaning(ray: Any, error: Exception) -> BaseException:
    """A loss is the fault of the cluster; everything else is a failure of the step."""
    errors = ray.exceptions
    lost = (
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.OwnerDiedError,
        errors.ObjectLostError,
        errors.OutOfMemoryError,
        errors.LocalRayletDiedError,
        errors.RaySystemError,
        errors.ActorDiedError,
        errors.ActorUnavailableError,
    )
    if isinstance(error, lost):
        return BodyLost(f"{type(error).__name__}: {text_of(error)[:300]}")
    if isinstance(error, errors.RuntimeEnvSetupError):
        return ToolFailed(Fault("runtime_env", text_of(error)[:2000], retryable=False))
    if isinstance(error, errors.RayTaskError):  # before the body began: its module cannot be imported there
        why = f"the node cannot run bodies of Refold, which must be installed there: {text_of(error)[-1000:]}"
        return ToolFailed(Fault("ray", why, retryable=False))
    return ToolFailed(Fault("ray", f"{type(error).__name__}: {text_of(error)[:1000]}", retryable=True))


def join(address: str) -> Any:
    """Join the cluster as a driver, and return the module. Raises what Ray raises, or OSError."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), REACH).close()  # Ray itself would wait for minutes
    import ray

    extra: dict[str, Any] = {"_node_ip_address": host} if host.startswith("127.") else {}
    ray.init(address=address, namespace=SETUP, log_to_driver=False, logging_level=logging.ERROR, **extra)
    return ray
