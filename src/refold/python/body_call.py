"""One call of a body, that is one try of a step: what it is given, and what it collects until it ends."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from refold.core.faults import fault_from_exception
from refold.core.outcomes import Blob, Fault, Instant, Sent
from refold.core.plan import FaultKind, Plan
from refold.errors import InvalidValue
from refold.names import a
from refold.ports import Clock, Cluster, Executor, Meanwhile, Memory, ToolCall
from refold.python.call_records import TaskNumbers, unnumbered
from refold.python.definition import Definition
from refold.python.durable_calls import RecordedCalls
from refold.python.events import InputRequestEvent
from refold.python.session import Session
from refold.python.state import State

if TYPE_CHECKING:
    from refold.playbooks.playbook import Playbook


class ChildRun(Struct, frozen=True):
    """The state of a child run that a body has started."""

    id: str
    started_at: Instant = 0
    ended_at: Instant = 0  # 0: it has not ended
    usage: dict[str, int | float] = {}


class BodyServices(Struct):
    """What the process provides to bodies."""

    clock: Clock
    read_blob: Callable[[str, str], Awaitable[Any]]  # by run and hash
    adopt: Callable[[Any], Awaitable[Definition]]  # a workflow that is to be started as a child
    register: Callable[["Plan | Playbook"], Awaitable[str]]
    look: Callable[[str], Awaitable[ChildRun]]  # at a run, by its id
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    task_numbers: TaskNumbers
    chance: Callable[[], float]
    new_id: Callable[[], str]
    isolated: Executor | None = None  # processes for steps that want one
    cluster: Cluster | None = None  # other machines, in the same way


LINES_AHEAD = 1000  # published lines that may wait before a body has to wait for them
LINES_PER_COMMIT = 500


class EventPublisher:
    """Events that a body shows to the outside, in their order and without loss; a body that is too fast waits."""

    def __init__(self, meanwhile: Meanwhile, before: int) -> None:
        self.meanwhile = meanwhile
        self.count = 0
        self._before = before  # that an earlier try of the same body has shown
        self._lines: list[Any] = []
        self._sending: asyncio.Task[None] | None = None
        self._error: BaseException | None = None  # why lines were not shown

    async def put(self, line: Any) -> None:
        self.count += 1
        if self.count <= self._before:
            return
        self._lines.append(line)
        if self._sending is None:
            with unnumbered():
                self._sending = asyncio.create_task(self._send())
            self._sending.add_done_callback(self._sent)
        if len(self._lines) >= LINES_AHEAD:
            await self.flush()

    def pass_over(self) -> None:
        """Count a line that an earlier try has published, without publishing it again."""
        self.count += 1

    async def flush(self) -> None:
        """Wait until all lines are stored. Raises what prevented it."""
        sending = self._sending
        if sending is not None:
            await asyncio.shield(sending)
        if self._error is not None:
            raise self._error

    @property
    def sending(self) -> "asyncio.Task[None] | None":
        """What stores the lines that are not stored yet; it needs the lease of the body."""
        return self._sending

    def _sent(self, sending: asyncio.Task[None]) -> None:
        if not sending.cancelled():
            self._error = sending.exception() or self._error

    async def _send(self) -> None:
        try:
            while self._lines:
                some, self._lines = self._lines[:LINES_PER_COMMIT], self._lines[LINES_PER_COMMIT:]
                await self.meanwhile.publish(some)
        finally:
            self._sending = None


class BodyCall:
    def __init__(
        self, call: ToolCall, definition: Definition, memory: Memory, services: BodyServices, session: Session
    ) -> None:
        assert call.meanwhile is not None
        self.call, self.definition, self.services, self.session = call, definition, services, session
        self.state = State(memory, definition.codec, call.command.progress)
        self.calls = RecordedCalls(memory, call.meanwhile, partial(_whole, services, call.run), self.state.check_open)
        progress = call.command.progress if isinstance(call.command.progress, dict) else {}
        self.published = EventPublisher(call.meanwhile, progress.get("published", 0))
        self.events: list[Sent] = []
        self.usage: dict[str, int | float] = {}

    def progress(self) -> dict[str, Any] | None:
        """What the report of a body that waits says of it: how many lines it has published, and what it has set."""
        published = {"published": self.published.count} if self.published.count else {}
        return {**published, **self.state.news(self.call.command.attempt)} or None

    def send(self, event: Any) -> None:
        self.state.check_open()
        sender = f"step {self.call.command.step!r}"
        if isinstance(event, InputRequestEvent):
            self.events.append(self.definition.request(event, self._request_id(event, sender), sender))
        else:
            self.events.append(Sent(*self.definition.sent(event, sender)))

    def _request_id(self, event: InputRequestEvent, sender: str) -> str:
        """Return the id of a request: its own, or one that is the same in every try."""
        if self.call.command.item is not None:
            raise InvalidValue(sender, "it is run for an item of `ctx.map`, whose result is wanted: use `ctx.ask`")
        ids = [sent.asks.id for sent in self.events if sent.asks is not None]
        id = event.request_id or f"{self.call.command.id}/request" + (f"/{len(ids) + 1}" if ids else "")
        if id in ids:
            raise InvalidValue(sender, f"two of its requests have the id {id!r}; each needs its own")
        return id


async def _whole(services: BodyServices, run: str, blob: Blob) -> Any:
    """Read a stored value.

    This is not a method: a BodyCall that refers to itself is freed only by the garbage collector.
    """
    return await services.read_blob(run, blob.hash)


def fault_for_policy(error: BaseException, on: Iterable[FaultKind]) -> Fault:
    """Return the fault of an exception. If a retry policy names a class of it, the fault has the name of that class."""
    fault, names = fault_from_exception(error), frozenset(on)
    named = next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in names), "")
    return structs.replace(fault, kind=named) if named else fault


def as_events(step: str, value: Any) -> list[Any]:
    """Return the result of a body as a list of events, not yet checked.

    Raises InvalidValue for what cannot be events.
    """
    if value is None:
        return []
    if type(value) is tuple:
        return list(value)
    if isinstance(value, (dict, tuple, set, str, bytes, int, float)) or hasattr(value, "__next__"):
        gave = f"it gave {a(type(value).__name__)}; a step gives an event, a list of events, or None"
        raise InvalidValue(f"step {step!r}", gave)
    return value if isinstance(value, list) else [value]
