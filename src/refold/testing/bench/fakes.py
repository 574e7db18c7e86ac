"""Tools that only seem to work: what they give is told beforehand, and each call of them is noted."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from refold.core.outcomes import Failed, Fault, Parked, Sent, Succeeded, Suspended, TimedOut
from refold.core.times import seconds
from refold.errors import InvalidValue, ToolFailed
from refold.names import did_you_mean
from refold.ports import Done, ToolCall
from refold.python.definition import Definition

FAKED = ConnectionError("faked")
FOREVER = 10_000 * 86_400.0  # seconds


class Called(Struct):
    """One call of a tool: what for, with what, and what came of it."""

    kind: str
    step: str
    command: str  # step/visit, and item or task if there is one
    visit: int
    item: int | None
    attempt: int
    input: Any  # of the step; of a body, its event, or a list of them
    config: Mapping[str, Any]  # the keys of the tool, rendered
    run: str
    faked: bool = False
    result: Any = None
    error: str = ""


Answers = Callable[[Called], Any]
"""Gives, or awaits, what a tool would give; raises to fail."""


class Fake:
    """What a tool gives: always the same, one of a list for each call, or what a function makes of the call."""

    def __init__(self, name: str, gives: Any) -> None:
        self.name, self.gives, self.calls = name, gives, 0

    async def __call__(self, called: Called) -> Any:
        self.calls += 1
        gives = self.gives
        if isinstance(gives, list):
            if self.calls > len(gives):
                why = f"the fake {self.name!r} has {len(gives)} results, and this is call {self.calls}"
                raise ToolFailed(Fault("fake", why, retryable=False))
            gives = gives[self.calls - 1]
        if isinstance(gives, BaseException) or (isinstance(gives, type) and issubclass(gives, BaseException)):
            raise gives
        if not callable(gives):
            return gives
        value = gives(called) if _takes_call(gives) else gives()
        return await value if inspect.isawaitable(value) else value


class Fails:
    """Fails so many times for each command, then gives what `then` gives."""

    def __init__(self, times: int, then: Any, error: Any) -> None:
        self.times, self.error = times, error
        self._failed: dict[tuple[str, str], int] = {}
        self._then = Fake("then", then)

    async def __call__(self, called: Called) -> Any:
        key = (called.run, called.command)
        self._failed[key] = self._failed.get(key, 0) + 1
        if self._failed[key] > self.times:
            return await self._then(called)
        return await Fake("error", self.error)(called)


def fails(times: int, then: Any = None, error: Any = FAKED) -> Fails:
    """For `fake`: each command fails so often, then it gives `then`."""
    return Fails(times, then, error)


def hangs(times: int = 1_000_000, then: Any = None) -> Fails:
    """For `fake`: no answer comes, so often for each command; only a timeout ends that."""

    async def wait() -> None:
        await asyncio.sleep(FOREVER)

    return Fails(times, then, wait)


def takes(span: str | float, gives: Any = None) -> Answers:
    """For `fake`: as long as that, in virtual time."""
    fake = Fake("takes", gives)

    async def slowly(called: Called) -> Any:
        await asyncio.sleep(seconds(span))
        return await fake(called)

    return slowly


def http_answer(data: Any = None, status: int = 200, headers: Mapping[str, str] | None = None) -> Answers:
    """For `fake("http", …)`: what the tool makes of such an answer; a status from 400 on is a failure."""
    text = data if isinstance(data, str) else None
    told = {"status_code": status, "headers": dict(headers or {}), "data": None if text else data, "text": text}

    def answer(called: Called) -> Any:
        url = called.config.get("url", "")
        if status < 400:
            return {**told, "url": url, "elapsed": 0.0}
        kinds = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit"}
        kind = kinds.get(status, "server_error" if status >= 500 else "client_error")
        phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
        why = f"{called.config.get('method', 'GET')} {url} answered {status} {phrase}".strip()
        worth = status in (408, 425, 429) or status >= 500
        raise ToolFailed(Fault(kind, why, code=f"HTTP_{status}", retryable=worth, data=told))

    return answer


class Fakes:
    """By the name of a step, of a task (`step/task`), of a command (`step/2`, `step/1/0`), or by kind."""

    def __init__(self) -> None:
        self.known: dict[str, Fake] = {}
        self.calls: list[Called] = []

    def add(self, name: str, gives: Any) -> None:
        self.known[name] = Fake(name, gives)

    def of(self, called: Called) -> Fake | None:
        """The most exact one."""
        task = called.command.rpartition("/")[2]
        names = (called.command, f"{called.step}/{task}", called.step, called.kind)
        return next((self.known[name] for name in names if name in self.known), None)

    def unused(self) -> list[str]:
        return [name for name, fake in self.known.items() if not fake.calls]

    def check_name(self, name: str, known: Sequence[str]) -> None:
        """Raises InvalidValue if nothing of that name was ever called or faked."""
        if name not in known and name not in self.known:
            raise InvalidValue(name, f"nothing of that name was called: {did_you_mean(name, known)}")


def called_of(call: ToolCall, kind: str) -> Called:
    command = call.command
    given = command.input if isinstance(command.input, Mapping) else {}
    is_keyed = "config" in given
    return Called(
        kind=kind,
        step=command.step,
        command=command.id,
        visit=command.visit,
        item=command.item,
        attempt=command.attempt,
        input=given.get("input") if is_keyed else command.input,
        config={**call.settings, **given["config"]} if is_keyed else call.settings,
        run=call.run,
    )


def note(called: Called, value: Any) -> None:
    """What came of it, as far as a test would ask."""
    outcome = value.outcome if isinstance(value, Done) else value
    if isinstance(outcome, Failed):
        called.error = f"{outcome.fault.kind}: {outcome.fault.message}"
    elif isinstance(outcome, TimedOut):
        called.error = "timeout"
    elif not isinstance(outcome, Parked | Suspended):
        called.result = outcome.result if isinstance(outcome, Succeeded) else outcome


def sent_by(definition: Definition, step: str, value: Any) -> Done:
    """What a fake in the place of a body gives: an event, a list of them, or None."""
    if isinstance(value, Done):
        return value
    events = value if isinstance(value, list) else [] if value is None else [value]
    sent = tuple(Sent(*definition.sent(each, f"the fake of step {step!r}")) for each in events)
    return Done(Succeeded(None), events=sent)


def _takes_call(gives: Callable[..., Any]) -> bool:
    try:
        return bool(inspect.signature(gives).parameters)
    except (TypeError, ValueError):
        return True
