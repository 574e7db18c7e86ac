"""A canary secret goes through every tool: used, told, failing, out of time. Afterwards it is found nowhere."""

import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from tests.cli.program import environment, refold

CANARY = "sk-/live+ZqKanarienvogel7xQ&=é end"
HEART = b"ZqKanarienvogel7xQ"  # stands in every spelling that is not a code
ROOT = Path(__file__).parents[2]
LETTERS = b"abcdefghijklmnopqrstuvwxyz"
PART = 6  # characters of it that would be too much
KINDS = {  # of a failure, where it is another tool's choice
    "no_json": {"invalid_value", "secret"},
    "died": {"process_died"},
    "missing": {"missing_reference", "storage_access"},
    "sql": {"db_error", "schema", "client_error", "unknown", "parse", "not_found"},
    "invalid": {"invalid_url", "invalid_settings", "invalid_request", "error"},
}


def fragments() -> list[bytes]:
    """What would show the canary, worked out here by other means than the redactor's."""
    turned = HEART.translate(bytes.maketrans(LETTERS, LETTERS[1:] + LETTERS[:1]))
    texts = [HEART, HEART.lower(), HEART.upper(), HEART[::-1], turned]
    found = [text[at : at + PART] for text in texts for at in range(len(text) - PART + 1)]
    hexed = [HEART[at : at + PART].hex() for at in range(len(HEART) - PART + 1)]
    found += [spelt.encode() for each in hexed for spelt in (each, each.upper())]
    for before in range(3):
        code = b64encode(bytes(before) + CANARY.encode())[4:-8]
        found += [code[at : at + 9] for at in range(len(code) - 8)]
    return [*found, *(each.replace(b"+", b"-") for each in found)]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, postgres: str) -> tuple[Path, dict[str, Any], str]:
    folder = tmp_path_factory.mktemp("canary")
    env = environment(REFOLD_SECRET_CANARY=CANARY)
    hidden = [HEART.hex()]  # so that this very command line is not a hit
    done = subprocess.run(
        [sys.executable, "-m", "tests.secrets.house", str(folder), postgres, *hidden],
        cwd=ROOT,
        env={**env, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return folder, json.decode(done.stdout), (done.stdout + done.stderr).decode()


def hits(data: bytes) -> list[bytes]:
    return [fragment for fragment in fragments() if fragment in data]


def test_every_run_has_ended_as_it_should(house: tuple[Path, dict[str, Any], str]) -> None:
    for name, run in house[1]["runs"].items():
        if run["ends"] == "completed":
            assert run["status"] == "completed", (name, run)
        else:
            assert run["status"] == "failed", (name, run)
            kind = run["error"]["fault"]["kind"]
            assert kind in KINDS.get(run["ends"], {run["ends"]}), (name, run)


def test_the_canary_is_in_no_database_file(house: tuple[Path, dict[str, Any], str]) -> None:
    files = {file.name: file.read_bytes() for file in house[0].iterdir() if file.is_file()}
    assert {"refold.db", "open-refold.db", "open-refold.db-wal"} <= files.keys()
    assert len(files["open-refold.db"] + files["open-refold.db-wal"]) > 100_000
    assert {name: hits(data) for name, data in files.items() if hits(data)} == {}


def test_the_canary_is_in_nothing_that_the_program_said(house: tuple[Path, dict[str, Any], str]) -> None:
    assert hits(house[2].encode()) == []


def test_the_canary_is_in_no_command_line(house: tuple[Path, dict[str, Any], str]) -> None:
    assert house[1]["looks"] > 10 and house[1]["hits"] == 0


def test_the_canary_is_in_nothing_that_the_commands_show(house: tuple[Path, dict[str, Any], str]) -> None:
    folder, told, _ = house
    shown = [
        refold(folder, "runs", "list", "-o", "json"),
        refold(folder, "dlq", "list"),
        refold(folder, "dlq", "list", "-o", "json"),
    ]
    for name in ("python process raised", "shell failed", "http failed"):
        run = told["runs"][name]["run"]
        for command in ("show", "history", "logs", "why"):
            shown.append(refold(folder, "runs", command, run, *(["-o", "json"] if command != "logs" else [])))
        shown.append(refold(folder, "runs", "show", run))
    shown.append(refold(folder, "db", "check"))
    assert sum(len(each.out) for each in shown) > 5_000
    assert [each for each in shown if hits((each.out + each.err).encode())] == []


def test_what_was_printed_is_there_without_it(house: tuple[Path, dict[str, Any], str]) -> None:
    folder, told, _ = house
    for name in ("python process used", "python inline used", "shell failed"):
        lines = refold(folder, "runs", "logs", told["runs"][name]["run"]).out
        assert "***" in lines and hits(lines.encode()) == [], (name, lines)


def test_a_transfer_has_written_it_where_it_was_told_to(house: tuple[Path, dict[str, Any], str]) -> None:
    for kind in ("sqlite", "duckdb", "postgres"):
        assert HEART in (house[0] / "written" / f"{kind}.csv").read_bytes()


def test_the_search_would_find_it(house: tuple[Path, dict[str, Any], str]) -> None:
    for n in range(3):
        assert hits(b64encode(b"u" * n + CANARY.encode() + b"more"))
    assert hits(CANARY.encode()) and hits(CANARY.encode().hex().encode())
    assert hits(CANARY.encode()[::-1]) and hits(CANARY[:18].encode()) and hits(CANARY.lower().encode())
