"""Moments, spans, names and values, as they are said and as they are typed."""

import re
from pathlib import Path

import click
import pytest

from refold.cli import exits, output, words
from refold.cli.commands.run import ADJECTIVES, NOUNS, run_name
from refold.cli.options import inputs, settings, value_of
from refold.core.outcomes import SECOND
from refold.core.read.why import Reason
from refold.errors import (
    Ambiguous,
    Conflict,
    Corrupt,
    InvalidPlan,
    InvalidValue,
    NotFound,
    RunCancelled,
    RunFailed,
    Stopped,
    Unavailable,
    Unusable,
)

NOON = 1_800_000_000 * SECOND


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0.0 s"), (0.04, "0.0 s"), (1.25, "1.2 s"), (12.4, "12 s"), (75, "1 min 15 s"), (3700, "1 h 1 min")],
)
def test_a_span_has_two_units_at_most(seconds: float, said: str) -> None:
    assert words.span(seconds) == said


def test_machines_get_moments_in_utc_and_nothing_for_what_has_not_happened() -> None:
    assert words.stamp(NOON + 7) == "2027-01-15T08:00:00.000007Z"
    assert words.stamp(0) is None


def test_every_kind_of_reason_has_words() -> None:
    for kind in words.KINDS:
        assert words.why(Reason("a", kind, sources=("b",), worker="w", until=NOON + SECOND), NOON)


def test_every_kind_that_is_described_has_words() -> None:
    told = {*re.findall(r"(\w+) \(", (Reason.__doc__ or "").split("has:")[1]), "final"}
    assert told == words.KINDS.keys()


def test_one_item_waits_and_two_wait() -> None:
    said = [words.why(Reason("a", "window", count=count), NOON) for count in (1, 2)]
    assert said == ["1 item waits for a place in the window", "2 items wait for a place in the window"]


def test_a_name_follows_from_the_workflow_and_the_id() -> None:
    assert run_name("orders", "0" * 32) == "orders-able-acorn"
    assert run_name("orders", "0" * 11 + "1" + "f" * 20) == "orders-airy-acorn"
    assert run_name("Meine Bücher/2", "0" * 32) == "Meine-Bücher-2-able-acorn"
    assert run_name("", "0" * 32) == "run-able-acorn"


def test_the_words_of_names_are_short_and_different() -> None:
    for text in (ADJECTIVES, NOUNS):
        known = text.split()
        assert len(known) == len(set(known)) > 100
        assert max(map(len, known)) <= 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ('"1"', "1"),
        ("[1, 2]", [1, 2]),
        ('{"a": 1}', {"a": 1}),
        ("ann", "ann"),
        ("", ""),
        ("a=b", "a=b"),
        ("{not json", "{not json"),
        ("1e999", "1e999"),
        ("NaN", "NaN"),
    ],
)
def test_what_is_json_is_taken_as_that_and_anything_else_is_text(text: str, value: object) -> None:
    assert value_of(text) == value


def test_inputs_come_from_a_file_and_single_ones_go_over_it(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"a": 1, "b": 2}')
    assert inputs(["b=3", "c=x=y"], str(file)) == {"a": 1, "b": 3, "c": "x=y"}
    (tmp_path / "in.yaml").write_text("a: 1\nb: [x, {c: no}]\n")
    assert inputs([], str(tmp_path / "in.yaml")) == {"a": 1, "b": ["x", {"c": "no"}]}
    with pytest.raises(click.BadParameter, match="key=value"):
        inputs(["novalue"], None)
    with pytest.raises(NotFound, match="there is no file"):
        inputs([], str(tmp_path / "none.json"))
    file.write_text("[1]")
    with pytest.raises(InvalidValue, match="an object"):
        inputs([], str(file))
    file.write_text("{")
    with pytest.raises(InvalidValue, match="is not valid JSON"):
        inputs([], str(file))


def test_private_addresses_are_within_reach_on_ones_own_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (settings(own_machine=True).private_addresses, settings().private_addresses) == (True, False)
    monkeypatch.setenv("REFOLD_PRIVATE_ADDRESSES", "false")
    assert settings(own_machine=True).private_addresses is False


def test_a_setting_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_SLOTS", "many")
    with pytest.raises(InvalidValue, match="REFOLD_SLOTS"):
        settings()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidPlan(["x"]), 2),
        (InvalidValue("a", "b"), 2),
        (NotFound("x"), 3),
        (Conflict("x"), 4),
        (Unavailable("x"), 4),
        (Ambiguous("x"), 4),
        (Unusable("x"), 5),
        (Corrupt("x"), 5),
        (RunFailed("r", None), 1),
        (RunCancelled("x"), 1),
        (Stopped(2), 130),
        (Stopped(15), 143),
    ],
)
def test_every_error_has_its_exit_code(error: InvalidPlan, code: int) -> None:
    assert exits.code_of(error) == code


def test_a_run_that_ran_out_of_time_has_a_code_of_its_own() -> None:
    assert [exits.code_of_run("completed", False), exits.code_of_run("failed", False)] == [0, 1]
    assert [exits.code_of_run("cancelled", False), exits.code_of_run("failed", True)] == [1, 124]


def test_no_colour_wins_over_forced_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert output.has_colour(None) is False
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert output.has_colour(None) is True
    monkeypatch.setenv("FORCE_COLOR", "0")
    assert output.has_colour(None) is False
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.has_colour(None) is False


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    assert output.printable("a\x1b[2Jb\nc") == "a\\x1b[2Jb c"


def test_text_is_cut_to_its_width_in_cells() -> None:
    assert [output.truncated("abcdef", n) for n in (0, 1, 3, 6, 9)] == ["", "…", "ab…", "abcdef", "abcdef"]
    assert output.truncated("日本語", 5) == "日本…"
    assert output.truncated("日本語", 4) == "日…"


def test_columns_stand_below_each_other_and_the_last_is_cut() -> None:
    shown = output.table(("A", "B"), [("x", "yy"), ("日本", "z")], width=7)
    assert shown.splitlines() == ["A     B", "x     …", "日本  z"]
