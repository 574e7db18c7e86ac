"""`refold ui`: the page on a database or on exported runs, which it does not change."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.cli.program import noop, playbook, refold, started

NS = "/api/v1/ns/default"


class Shown(NamedTuple):
    client: httpx2.Client
    greeting: list[str]

    def get(self, path: str) -> Any:
        return self.client.get(f"{NS}{path}").json()

    def post(self, path: str) -> httpx2.Response:
        return self.client.post(f"{NS}{path}", json={})


@contextmanager
def showing(folder: Path, *arguments: str, **env: str) -> Iterator[Shown]:
    """The page, signed in by the link that is printed; it ends with Ctrl-C."""
    with started(folder, "ui", *arguments, **env) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline(), process.stderr.readline()]
        address, _, ticket = lines[-1].split()[-1].partition("/#ticket=")
        assert address.startswith("http://127.0.0.1:"), lines
        own = {"origin": address, "x-refold": "1"}
        with httpx2.Client(base_url=address, headers=own, trust_env=False, timeout=60) as client:
            assert client.post("/api/v1/sign-in", json={"ticket": ticket}).status_code == 200
            yield Shown(client, lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [each for each in folder.rglob("*") if each.is_file()]
    return {str(each): (each.read_bytes(), each.stat().st_mtime_ns) for each in files}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a database of one run that is over."""
    playbook(tmp_path, noop("a", result="5"))
    assert refold(tmp_path, "run", "play.yaml", "--name", "once").code == 0
    return tmp_path


def test_the_page_of_a_database_writes_no_byte_and_needs_no_right_to(folder: Path) -> None:
    before = contents(folder)
    folder.chmod(0o555)
    try:
        with showing(folder, "--no-open") as shown:
            [row] = shown.get("/runs")["items"]
            assert (row["name"], shown.get(f"/runs/{row['id']}/result")) == ("once", {"value": 5})
            assert shown.get(f"/runs/{row['id']}")["may"] == []
            refused = shown.post(f"/runs/{row['id']}/retry")
            assert (refused.status_code, refused.json()["code"]) == (403, "read_only")
            assert shown.client.get("/readyz").status_code == 200
    finally:
        folder.chmod(0o755)
    assert contents(folder) == before


def test_the_page_follows_a_database_that_another_process_writes(folder: Path) -> None:
    playbook(folder, "step: ok\ntool: {kind: gate, prompt: go on?}", name="ask.yaml")
    with started(folder, "run", "ask.yaml", "--name", "asks"), showing(folder, "refold.db", "--no-open") as shown:
        while "waiting" not in [row["status"] for row in shown.get("/runs")["items"]]:
            pass
        assert [each["gate"] for each in shown.get("/gates")["items"]] == ["ok"]


def test_steering_is_allowed_if_it_is_asked_for_and_executes_nothing(folder: Path) -> None:
    playbook(folder, "step: ok\ntool: {kind: wait, seconds: 3600}\nnext: b", noop("b"), name="long.yaml")
    assert refold(folder, "run", "long.yaml", "--name", "long", "--until-waiting").code == 0
    with showing(folder, "--no-open", "--steer") as shown:
        [row] = shown.get("/runs?name=long")["items"]
        assert shown.post(f"/runs/{row['id']}/pause").json()["status"] == "paused"
        assert shown.get("/workers")["items"] == []
    assert refold(folder, "runs", "show", "long", "-o", "json").data["status"] == "paused"
    assert refold(folder, "token", "list", "-o", "json").data == [], "tokens of the page end with it"


def test_exported_runs_are_shown_without_a_database(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    apart = tmp_path_factory.mktemp("apart")
    with showing(folder, "--no-open", "--steer") as shown:
        [row] = shown.get("/runs")["items"]
        (apart / "run.json").write_bytes(shown.client.get(f"{NS}/runs/{row['id']}/export").content)
    before = contents(apart)
    with showing(apart, "run.json", "--no-open") as shown:
        assert [each["name"] for each in shown.get("/runs")["items"]] == ["once"]
        assert shown.get(f"/runs/{row['id']}/result") == {"value": 5}
    assert contents(apart) == before
    assert refold(apart, "ui", "run.json", "--steer").code == 2
    assert refold(folder, "ui", "refold.db", str(apart / "run.json")).code == 2


def test_the_browser_is_opened_unless_it_is_told_not_to(folder: Path) -> None:
    note = folder / "opened"
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {note}.new && mv {note}.new {note}\n')
    browser.chmod(0o755)
    with showing(folder, BROWSER=f"{browser} %s") as shown:
        while not note.exists():
            os.sched_yield()
        assert note.read_text().strip() == shown.greeting[-1].split()[-1]


@pytest.mark.parametrize(("arguments", "code"), [(("none.db",), 3), (("refold.db", "refold.db"), 2)])
def test_what_cannot_be_shown_is_refused(folder: Path, arguments: tuple[str, ...], code: int) -> None:
    done = refold(folder, "ui", *arguments, "--no-open")
    assert (done.code, done.err.startswith("error: ")) == (code, True), done.err
