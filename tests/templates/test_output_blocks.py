"""Output blocks: which block of a text counts, how it is repaired, and what markers and context follow from it."""

from typing import Any

import pytest

from refold.templates.output_blocks import Unfit, answer_form, json_schema, read_answer, read_block

OPEN, CLOSE = "<<<FLOW_OUTPUT>>>", "<<<END_FLOW_OUTPUT>>>"


def block(text: str) -> str:
    return f"some words\n{OPEN}\n{text}\n{CLOSE}\nmore words"


def rule(field: str, op: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value, **more}


RULES: dict[str, Any] = {
    "fields": {
        "verdict": {"type": "enum", "values": ["pass", "fail"]},
        "note": {"type": "string", "optional": True, "desc": "one line", "examples": ["fine"]},
        "score": {"type": "number", "optional": True},
        "sure": {"type": "boolean", "optional": True},
        "items": {
            "type": "array",
            "optional": True,
            "items": {"type": "object", "fields": {"file": {"type": "string"}, "line": {"type": "number"}}},
        },
    },
    "markers": {
        "failed": rule("verdict", "==", "fail"),
        "many": rule("items", ">", 1, length=True),
        "in_a": rule("items", ">", 0, length=True, where=["file", "a.py"]),
        "low": rule("score", "<", 5),
        "unsure": rule("sure", "!=", True),
    },
}


def test_markers_context_and_other_texts_of_a_block_are_read() -> None:
    answer = read_answer(block('{"markers": ["a", 1], "context": "c", "branch": "main", "n": 3}'))
    assert (answer.markers, answer.context, answer.exports) == (["a"], "c", {"branch": "main"})
    assert answer.output == {"markers": ["a", 1], "context": "c", "branch": "main", "n": 3}


def test_the_last_opening_that_is_followed_by_data_counts() -> None:
    text = block('{"markers": ["old"]}') + f"say {OPEN} here" + block('{"markers": ["new"]}') + f"and {OPEN} there"
    assert read_answer(text).markers == ["new"]


def test_a_last_block_without_an_end_is_no_block_and_a_warning_says_so() -> None:
    found = read_block(block('{"markers": ["old"]}') + f'{OPEN} {{"markers": ["new"]}}')
    assert found.value is None
    assert "<<<END_FLOW_OUTPUT>>>" in found.warning


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"a": [1, 2,], "b": "x",}\n```',
        '```\n{"a": [1, 2], "b": "x"}\n```',
        '`{"a": [1, 2,], "b": "x"}`',
        '```json {"a": [1, 2], "b": "x"}```',
    ],
)
def test_fences_and_commas_at_the_end_go(text: str) -> None:
    assert read_block(block(text)).value == {"a": [1, 2], "b": "x"}


def test_commas_and_backslashes_in_texts_stay() -> None:
    found = read_block(block(r'{"a": ",}", "b": "C:\dir\new", "c": "\"\\", "d": "\u00e4"}')).value
    assert found == {"a": ",}", "b": "C:\\dir\new", "c": '"\\', "d": "ä"}


def test_the_older_marks_are_read() -> None:
    text = '<<<CONDUCTOR_OUTPUT>>> {"markers": ["x"]} <<<END_CONDUCTOR_OUTPUT>>>'
    assert read_answer(text).markers == ["x"]


@pytest.mark.parametrize("text", ["[1]", "{oops}", '{"a": NaN}', "{" * 100_000])
def test_what_is_no_object_is_no_block(text: str) -> None:
    found = read_block(block(text))
    assert found.value is None
    assert found.warning


def test_without_a_block_an_agent_has_told_nothing_and_a_script_its_first_characters() -> None:
    assert read_answer("words").result() == {"markers": [], "context": "", "output": None, "exports": {}}
    assert read_answer("x" * 3_000, script=True).context == "x" * 2_000


def test_reserved_names_are_not_exported_and_a_warning_says_so() -> None:
    answer = read_answer(block('{"dry_run": "true", "branch": "b"}'), reserved=["dry_run"])
    assert answer.exports == {"branch": "b"}
    assert "dry_run" in answer.warnings[0]


def test_a_schema_decides_about_markers_and_context_alone() -> None:
    value = {"verdict": "fail", "note": "n", "markers": ["mine"], "items": [{"file": "a.py", "line": 1}], "sure": False}
    answer = read_answer(value, RULES)
    assert answer.markers == ["failed", "in_a", "unsure"]
    assert answer.context == "n"
    assert answer.output == value
    assert answer.exports == {"verdict": "fail", "note": "n"}


def test_a_rule_whose_field_is_missing_is_false() -> None:
    assert read_answer({"verdict": "pass"}, RULES).markers == []


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "`verdict` is missing"),
        ({"verdict": "maybe"}, "`verdict` must be one of pass, fail"),
        ({"verdict": "pass", "score": True}, "`score` must be a number"),
        ({"verdict": "pass", "items": [{"file": 1, "line": 2}]}, "`items[0].file` must be a text"),
        ({"verdict": "pass", "items": [{"line": 2}]}, "`items[0].file` is missing"),
        ("no block", "no output block"),
    ],
)
def test_what_does_not_fit_a_schema_says_where(value: Any, why: str) -> None:
    with pytest.raises(Unfit, match=why.replace("[", r"\[")):
        read_answer(value, RULES)


def test_a_schema_without_markers_has_those_of_findings() -> None:
    rules = {"fields": {"approved": {"type": "boolean"}}, "markers": None}
    value = {"approved": False, "findings": [{"severity": "high"}, {"severity": "low"}]}
    assert read_answer(value, rules).markers == ["has_findings", "has_high_findings", "not_approved"]


def test_the_context_is_context_then_summary_then_the_first_text_by_name() -> None:
    rules = {"fields": {"b": {"type": "string"}, "a": {"type": "string", "optional": True}}, "markers": {}}
    assert read_answer({"b": "2", "a": "1", "summary": "s", "context": "c"}, rules).context == "c"
    assert read_answer({"b": "2", "a": "1", "summary": "s"}, rules).context == "s"
    assert read_answer({"b": "2", "a": "1"}, rules).context == "1"
    assert read_answer({"b": "2"}, rules).context == "2"


def test_a_schema_as_json_schema_and_as_text_for_a_prompt() -> None:
    schema = json_schema(RULES)
    assert schema["required"] == ["verdict"]
    assert schema["properties"]["verdict"] == {"type": "string", "enum": ["pass", "fail"]}
    assert schema["properties"]["items"]["items"]["required"] == ["file", "line"]
    form = answer_form(RULES)
    assert '"verdict": "pass" | "fail"' in form
    assert "one line" in form
    assert OPEN in form
    assert OPEN in answer_form(None)


def test_examples_of_a_list_may_be_its_elements_and_only_what_fits_is_an_example() -> None:
    fields = {
        "words": {"type": "array", "items": {"type": "string"}, "examples": ["a", "b"]},
        "rows": {"type": "array", "examples": [[1], [2]]},
        "count": {"type": "number", "examples": ["many", 3]},
        "odd": {"type": "number", "examples": ["many"]},
    }
    properties = json_schema({"fields": fields, "markers": None})["properties"]
    assert [each.get("examples") for each in properties.values()] == [[["a", "b"]], [[1], [2]], [3], None]
