"""The tutorial, typed from its beginning to its end on a terminal: what is on the screen is what the page shows."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

import pyte

from tests.cli.program import environment

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
BLOCK = re.compile(r"```(yaml|console)\n(.*?)```", re.S)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)
FAILS = re.compile(r"^\S+  failed |error\[", re.M)  # what stands below a command whose exit code is not 0
DIFFERS = (  # from one time to the next, and may take another number of letters
    (r"\d+\.\d+\.\d+", "VERSION"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "MOMENT"),
    (r"\b\d\d:\d\d:\d\d\b", "TIME"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{32}\b", "RUN"),
    (r"\b(?=[0-9a-f]*\d)(?:[0-9a-f]{12}|[0-9a-f]{8})\b", "ID"),
    (r"\d+\.\d+ s\b", "SPAN"),
    (r"\b(hello|till|rate)-[a-z]+-[a-z]+", r"\1-NAME"),
    (r"\(in [^)]+\)", "LEFT"),
    (r" +", " "),
)
WIDE, HIGH = 120, 200


def test_the_screen_shows_what_the_page_shows(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```yaml") + text.count("```console")
    for kind, body in blocks:
        if kind == "yaml":
            name = body.removeprefix("# ").partition("\n")[0]
            (tmp_path / name).write_text(body, encoding="utf-8")
            continue
        for command, shown in COMMAND.findall(body):
            code, screen = typed(tmp_path, command)
            assert same(screen) == same(shown.splitlines()), command
            assert (code == 0) is not bool(FAILS.search(shown)), (command, code, screen)


def test_it_takes_a_quarter_of_an_hour_at_the_pace_of_a_slow_reader() -> None:
    words = len(PAGE.read_text(encoding="utf-8").split())
    assert words < 15 * 180


def typed(folder: Path, command: str) -> tuple[int, list[str]]:
    """The exit code, and what is left on a screen that was empty before."""
    command = at_the_right_moment(command)
    screen = pyte.Screen(WIDE, HIGH)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", HIGH, WIDE, 0, 0))
        os.chdir(folder)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.execve("/bin/sh", ["sh", "-c", command], environment(PATH=path, USER="ann"))
    try:
        while data := os.read(terminal, 65536):
            stream.feed(data)
    except OSError:
        pass  # the last one has let go of the terminal
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, [line.rstrip() for line in screen.display]


def at_the_right_moment(command: str) -> str:
    """`kill -9` comes when something is done and something is not, however busy the machine is."""
    moment = "until grep -q . done.txt 2>/dev/null; do sleep 0.05; done"
    return re.sub(r"sleep [\d.]+; kill -9", f"{moment}; kill -9", command)


def same(lines: list[str]) -> list[str]:
    """Without what differs from one time to the next."""
    text = "\n".join(line.strip() for line in lines).strip()
    for pattern, name in DIFFERS:
        text = re.sub(pattern, name, text)
    return text.splitlines()
