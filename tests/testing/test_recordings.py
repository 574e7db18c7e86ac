"""What tools gave in one run is given again in the next, of the same or of a changed workflow."""

from pathlib import Path

import pytest
from msgspec import json

from refold import testing
from refold.errors import InvalidValue, NotFound, RunFailed
from refold.testing import fails, http_answer
from tests.cli.program import refold
from tests.testing import flows
from tests.testing.flows import LIST, ORDER, Crawl, playbook

PARENT = "workflow:\n  - step: child\n    tool: {kind: playbook, path: child.yaml}\n"
SHELL = "workflow:\n  - step: say\n    tool: {kind: shell, command: [echo, hello]}\n"


def test_a_playbook_gets_what_its_tools_gave_try_by_try(tmp_path: Path) -> None:
    file, kept = playbook(tmp_path, LIST), tmp_path / "kept.json"
    with testing.engine() as t:
        t.fake("http", fails(1, then=lambda call: {"to": call.config["url"]}))
        run = t.start(file)
        run.result()
        results = run.steps()["send"]["result"]
        t.record(run, kept)
    with testing.engine() as t:
        t.replay(kept)
        again = t.start(file)
        assert again.result()["n"] == 2
        assert again.steps()["send"]["result"] == results
        assert [call.error for call in t.calls("send/1/0")] == ["error: faked", ""]
        assert t.unrecorded == []
        assert all(call.faked for call in t.calls())


def test_a_changed_workflow_is_told_which_calls_were_never_recorded(tmp_path: Path) -> None:
    file, kept = playbook(tmp_path, SHELL), tmp_path / "kept.json"
    with testing.engine() as t:
        t.record(t.start(file), kept)
    more = SHELL + "    next: ask\n  - step: ask\n    tool: {kind: http, url: 'http://x.example/'}\n"
    with testing.engine() as t:
        t.replay(kept)
        with pytest.raises(RunFailed, match="ask/1 calls http"):
            t.run(playbook(tmp_path, more))
        assert t.unrecorded == ["ask/1 (http)"]
        assert t.calls("say")[0].faked


def test_what_is_live_really_runs(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    with testing.engine() as t:
        t.fake("http", http_answer({"total": 4}))
        run = t.start(playbook(tmp_path, ORDER))
        t.advance("7d")
        run.decide("approve")
        t.record(run, kept)
    changed = playbook(tmp_path, ORDER.replace("total * 2", "total * 100"))
    for live, price in ((), 8), (("python",), 400), (("price",), 400):
        with testing.engine() as t:
            t.replay(kept, live=live)
            assert t.start(changed).steps()["price"]["result"] == price


def test_durable_calls_of_python_steps_are_given_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    with testing.engine() as t:
        run = t.start(Crawl, pages=2)
        t.record(run, kept)
    flows.fetched.clear()
    with testing.engine() as t:
        t.replay(kept)
        assert t.run(Crawl, pages=2) == [0, 1]
        assert flows.fetched == []
        assert t.unrecorded == []
        t.run(Crawl, pages=4)
        assert sorted(flows.fetched) == [2, 3]
        assert [each.partition("/1/")[0] for each in t.unrecorded] == ["fetch/3 (call", "fetch/4 (call"]


def test_children_are_recorded_with_their_parent(tmp_path: Path) -> None:
    playbook(tmp_path, SHELL, "child.yaml")
    kept = tmp_path / "kept.json"
    with testing.engine() as t:
        recording = t.record(t.start(playbook(tmp_path, PARENT)), kept)
    assert [each.command for each in recording.calls] == ["say/1"]


def test_a_real_run_is_recorded_by_the_program(tmp_path: Path) -> None:
    playbook(tmp_path, SHELL)
    assert refold(tmp_path, "run", "play.yaml", "--name", "once").code == 0
    done = refold(tmp_path, "runs", "record", "once", "-o", "kept.json")
    assert (done.code, done.err) == (0, "1 results of play are in kept.json\n")
    assert refold(tmp_path, "runs", "record", "once").data["calls"][0]["command"] == "say/1"
    assert refold(tmp_path, "runs", "record", "nobody").code == 3
    with testing.engine() as t:
        t.replay(tmp_path / "kept.json")
        assert t.run(tmp_path / "play.yaml")["stdout"] == "hello\n"


def test_large_results_are_recorded_whole(tmp_path: Path) -> None:
    body = "workflow:\n  - step: big\n    tool: {kind: python, code: return 'x' * 100_000}\n"
    file, kept = playbook(tmp_path, body), tmp_path / "kept.json"
    with testing.engine() as t:
        t.record(t.start(file), kept)
    with testing.engine() as t:
        t.replay(kept)
        assert t.run(file) == "x" * 100_000


def test_secrets_are_not_in_a_recording(tmp_path: Path) -> None:
    body = "workflow:\n  - step: a\n    retry: {attempts: 2}\n"
    body += "    tool: {kind: http, url: 'http://x/', auth: {bearer: '{{ secrets.shop }}'}}\n"
    kept = tmp_path / "kept.json"
    with testing.engine(secrets={"shop": "s3cret-token"}) as t:
        t.fake("http", [ConnectionError("refused s3cret-token"), http_answer({"ok": True})])
        t.record(t.start(playbook(tmp_path, body)), kept)
    assert "s3cret-token" not in kept.read_text()
    assert "refused ***" in kept.read_text()


def test_what_is_no_recording_is_refused_by_name(tmp_path: Path) -> None:
    with testing.engine() as t:
        with pytest.raises(NotFound, match="there is no recording nowhere"):
            t.replay("nowhere.json")
        for data in (b"{}", b'{"format": "\xf8"}'):
            (tmp_path / "a.json").write_bytes(data)
            with pytest.raises(InvalidValue, match=r"a\.json: is not a recording"):
                t.replay(tmp_path / "a.json")
        (tmp_path / "b.json").write_bytes(json.encode({"format": "other/1", "workflow": "w", "run": "r"}))
        with pytest.raises(InvalidValue, match="of another kind"):
            t.replay(tmp_path / "b.json")
        with pytest.raises(NotFound):
            t.record("nobody", tmp_path / "c.json")
