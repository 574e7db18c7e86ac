"""`refold run --server`: a run is started on the server, executed by its workers, and shown here to its end."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Done, refold, started, until
from tests.client.served import Served, served
from tests.server.conftest import write_playbooks


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("server")
    with served(folder / "refold.db", write_playbooks(folder), works=True) as opened:
        yield opened


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with files of playbooks and no database."""
    return write_playbooks(tmp_path / "here")


class Remote:
    def __init__(self, folder: Path, server: Served, token: str) -> None:
        self.folder = folder
        self.env = {"REFOLD_SERVER": server.address, "REFOLD_TOKEN": token}

    def __call__(self, *arguments: str) -> Done:
        return refold(self.folder, *arguments, **self.env)


@pytest.fixture
def remote(here: Path, server: Served) -> Remote:
    return Remote(here, server, server.token())


def test_a_run_of_a_file_is_executed_by_the_server_and_its_result_printed(remote: Remote) -> None:
    done = remote("run", "greet.yaml", "-i", "name=Ann", "--name", "hi", "--progress", "lines")
    assert (done.code, done.out) == (0, "hello Ann\n"), done
    assert "hello" in done.err
    assert remote("runs", "list", "--name", "hi", "-o", "json").data[0]["status"] == "completed"
    assert not (remote.folder / "refold.db").exists()


def test_a_workflow_of_the_server_is_started_by_its_name(remote: Remote) -> None:
    (remote.folder / "greet.yaml").unlink()
    done = remote("run", "greet", "-i", "name=Bo", "-q")
    assert (done.code, done.out) == (0, "hello Bo\n"), done
    unknown = remote("run", "gret", "-q")
    assert (unknown.code, "greet" in unknown.err) == (3, True)
    wrong = remote("run", "greet", "--agent", "cat", "-q")
    assert (wrong.code, "go with a file" in wrong.err) == (2, True)


def test_a_run_that_fails_on_the_server_has_the_same_exit_code_and_words_as_here(remote: Remote) -> None:
    there, local = remote("run", "broken.yaml", "-q", "--name", "r"), refold(remote.folder, "run", "broken.yaml", "-q")
    assert (there.code, there.err, there.out) == (local.code, local.err, local.out) == (1, local.err, "")
    retried = remote("runs", "retry", "r", "-q")
    assert (retried.code, retried.err) == (1, there.err)


def test_a_run_that_waits_is_left_and_resumed(remote: Remote) -> None:
    left = remote("run", "listen.yaml", "--name", "ears", "--until-waiting", "--progress", "none")
    again = f"to continue: refold runs resume ears --server {remote.env['REFOLD_SERVER']}\n"
    assert (left.code, again in left.err) == (0, True), left
    remote("runs", "pause", "ears")
    paused = remote("runs", "watch", "ears", "--timeout", "0", "-q")
    assert paused.code == 124
    remote("runs", "signal", "ears", "go", "5")
    done = remote("runs", "resume", "ears", "-q")
    assert (done.code, "5" in done.out) == (0, True), done


def test_ctrl_c_ends_the_watching_and_not_the_run(remote: Remote) -> None:
    with started(remote.folder, "run", "listen.yaml", "--name", "kept", "-q", **remote.env) as process:
        until(lambda: remote("runs", "list", "--name", "kept", "-o", "json").data)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    until(lambda: remote("runs", "list", "--name", "kept", "-o", "json").data[0]["status"] == "waiting")


def test_what_is_wrong_with_the_way_to_the_server_is_said(remote: Remote, server: Served) -> None:
    remote.env["REFOLD_TOKEN"] = ""
    missing = remote("runs", "list")
    assert (missing.code, "REFOLD_TOKEN" in missing.err) == (2, True)
    remote.env["REFOLD_TOKEN"] = "rfd_aaaaaaaa_" + "x" * 43
    unknown = remote("runs", "list")
    assert (unknown.code, "not valid" in unknown.err, "xxx" in unknown.err) == (5, True, False)
    remote.env["REFOLD_TOKEN"] = server.token("viewer", "eve")
    refused = remote("runs", "cancel", "x")
    assert refused.code in (3, 5), refused
    shown = remote("runs", "list")
    assert shown.code == 0
    forbidden = remote("run", "greet.yaml", "-q")
    assert (forbidden.code, "permission" in forbidden.err) == (5, True), forbidden
    both = remote("runs", "list", "--server", "http://127.0.0.1:1", "--db", "x.db")
    assert (both.code, "exclude" in both.err) == (2, True)
    gone = refold(remote.folder, "runs", "list", "--server", "http://127.0.0.1:1", REFOLD_TOKEN="x")
    assert (gone.code, "does not answer" in gone.err) == (5, True), gone


def test_a_database_that_is_named_wins_over_the_server_of_the_environment(remote: Remote) -> None:
    refold(remote.folder, "run", "greet.yaml", "--name", "mine", "--db", "my.db", "-q")
    listed = remote("runs", "list", "--db", "my.db", "-o", "json").data
    assert [each["name"] for each in listed] == ["mine"]


def test_settings_have_the_server_and_only_the_environment_the_token(remote: Remote) -> None:
    (remote.folder / "refold.toml").write_text(f'server = "{remote.env["REFOLD_SERVER"]}"\n')
    kept = {"REFOLD_TOKEN": remote.env["REFOLD_TOKEN"]}
    assert refold(remote.folder, "runs", "list", "-o", "json", **kept).code == 0
    printed = refold(remote.folder, "settings", **kept)
    assert remote.env["REFOLD_SERVER"] in printed.out
    assert kept["REFOLD_TOKEN"] not in printed.out + printed.err
