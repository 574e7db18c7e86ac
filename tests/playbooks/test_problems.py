"""How a problem is shown: its line, and a caret below the right character, whatever the line is made of."""

import pytest

from refold.playbooks.problems import Place, Problem, show


def shown(source: str, line: int, column: int, length: int = 1, width: int = 100) -> list[str]:
    problem = Problem("some-code", "it is wrong", Place(line, column), "mend it", length=length)
    return show(problem, "play.yaml", source, width).splitlines()


def test_a_problem_is_shown_with_place_code_message_line_caret_and_hint() -> None:
    assert shown("a: 1\nb: two\n", 2, 4, 3) == [
        "play.yaml:2:4: error[some-code]: it is wrong",
        "  2 | b: two",
        "    |    ^^^",
        "hint: mend it",
    ]


def test_a_problem_without_a_hint_has_no_such_line() -> None:
    said = show(Problem("c", "m", Place(1, 1), severity="warning"), "f", "x")
    assert said == "f:1:1: warning[c]: m\n  1 | x\n    | ^"


def test_the_margin_is_as_wide_as_the_number() -> None:
    assert shown("\n" * 99 + "x: y", 100, 4)[1:3] == ["  100 | x: y", "      |    ^"]


@pytest.mark.parametrize(
    ("line", "column", "length", "text", "caret"),
    [
        ("x: 日本 y", 7, 1, "x: 日本 y", "        ^"),  # a wide character takes two columns
        ("x: 日本", 4, 2, "x: 日本", "   ^^^^"),
        ("x: e\u0301a", 6, 1, "x: e\u0301a", "    ^"),  # an accent takes none
        ("x:\ty", 4, 1, "x:    y", "      ^"),
        ("x: \x1b[2J", 5, 1, "x: \ufffd[2J", "    ^"),  # a terminal must not obey
        ("x: y", 5, 1, "x: y", "    ^"),  # behind the end
        ("x: y", 40, 5, "x: y", "    ^"),
        ("x: y", 4, 99, "x: y", "   ^"),
        ("", 1, 1, "", "^"),
    ],
)
def test_the_caret_stands_where_the_terminal_shows_the_character(
    line: str, column: int, length: int, text: str, caret: str
) -> None:
    assert shown(f"{line}\n", 1, column, length)[1:3] == [f"  1 | {text}".rstrip(), f"    | {caret}"]


def test_a_long_line_is_cut_around_the_caret() -> None:
    line = "a" * 300 + "X" + "b" * 300
    text, caret = shown(line, 1, 301, width=40)[1:3]
    assert text == "  1 | …" + "a" * 20 + "X" + "b" * 19 + "…"
    assert text[caret.index("^")] == "X"


@pytest.mark.parametrize("column", [1, 2, 35, 77, 300, 599, 600, 601, 602])
def test_a_long_line_never_takes_more_room_than_there_is(column: int) -> None:
    text, caret = shown("日" * 300 + "é" * 301, 1, column, length=400, width=40)[1:3]
    wide = sum(2 if char == "日" else 1 for char in text.removeprefix("  1 | "))
    assert wide <= 42 and "^" in caret and len(caret.removeprefix("    | ")) <= 42


def test_a_place_behind_the_last_line_is_shown_without_a_line() -> None:
    assert shown("a: 1", 7, 1) == ["play.yaml:7:1: error[some-code]: it is wrong", "hint: mend it"]


def test_what_a_message_quotes_cannot_move_the_cursor() -> None:
    said = show(Problem("c", "no key `\x1b[2J\n`", Place(1, 1), "did you mean `\r`?"), "f", "x")
    assert "\x1b" not in said and "\r" not in said and len(said.splitlines()) == 4


@pytest.mark.parametrize("end", ["\r\n", "\r", "\x85", "\u2028", "\n"])
def test_lines_end_where_the_parser_ends_them(end: str) -> None:
    assert shown(f"a: 1{end}b: two", 2, 4)[1] == "  2 | b: two"
