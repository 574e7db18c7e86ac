"""A bench runs workflows of users in virtual time, alike in every run."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from refold import testing
from refold.errors import Conflict, NotFound, RunFailed, StepFailed
from refold.testing import Bench, StillGoing, http_answer
from tests.testing.flows import ORDER, Crawl, Patient, Plain, playbook, slowly


def test_seven_days_of_sleep_cost_next_to_no_time() -> None:
    with testing.engine() as t:
        began, at = time.process_time(), t.now
        run = t.start(Patient)
        assert run.waits == ["timer ask until 2027-01-22T08:00:00.000000Z"]
        t.advance("7d")
        run.answer("yes")
        run.signal("word", 5)
        assert run.result() == ["yes", 5]
        assert (t.now - at).days == 7
    assert time.process_time() - began < 20  # and far less on a quiet machine


async def test_the_same_in_an_async_test() -> None:
    async with testing.engine() as t:
        run = await t.start(Patient)
        await t.advance("8d")
        assert run.waits == ["answer 'ask/1/1' (ask)"]
        await run.answer("no")
        await run.signal("word")
        assert await run.result() == ["no", None]
        assert run.status == "completed"


async def test_a_sync_bench_works_where_a_loop_is_running() -> None:
    with testing.engine() as t:
        assert t.run(Crawl, pages=2) == [0, 1]


def test_steps_in_threads_take_no_virtual_time_of_their_own() -> None:
    with testing.engine() as t:
        assert t.run(Plain, n=1) == 2
        again = t.start(Plain, n=2)
        at = again.waits
        assert again.result() == 3
    with testing.engine() as t:
        assert t.run(Plain, n=1) == 2
        assert t.start(Plain, n=2).waits == at


def test_a_flow_that_sleeps_without_a_context_sleeps_in_virtual_time_too() -> None:
    with testing.engine() as t:
        at = t.now
        assert t.run(slowly, n=3) == 3
        assert (t.now - at).seconds == 3600


def test_a_playbook_waits_retries_and_asks_in_virtual_time(tmp_path: Path) -> None:
    with testing.engine() as t:
        t.fake("fetch", [ConnectionError("away"), ConnectionError("away"), http_answer({"total": 21})])
        run = t.start(playbook(tmp_path, ORDER), id=8)
        assert run.waits == ["backoff fetch until 2027-01-15T09:00:00.000000Z"]
        t.advance("2d")
        assert run.steps()["price"]["result"] == 42
        t.advance("6d")
        assert run.waits == ["gate approve until 2027-01-24T11:00:00.000000Z"]
        run.decide("approve", by="ann")
        assert run.result() == "42 by approve"
        assert [call.config["url"] for call in t.calls("http")] == ["http://shop.example/orders/8"] * 3
        assert [call.attempt for call in t.calls("fetch")] == [1, 2, 3]


def test_a_gate_nobody_decides_ends_by_its_timeout(tmp_path: Path) -> None:
    with testing.engine() as t:
        t.fake("http", http_answer({"total": 1}))
        with pytest.raises(RunFailed, match="approve: nobody decided within") as failed:
            t.run(playbook(tmp_path, ORDER))
        assert "cool/1 waits for a time" in failed.value.__notes__[0]
        assert t.now.isoformat().startswith("2027-01-24T08:00:00")


def test_a_step_that_hangs_is_ended_by_its_timeout(tmp_path: Path) -> None:
    with testing.engine() as t:
        t.fake("fetch", testing.hangs(2, then=http_answer({"total": 1})))
        run = t.start(playbook(tmp_path, ORDER))
        t.advance("1d")
        assert run.steps()["fetch"]["attempts"] == 3
        assert "fetch/1 timed out after 60 s on try 1" in run.story()


def test_who_waits_for_what_never_comes_is_told_what_it_is() -> None:
    with (
        testing.engine(patience=20) as t,
        pytest.raises(StillGoing, match=r"waits for answer 'ask/1/1' \(ask\)\nhistory of run"),
    ):
        t.run(Patient)


def test_a_failed_step_of_python_code_raises_what_it_raised() -> None:
    def break_down() -> None:
        raise ZeroDivisionError("none left")

    with testing.engine() as t:
        t.fake("fetch", break_down)
        with pytest.raises(StepFailed, match="none left"):
            t.run(Crawl, pages=2)


def test_a_run_can_be_paused_resumed_and_cancelled(tmp_path: Path) -> None:
    with testing.engine() as t:
        run = t.start(Patient)
        run.pause()
        t.advance("30d")
        assert run.status == "paused"
        run.resume()
        assert run.waits == ["answer 'ask/1/1' (ask)"]
        run.cancel("enough")
        assert run.status == "cancelled"
        with pytest.raises(Conflict):
            run.answer("too late")


def test_secrets_are_given_to_the_bench(tmp_path: Path) -> None:
    body = 'workflow:\n  - step: a\n    tool: {kind: http, url: "http://x/", auth: {bearer: "{{ secrets.shop }}"}}\n'
    with testing.engine(secrets={"shop": "s3cret-token"}) as t:
        t.fake("http", http_answer({}))
        t.run(playbook(tmp_path, body))
        assert t.calls("http")[0].config["auth"] == {"bearer": "s3cret-token"}


def test_time_begins_where_a_test_says() -> None:
    with testing.engine(now="2030-02-01T00:00:00Z") as t:
        assert t.now.isoformat() == "2030-02-01T00:00:00+00:00"


def test_two_benches_tell_the_same_story() -> None:
    def story() -> str:
        with testing.engine(seed=3) as t:
            run = t.start(Crawl, pages=2)
            run.result()
            return run.story()

    assert story() == story()


def test_a_playbook_that_is_not_there_is_named(tmp_path: Path) -> None:
    with testing.engine() as t, pytest.raises(NotFound, match=r"nowhere\.yaml"):
        t.run(tmp_path / "nowhere.yaml")


def test_what_never_comes_to_rest_is_ended_in_real_time() -> None:
    async def spin() -> Any:
        while True:
            await asyncio.sleep(0)

    with testing.engine(patience=0.3) as t:
        t.fake("fetch", spin)
        with pytest.raises(TimeoutError, match=r"0\.3 seconds of real time were not enough"):
            t.run(Crawl, pages=2)
        t.patience = 20.0


def test_a_bench_is_closed_once_and_for_all() -> None:
    bench = Bench()
    bench.start(Patient)
    bench.close()
    bench.close()
    with pytest.raises(Conflict, match="this bench is closed"):
        bench.run(Patient)


def test_shell_and_sqlite_are_real(tmp_path: Path) -> None:
    body = 'workflow:\n  - step: a\n    tool: {kind: shell, command: [echo, "hello"]}\n    next: b\n'
    body += "  - step: b\n    tool: {kind: wait, seconds: 1d}\n    next: c\n"
    body += '  - step: c\n    tool: {kind: python, code: "return a", env: {X: y}}\n    input: {a: "{{ a.stdout }}"}\n'
    with testing.engine() as t:
        assert t.run(playbook(tmp_path, body)) == "hello\n"


def test_artifacts_of_a_bench_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    body = "workflow:\n  - step: a\n    tool: {kind: artifact, action: put, uri: x.txt, data: hello}\n"
    file = playbook(tmp_path, body)
    with testing.engine() as t:
        assert t.run(file)["ref"]
    assert [path.name for path in tmp_path.iterdir()] == ["play.yaml"]
