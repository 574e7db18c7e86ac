"""The tool `emit`, and what the tool that does nothing says."""

from pathlib import Path
from typing import Any

import pytest

from refold.tools.simple import emit, noop
from tests.cli.program import playbook, refold
from tests.tools.calls import call, engine, fault_of, one_step


class Heard:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, stream: str, text: str) -> None:
        self.lines.append((stream, text))


@pytest.mark.parametrize(
    ("config", "lines", "result"),
    [
        ({"event": "order.paid"}, ["order.paid"], {"event": "order.paid", "data": None}),
        ({"event": "paid", "data": {"ü": [1]}}, ['paid {"ü": [1]}'], {"event": "paid", "data": {"ü": [1]}}),
        ({"event": "paid", "data": "a\nb"}, ['paid "a\\nb"'], {"event": "paid", "data": "a\nb"}),
        ({"message": "one\ntwo"}, ["one", "two"], {"event": "message", "data": "one\ntwo"}),
    ],
)
async def test_an_event_is_a_line_for_those_who_follow_the_run(
    config: dict[str, Any], lines: list[str], result: Any
) -> None:
    heard = Heard()
    assert await emit(call(None, config, None, heard)) == result
    assert heard.lines == [("event", line) for line in lines]
    assert await emit(call(None, config)) == result, "where nobody listens too"


@pytest.mark.parametrize("config", [{}, {"event": "a", "message": "b"}, {"event": "two words"}, {"event": ""}])
async def test_an_event_has_one_name_or_is_a_message(config: dict[str, Any]) -> None:
    fault = await fault_of(emit, call(None, config))
    assert (fault.kind, fault.retryable) == ("invalid_settings", False)


def test_what_was_emitted_is_in_the_logs_of_the_run(tmp_path: Path) -> None:
    file = playbook(tmp_path, 'step: a\ntool: {kind: emit, event: order.paid, data: {id: "{{ 3 + 4 }}"}}')
    assert refold(tmp_path, "run", file, "-q").code == 0
    assert refold(tmp_path, "runs", "logs").out.rstrip().endswith('a   order.paid {"id": 7}')
    line = refold(tmp_path, "runs", "logs", "-o", "json").data
    assert (line["stream"], line["text"]) == ("event", 'order.paid {"id": 7}')


async def test_a_message_of_the_tool_that_does_nothing_is_a_line_and_its_result() -> None:
    heard = Heard()
    assert await noop(call({}, {"message": "here"}, {"a": 1}, heard)) == {"status": "ok", "message": "here"}
    assert await noop(call({}, {"message": "here", "result": 5}, {"a": 1}, heard)) == 5
    assert heard.lines == [("stdout", "here")] * 2
    async with engine() as opened:
        assert await opened.run(one_step("noop", {"message": "x"})) == {"status": "ok", "message": "x"}
