"""Broken playbooks, one file each: what is said about them, word for word, with the caret at the right place."""

from pathlib import Path

import pytest

from refold.errors import InvalidPlan
from refold.playbooks.playbook import read
from refold.playbooks.problems import InvalidPlaybook, Problem, show
from refold.sources.catalog import CATALOG as SOURCES
from refold.tools.catalog import CATALOG

FOLDER = Path(__file__).parent / "broken"
FILES = sorted(FOLDER.glob("*.yaml"))
HEAD = "apiVersion: refold/v1\nkind: Playbook\nmetadata: {name: broken}\n"
BODY = "workflow:\n  - step: a\n"


def refused(text: str | bytes, file: str = "play.yaml") -> InvalidPlaybook:
    with pytest.raises(InvalidPlaybook) as said:
        read(text, file, CATALOG, sources=lambda: SOURCES)
    return said.value


def test_there_are_enough_of_them() -> None:
    assert len(FILES) > 80
    assert [file.stem for file in FILES] == sorted(file.stem for file in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_wrong_is_said_with_its_place_its_code_and_a_hint(file: Path) -> None:
    said = refused(file.read_bytes(), file.name)
    assert str(said) + "\n" == file.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_caret_stands_below_what_is_wrong(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    for problem in refused(source, file.name).problems:
        assert problem.hint and problem.code and problem.message
        header, line, caret = show(problem, file.name, source).splitlines()[:3]
        assert header.startswith(f"{file.name}:{problem.place.line}:{problem.place.column}: {problem.severity}[")
        first, last = caret.index("^"), caret.rindex("^") + 1
        assert line[first:last].replace("    ", "\t") == meant(problem, source)


def meant(problem: Problem, source: str) -> str:
    line = source.split("\n")[problem.place.line - 1]
    return line[problem.place.column - 1 : problem.place.column - 1 + problem.length]


def test_the_problems_stand_in_the_order_of_the_file_and_each_once() -> None:
    text = HEAD + "workload: {r: &r {atempts: 3}}\n" + BODY + "    retry: *r\n    next: b\n  - step: b\n    retry: *r\n"
    problems = refused(text).problems
    assert [(each.code, each.place) for each in problems] == [("unknown-key", (4, 19))]
    places = [each.place for each in refused(HEAD + BODY + "    x: 1\n    when: y\n    z: 2\n").problems]
    assert places == sorted(places) and len(places) == 3


def test_a_file_that_is_wrong_all_over_is_given_up_after_a_hundred_problems() -> None:
    assert len(refused(HEAD + BODY + "".join(f"    x{n}: 1\n" for n in range(500))).problems) == 100
    assert len(refused(HEAD + BODY + "    desc: 1\n" * 500).problems) == 100


BYTES = {
    "not UTF-8": (HEAD.encode() + b"# caf\xe9\n", "not-utf8", (4, 6), "save the file as UTF-8"),
    "cut in a character": ("# é".encode()[:-1], "not-utf8", (1, 3), "save the file as UTF-8"),
    "UTF-16": (HEAD.encode("utf-16"), "not-utf8", (1, 1), "save the file as UTF-8"),
    "NUL": (b"a: 1\nb: \0\n", "bad-character", (2, 4), "remove it, or write it as an escape"),
    "an escape of the terminal": (b"a: \x1b[2J\n", "bad-character", (1, 4), "remove it, or write it as an escape"),
    "a mark in the middle": ("a: \ufeff\n".encode(), "bad-character", (1, 4), "remove it, or write it as an escape"),
    "NUL as an escape": (b'a: "\\0"\n', "bad-character", (1, 4), "leave `\\0` out"),
}


@pytest.mark.parametrize(("data", "code", "place", "hint"), BYTES.values(), ids=BYTES)
def test_what_is_no_text_is_refused_where_it_begins_not_to_be(
    data: bytes, code: str, place: tuple[int, int], hint: str
) -> None:
    problem = refused(data).problems[0]
    assert (problem.code, problem.place, problem.hint) == (code, place, hint)


def test_a_lone_surrogate_in_a_text_is_a_bad_character() -> None:
    assert refused("a: \ud800\n").problems[0].code == "bad-character"


def test_a_playbook_of_another_language_is_not_read_as_if_it_were_this_one() -> None:
    said = refused("apiVersion: airflow.dev/v2\nkind: Playbook\nx: 1\ny: 2\n").problems
    assert [(each.code, each.place) for each in said] == [("unknown-language", (1, 13))]


def test_the_error_is_one_that_says_to_mend_the_plan_and_lists_the_problems() -> None:
    said = refused(HEAD + BODY + "    x: 1\n")
    assert isinstance(said, InvalidPlan)
    assert (said.file, said.problems[0].message) == ("play.yaml", "a step has no key `x`")
    assert str(said).startswith("play.yaml:6:5: error[unknown-key]: a step has no key `x`\n")
