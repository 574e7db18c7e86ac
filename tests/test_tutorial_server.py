"""The tutorial of the team server, typed in three terminals: what stands below a command is printed by it."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import environment
from tests.client.test_killed_servers import free_port

PAGE = Path(__file__).parents[1] / "docs" / "tutorial-server.md"
PORT = "7399"  # of the page; the test takes a free one
PART = re.compile(r"^## .*?(?=^## |\Z)", re.M | re.S)
TERMINAL = re.compile(r"^## .*Terminal (\d)")
FILE = re.compile(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", re.S)
CONSOLE = re.compile(r"```console\n(.*?)```", re.S)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)
STAYS = re.compile(r"refold (serve|worker)\b")
LIMIT = 120.0  # seconds


class Terminals:
    """Three terminals in one folder. A command that stays is read until it has printed what it must."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, str(free_port())
        self.variables: dict[str, dict[str, str]] = {}
        self.staying: list[tuple[subprocess.Popen[bytes], Path]] = []

    def type(self, terminal: str, command: str, shown: list[str]) -> None:
        command = command.replace(PORT, self.port)
        if "refold serve" in command:
            command += f" --port {self.port}"
        if STAYS.search(command):
            self.start(terminal, command)
            self.wait_for(shown)
            return
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.of(terminal)[name] = self.run(terminal, f'printf %s "{value}"').strip()
            return
        until, looks = time.monotonic() + LIMIT, command.startswith("refold runs ")
        while True:
            printed = squeezed(self.run(terminal, command))
            missing = [line for line in shown if squeezed(line) not in printed]
            if not missing or not looks or time.monotonic() > until:  # what is looked at may take a moment
                break
            time.sleep(0.1)
        assert not missing, (command, missing, printed)

    def of(self, terminal: str) -> dict[str, str]:
        return self.variables.setdefault(terminal, {})

    def environment(self, terminal: str) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return environment(
            PATH=path,
            XDG_CONFIG_HOME=str(self.folder),
            PYTHONPATH=os.environ.get("PYTHONPATH", ""),
            **self.of(terminal),
        )

    def run(self, terminal: str, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self.environment(terminal),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def start(self, terminal: str, command: str) -> None:
        log = self.folder / f"log{len(self.staying)}"
        with log.open("wb") as out:
            started = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment(terminal),
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.staying.append((started, log))

    def wait_for(self, shown: list[str]) -> None:
        """Wait until the last command that stays has printed these lines."""
        log = self.staying[-1][1]
        until = time.monotonic() + LIMIT
        while not all(squeezed(line) in squeezed(log.read_text()) for line in shown):
            assert time.monotonic() < until, (shown, log.read_text())
            time.sleep(0.05)
        assert "Traceback" not in log.read_text()

    def close(self) -> None:
        for process, _ in reversed(self.staying):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    opened = Terminals(tmp_path)
    try:
        yield opened
    finally:
        opened.close()


def test_the_commands_of_the_page_print_what_stands_below_them(terminals: Terminals) -> None:
    text, terminal, typed = PAGE.read_text(encoding="utf-8"), "3", 0
    for name, body in FILE.findall(text):
        (terminals.folder / name).write_text(body, encoding="utf-8")
    for part in PART.findall(text):
        named = TERMINAL.match(part)
        terminal = named[1] if named is not None else terminal
        for block in CONSOLE.findall(part):
            if not block.startswith("$ "):
                terminals.wait_for([line.replace(PORT, terminals.port) for line in block.splitlines()])
                continue
            for command, shown in COMMAND.findall(block):
                terminals.type(terminal, command, [line.replace(PORT, terminals.port) for line in shown.splitlines()])
                typed += 1
    assert typed == text.count("\n$ ")
    worker, log = terminals.staying[1]
    assert worker.wait(60) != 0, log.read_text()
    tokens = [known["REFOLD_TOKEN"] for known in terminals.variables.values() if "REFOLD_TOKEN" in known]
    assert len(tokens) == 2
    assert not any(token in log.read_text() for token in tokens for _, log in terminals.staying)
