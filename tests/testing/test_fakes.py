"""Tools are faked by kind, step, task or command; what nobody faked does not leave the test."""

from pathlib import Path
from typing import Any

import pytest

from refold import testing
from refold.errors import InvalidValue, RunFailed
from refold.testing import Called, fails, http_answer, takes
from tests.testing.flows import LIST, ORDER, Crawl, Done, playbook

ONE = "workflow:\n  - step: a\n    tool: {kind: KIND}\n"
KINDS = {
    "http": "http, url: 'http://x.example/'",
    "postgres": "postgres, url: 'postgresql://x.example/', query: 'select 1'",
    "llm": "llm, base_url: 'http://x.example/', model: m, prompt: hello",
    "container": "container, image: alpine",
    "mcp": "mcp, endpoint: 'http://x.example/', method: tools/list",
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_reaches_beyond_the_test_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    with testing.engine() as t:
        with pytest.raises(RunFailed, match=rf"a/1 calls {kind}, which reaches beyond the test and is not faked"):
            t.run(playbook(tmp_path, ONE.replace("KIND", KINDS[kind])))
        t.fake(kind, {"fine": True})
        assert t.run(playbook(tmp_path, ONE.replace("KIND", KINDS[kind]))) == {"fine": True}


def test_what_is_allowed_is_let_through(tmp_path: Path) -> None:
    with testing.engine() as t:
        t.allow("http")
        with pytest.raises(RunFailed) as failed:
            t.run(playbook(tmp_path, ONE.replace("KIND", "http, url: 'http://127.0.0.1:9/'")))
        assert "CONN" in str(failed.value.error)


def test_the_most_exact_fake_counts(tmp_path: Path) -> None:
    with testing.engine() as t:
        t.fake("http", http_answer("by kind"))
        t.fake("send", http_answer("by step"))
        t.fake("send/1/2", http_answer("by command"))
        t.fake("both/second", {"n": 5})
        run = t.start(playbook(tmp_path, LIST))
        assert [each["text"] for each in run.steps()["send"]["result"]] == ["by step", "by step", "by command"]
        assert run.result()["second"] == {"n": 5}
        assert [(call.kind, call.command) for call in t.calls("both")] == [
            ("shell", "both/1/first"),
            ("python", "both/1/second"),
        ]


def test_a_function_sees_the_call_and_may_be_async(tmp_path: Path) -> None:
    async def answer(call: Called) -> Any:
        return {"to": call.config["url"], "item": call.item, "attempt": call.attempt}

    with testing.engine() as t:
        t.fake("http", answer)
        run = t.start(playbook(tmp_path, LIST))
        assert run.steps()["send"]["result"][1] == {"to": "http://post.example/b", "item": 1, "attempt": 1}


def test_each_command_fails_so_often_and_then_succeeds(tmp_path: Path) -> None:
    with testing.engine() as t:
        t.fake("http", fails(2, then=http_answer({"ok": 1})))
        at = t.now
        run = t.start(playbook(tmp_path, LIST))
        assert run.result()["n"] == 2
        assert len(t.calls("send")) == 9
        assert (t.now - at).total_seconds() >= 20
        assert t.calls("send")[0].error == "ConnectionError: faked"


def test_a_list_that_is_used_up_says_so(tmp_path: Path) -> None:
    with testing.engine() as t:
        t.fake("http", [http_answer({})])
        with pytest.raises(RunFailed, match="items failed"):
            t.run(playbook(tmp_path, LIST))
        assert "the fake 'http' has 1 results, and this is call 2" in t.calls("http")[1].error


def test_a_tool_may_take_its_time(tmp_path: Path) -> None:
    with testing.engine() as t:
        t.fake("http", takes("50s", http_answer({"total": 2})))
        run = t.start(playbook(tmp_path, ORDER))
        assert run.steps()["fetch"]["status"] == "issued"
        t.advance("49s")
        assert run.steps()["fetch"]["status"] == "issued"
        t.advance("2s")
        assert run.steps()["fetch"]["status"] == "completed"


@pytest.mark.parametrize(("status", "kind", "tries"), [(404, "not_found", 1), (503, "server_error", 4)])
def test_an_answer_with_an_error_status_fails_as_it_would_in_earnest(
    status: int, kind: str, tries: int, tmp_path: Path
) -> None:
    with testing.engine() as t:
        t.fake("http", http_answer({"why": "gone"}, status))
        run = t.start(playbook(tmp_path, ORDER))
        with pytest.raises(RunFailed) as failed:
            run.result()
        assert failed.value.error.fault.kind == kind
        assert failed.value.error.fault.data["data"] == {"why": "gone"}
        assert len(t.calls("http")) == tries


def test_a_step_of_a_python_workflow_is_faked_by_its_events() -> None:
    with testing.engine() as t:
        t.fake("fetch", lambda call: Done(n=10 * call.input.n))
        assert t.run(Crawl, pages=2) == [0, 10]
        assert [call.input.n for call in t.calls("fetch")] == [0, 1]
        assert all(call.faked for call in t.calls("fetch"))


def test_calls_of_a_name_that_is_mistyped_are_refused() -> None:
    with testing.engine() as t:
        t.run(Crawl, pages=2)
        with pytest.raises(InvalidValue, match="fetch"):
            t.calls("fecth")
        t.fake("store")
        assert t.calls("store") == []
