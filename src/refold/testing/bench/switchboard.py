"""Decides for every tool call of a bench whether it is faked, replayed, held, let through or refused."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from refold.core.commands import SOURCE_TOOL
from refold.core.outcomes import Fault
from refold.core.pipeline import TOOL
from refold.errors import ToolFailed
from refold.ports import Done, Tool, ToolCall
from refold.python.definition import Definition
from refold.templates.output_blocks import Unfit, read_answer
from refold.testing.bench.fakes import Called, Fakes, called_of, note, sent_by
from refold.testing.bench.recordings import Replay
from refold.testing.bench.virtual_loop import VirtualLoop

LOCAL = frozenset(
    {"noop", "assert", "python", "function", "shell", "sqlite", "duckdb", "artifact", "emit", SOURCE_TOOL}
)
VIRTUAL = frozenset({"noop", "assert", "python", "function", "emit"})  # their threads are counted one by one
QUIET = frozenset({"noop", "assert"})  # their result is in the playbook

LET_THROUGH: Any = object()


class HeldSteps(Protocol):
    """A run whose steps are held until a test gives their outcome."""

    async def outcome(self, called: Called) -> Any:
        """The outcome of the call, or LET_THROUGH."""


class Switchboard:
    def __init__(self, loop: VirtualLoop, fakes: Fakes) -> None:
        self.loop, self.fakes = loop, fakes
        self.allowed: set[str] = set()
        self.held_runs: dict[str, HeldSteps] = {}
        self.replay: Replay | None = None

    def before(self, kind: str, real: Callable[[], Tool]) -> Tool:
        """The tool that replaces this one; not a pipeline, because its tasks are replaced."""
        if kind == TOOL:
            return real()

        async def called(call: ToolCall) -> Any:
            noted = called_of(call, kind)
            return await self._noted(noted, lambda: self._outcome(noted, lambda: self._real(noted, real(), call)))

        return called

    def before_body(self, definition: Definition, real: Tool) -> Tool:
        """The tool that replaces bodies of a Python workflow; the fake of a body returns events."""

        async def called(call: ToolCall) -> Any:
            noted = called_of(call, "body")
            events = [definition.received(each["type"], each["data"]) for each in call.input["events"]]
            noted.input = events if definition.bodies[noted.step].signature.as_list else events[0]
            return await self._noted(noted, lambda: self._body(noted, definition, real, call))

        return called

    async def _body(self, called: Called, definition: Definition, real: Tool, call: ToolCall) -> Any:
        held_steps, fake = self.held_runs.get(called.run), self.fakes.of(called)
        value = await held_steps.outcome(called) if held_steps is not None else LET_THROUGH
        if value is LET_THROUGH and fake is not None:
            called.faked = True
            value = await fake(called)
        if value is not LET_THROUGH:
            return sent_by(definition, called.step, value)
        return await real(call if self.replay is None else self.replay.of_body(call, definition))

    async def _noted(self, called: Called, work: Callable[[], Awaitable[Any]]) -> Any:
        self.fakes.calls.append(called)
        try:
            value = await work()
        except ToolFailed as error:
            called.error = f"{error.fault.kind}: {error.fault.message}"
            raise
        except Exception as error:
            called.error = f"{type(error).__name__}: {error}"
            raise
        note(called, value)
        return value

    async def _outcome(self, called: Called, real: Callable[[], Awaitable[Any]]) -> Any:
        held_steps, fake = self.held_runs.get(called.run), self.fakes.of(called)
        if held_steps is not None:
            value = await held_steps.outcome(called)
            if value is not LET_THROUGH:
                return value
        if fake is not None:
            called.faked = True
            return as_answer(called, await fake(called))
        if self.replay is not None and called.kind not in QUIET:
            found, value = self.replay.of_tool(called)
            if found:
                return value
        return await real()

    async def _real(self, called: Called, tool: Tool, call: ToolCall) -> Any:
        if called.kind not in LOCAL and called.kind not in self.allowed:
            raise ToolFailed(Fault("not_faked", refusal(called), retryable=False))
        if called.kind in VIRTUAL:
            return await tool(call)
        with self.loop.really():
            return await tool(call)


def as_answer(called: Called, value: Any) -> Any:
    """Return what a fake gives as the result of its tool: an agent of a `.wf` file gives a text, or its output block,
    which is read as any answer is."""
    if called.kind != "agent" or called.config.get("reads") != "flow" or isinstance(value, Done):
        return value
    try:
        answer = read_answer({} if value is None else value, called.config.get("rules"), called.config["reserved"])
    except Unfit as error:
        raise ToolFailed(Fault("schema", str(error), retryable=True)) from None
    return answer.result()


def refusal(called: Called) -> str:
    kind, step = called.kind, called.step
    return (
        f"{called.command} calls {kind}, which reaches beyond the test and is not faked: "
        f"t.fake({kind!r}, …) or t.fake({step!r}, …) sets its result, t.allow({kind!r}) lets it through"
    )


def named(tools: Mapping[str, Tool]) -> list[str]:
    return [name for name in tools if name != TOOL]
