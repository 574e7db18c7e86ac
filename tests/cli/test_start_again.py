"""A second start with a key, and a retry after the file of a run was changed, say what happens and what does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.core.facts import RunMigrated, RunReopened
from refold.stores.open import open_views
from tests.cli.in_process import command, here
from tests.cli.program import noop, playbook, shell

BROKEN = shell("one", "exit 3", "two")
MENDED = shell("one", "echo mended", "two")
TWO = noop("two", result="done")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with here(tmp_path):
        yield tmp_path


def run_of(name: str) -> str:
    return str(command("runs", "show", name, "-o", "json").data["id"])


def test_a_second_start_with_a_key_says_that_the_run_exists_and_how_it_stands(folder: Path) -> None:
    file = playbook(folder, BROKEN, TWO)
    assert "has the key" not in command("run", file, "--key", "k", "--name", "mine").err
    second = command("run", file, "--key", "k", "--name", "mine")
    assert second.code == 1 and "run mine has the key 'k' already and failed at 20" in second.err
    assert "no other run is started; `refold runs retry mine` continues it" in second.err
    playbook(folder, MENDED, TWO)
    assert command("runs", "retry", "mine", "--with", file, "-q").code == 0
    third = command("run", file, "--key", "k", "-i", "n=1")
    assert (third.code, third.out) == (0, "done\n")
    assert "was started with other inputs (n), which stay" in third.err
    assert "run mine has the key 'k' already and completed at 20" in third.err and "retry" not in third.err
    assert command("run", file, "--key", "k", "-q").err == ""


def test_a_detached_start_with_the_key_of_a_run_that_is_over_promises_no_worker(folder: Path) -> None:
    file = playbook(folder, noop("one"))
    assert command("run", file, "--key", "k", "--name", "mine", "-q").code == 0
    done = command("run", file, "--key", "k", "--detach")
    assert done.code == 0 and "has the key 'k' already and completed" in done.err and "worker" not in done.err
    start = ("run", file, "--key", "other", "--name", "later", "--detach")
    assert "already" not in command(*start).err
    again = command(*start).err
    assert "run later has the key 'other' already and is running" in again and "no worker is running" in again


def test_a_retry_says_that_the_file_has_changed_and_how_it_is_used(folder: Path) -> None:
    file = playbook(folder, BROKEN, TWO)
    assert command("run", file, "--name", "mine", "-q").code == 1
    assert "has changed" not in command("runs", "retry", "mine").err
    playbook(folder, MENDED, TWO)
    told = command("runs", "retry", "mine")
    assert told.code == 1
    assert (
        "play.yaml has changed: the run continues as it was; `--with play.yaml` uses the file as it is now" in told.err
    )
    (folder / file).write_text("nothing: good")
    assert "has changed and cannot be used as it is now (`refold validate play.yaml` says why)" in (
        command("runs", "retry", "mine").err
    )
    (folder / file).unlink()
    assert "changed" not in command("runs", "retry", "mine").err


def test_with_the_changed_file_a_run_migrates_and_is_retried_in_one_commit(folder: Path) -> None:
    file = playbook(folder, shell("zero", "echo x >> zero.txt", "one"), BROKEN, TWO)
    assert command("run", file, "--name", "mine", "-q").code == 1
    playbook(folder, shell("zero", "echo x >> zero.txt", "one"), MENDED, TWO)
    done = command("runs", "retry", "mine", "--with", file)
    assert (done.code, done.out) == (0, "done\n") and "has changed" not in done.err
    assert (folder / "zero.txt").read_text() == "x\n"
    facts = list(open_views("refold.db", lambda: 0).facts(run_of("mine")))
    [at] = [n for n, (_, _, fact) in enumerate(facts) if isinstance(fact, RunReopened)]
    assert isinstance(facts[at + 1][2], RunMigrated) and facts[at][1] == facts[at + 1][1]


def test_a_file_that_does_not_fit_the_run_changes_nothing(folder: Path) -> None:
    file = playbook(folder, BROKEN, TWO)
    assert command("run", file, "--name", "mine", "-q").code == 1
    before = command("runs", "history", "mine").out
    other = playbook(folder, noop("zero", "one"), MENDED, TWO, name="other.yaml")
    refused = command("runs", "retry", "mine", "--with", other)
    assert refused.code == 4 and "the new plan begins with zero" in refused.err
    assert command("runs", "history", "mine").out == before
    assert command("runs", "retry", "mine", "--with", "gone.yaml").code == 3
    assert command("runs", "retry", "mine", "--with", file, "--item", "1").code == 2
    assert command("runs", "show", "mine", "-o", "json").data["status"] == "failed"


def test_with_the_same_file_a_run_is_only_retried(folder: Path) -> None:
    file = playbook(folder, shell("one", "test -f mended", "two"), TWO)
    assert command("run", file, "--name", "mine", "-q").code == 1
    (folder / "mended").touch()
    assert command("runs", "retry", "mine", "--with", file, "-q").code == 0
    assert "migrated" not in command("runs", "history", "mine").out
