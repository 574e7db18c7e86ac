"""The unit for systemd on the page about workers: systemd accepts it, and its commands do what the page says."""

import configparser
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import LIMIT, PROGRAM, environment, noop, playbook, refold, until

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "workers.md"
FOLDER, BINARY = "/srv/refold", "/srv/refold/venv/bin/refold"


def unit() -> str:
    [text] = re.findall(r"```ini\n(\[Unit\]\n.*?)```", PAGE.read_text(), re.S)
    return str(text)


@pytest.fixture
def settings() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(unit())
    return parsed


def test_the_unit_starts_a_worker_that_serves_the_database_and_stops_at_sigterm(
    settings: configparser.ConfigParser, tmp_path: Path
) -> None:
    """Exactly the command of ExecStart, with the folder of this test in place of the one on the page."""
    service = settings["Service"]
    binary, *arguments = shlex.split(service["ExecStart"])
    assert (binary, service["WorkingDirectory"]) == (BINARY, FOLDER)
    command = [*PROGRAM, *(each.replace(FOLDER, str(tmp_path)) for each in arguments)]
    assert refold(tmp_path, "run", playbook(tmp_path, noop("one")), "--detach", "--name", "r").code == 0
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL) as worker:
        try:
            until(lambda: refold(tmp_path, "runs", "show", "r", "-o", "json").data["status"] == "completed")
            assert service["KillMode"] == "mixed", "SIGTERM to the worker alone"
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(LIMIT) == 0, "with Restart=on-failure systemd would start it again"
        finally:
            worker.kill()


def test_the_unit_gives_a_worker_more_time_to_stop_than_it_takes(settings: configparser.ConfigParser) -> None:
    from refold.settings import Settings

    assert int(settings["Service"]["TimeoutStopSec"]) > Settings().stop_grace


def test_systemd_accepts_the_unit(settings: configparser.ConfigParser, tmp_path: Path) -> None:
    """Where systemd is installed it checks the unit; in any case it has the parts that systemd wants."""
    assert set(settings.sections()) == {"Unit", "Service", "Install"}
    assert settings["Install"]["WantedBy"] == "multi-user.target"
    program = shutil.which("systemd-analyze")
    if program is not None:
        file = tmp_path / "refold-worker.service"
        file.write_text(unit().replace(BINARY, "/bin/sh").replace(FOLDER, str(tmp_path)))
        checked = subprocess.run(
            [program, "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=LIMIT, check=False
        )
        said = [line for line in checked.stderr.splitlines() if str(file) in line or file.name in line]
        assert (checked.returncode, said) == (0, [])
