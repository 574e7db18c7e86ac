"""The tool `agent`: hands a prompt to the tool that is bound to an agent, and asks again if the reply does not fit."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert, json, structs

from refold.core.faults import fault_from_exception
from refold.core.outcomes import Failed, Fault, Parked, Succeeded
from refold.core.pipeline import Task, TaskPipeline
from refold.errors import ToolFailed
from refold.ports import Done, Tool, ToolCall
from refold.schemas import schema_flaw
from refold.tool_api import Keys, ToolKey, refused
from refold.tools.agent.info import AGENT, TRIES
from refold.tools.agent.reply import SHOWN, AgentReply, read_json, reply_of

READS = ToolKey(name="reads", type="text", static=True, choices=("text", "json", "flow"))
COMPILED = (  # keys that readers of files add; nobody writes them
    ToolKey(name="bound", type="map", static=True),  # the tool that answers: a task of a pipeline, as plain data
    ToolKey(name="rules", type="map", static=True),  # of `reads: flow`: the schema of a `.wf` file
    ToolKey(name="reserved", type="list", static=True),  # of `reads: flow`: names that a reply may not set
    ToolKey(name="retries", type="integer", static=True),  # of `reads: flow`: how many tries the step has besides one
    READS,
)
DEFAULTS: Mapping[str, Any] = {
    **{"role": "reviewer", "can_commit": False, "inputs": {}, "plugin_dirs": [], "dry_run": False},
    **{"schema": None, "identity": None, "max_turns": None, "retry_error": None, "agent": ""},
}
READABLE = tuple(key.name for key in AGENT.keys if key.name not in ("by", "tries", READS.name))


class AskProgress(Struct):
    """How far one try of a step has come, kept while the bound tool waits."""

    of: int = 0  # which try of the step
    asked: int = 1
    error: str = ""  # what was wrong with the reply before
    inner: Any = None  # the progress of the bound tool


class AgentTool:
    """Asks agents. `tools` are those of the worker. A bound tool with templates is run as a pipeline of one task, which
    renders them and fetches the secrets that they name; any other is called."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        own = tuple(key for key in AGENT.keys if key.name not in ("by", READS.name))
        self._keys = Keys(structs.replace(AGENT, keys=(*own, *COMPILED)))

    async def __call__(self, call: ToolCall) -> Done:
        given = self._keys.read(call)
        keys = given.keys
        bound = keys.get("bound")
        if bound is None:
            raise refused(f"nothing answers for the agent {keys.get('agent', '')!r}: it is not bound")
        schema = keys.get("schema")
        flaw = schema_flaw(schema) if schema is not None else None
        if flaw is not None:
            raise refused(f"`schema` is not a JSON Schema: {flaw[1]}")
        return await _Asking(self._tools, call, given.input, keys, convert(bound, Task)).run()


class _Asking:
    """One try of a step: the agent is asked until its reply fits, or too often."""

    def __init__(
        self, tools: Mapping[str, Tool], call: ToolCall, input: dict[str, Any], keys: Mapping[str, Any], task: Task
    ) -> None:
        self.tools, self.call, self.keys, self.task = tools, call, keys, task
        self.schema: Mapping[str, Any] | None = keys.get("schema")
        self.reads = keys.get("reads", "text" if self.schema is None else "json")
        self.tries = keys.get("tries", 1 if self.reads == "flow" else TRIES)
        self.names = {**input, **DEFAULTS, **{name: keys[name] for name in READABLE if name in keys}}
        self.calls_directly = not holds_template([task.keys, task.input])
        self.usage: dict[str, int | float] = {}

    async def run(self) -> Done:
        made = convert(self.call.command.progress or {}, AskProgress)
        if made.of != self.call.command.attempt:
            made = AskProgress(of=self.call.command.attempt)
        while True:
            done = await self._ask(made)
            self._count(done.usage)
            outcome = done.outcome
            if isinstance(outcome, Parked):
                made.inner = outcome.progress
                return Done(structs.replace(outcome, progress=structs.asdict(made)), usage=self.usage)
            if not isinstance(outcome, Succeeded):
                return Done(outcome, usage=self.usage)
            try:
                return Done(Succeeded(self._read(reply_of(self.task.kind, outcome.result), made)), usage=self.usage)
            except ToolFailed as error:
                if made.asked >= self.tries or error.fault.retryable is False:
                    return Done(Failed(self._fault(error.fault, made)), usage=self.usage)
                made = AskProgress(made.of, made.asked + 1, error.fault.message)

    async def _ask(self, made: AskProgress) -> Done:
        command = self.call.command
        error = (command.last_error if self.reads == "flow" else made.error) or None
        names = {
            **self.names,
            "prompt": self._prompt(error),
            "try": command.attempt if self.reads == "flow" else made.asked,
            "retry_error": error,
        }
        inner = structs.replace(
            command,
            id=command.id if made.asked == 1 else f"{command.id}/asked{made.asked}",
            tool=self.task.kind if self.calls_directly else TaskPipeline.tool,
            input=self._input(names),
            progress=made.inner,
        )
        if inner.tool not in self.tools:
            return Done(Failed(Fault("unknown_tool", f"this worker has no tool {inner.tool!r}", retryable=False)))
        try:
            done = await self.tools[inner.tool](ToolCall(self.call.run, inner, self._settings(), self.call.say))
        except Exception as error:
            return Done(Failed(fault_from_exception(error)))
        return done if isinstance(done, Done) else Done(Succeeded(done))

    def _input(self, names: dict[str, Any]) -> dict[str, Any]:
        if self.calls_directly:
            return {"input": {**names, **self.task.input}, "config": self.task.keys}
        return {"input": names}

    def _settings(self) -> dict[str, Any]:
        if self.calls_directly:
            return self.task.settings
        return {TaskPipeline.tool: TaskPipeline(tasks=(self.task,), single=True)}

    def _prompt(self, error: str | None) -> str:
        parts = []
        if error is not None and self.reads == "flow":
            left = max(0, self.keys.get("retries", 0) + 1 - self.call.command.attempt)
            parts.append(f"This is not the first try. The last one failed: {error}\nTries left after this one: {left}")
        elif error is not None:
            parts.append(f"Your last reply was not accepted: {error}\nReply again, to this:")
        parts.append(self.keys["prompt"])
        if self.reads == "json":
            parts.append(_form(self.schema))
        return "\n\n".join(parts)

    def _read(self, reply: AgentReply, made: AskProgress) -> dict[str, Any]:
        if self.reads == "flow":
            return self._read_flow(reply)
        if self.reads == "json":
            return {"text": reply.text, "output": read_json(reply, self.schema), "tries": made.asked}
        output = reply.value if reply.value is not None else reply.text
        return {"text": reply.text, "output": output, "tries": made.asked}

    def _read_flow(self, reply: AgentReply) -> dict[str, Any]:
        """Return the reply as the rest of a `.wf` file reads it."""
        from refold.templates.output_blocks import Unfit, read_answer

        value, reserved = reply.text if reply.value is None else reply.value, self.keys.get("reserved", ())
        try:
            answer = read_answer(value, self.keys.get("rules"), reserved)
        except Unfit as error:
            raise ToolFailed(Fault("schema", str(error), retryable=True, data={"text": reply.text[:SHOWN]})) from None
        if self.call.say is not None:
            for warning in answer.warnings:
                self.call.say("stderr", f"warning: {warning}")
        return answer.result()

    def _fault(self, fault: Fault, made: AskProgress) -> Fault:
        if made.asked == 1:
            return fault
        return structs.replace(fault, message=f"{fault.message} (asked {made.asked} times)")

    def _count(self, usage: Mapping[str, int | float]) -> None:
        for unit, amount in usage.items():
            self.usage[unit] = self.usage.get(unit, 0) + amount


def holds_template(value: Any) -> bool:
    """Whether a text in a value may be a template."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value or "{#" in value
    if isinstance(value, Mapping):
        return any(map(holds_template, value.values()))
    return isinstance(value, list) and any(map(holds_template, value))


def _form(schema: Mapping[str, Any] | None) -> str:
    """Return what a prompt says about the form of the reply."""
    if schema is None:
        return "Reply with one JSON value and nothing else."
    return f"Reply with one JSON value that fits this JSON Schema, and nothing else:\n{json.encode(schema).decode()}"
