"""`refold validate` without production: secrets, the database next to which they are, and extras that are needed."""

import importlib.util
from pathlib import Path

import pytest

from tests.cli.in_process import command, here
from tests.cli.program import playbook, refold

SECRET = '{step: a, tool: {kind: http, url: "http://localhost", auth: {bearer: {secret: tok}}}}'


def test_a_secret_that_is_not_here_is_a_warning_unless_secrets_are_asked_for(tmp_path: Path) -> None:
    file = playbook(tmp_path, SECRET)
    done = refold(tmp_path, "validate", file)
    assert (done.code, done.out) == (0, "play.yaml: ok, 1 step, 1 warning\n")
    assert "warning[unknown-secret]: no provider has a secret `tok`" in done.err
    strict = refold(tmp_path, "validate", file, "--secrets")
    assert strict.code == 2 and "error[unknown-secret]" in strict.err
    assert refold(tmp_path, "validate", file, "--secrets", REFOLD_SECRET_TOK="x").code == 0
    assert refold(tmp_path, "run", file, "--dry-run").code == 2  # it could not run here


def test_secrets_are_looked_for_next_to_the_database(tmp_path: Path) -> None:
    file, key = playbook(tmp_path, SECRET), {"REFOLD_KEY_FILE": str(tmp_path / "own" / "keys")}
    assert refold(tmp_path, "secret", "set", "tok", "--db", "x.db", stdin="v", **key).code == 0
    assert refold(tmp_path, "validate", file, "--secrets", **key).code == 2
    assert refold(tmp_path, "validate", file, "--secrets", "--db", "x.db", **key).code == 0
    assert refold(tmp_path, "validate", file, "--secrets", REFOLD_DB="x.db", **key).code == 0


DUCK = "{step: a, tool: {kind: duckdb, query: select 1}, next: b}"
COPY = "{step: b, tool: {kind: transfer, source: {type: csv, path: x}, target: {type: sqlite, database: d, table: t}}}"


def test_validate_says_which_extras_a_file_needs(tmp_path: Path) -> None:
    done = refold(tmp_path, "validate", playbook(tmp_path, DUCK, COPY))
    assert done.out == "play.yaml: ok, 2 steps, needs refold[duckdb]\n"
    steps = ("{step: a, tool: {kind: postgres, url: u, query: select 1}, output: {secret: true}}",)
    done = refold(tmp_path, "validate", playbook(tmp_path, *steps))
    assert done.out == "play.yaml: ok, 1 step, needs refold[postgres,secrets]\n"


def test_an_extra_that_is_not_installed_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = playbook(tmp_path, DUCK, COPY)
    real = importlib.util.find_spec
    monkeypatch.setattr("refold.playbooks.extras.find_spec", lambda name: None if name == "duckdb" else real(name))
    with here(tmp_path):
        done = command("validate", file)
    assert done.code == 0 and done.out == "play.yaml: ok, 2 steps, 1 warning, needs refold[duckdb]\n"
    assert "play.yaml:5:" in done.err and "warning[missing-package]: `a`, `b` need the extra `duckdb`" in done.err
    assert "hint: run `pip install 'refold[duckdb]'` where steps run" in done.err


@pytest.mark.parametrize("name", ["s.yaml", "s.json"])
def test_a_schedule_that_is_written_as_one_line_of_json_is_no_playbook(tmp_path: Path, name: str) -> None:
    text = '{"apiVersion": "refold/v1", "kind": "Schedule", "metadata": {"name": "n"}, "cron": "* * * * *"}'
    (tmp_path / name).write_text(text)
    done = refold(tmp_path, "validate", name)
    assert done.code == 2 and "a schedule needs the key `workflow`" in done.err and "a playbook" not in done.err
