"""YAML text to data: the scalars of YAML 1.2, the place of everything, and what is refused."""

from typing import Any

import pytest
import yaml
from hypothesis import given as for_all
from hypothesis import strategies as st

from refold.playbooks.problems import BREAK, InvalidPlaybook
from refold.playbooks.yaml import text as yaml_text
from refold.playbooks.yaml.text import Node, read


def data(text: str) -> Any:
    return read(text, "f.yaml").value


def codes(text: str) -> list[str]:
    with pytest.raises(InvalidPlaybook) as said:
        read(text, "f.yaml")
    return [each.code for each in said.value.problems]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *[
            (word, word)
            for word in ("on", "off", "yes", "no", "y", "n", "On", "NO", "1:30", "190:20:30", "tRue", "nUll")
        ],
        *[(word, word) for word in ("0b11", "1_000", "0x", "0o8", "1e", "+", ".", "..", "-.", "1.2.3", "2026-01-01")],
        *[(word, word) for word in ("=", "+.5e", "0x1G", "Infinity", "nan", "inf", "12h", "1,000", "N/A", "007a")],
        ("012", 12),
        ("0", 0),
        ("-7", -7),
        ("+7", 7),
        ("0o17", 15),
        ("0xFf", 255),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.5e3", -500.0),
        ("1e3", 1000.0),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        *[(word, True) for word in ("true", "True", "TRUE")],
        *[(word, False) for word in ("false", "False", "FALSE")],
        *[(word, None) for word in ("null", "Null", "NULL", "~", "")],
        ('"12"', "12"),
        ("'true'", "true"),
        ('""', ""),
        ("|\n  12", "12\n"),
        (">-\n  a\n  b", "a b"),
        ("plain\n  in two lines", "plain in two lines"),
        ("[1, two, {a: b}]", [1, "two", {"a": "b"}]),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(written: str, meant: Any) -> None:
    found = data(f"key: {written}\n")["key"]
    assert found == meant and type(found) is type(meant)


def test_on_and_no_can_be_keys() -> None:
    assert data("on: success\nno: 1\ny: 2\n") == {"on": "success", "no": 1, "y": 2}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("18446744073709551616", "bad-number"),
        ("-9223372036854775809", "bad-number"),
        ("9" * 5000, "bad-number"),
        ("0x" + "f" * 17, "bad-number"),
        ("1e400", "bad-number"),
        (".inf", "bad-number"),
        ("-.Inf", "bad-number"),
        (".NaN", "bad-number"),
        ("!!str 1", "yaml-tag"),
        ("!local 1", "yaml-tag"),
        ("! 1", "yaml-tag"),
        ("!!map {}", "yaml-tag"),
        ("!!python/object/apply:os.system [ls]", "yaml-tag"),
        ("{a: 1, a: 2}", "duplicate-key"),
        ('{a: 1, "a": 2}', "duplicate-key"),
        ("{<<: {a: 1}}", "yaml-merge"),
        ("{1: a}", "bad-key"),
        ("{true: a}", "bad-key"),
        ("{~: a}", "bad-key"),
        ("{? [a] : b}", "bad-key"),
        ("{? {a: b} : c}", "bad-key"),
        ("&a [*a]", "yaml-alias"),
        ("*a", "yaml-alias"),
        ('"\\0"', "bad-character"),
    ],
)
def test_what_has_no_place_in_a_playbook_is_refused(text: str, code: str) -> None:
    assert codes(f"key: {text}\n") == [code]


def test_an_alias_cannot_be_a_key() -> None:
    assert codes("a: &a x\nb: {*a : 1}\n") == ["bad-key"]


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert data('"<<": 1\n') == {"<<": 1}


def test_all_that_can_be_told_is_told_at_once() -> None:
    assert codes("a: 1\na: 2\n1: x\nb: !t y\nc: .nan\n") == ["duplicate-key", "bad-key", "yaml-tag", "bad-number"]


def test_an_alias_is_what_it_names() -> None:
    found = read("a: &x {n: [1, 2]}\nb: *x\nc: &y t\nd: [*y, *y]\n", "f")
    assert found.value == {"a": {"n": [1, 2]}, "b": {"n": [1, 2]}, "c": "t", "d": ["t", "t"]}
    assert found.nodes["b"].place == (2, 4), "an alias stands where it is written"
    assert found.nodes["b"].nodes["n"].place == (1, 11), "what is in it, where that is written"


def test_an_anchor_can_be_set_anew() -> None:
    assert data("a: &x 1\nb: *x\nc: &x 2\nd: *x\n") == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_every_key_and_value_knows_its_place() -> None:
    text = 'top:\n  - name: é日 # x\n    list: [1, "two"]\nlast: |\n  text\n'
    root = read(text, "f")
    item = root.nodes["top"].nodes[0]
    assert root.place_of("top") == (1, 1) and root.place_of("last") == (4, 1)
    assert item.place == (2, 5) and item.place_of("list") == (3, 5)
    assert item.nodes["name"].place == (2, 11) and item.nodes["name"].length == 2
    assert [each.place for each in item.nodes["list"].nodes] == [(3, 12), (3, 15)]
    assert item.nodes["list"].nodes[1].length == 5, "with its quotes"
    assert root.nodes["last"].place == (4, 7) and root.nodes["last"].style == "|"


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(st.characters(codec="ascii")),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text("abcé", min_size=1), inside, max_size=4),
    max_leaves=20,
)


@for_all(values)
def test_what_another_writer_writes_is_read_back(value: Any) -> None:
    if any(char in repr(value) for char in ("\\x0", "\\x1", "\\x7f")):
        return  # is not allowed in YAML as it is
    text = yaml.safe_dump({"v": value}, allow_unicode=True)
    root = read(text, "f")
    assert root.value == yaml.safe_load(text)
    for node in nodes(root):
        assert BREAK.split(text)[node.place.line - 1][node.place.column - 1 :] != "" or node.value in (None, "")


def nodes(root: Node) -> list[Node]:
    inside = root.nodes.values() if isinstance(root.nodes, dict) else root.nodes
    return [root, *(node for each in inside for node in nodes(each))]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 64 + "]" * 64, None),
        ("[" * 65 + "]" * 65, "too-deep"),
        ("- " * 65 + "x", "too-deep"),
        ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 20 + "*a" + "]" * 20, None),
        ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 30 + "*a" + "]" * 30, "too-deep"),
        ("[" + "1," * 49_999 + "]", None),
        ("[" + "1," * 50_000 + "]", "too-large"),
        ("{" + ",".join(f"k{n}: 1" for n in range(25_001)) + "}", "too-large"),
        ("[" + "[]," * 50_001 + "]", "too-large"),
        ("a: &a 1\nb: [" + "*a," * 100 + "]", None),
        ("a: &a 1\nb: [" + "*a," * 101 + "]", "too-many-aliases"),
        ("a: &a [" + "1," * 1000 + "]\nb: [" + "*a," * 51 + "]", "too-large"),
        ("a: '" + "x" * (256 * 1024) + "'", None),
        ("a: '" + "x" * (256 * 1024 + 1) + "'", "too-large"),
        ("# " + "x" * (1 << 20), "too-large"),
        ("a: 1\n...\n", None),
        ("a: 1\n---\nb: 1\n", "many-documents"),
        ("a: 1\n...\n%TAG ! x\n---\nb: 1\n", "yaml-directive"),
        ("%TAG ! tag:x\n---\na: 1\n", "yaml-directive"),
        ("", "empty"),
        ("---\n", None),
    ],
    ids=lambda each: str(each)[:20],
)
def test_the_limits_are_where_they_are_said_to_be(text: str, code: str | None) -> None:
    if code is None:
        read(text, "f")
    else:
        assert codes(text) == [code]


def test_what_is_deeply_nested_is_refused_where_it_gets_too_deep() -> None:
    with pytest.raises(InvalidPlaybook) as said:
        read("a: " + "[" * 50_000, "f")
    assert said.value.problems[0].place == (1, 4 + yaml_text.MAX_DEPTH - 1)


def test_a_percent_sign_inside_a_text_is_no_directive() -> None:
    assert data("a: |\n  %YAML 1.2\nb: 100 %TAG\n") == {"a": "%YAML 1.2\n", "b": "100 %TAG"}
