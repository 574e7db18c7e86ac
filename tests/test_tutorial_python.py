"""The tutorial of Python workflows, typed from its beginning to its end: what is on the screen is what it shows."""

import re
from pathlib import Path

from tests.test_tutorial import COMMAND, FAILS, same, typed

PAGE = Path(__file__).parents[1] / "docs" / "tutorial-python.md"
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.S)
REFUSED = "error: step 'fetch' sends Size, which no step takes\n"


def test_the_screen_shows_what_the_page_shows(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for kind, body in BLOCK.findall(text):
        if kind == "python":
            name = body.removeprefix("# ").partition("\n")[0]
            (tmp_path / name).write_text(body, encoding="utf-8")
            continue
        for command, shown in COMMAND.findall(body):
            code, screen = typed(tmp_path, command)
            assert same(screen) == same(shown.splitlines()), command
            assert (code == 0) is not bool(FAILS.search(shown) or shown == REFUSED), (command, code, screen)


def test_every_block_is_a_file_or_something_to_type() -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) * 2 == text.count("```")
    assert all(re.match(r"# \w+\.py\n" if kind == "python" else r"\$ ", body) for kind, body in blocks)


def test_the_first_workflow_has_twelve_lines_at_most() -> None:
    _, first = BLOCK.findall(PAGE.read_text(encoding="utf-8"))[0]
    assert len([line for line in first.splitlines()[1:] if line.strip()]) <= 12


def test_it_takes_a_quarter_of_an_hour_at_the_pace_of_a_slow_reader() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) < 15 * 180
