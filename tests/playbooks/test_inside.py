"""From a place inside a text to its place in the file."""

import pytest
import yaml
from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.playbooks.problems import BREAK
from refold.playbooks.yaml.positions import place_at, place_inside
from refold.playbooks.yaml.text import read

STYLES = {
    "plain": "a: some X text",
    "plain in two lines": "a: some\n  text\n\n  and X more",
    "single quotes": "a: 'it''s ''quoted'' X'",
    "double quotes": 'a: "q\\"uo\\x41\\u00e9\\U0001F600\\t\\n \\\\ X"',
    "double quotes in two lines": 'a: "one\n  two \\\n  three\\\n  X"',
    "literal": "a: |\n  one\n\n    two X\n",
    "literal with an indicator": "a: |2-\n   one\n  X\n",
    "literal with a comment": "a:   |+ # note\n   one\n   X\n\n\n",
    "folded": "a: >\n  one\n  two\n\n  three X\n",
    "folded with more indented": "a: >-\n  one\n    two\n  X\n",
    "in a flow": "{b: 1, a: [x, 'X']}",
    "Windows lines": "a: |\r\n  one\r\n  X\r\n",
    "wide characters": "b: 日本\na: '日本 X'",
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES)
def test_a_character_is_found_where_it_is_written(text: str) -> None:
    node = read(text, "f").nodes["a"]
    node = node if isinstance(node.value, str) else node.nodes[-1]
    place = place_at(text, node, node.value.index("X"))
    assert BREAK.split(text)[place.line - 1][place.column - 1] == "X"
    before = node.value[: node.value.index("X")].split("\n")
    assert place_inside(text, node, len(before), len(before[-1]) + 1) == place


words = st.lists(st.text("abX '\"\\{}:#\té", max_size=12), min_size=1, max_size=6).map("\n".join)


@for_all(words, st.sampled_from([None, "|", ">", "'", '"']))
def test_every_visible_character_is_found_in_every_style(text: str, style: str | None) -> None:
    source = "x: 1\n" + yaml.dump({"a": text}, default_style=style, allow_unicode=True, width=20)
    node = read(source, "f").nodes["a"]
    assert node.value == text
    for offset, char in enumerate(text):
        if char.isalpha() and char.isascii():
            place = place_at(source, node, offset)
            assert BREAK.split(source)[place.line - 1][place.column - 1] == char


def test_a_place_behind_the_text_is_its_end() -> None:
    node = read("a: 'one'\nb: 2", "f").nodes["a"]
    assert place_inside("a: 'one'\nb: 2", node, 9, 1) == place_inside("a: 'one'\nb: 2", node, 1, 99) == (1, 8)


def test_a_place_in_a_value_that_is_no_text_is_where_it_stands() -> None:
    root = read("a: 12\nb: &t 'text'\nc: *t\n", "f")
    assert place_inside("", root.nodes["a"], 1, 5) == (1, 4)
    assert place_inside("", root.nodes["c"], 1, 3) == (3, 4), "an alias stands for a text that stands elsewhere"


def test_indentation_inside_a_literal_block_is_counted_exactly() -> None:
    text = "a: |\n    if x:\n      y\n"
    node = read(text, "f").nodes["a"]
    assert [place_inside(text, node, 2, column) for column in (1, 2, 3)] == [(3, 5), (3, 6), (3, 7)]
