"""Durable calls of the agents that one body runs: what was called, with which arguments, and what it used up."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from refold.errors import InvalidValue
from refold.python.context import Context, published_by
from refold.python.durable_calls import CallOptions

PLAIN = CallOptions()


class AgentCallInfo(Struct, frozen=True):
    """What a durable call of an agent is, for its record."""

    name: str  # of what is called: `search`, or the name of a model
    key: str  # tells calls of this name apart; the same call has the same key when the body starts over
    about: Mapping[str, Any] = {}  # kept with the result, as its arguments


class AgentCalls:
    """The durable calls of all agents in one call of a body."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._counts: Counter[str] = Counter()

    def number(self, name: str) -> int:
        """Return how often a name was asked for in this pass, this time included."""
        self._counts[name] += 1
        return self._counts[name]

    async def once(
        self,
        called: AgentCallInfo,
        work: Callable[[], Awaitable[Any]],
        used: Callable[[Any], Mapping[str, int | float]],
        options: CallOptions = PLAIN,
    ) -> Any:
        """Return the recorded result, or do the work and record its result, which must be JSON data.

        `used` returns what a result used up. It is counted once: if an earlier try of the step has made the call, that
        try has reported it.
        """
        context, made = self.context, False
        lines = published_by(context)

        async def call() -> dict[str, Any]:
            nonlocal made
            before = lines.count
            result = await work()
            made = True
            record = {"name": called.name, **called.about, "usage": dict(used(result)), "try": context.attempt}
            return {**record, "shown": lines.count - before, "result": result}

        call.__qualname__ = called.name
        durable = context.options(key=called.key, retry=options.retry, timeout=options.timeout)
        record = await durable.call(call)
        if record["usage"] and record["try"] == context.attempt:
            context.usage(**record["usage"])
        for _ in range(0 if made else record["shown"]):
            lines.pass_over()
        return record["result"]


_HERE: ContextVar[AgentCalls | None] = ContextVar("refold_agent_calls", default=None)
_BY_CONTEXT: "WeakKeyDictionary[Context, AgentCalls]" = WeakKeyDictionary()


def agent_calls() -> AgentCalls | None:
    """Return the calls of the body that this code belongs to, if it is in a `with durable(ctx)`."""
    return _HERE.get()


@contextmanager
def durable(context: Context) -> Iterator[None]:
    """Make the agents that are run in this block durable: their calls are durable calls of this body.

    Raises InvalidValue for the context of a body without `async`.
    """
    if not isinstance(context, Context):
        raise InvalidValue("durable", f"a {type(context).__name__} has no event loop for an agent: make the body async")
    calls = _BY_CONTEXT.setdefault(context, AgentCalls(context))
    token = _HERE.set(calls)
    try:
        yield
    finally:
        _HERE.reset(token)
