"""The log of the engine as the program prints it: nothing by default, and with REFOLD_LOG a line for each event."""

from pathlib import Path
from typing import Any

from msgspec import json

from tests.cli.program import noop, playbook, refold

SECRET = "moon-and-42-stars"


def lines(err: str) -> list[dict[str, Any]]:
    return [json.decode(line) for line in err.splitlines() if line.startswith("{")]


def test_a_run_prints_no_line_of_the_log_by_default(tmp_path: Path) -> None:
    done = refold(tmp_path, "run", playbook(tmp_path, noop("one")), "--name", "x", "--progress", "none")
    assert done.code == 0
    assert "refold." not in done.err and "engine opened" not in done.err


def test_text_tells_of_the_file_the_engine_and_the_run_on_stderr(tmp_path: Path) -> None:
    done = refold(tmp_path, "run", playbook(tmp_path, noop("one", result="7")), "--name", "x", "-q", REFOLD_LOG="text")
    assert (done.code, done.data) == (0, 7)
    told = [line.split(" ", 2)[1:] for line in done.err.splitlines()]
    words = [" ".join(each) for each in told]
    heads = [
        "INFO refold.store database file made ",
        "INFO refold.engine engine opened ",
        "INFO refold.runtime run started ",
        "INFO refold.runtime run ended ",
        "INFO refold.worker worker stops ",
        "INFO refold.engine engine closed ",
    ]
    assert all(text.startswith(head) for text, head in zip(words, heads, strict=True)), words
    assert " workflow=play name=x" in words[2] and " status=completed" in words[3]


def test_json_at_debug_follows_each_command_with_run_step_command_turn_and_worker(tmp_path: Path) -> None:
    file = playbook(tmp_path, noop("one", "two"), noop("two"))
    done = refold(tmp_path, "run", file, "-q", REFOLD_LOG="json", REFOLD_LOG_LEVEL="debug")
    assert done.code == 0
    told = lines(done.err)
    assert len(told) == len(done.err.splitlines())
    found = [each for each in told if each.get("command") == "two/1"]
    assert [each["event"] for each in found] == ["command issued", "command claimed", "command settled"]
    run = next(each["run"] for each in told if each["event"] == "run started")
    assert {each["run"] for each in found} == {run} and {each["step"] for each in found} == {"two"}
    assert found[1]["worker"] == found[2]["worker"] != ""
    assert found[0]["turn"] and found[2]["turn"] and found[2]["outcome"] == "succeeded"


def test_a_retry_and_a_dead_letter_are_told(tmp_path: Path) -> None:
    step = "step: one\nretry: {attempts: 2, delay: 0}\ntool: {kind: shell, script: 'exit 3'}"
    done = refold(tmp_path, "run", playbook(tmp_path, step), "-q", REFOLD_LOG="json", REFOLD_LOG_LEVEL="debug")
    assert done.code == 1
    told = lines(done.err)
    [again] = [each for each in told if each["event"] == "command issued again"]
    assert (again["command"], again["attempt"], again["level"]) == ("one/1", 2, "DEBUG")
    [dead] = [each for each in told if each["event"] == "dead letter"]
    assert (dead["step"], dead["count"], dead["level"]) == ("one", 1, "WARNING")
    [ended] = [each for each in told if each["event"] == "run ended"]
    assert (ended["status"], ended["step"]) == ("failed", "one")


def test_a_child_run_and_its_parent_are_told(tmp_path: Path) -> None:
    playbook(tmp_path, noop("inner"), name="child.yaml")
    file = playbook(tmp_path, "step: one\ntool: {kind: playbook, path: child.yaml}")
    done = refold(tmp_path, "run", file, "-q", REFOLD_LOG="json", REFOLD_LOG_LEVEL="debug")
    assert done.code == 0, done.err
    told = lines(done.err)
    [child] = [each for each in told if each["event"] == "child started"]
    [began] = [each for each in told if each["event"] == "run started" and "parent" in each]
    assert (began["run"], began["parent"], child["command"]) == (child["child"], child["run"], "one/1")


def test_no_secret_is_in_the_log_at_any_level(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o700)
    (folder / "token").write_text(SECRET)
    (folder / "token").chmod(0o600)
    work = "step: one\ntool:\n  kind: shell\n  env: {TOKEN: {secret: token}}\n"
    step = f"{work}  script: |\n    echo $TOKEN >&2\n    exit 3"
    more = {"REFOLD_LOG": "json", "REFOLD_LOG_LEVEL": "debug", "REFOLD_SECRETS_FOLDER": str(folder)}
    done = refold(tmp_path, "run", playbook(tmp_path, step), "-q", **more)
    assert done.code == 1 and "command settled" in done.err, done.err
    assert SECRET not in done.err


def test_a_name_with_control_codes_cannot_forge_a_line(tmp_path: Path) -> None:
    name = "x\x1b[2J\nINFO refold.runtime forged"
    key = f"k-{name}"
    done = refold(tmp_path, "run", playbook(tmp_path, noop("one")), "--key", key, "-q", REFOLD_LOG="text")
    assert "\x1b" not in done.err
    assert not any(line.startswith("INFO") for line in done.err.splitlines())


def test_a_wrong_value_of_the_variable_is_wrong_usage(tmp_path: Path) -> None:
    done = refold(tmp_path, "runs", "list", REFOLD_LOG="loud")
    assert (done.code, done.err) == (2, 'error: REFOLD_LOG: "loud" is not one of text, json\n')
    done = refold(tmp_path, "run", playbook(tmp_path, noop("one")), REFOLD_LOG_LEVEL="all")
    assert done.code == 2 and "is not one of debug, info, warning, error" in done.err
    assert not (tmp_path / "refold.db").exists()
