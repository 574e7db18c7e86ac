"""Files that earlier states of Refold have written open, list and resume, like a file of this state."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import command, here
from tests.cli.program import noop, playbook, shell

HERE = Path(__file__).parent
FILES = {"schema 3": HERE / "schema_3.db.gz", "schema 5": HERE / "schema_5.db.gz"}
"""Written by revisions 3912ad6 and a5f0034 through the command line, as `written_now` does."""

STATUSES = {
    "done": "completed",
    "fails": "failed",
    "loop": "failed",
    "left": "queued",
    "held": "paused",
    "asks": "waiting",
    "top": "waiting",
}


def written_now(folder: Path) -> None:
    """The same runs as in the files: completed, failed, not begun, paused, waiting for a person and for a child."""
    two = noop("two", result="fine")
    playbook(folder, shell("one", "echo x", "two"), two, name="done.yaml")
    playbook(folder, shell("one", "test -f mended", "two"), two, name="fails.yaml")
    tool = 'tool: {kind: shell, args: ["{{ n }}"], script: "test $1 != 2 || test -f mended"}'
    playbook(folder, f"step: each\nloop: {{in: [1, 2, 3], iterator: n}}\n{tool}", name="loop.yaml")
    gate = "step: ask\ntool: {kind: gate, prompt: ok?}\nnext: last"
    first = shell("first", "echo x >> first.txt", "ask")
    playbook(folder, first, gate, noop("last", result="approved"), name="asks.yaml")
    playbook(folder, "step: w\ntool: {kind: wait, signal: go}", name="kid.yaml")
    kids = "step: kids\ntool: {kind: playbook, path: kid.yaml}\nnext: end"
    playbook(folder, kids, noop("end", result="with child"), name="top.yaml")
    for name in ("done", "fails", "loop"):
        assert command("run", f"{name}.yaml", "--name", name, "-q").code == (name != "done")
    for name in ("left", "held"):
        assert command("run", "done.yaml", "--name", name, "--detach", "-q").code == 0
    assert command("runs", "pause", "held").code == 0
    for name in ("asks", "top"):
        assert command("run", f"{name}.yaml", "--name", name, "--until-waiting", "-q").code == 0


@pytest.fixture(params=[*FILES, "now"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with here(tmp_path):
        if request.param == "now":
            written_now(tmp_path)
        else:
            (tmp_path / "refold.db").write_bytes(gzip.decompress(FILES[request.param].read_bytes()))
            seen = command("runs", "list")
            assert seen.code == 5 and "`refold db migrate` brings it up to date" in seen.err
            assert command("db", "migrate").code == 0
        yield tmp_path


def statuses() -> dict[str, str]:
    return {row["name"]: row["status"] for row in command("runs", "list", "-o", "json").data}


def test_the_runs_of_a_file_of_any_state_are_listed_shown_and_continued(folder: Path) -> None:
    assert command("db", "check").err == "8 runs read, 0 problems\n"
    assert statuses() == STATUSES
    for name in STATUSES:
        for look in ("show", "history", "why", "logs"):
            assert command("runs", look, name).code == 0, (look, name)
    assert command("runs", "show", "done", "-o", "json").data["result"] == "fine"
    assert command("runs", "items", "loop", "-o", "json").data[1]["status"] == "failed"
    assert sum(group["runs"] for group in command("dlq", "list", "-o", "json").data) == 2

    (folder / "mended").touch()
    [child] = command("runs", "list", "--parent", "top", "-o", "json").data
    for line in (
        ("gates", "approve", "asks"),
        ("runs", "signal", child["id"], "go"),
        ("runs", "resume", "held", "-q"),
        ("runs", "retry", "fails", "-q"),
        ("runs", "retry", "loop", "-q"),
        ("worker", "--until-idle", "-q"),
    ):
        done = command(*line)
        assert done.code == 0, (line, done.err)
    assert statuses() == dict.fromkeys(STATUSES, "completed")
    results = {name: command("runs", "show", name, "-o", "json").data["result"] for name in ("asks", "top", "left")}
    assert results == {"asks": "approved", "top": "with child", "left": "fine"}
    assert not (folder / "first.txt").exists() or (folder / "first.txt").read_text() == "x\n"
    assert command("db", "check").err == "8 runs read, 0 problems\n"
