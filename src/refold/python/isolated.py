"""Runs bodies in processes of their own: only JSON goes there and back, and to cancel a body kills its process."""

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from random import random
from typing import Any, cast

import msgspec

from refold.core.commands import Command
from refold.core.outcomes import Fault, Outcome, Sent, Write
from refold.errors import Conflict, ToolFailed
from refold.executors.functions import resolve
from refold.ports import Clock, ClusterNeeds, Memory, ToolCall
from refold.python.body_call import BodyCall, BodyServices, as_events
from refold.python.call_records import TaskNumbers
from refold.python.context import Context, SyncContext
from refold.python.definition import Body, define
from refold.python.identity import rebuilt
from refold.python.session import Session
from refold.python.workflow import Ray

RUN_HERE = f"{__name__}:run_here"


async def run_isolated(body: Body, body_call: BodyCall) -> None:
    """Run a body in another process; its events, usage and writes are applied as if it had run here."""
    executor, cluster, call = body_call.services.isolated, body_call.services.cluster, body_call.call
    is_remote = body.policy.isolation == "ray"
    if (cluster if is_remote else executor) is None:
        raise ToolFailed(Fault("isolation", "this process starts no others for steps", retryable=False))
    memory = body_call.calls.memory
    order = {
        "workflow": body_call.definition.place,
        "arguments": body_call.definition.identity.arguments,
        "step": body.name,
        "run": call.run,
        "command": msgspec.to_builtins(call.command),
        "ctx": memory.ctx,
        "versions": memory.versions,
    }
    if is_remote and cluster is not None:
        done = await cluster.run(RUN_HERE, order, _needs(body.policy.ray or Ray()), call.say)
    elif executor is not None:
        done = await executor.run(RUN_HERE, order, call.say)
    body_call.events += msgspec.convert(done["events"], list[Sent])
    body_call.usage.update(done["usage"])
    body_call.state.take_over(msgspec.convert(done["writes"], list[Write]))


def _needs(ray: Ray) -> ClusterNeeds:
    placement = ray.placement
    return ClusterNeeds(
        cpus=ray.cpus,
        gpus=ray.gpus,
        memory=ray.memory,
        custom=ray.custom,
        runtime_env=ray.runtime_env,
        strategy=placement if isinstance(placement, str) else "",
        labels={} if isinstance(placement, str) else placement,
        pending_timeout=ray.pending_timeout,
    )


class NoDesk:
    """Refuses durable calls and published events in the other process, which has no connection to the engine."""

    async def recall(self) -> Memory:
        return Memory()

    async def recorded_before(self) -> Mapping[str, Outcome]:
        return {}

    async def record(self, key: str, outcome: Outcome) -> None:
        raise Conflict("a step in a process of its own makes no durable calls; let another step make them")

    async def publish(self, lines: Sequence[Any]) -> None:
        raise Conflict("a step in a process of its own shows no events; let another step show them")


def run_here(order: dict[str, Any]) -> Any:
    """Run a body in this process, for another one. Its name comes from imported code, never from data of a run."""
    definition = define(rebuilt(cast(Any, resolve(order["workflow"]).call), order["arguments"]))
    body = definition.bodies[order["step"]]
    call = ToolCall(order["run"], msgspec.convert(order["command"], Command), {}, meanwhile=NoDesk())

    async def refuse(*_: Any) -> Any:
        raise Conflict("a step in a process of its own starts no child runs; let another step start them")

    services = BodyServices(_NoClock(), refuse, refuse, refuse, refuse, refuse, TaskNumbers(), random, _no_id)
    session = Session(definition.resources, {}, {})
    body_call = BodyCall(call, definition, Memory(order["ctx"], order["versions"]), services, session)
    events = [definition.received(each["type"], each["data"]) for each in call.input["events"]]
    given = events if body.signature.as_list else events[0]
    context: Context | SyncContext = Context(body_call)
    if not body.signature.is_async:
        context = SyncContext(Context(body_call), lambda begin: asyncio.run(begin()))
    value = body.function(*body.signature.arguments(context, given))
    if inspect.iscoroutine(value):
        value = asyncio.run(_closing(session, value))
    elif session.has_resources:
        asyncio.run(session.close())
    for event in as_events(body.name, value):
        body_call.send(event)
    writes = list(body_call.state.writes())
    return msgspec.to_builtins({"events": body_call.events, "usage": body_call.usage, "writes": writes})


def _no_id() -> str:
    raise Conflict("a step in a process of its own records nothing; let another step ask for an id")


async def _closing(session: Session, value: Awaitable[Any]) -> Any:
    """Close the resources on the event loop on which they were opened."""
    try:
        return await value
    finally:
        await session.close()


class _NoClock(Clock):
    def now(self) -> int:
        raise Conflict("a step in a process of its own waits for nothing; let another step wait")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
