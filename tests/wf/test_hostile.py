"""Texts that are no workflows: each gets problems with places in the text, and nothing else happens."""

import random

import pytest

from refold.core.graph import analyse
from refold.errors import NotFound
from refold.playbooks.bindings import Bindings, command_for_agents, with_agent
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook
from refold.tools.catalog import CATALOG
from tests.wf.generator import Generator

BOUND = with_agent(Bindings(), command_for_agents(["true"]))
PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    "=",
    ".",
    '"',
    "do",
    "meta",
    "call",
    "if",
    "7",
    "2h",
    "\\",
    "#",
    "--",
    ";",
    "\u2028",
    "é",
]


def load(file: str) -> bytes:
    raise NotFound(file)


def check(text: str) -> bool:
    """Return whether it can be read; if not, every problem has a place in the text."""
    try:
        analyse(read(text, "/nowhere/x.wf", CATALOG, load, bindings=lambda: BOUND).plan)
    except InvalidPlaybook as error:
        lines = text.split("\n")
        assert error.problems and str(error)
        for each in error.problems:
            assert 1 <= each.place.line <= len(lines), each
            assert 1 <= each.place.column <= len(lines[each.place.line - 1]) + 1, each
        return False
    return True


def test_texts_with_a_piece_too_many_or_too_few_are_refused_with_places() -> None:
    dice = random.Random(7)
    refused = 0
    for seed in range(150):
        text = Generator(seed).program().text
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(text))
            text = text[:at] + dice.choice(PIECES) * dice.randint(0, 1) + text[at + dice.randint(0, 3) :]
        refused += not check(text)
    assert refused > 75


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ufeff",
        "workflow",
        "workflow w",
        "workflow w {",
        "workflow w { call a",
        "workflow meta { }",
        "workflow w { do { } while }",
        "workflow w { do a { } }",
        "workflow w { inputs { a, b } }",
        "workflow w { if a.b { k = v } }",
        "workflow w { gate human_review }",
        "workflow w { call a { retries = 1.5 } }",
        "workflow w { call a { with = call.x } }",
        "workflow w { call a { with = a.b.c } }",
        "workflow w { parallel { script s { run = x } } }",
        "workflow w { parallel { call workflow x } }",
        "workflow w { " + "if a.b { " * 5_000,
        "workflow w { call a { with = " + "[" * 5_000,
        "workflow w { " + "call a { x = y } " * 500,
        "w" * 100_000,
        "workflow w { call a { timeout = " + "9" * 100_000 + " } }",
        '"' * 50_001,
    ],
)
def test_hostile_texts_are_refused(text: str) -> None:
    assert not check(text)


def test_the_first_error_of_words_or_grammar_ends_the_reading_and_what_was_found_before_stays() -> None:
    with pytest.raises(InvalidPlaybook) as caught:
        read(
            "workflow w {\n  call a { retry = 1 }\n  call }\n  @",
            "/nowhere/x.wf",
            CATALOG,
            load,
            bindings=lambda: BOUND,
        )
    found = [(each.code, *each.place) for each in caught.value.problems]
    assert found == [("unknown-key", 2, 12), ("syntax", 3, 8)]


def test_every_kind_of_line_end_keeps_the_places() -> None:
    with pytest.raises(InvalidPlaybook) as caught:
        read("\ufeffworkflow w {\r\n\t\x85call a @ \r\n}", "/nowhere/x.wf", CATALOG, load, bindings=lambda: BOUND)
    [problem] = caught.value.problems
    assert (problem.code, *problem.place) == ("bad-character", 2, 10)
    assert "2 |     " in str(caught.value)
