"""Durable agents of pydantic-ai: a capability that makes each model request and each tool call a durable call.

agent = Agent("openai:gpt-5", name="helper", tools=[search], capabilities=[RefoldDurability()])

@refold.flow
async def research(ctx: Context, topic: str) -> str:
    with durable(ctx):
        return (await agent.run(topic)).output
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct
from pydantic_ai import RunContext
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    JournalOperationNamer,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from refold.agents.calls import AgentCallInfo, AgentCalls, agent_calls, durable
from refold.core.plan import Retry
from refold.errors import InvalidValue
from refold.python.durable_calls import CallOptions, Span

__all__ = ["RefoldDurability", "durable"]

Deps = TypeVar("Deps")
UNITS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
MILLION = 1_000_000
YES, NO = ("yes", "y", "approve", "approved", "true", "ok"), ("no", "n", "reject", "deny", "denied", "false")


class CallSettings(Struct, frozen=True):
    """How a kind of durable calls is made."""

    options: CallOptions = CallOptions()
    price: Mapping[str, float] | None = None  # `prompt` and `completion`, in USD for a million tokens


class RefoldDurability(BaseDurabilityCapability[Deps]):
    """Makes the runs of an agent durable inside `with durable(ctx)`; outside of it the agent runs as usual.

    A request to a model and a call of a tool are recorded with name, arguments, usage and result; a body that starts
    over gets the records and makes no finished call again. A failure is not recorded: it is retried by `model_retry` or
    `tool_retry` within the call, and then fails the body. Tools that need approval are asked for with `ctx.ask`, unless
    `approvals` is false. With `stream` the text of the model is published to those who follow the run as it comes.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Refold",
        durable_unit_noun="call",
        durable_container_noun="run",
        codec=JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )

    def __init__(
        self,
        *,
        name: str | None = None,
        models: Mapping[str, Model] | None = None,
        stream: bool = False,
        approvals: bool = True,
        model_retry: Retry | None = None,
        model_timeout: Span | None = None,
        tool_retry: Retry | None = None,
        tool_timeout: Span | None = None,
        price: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(models=models, name=name, event_stream_handler=_publish if stream else None)
        self._asks = approvals
        self._model = CallSettings(CallOptions(retry=model_retry, timeout=model_timeout), price)
        self._tool = CallSettings(CallOptions(retry=tool_retry, timeout=tool_timeout))

    @property
    def in_durable_context(self) -> bool:
        return agent_calls() is not None

    def get_default_run_id(self) -> str | None:
        calls = agent_calls()
        if calls is None:
            return None
        return f"{calls.context.idempotency_key}/{self.name}/{calls.number(f'run {self.name}')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        calls = agent_calls()
        return None if calls is None else await calls.context.now()

    def get_durable_operation_backend(self) -> DurableOperationBackend[CallSettings]:
        settings = RoleBasedOperationConfig[CallSettings](
            model=self._model, event=CallSettings(), capability=CallSettings(), tool=self._tool
        )
        return _Backend(namer=JournalOperationNamer(self.name), config=settings)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Deps], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask a person about each tool call that needs approval, one after the other."""
        calls = agent_calls()
        if calls is None or not self._asks or not requests.approvals:
            return None
        approvals = {part.tool_call_id: await _approval(calls, part) for part in requests.approvals}
        return requests.build_results(approvals=approvals)


class _Backend(CallableOperationBackend[CallSettings]):
    """Makes each operation a durable call."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: CallSettings,
    ) -> object:
        calls = agent_calls()
        if calls is None:
            return await body()
        called = _called(calls, operation_id, name, cache_key)

        def used(result: Any) -> Mapping[str, int | float]:
            return _usage(result, config.price) if isinstance(operation_id, ModelRequestId) else {}

        return await calls.once(called, body, used, config.options)


def _called(
    calls: AgentCalls, operation_id: DurableOperationId, name: str, inputs: tuple[object, ...]
) -> AgentCallInfo:
    """Return what is called. Requests are numbered for each run of an agent, and tool calls have an id, so that it does
    not matter which of several that run at the same time is faster."""
    context = next((each for each in inputs if isinstance(each, RunContext)), None)
    run = "" if context is None else str(context.run_id).removeprefix(f"{calls.context.idempotency_key}/")
    if isinstance(operation_id, ModelRequestId):
        return AgentCallInfo(operation_id.model_name, _numbered(calls, run), _asked(inputs))
    if isinstance(operation_id, ToolsetCallToolId):
        tool, about = _tool_called(inputs)
        return AgentCallInfo(tool, _numbered(calls, f"{run}/{'' if context is None else context.tool_call_id}"), about)
    return AgentCallInfo(name, _numbered(calls, run))


def _numbered(calls: AgentCalls, key: str) -> str:
    return f"{key}/{calls.number(key)}"


def _asked(inputs: tuple[object, ...]) -> dict[str, Any]:
    """Return the new part of a conversation: what follows the last reply of the model."""
    messages = next((each for each in inputs if isinstance(each, list)), [])
    new: list[ModelMessage] = messages[-1:]
    return {"messages": len(messages), "request": ModelMessagesTypeAdapter.dump_python(new, mode="json")}


def _tool_called(inputs: tuple[object, ...]) -> tuple[str, dict[str, Any]]:
    tool = next((each for each in inputs if isinstance(each, str)), "tool")
    arguments = next((each for each in inputs if isinstance(each, dict)), {})
    return tool, {"arguments": JSON_CODEC.dump(Any, arguments)}


def _usage(response: Any, price: Mapping[str, float] | None) -> dict[str, int | float]:
    """Return what a recorded reply of a model used up, by the units of budgets."""
    found = response.get("usage") if isinstance(response, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    used: dict[str, int | float] = {unit: found.get(name) or 0 for name, unit in UNITS.items()}
    total = used["prompt_tokens"] + used["completion_tokens"]
    if price is not None:
        cost = used["prompt_tokens"] * price.get("prompt", 0) + used["completion_tokens"] * price.get("completion", 0)
        return {**used, "tokens": total, "usd": cost / MILLION}
    return {**used, "tokens": total}


async def _approval(calls: AgentCalls, part: ToolCallPart) -> ToolApproved | ToolDenied:
    """Ask whether a tool may be called. The answer is yes or no, or `{approved, message, arguments}`."""
    arguments = part.args_as_dict()
    asked = {"tool": part.tool_name, "arguments": arguments, "tool_call_id": part.tool_call_id}
    id = f"{part.tool_name}/{part.tool_call_id}"
    answer = await calls.context.ask(f"May the agent call {part.tool_name}?", id=id, metadata=asked)
    given: Mapping[str, Any] = answer if isinstance(answer, Mapping) else {"approved": answer}
    if not _is_yes(given.get("approved"), id):
        message = given.get("message")
        return ToolDenied(message) if isinstance(message, str) and message else ToolDenied()
    changed = given.get("arguments")
    return ToolApproved(override_args=dict(changed) if isinstance(changed, Mapping) else None)


def _is_yes(value: Any, id: str) -> bool:
    text = value.strip().lower() if isinstance(value, str) else value
    if text is True or text in YES:
        return True
    if text is False or text in NO:
        return False
    raise InvalidValue(f"the answer to {id}", f"{value!r} is neither yes nor no")


async def _publish(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
    """Show the text of a model, and the tools that it calls, to those who follow the run."""
    async for event in events:
        calls = agent_calls()
        shown = _shown(event)
        if calls is not None and shown is not None:
            await calls.context.publish(shown)


def _shown(event: AgentStreamEvent) -> dict[str, Any] | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return {"text": text} if text else None
        case PartStartEvent(part=ToolCallPart(tool_name=name, tool_call_id=id)):
            return {"tool": name, "tool_call_id": id}
        case _:
            return None
