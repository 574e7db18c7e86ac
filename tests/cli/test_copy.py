"""`refold db copy`: runs move from a file to a server and back, and continue where they were."""

from pathlib import Path

import pytest

from tests.cli.program import noop, playbook, refold, shell, started, until
from tests.contracts.stores import postgres_url

GATE = "step: ask\ntool: {kind: gate, prompt: ok?}\nnext: after"
LARGE = "step: large\ntool: {kind: noop, result: \"{{ 'x' * 100000 }}\"}\nnext: each"
EACH = "step: each\nloop: {in: '{{ range(5) | list }}', iterator: n}\ntool: {kind: noop, result: '{{ n }}'}\nnext: talk"


def described(folder: Path, db: str) -> dict[str, tuple[str, list[object]]]:
    """Every run with its status and its history."""
    rows = refold(folder, "runs", "list", "-o", "json", "--db", db).data
    histories = {row["name"]: refold(folder, "runs", "history", row["id"], "-o", "json", "--db", db) for row in rows}
    return {row["name"]: (row["status"], histories[row["name"]].data) for row in rows}


@pytest.fixture
def file(tmp_path: Path) -> str:
    talk = shell("talk", "echo hello", "ask")
    play = playbook(tmp_path, LARGE, EACH, talk, GATE, shell("after", "echo x >> after"))
    sleeper = playbook(tmp_path, "step: w\ntool: {kind: wait, signal: go}\nnext: end", noop("end"), name="waits.yaml")
    boss = playbook(tmp_path, "step: kid\ntool: {kind: playbook, path: waits.yaml}", name="boss.yaml")
    for name, source in (("asks", play), ("waits", sleeper), ("boss", boss)):
        assert refold(tmp_path, "run", source, "--detach", "--name", name).code == 0
    assert refold(tmp_path, "worker", "--until-idle").code == 0
    assert refold(tmp_path, "run", playbook(tmp_path, noop("a"), name="one.yaml"), "--name", "over").code == 0
    return "refold.db"


def test_runs_move_to_a_server_and_back_and_continue_where_they_were(tmp_path: Path, file: str) -> None:
    server = postgres_url(tmp_path)
    done = refold(tmp_path, "db", "copy", file, server)
    assert done.code == 0, done
    before = described(tmp_path, file)
    assert described(tmp_path, server) == before
    assert len(before) >= 4
    logs = refold(tmp_path, "runs", "logs", "asks", "--db", server).out
    assert "hello" in logs and logs == refold(tmp_path, "runs", "logs", "asks").out
    assert refold(tmp_path, "db", "copy", server, "back.db").code == 0
    assert described(tmp_path, "back.db") == before
    for db in (server, "back.db"):
        assert refold(tmp_path, "gates", "approve", "asks", "--db", db).code == 0
        assert refold(tmp_path, "runs", "signal", "waits", "go", "--db", db).code == 0
        assert refold(tmp_path, "worker", "--until-idle", "--db", db).code == 0
        after = {name: status for name, (status, _) in described(tmp_path, db).items()}
        assert (after["asks"], after["waits"]) == ("completed", "completed")
        assert refold(tmp_path, "db", "check", "--db", db).code == 0
    assert (tmp_path / "after").read_text().splitlines() == ["x", "x"]


def test_a_copy_can_be_begun_again_and_another_run_of_the_same_id_is_refused(tmp_path: Path, file: str) -> None:
    server = postgres_url(tmp_path)
    assert refold(tmp_path, "db", "copy", file, server).code == 0
    again = refold(tmp_path, "db", "copy", file, server, "-o", "json")
    assert again.data["copied"] == [] and len(again.data["present"]) >= 4
    assert refold(tmp_path, "runs", "signal", "waits", "go", "--db", server).code == 0
    refused = refold(tmp_path, "db", "copy", file, server)
    assert refused.code == 4
    assert "the target has another run" in refused.err


def test_nothing_is_copied_while_a_worker_is_running(tmp_path: Path) -> None:
    file = playbook(tmp_path, shell("slow", "echo x >> began; sleep 600"))
    assert refold(tmp_path, "run", file, "--detach", "--name", "r").code == 0
    with started(tmp_path, "worker"):
        until((tmp_path / "began").exists)
        refused = refold(tmp_path, "db", "copy", "refold.db", postgres_url(tmp_path))
    assert refused.code == 4
    assert "workers of the source are running" in refused.err and "stop them first" in refused.err


def test_a_database_is_not_copied_to_itself_or_from_nowhere(tmp_path: Path, file: str) -> None:
    assert refold(tmp_path, "db", "copy", file, file).code == 2
    assert refold(tmp_path, "db", "copy", "nowhere.db", "x.db").code == 3
    assert refold(tmp_path, "db", "copy", file, "mysql://h/d").code == 5
