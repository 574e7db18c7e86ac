"""One try of a body: what it was given, and what it has gathered until it ends."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from refold.core.faults import fault_from_exception
from refold.core.outcomes import Blob, Fault, Instant, Sent
from refold.core.plan import Plan
from refold.errors import InvalidValue
from refold.names import a
from refold.ports import Call, Clock, Executor, Memory
from refold.python.definition import Definition
from refold.python.durable_calls import Calls
from refold.python.published import Published
from refold.python.session import Session
from refold.python.state import State

if TYPE_CHECKING:
    from refold.playbooks.playbook import Playbook


class ChildRun(Struct, frozen=True):
    """What is known of a run that a body has started."""

    id: str
    started_at: Instant = 0
    ended_at: Instant = 0  # 0: it has not ended
    usage: dict[str, int | float] = {}


class House(Struct):
    """What bodies need of their process."""

    clock: Clock
    read_blob: Callable[[str, str], Awaitable[Any]]  # by run and hash
    adopt: Callable[[Any], Awaitable[Definition]]  # a workflow that is to be started as a child
    register: Callable[["Plan | Playbook"], Awaitable[str]]
    look: Callable[[str], Awaitable[ChildRun]]  # at a run, by its id
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]
    isolated: Executor | None = None  # processes for steps that want one


class Try:
    def __init__(self, call: Call, definition: Definition, memory: Memory, house: House, session: Session) -> None:
        assert call.meanwhile is not None
        self.call, self.definition, self.house, self.session = call, definition, house, session
        self.state = State(memory, definition.exact)
        self.calls = Calls(memory, call.meanwhile, partial(_whole, house, call.run), self.state.check_open)
        progress = call.command.progress if isinstance(call.command.progress, dict) else {}
        self.published = Published(call.meanwhile, progress.get("published", 0))
        self.events: list[Sent] = []
        self.usage: dict[str, int | float] = {}

    def send(self, event: Any) -> None:
        self.state.check_open()
        self.events.append(Sent(*self.definition.sent(event, f"step {self.call.command.step!r}")))


async def _whole(house: House, run: str, blob: Blob) -> Any:
    """No method: a try that referred to itself would wait for the garbage collector, with all it holds."""
    return await house.read_blob(run, blob.hash)


def judged(error: BaseException, on: Iterable[str]) -> Fault:
    """A policy may name classes of exceptions: a subclass is one of them."""
    fault, names = fault_from_exception(error), frozenset(on)
    named = next((cls.__name__ for cls in type(error).__mro__ if cls.__name__ in names), "")
    return structs.replace(fault, kind=named) if named else fault


def listed(step: str, value: Any) -> list[Any]:
    """What a body has returned, as a list of what may be events."""
    if value is None:
        return []
    if isinstance(value, (dict, tuple, set, str, bytes, int, float)) or hasattr(value, "__next__"):
        gave = f"it gave {a(type(value).__name__)}; a step gives an event, a list of events, or None"
        raise InvalidValue(f"step {step!r}", gave)
    return value if isinstance(value, list) else [value]
