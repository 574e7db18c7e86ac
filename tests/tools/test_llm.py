"""The tool `llm` against an endpoint of this machine that answers as such servers do."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec import json

from refold import Retry
from refold.core.outcomes import Failed, Succeeded
from refold.ports import Done
from refold.tools.http.tool import HttpTool
from refold.tools.llm.tool import LlmTool
from tests.tools.calls import call, engine, fault_of, one_step
from tests.tools.web import Answer, Asked, Site, says, served

USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}


def answers(text: str, **more: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return says({"id": "x", "model": "small-2", "choices": [choice], "usage": USAGE, **more})


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def at(site: Site) -> Iterator[str]:
    with served(site) as address:
        yield f"{address}/v1"


@pytest.fixture
async def llm() -> AsyncIterator[LlmTool]:
    http = HttpTool(private=True)
    yield LlmTool(http)
    await http.close()


def ask(at: str, **config: Any) -> Any:
    return call(None, {"base_url": at, "model": "small", **config})


def sent(site: Site) -> Any:
    return json.decode(site.asked[-1].body)


async def result_of(llm: LlmTool, which: Any) -> Any:
    done = await llm(which)
    assert isinstance(done.outcome, Succeeded)
    return done.outcome.result


async def fault_after_answer(llm: LlmTool, which: Any) -> tuple[Any, Done]:
    done = await llm(which)
    assert isinstance(done.outcome, Failed)
    return done.outcome.fault, done


async def test_a_prompt_is_answered_and_what_it_used_is_told(llm: LlmTool, site: Site, at: str) -> None:
    site["/v1/chat/completions"] = answers("Paris.")
    done = await llm(ask(f"{at}/", prompt="Capital of France?", system="Be brief.", temperature=0, max_tokens=9))
    assert done.outcome == Succeeded(
        {"text": "Paris.", "json": None, "model": "small-2", "finish_reason": "stop", "usage": USAGE}
    )
    assert done.usage == {"tokens": 17, "prompt_tokens": 12, "completion_tokens": 5}
    assert sent(site) == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital of France?"}],
        "temperature": 0,
        "max_tokens": 9,
    }
    assert "authorization" not in site.asked[0].headers


async def test_messages_options_headers_and_the_key_are_sent(llm: LlmTool, site: Site, at: str) -> None:
    site["/v1/chat/completions"] = answers("ok")
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    await llm(ask(at, messages=messages, options={"seed": 7}, headers={"X-Team": "a"}, api_key="k3y"))
    assert sent(site) == {"seed": 7, "model": "small", "messages": messages}
    headers = site.asked[0].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer k3y", "a")
    assert headers["idempotency-key"] == "run-1/a/1"


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("text", ['{"n": 5}', ' {"n":5}\n', '```json\n{"n": 5}\n```', '```\n{"n": 5}```'])
async def test_an_answer_in_json_is_decoded_and_held_against_its_schema(
    llm: LlmTool, site: Site, at: str, text: str
) -> None:
    site["/v1/chat/completions"] = answers(text)
    result = await result_of(llm, ask(at, prompt="?", json=SCHEMA))
    assert (result["json"], result["text"]) == ({"n": 5}, text)
    wanted = sent(site)["response_format"]
    assert (wanted["type"], wanted["json_schema"]["schema"]) == ("json_schema", SCHEMA)
    assert (await result_of(llm, ask(at, prompt="?", json=True)))["json"] == {"n": 5}
    assert sent(site)["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize(("text", "kind"), [('{"n": "five"}', "schema"), ("well, five", "parse"), ("", "parse")])
async def test_an_answer_that_does_not_fit_may_be_asked_for_again_and_is_counted(
    llm: LlmTool, site: Site, at: str, text: str, kind: str
) -> None:
    site["/v1/chat/completions"] = answers(text)
    fault, done = await fault_after_answer(llm, ask(at, prompt="?", json=SCHEMA))
    assert (fault.kind, fault.retryable, fault.data) == (kind, True, {"text": text})
    assert done.usage["tokens"] == 17


async def test_to_be_asked_to_slow_down_is_a_rate_limit(llm: LlmTool, site: Site, at: str) -> None:
    site["/v1/chat/completions"] = says({"error": {"message": "slow down"}}, 429, **{"retry-after": "7"})
    fault = await fault_of(llm, ask(at, prompt="?"))
    assert (fault.kind, fault.code, fault.retryable, fault.retry_after) == ("rate_limit", "HTTP_429", True, 7.0)


@pytest.mark.parametrize(
    ("body", "kind"),
    [({"choices": []}, "parse"), ({"choices": [{"text": "old"}]}, "parse"), ([], "parse"), ("x", "parse")],
)
async def test_an_answer_of_another_kind_is_a_failure(llm: LlmTool, site: Site, at: str, body: Any, kind: str) -> None:
    site["/v1/chat/completions"] = says(body)
    fault = await fault_of(llm, ask(at, prompt="?"))
    assert (fault.kind, fault.retryable) == (kind, False)


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": "many"}, {"total_tokens": True}])
async def test_a_server_that_does_not_count_costs_nothing(llm: LlmTool, site: Site, at: str, usage: Any) -> None:
    site["/v1/chat/completions"] = answers("ok", usage=usage)
    assert (await llm(ask(at, prompt="?"))).usage == {}


async def test_an_answer_without_text_is_empty(llm: LlmTool, site: Site, at: str) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    site["/v1/chat/completions"] = says({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    result = await result_of(llm, ask(at, prompt="?"))
    assert (result["text"], result["model"], result["finish_reason"]) == ("", "small", "tool_calls")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"prompt": "a", "messages": []},
        {"messages": [{"role": "user"}], "system": "x"},
        {"messages": []},
        {"messages": ["hi"]},
        {"prompt": "a", "json": "yes"},
        {"prompt": "a", "json": {"type": "thing"}},
        {"prompt": "a", "model": ""},
    ],
)
async def test_what_cannot_be_meant_is_refused(llm: LlmTool, site: Site, at: str, config: dict[str, Any]) -> None:
    fault = await fault_of(llm, ask(at, **config))
    assert (fault.kind, fault.retryable, site.asked) == ("invalid_settings", False, [])


async def test_what_every_try_used_up_is_in_the_ledger_of_the_run(site: Site, at: str) -> None:
    tries: list[int] = []

    def second_time_right(_: Asked) -> Answer:
        tries.append(1)
        return answers("{" if len(tries) == 1 else '{"n": 1}')

    site["/v1/chat/completions"] = second_time_right
    config = {"base_url": at, "model": "small", "prompt": "?", "json": SCHEMA}
    async with engine() as opened:
        run = (await opened.start(one_step("llm", None, config, retry=Retry(attempts=3, delay=0.01)))).id
        shown = await opened.wait(run)
        assert (shown.result["json"], len(tries)) == ({"n": 1}, 2)
        assert (await opened.show(run)).usage["tokens"] == 34


async def test_a_private_address_is_refused_unless_it_may_be_reached(site: Site, at: str) -> None:
    tool = LlmTool(HttpTool(private=False))
    assert (await fault_of(tool, ask(at, prompt="?"))).kind == "blocked_address"
    assert site.connections == 0
