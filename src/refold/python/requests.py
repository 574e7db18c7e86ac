"""Requests that are sent to a run and answered by one of its bodies, each exactly once."""

from typing import Any

from refold.core.outcomes import REPLY, Failed, Fault, Outcome, Succeeded
from refold.errors import Conflict
from refold.python.body_call import BodyCall


class RequestAnswer:
    """What a body can do with a request that it has taken: nothing else answers it, and it is answered once.

    The answer is recorded like a durable call: a body that starts over after a crash does not answer again.
    """

    def __init__(self, body_call: BodyCall, id: str, name: str) -> None:
        self._body_call, self.id, self.name = body_call, id, name
        self._is_answered = False

    async def give(self, outcome: Outcome) -> None:
        """Raises Conflict if this body has answered the request already."""
        if self._is_answered:
            raise Conflict(f"request {self.name!r} ({self.id}) was answered already")
        self._is_answered = True
        calls = self._body_call.calls
        await calls.settle(calls.asked().named(REPLY.rstrip(":"), self.id), outcome)

    async def reply(self, value: Any) -> None:
        await self.give(Succeeded(self._body_call.definition.codec.put(value, "reply")))

    async def refuse(self, reason: str) -> None:
        await self.give(Failed(Fault("refused", reason, retryable=False)))


class IncomingRequest:
    """A request that `handle.request` has sent to this run. Answer it with `reply` or `refuse`."""

    def __init__(self, answer: RequestAnswer, value: Any) -> None:
        self._answer, self.id, self.name, self.value = answer, answer.id, answer.name, value

    async def reply(self, value: Any = None) -> None:
        """Answer the request; `handle.request` returns the value. Raises Conflict if it was answered already."""
        await self._answer.reply(value)

    async def refuse(self, reason: str) -> None:
        """Refuse the request; `handle.request` raises RequestRefused with the reason."""
        await self._answer.refuse(reason)
