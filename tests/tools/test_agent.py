"""The tool `agent`: who is asked, how the reply is read, and what is fed back."""

from typing import Any

import pytest
from msgspec import structs

from refold.core.outcomes import Failed, Fault, Parked, Succeeded
from refold.core.pipeline import Task
from refold.core.plan import Call, Loop, Plan, Retry, Step
from refold.errors import ToolFailed
from refold.playbooks.bindings import bound_data
from refold.ports import Done, ToolCall
from refold.tools.agent.reply import read_json, reply_of
from refold.tools.agent.tool import AgentTool
from tests.tools.calls import call, engine, fault_of_run, one_step

SCHEMA = {"type": "object", "properties": {"mark": {"type": "integer"}}, "required": ["mark"]}


class Bound:
    """A tool that answers for an agent, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[ToolCall]()

    async def __call__(self, call: ToolCall) -> Any:
        self.asked.append(call)
        return self.answers.pop(0)

    def names(self, at: int = -1) -> dict[str, Any]:
        names: dict[str, Any] = self.asked[at].input["input"]
        return names


def ask(bound: Bound, kind: str = "python", settings: dict[str, Any] | None = None, **config: Any) -> Any:
    given = {"bound": bound_data(Task(name="x", kind=kind)), **(settings or {})}
    return AgentTool({kind: bound})(call(given, {"prompt": "Why?", **config}))


async def test_a_text_is_the_output_and_the_bound_tool_reads_the_names() -> None:
    bound = Bound("because")
    done = await ask(bound, agent="wise", model="big", inputs={"n": 1})
    assert done.outcome == Succeeded({"text": "because", "output": "because", "tries": 1})
    names = bound.names()
    assert (names["prompt"], names["agent"], names["model"], names["inputs"]) == ("Why?", "wise", "big", {"n": 1})
    assert (names["role"], names["try"], names["retry_error"], names["dry_run"]) == ("reviewer", 1, None, False)


async def test_a_model_that_is_not_named_is_undefined_so_that_a_default_can_be_given() -> None:
    bound = Bound("because")
    await ask(bound)
    assert "model" not in bound.names()


async def test_a_reply_that_does_not_fit_is_fed_back_with_the_error() -> None:
    bound = Bound('{"mark": "high"}', "no idea", '{"mark": 3}')
    done = await ask(bound, schema=SCHEMA)
    assert done.outcome == Succeeded({"text": '{"mark": 3}', "output": {"mark": 3}, "tries": 3})
    first, second, third = (bound.names(at) for at in range(3))
    assert first["retry_error"] is None and '"required":["mark"]' in first["prompt"]
    assert "'high' is not of type 'integer'" in second["retry_error"]
    assert second["retry_error"] in second["prompt"] and second["prompt"].count("Why?") == 1
    assert third["retry_error"] == "the reply has no JSON value" and third["try"] == 3


async def test_each_time_it_is_asked_has_an_idempotency_key_of_its_own() -> None:
    bound = Bound("?", '{"mark": 3}')
    await ask(bound, schema=SCHEMA)
    keys = [each.idempotency_key for each in bound.asked]
    assert len(set(keys)) == 2 and keys[1] == f"{keys[0]}/asked2"


async def test_after_its_tries_the_step_fails_and_the_usage_of_all_of_them_counts() -> None:
    bound = Bound(*(Done(Succeeded("?"), usage={"tokens": 5}) for _ in range(4)))
    done = await ask(bound, settings={"tries": 2}, schema=SCHEMA)
    assert isinstance(done.outcome, Failed) and done.usage == {"tokens": 10}
    assert done.outcome.fault.kind == "parse" and done.outcome.fault.message.endswith("(asked 2 times)")
    assert len(bound.asked) == 2


async def test_a_failure_of_the_bound_tool_is_a_failed_try_and_is_not_asked_again_here() -> None:
    fault = Fault("exit", "no")
    bound = Bound(Done(Failed(fault), usage={"tokens": 1}))
    done = await ask(bound, schema=SCHEMA)
    assert done == Done(Failed(fault), usage={"tokens": 1})


async def test_a_bound_tool_that_waits_continues_where_it_was() -> None:
    bound = Bound("?", Done(Parked(until=9, progress={"page": 2})), '{"mark": 3}')
    tool = AgentTool({"python": bound})
    settings = {"bound": bound_data(Task(name="x", kind="python"))}
    config = {"prompt": "Why?", "schema": SCHEMA}
    parked = await tool(call(settings, config))
    assert isinstance(parked.outcome, Parked)
    again = call(settings, config)
    command = structs.replace(again.command, progress=parked.outcome.progress)
    done = await tool(structs.replace(again, command=command))
    assert done.outcome == Succeeded({"text": '{"mark": 3}', "output": {"mark": 3}, "tries": 2})
    assert bound.asked[-1].command.progress == {"page": 2}
    assert bound.names()["retry_error"] == "the reply has no JSON value"


async def test_an_agent_that_is_not_bound_is_refused() -> None:
    with pytest.raises(ToolFailed, match="nothing answers for the agent 'wise'"):
        await AgentTool({})(call({}, {"prompt": "Why?", "agent": "wise"}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (" [1, 2] ", [1, 2]),
        ('Sure:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}),
        ('first ```\n{"a": 1}\n``` then\n```json\n{"a": 2}\n```', {"a": 2}),
        ('I think {maybe} the answer is {"a": {"b": [1]}} now', {"a": {"b": [1]}}),
        ('{"a": 1} or rather {"a": 2}', {"a": 2}),
        ("7", 7),
    ],
)
def test_the_json_value_is_found_in_the_words_around_it(text: str, value: Any) -> None:
    assert read_json(reply_of("python", text), None) == value


@pytest.mark.parametrize("text", ["", "no idea", "{never closed", "[" * 5000])
def test_a_text_without_a_json_value_is_a_failure_that_says_so(text: str) -> None:
    with pytest.raises(ToolFailed, match="the reply has no JSON value"):
        read_json(reply_of("python", text), None)


@pytest.mark.parametrize(
    ("kind", "result", "text", "value"),
    [
        ("shell", {"exit_code": 0, "stdout": "out", "stderr": "err", "truncated": 0}, "out", None),
        ("llm", {"text": "said", "json": None}, "said", None),
        ("mcp", {"text": "said", "result": {"content": []}}, "said", None),
        ("mcp", {"text": "said", "result": {"structuredContent": {"a": 1}}}, '{"a":1}', {"a": 1}),
        ("http", {"status_code": 200, "data": {"a": 1}, "text": None}, '{"a":1}', {"a": 1}),
        ("http", {"status_code": 200, "data": None, "text": "said"}, "said", None),
        ("python", {"a": 1}, '{"a":1}', {"a": 1}),
        ("python", "said", "said", None),
        ("python", None, "", None),
    ],
)
def test_each_kind_of_tool_answers_in_its_own_way(kind: str, result: Any, text: str, value: Any) -> None:
    found = reply_of(kind, result)
    assert (found.text, found.value) == (text, value)


async def test_a_bound_program_is_asked_again_by_a_real_run() -> None:
    script = 'read -r line; case "$line" in "Your last"*) echo "{\\"mark\\": 3}";; *) echo nothing;; esac'
    task = Task(name="x", kind="shell", keys={"command": ["sh", "-c", script], "stdin": "{{ prompt }}"})
    plan = one_step("agent", {"bound": bound_data(task)}, {"prompt": "Why?", "schema": SCHEMA})
    async with engine() as opened:
        handle = await opened.start(plan)
        assert await handle.result() == {"text": '{"mark": 3}\n', "output": {"mark": 3}, "tries": 2}


async def test_a_bound_function_that_raises_fails_the_step_with_its_error() -> None:
    task = Task(name="x", kind="python", settings={"code": "raise ValueError('tired')"})
    async with engine() as opened:
        fault = await fault_of_run(opened, one_step("agent", {"bound": bound_data(task)}, {"prompt": "Why?"}))
        assert "tired" in fault.message


FLOW = {"reads": "flow", "reserved": ["branch"]}


async def test_a_block_in_the_reply_is_read_for_markers_context_and_exports() -> None:
    block = '<<<FLOW_OUTPUT>>>\n{"markers": ["open"], "context": "c", "branch": "x", "n": "1"}\n<<<END_FLOW_OUTPUT>>>'
    said: list[str] = []
    bound = Bound(f"done\n{block}")
    which = call({"bound": bound_data(Task(name="x", kind="python")), **FLOW}, {"prompt": "Why?"})
    done = await AgentTool({"python": bound})(structs.replace(which, say=lambda stream, text: said.append(str(text))))
    assert isinstance(done.outcome, Succeeded)
    assert done.outcome.result["markers"] == ["open"] and done.outcome.result["exports"] == {"n": "1"}
    assert "may not set `branch`" in said[0]
    assert bound.names()["prompt"] == "Why?"


async def test_a_block_that_does_not_fit_fails_the_try_and_is_not_asked_for_again_within_it() -> None:
    rules = {"fields": {"verdict": {"type": "string"}}, "markers": None}
    bound = Bound({"verdict": 1}, {"verdict": "ok"})
    done = await ask(bound, settings={**FLOW, "rules": rules})
    assert isinstance(done.outcome, Failed) and done.outcome.fault.kind == "schema"
    assert len(bound.asked) == 1


async def test_the_next_try_of_a_step_reads_why_the_last_one_failed() -> None:
    code = "if retry_error is None:\n    raise ValueError('tired')\nreturn {'context': retry_error + prompt}"
    task = Task(name="x", kind="python", settings={"code": code, "isolation": "inline"})
    plan = one_step("agent", {"bound": bound_data(task), **FLOW}, {"prompt": "Why?"}, retry=Retry(attempts=2))
    async with engine() as opened:
        result = await opened.run(plan)
    assert result["context"].startswith("tired") and "The last one failed: tired" in result["context"]


async def test_code_of_the_next_try_reads_why_the_last_one_failed_also_in_a_loop() -> None:
    code = "if context['attempt'] == 1:\n    raise ValueError(f'no {n}')\nreturn context['last_error']"
    loop = Loop(items=[1, 2], iterator="n")
    given = {"$let": {"n": "{{ n }}"}, "$in": {}}
    step = Step(
        name="a",
        work=Call(tool="python", settings={"code": code, "isolation": "inline"}),
        input=given,
        loop=loop,
        retry=Retry(attempts=2),
    )
    async with engine() as opened:
        result = await opened.run(Plan(name="one", steps=(step,), language="refold"))
    assert result == ["no 1", "no 2"]
