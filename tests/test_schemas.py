"""Values checked against JSON Schemas: what fits, and that no schema and no value takes more work than it may."""

import tracemalloc
from typing import Any

import pytest

from refold.errors import InvalidValue, OverBound
from refold.patterns import BadPattern, compiled
from refold.schemas import DEEPEST, MOST_FAULTS, QUICK, WORK, Misfit, misfits, misfits_text, schema_flaw
from tests.growth import grows_linearly


def paths(schema: dict[str, Any], value: Any) -> list[str]:
    return [each.path for each in misfits(schema, value)]


EXPONENTIAL = ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$", r"^(\w+\s?)*$"]


@pytest.mark.parametrize("pattern", EXPONENTIAL)
def test_a_pattern_is_matched_in_time_that_grows_with_its_text(pattern: str) -> None:
    assert grows_linearly(lambda size: misfits({"pattern": pattern}, "a" * size + "!"), 20_000)
    assert grows_linearly(lambda size: misfits({"patternProperties": {pattern: False}}, {"a" * size + "!": 1}), 20_000)
    only = {"patternProperties": {pattern: {}}, "additionalProperties": False}
    assert grows_linearly(lambda size: misfits(only, {"a" * size + "!": 1}), 20_000)
    rest = {"allOf": [{"patternProperties": {pattern: {}}}], "unevaluatedProperties": False}
    assert grows_linearly(lambda size: misfits(rest, {"a" * size + "!": 1}), 20_000)


def test_a_part_that_names_another_draft_is_bounded_too() -> None:
    for draft in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema"):
        digit = {"properties": {"a": {"$schema": draft, "pattern": "^\\d$"}}}
        assert paths(digit, {"a": "\u0663"}) == ["$.a"], "its patterns are not those of Python"
        schema = {"properties": {"a": {"$schema": draft, "pattern": "^(a+)+$"}}}
        assert paths(schema, {"a": "a" * 60 + "!"}) == ["$.a"]
        assert paths({"$schema": draft, **schema}, {"a": "a" * 60 + "!"}) == ["$.a"]


def test_a_large_pattern_on_a_long_text_is_over_the_bound() -> None:
    with pytest.raises(OverBound, match="units of work"):
        misfits({"pattern": "((a{0,30}){0,30})b"}, "a" * 1_000_000)


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("b", ["abc"], ["ac"]),
        ("^a$", ["a"], ["a\n", "ab"]),
        (r"^\d{4}-\d\d$", ["2026-01"], ["2026-1", "\u0661\u0661\u0661\u0661-01"]),
        (r"^\u0041\x42$", ["AB"], ["ab"]),
        (r"^\ud83d\ude00$", ["\U0001f600"], ["a"]),
        (r"^\s$", [" ", "\u00a0", "\v", "\u2003"], ["a"]),
        (r"^[\s]$", [" ", "\u00a0"], ["a"]),
        (r"^\S+$", ["ab"], ["a\u00a0b"]),
        (r"^[\w.-]+@[\w-]+\.[a-z]{2,}$", ["ann@example.org"], ["ann@", "é@a.de"]),
        (r"^\p{L}+$", ["été"], ["a1"]),
        (r"^(?<year>\d+)\/x$", ["12/x"], ["12"]),
        (r"^[[a]+$", ["[a"], ["b"]),
        (r"^[\[\]\-]+$", ["[-]"], ["a"]),
        (r"^\cA$", ["\x01"], ["A"]),
        ("^.{1,1000}$", ["x"], [""]),
        ("(?i)^abc$", ["ABC"], ["abd"]),
        ("^\ud800$", [], []),
    ],
)
def test_patterns_mean_what_json_schema_says(pattern: str, fits: list[str], fails: list[str]) -> None:
    if fits:
        assert schema_flaw({"pattern": pattern}) is None
    assert [text for text in fits if misfits({"pattern": pattern}, text)] == []
    assert [text for text in fails if not misfits({"pattern": pattern}, text)] == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)b", "looks around"),
        ("(?!a)b", "looks around"),
        ("(?<=a)b", "looks around"),
        ("(?<!a)b", "looks around"),
        (r"(a)\1", "refers back"),
        (r"(?<n>a)\k<n>", "refers back"),
        (r"(?P<n>a)(?P=n)", "refers back"),
        ("^.{1,2000}$", "`maxLength`"),
        ("((a{100}){100}){100}", "`maxLength`"),
        ("[]", "empty sets"),
        ("[^]", "empty sets"),
        ("(", "missing )"),
        ("a" * 10_001, "10001 characters"),
        ("a**", "bad repetition"),
    ],
)
def test_a_pattern_that_cannot_be_matched_in_bounded_time_is_a_flaw_with_its_place(pattern: str, why: str) -> None:
    found = schema_flaw({"properties": {"a": {"items": {"pattern": pattern}}}})
    assert found is not None and found[0] == ["properties", "a", "items", "pattern"] and why in found[1]
    found = schema_flaw({"patternProperties": {pattern: {}}})
    assert found is not None and found[0] == ["patternProperties", pattern] and why in found[1]
    with pytest.raises(BadPattern):
        compiled(pattern)
    misfit = misfits({"pattern": pattern}, "a")[0]
    assert misfit.of_schema and "the schema has a pattern that cannot be used" in misfit.message


def test_what_looks_like_a_pattern_in_plain_data_is_none() -> None:
    data = {"pattern": "(?=a)", "patternProperties": {"(": 1}}
    schema = {"const": data, "default": data, "examples": [data], "properties": {"pattern": {"type": "string"}}}
    assert schema_flaw(schema) is None and misfits(schema, data) == []


ENDLESS: dict[str, dict[str, Any]] = {
    "itself": {"$ref": "#"},
    "a cycle of one": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "a cycle of two": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
        "$ref": "#/$defs/a",
    },
    "through anyOf": {"anyOf": [{"type": "null"}, {"not": {"$ref": "#"}}]},
    "through if": {"if": {"type": "null"}, "else": {"then": {}, "if": {"$ref": "#"}}},
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_reference_that_never_goes_into_the_value_is_a_flaw_and_over_the_bound(name: str) -> None:
    found = schema_flaw(ENDLESS[name])
    assert found is not None and "leads back to itself" in found[1]
    with pytest.raises(OverBound, match="without an end"):
        misfits(ENDLESS[name], {"a": 1})


def test_a_schema_of_a_tree_refers_to_itself_and_is_good() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    assert schema_flaw(tree) is None
    assert paths(tree, {"left": {"right": {"left": 1}}}) == ["$.left.right.left"]


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


def test_work_that_doubles_with_each_level_ends_at_the_bound() -> None:
    twice = {"properties": {"x": {"$ref": "#/$defs/a"}}}
    schema = {"$defs": {"a": {"allOf": [twice, twice]}}, "$ref": "#/$defs/a"}
    with pytest.raises(OverBound, match=f"more than {QUICK} units of work"):
        misfits(schema, nested(13), QUICK)
    dependent = {
        "$defs": {
            f"a{n}": {"dependentSchemas": {"x": {"$ref": f"#/$defs/a{n + 1}"}, "y": {"$ref": f"#/$defs/a{n + 1}"}}}
            for n in range(60)
        }
    }
    dependent["$defs"]["a60"] = {}
    with pytest.raises(OverBound, match="units of work"):
        misfits({"unevaluatedProperties": False, **dependent, "$ref": "#/$defs/a0"}, {"x": 1, "y": 2}, 20_000)


def test_a_value_that_is_nested_deeper_than_keywords_may_be_is_over_the_bound() -> None:
    schema = {"properties": {"x": {"$ref": "#"}}}
    assert misfits(schema, nested(DEEPEST // 2 - 2)) == []
    with pytest.raises(OverBound, match="nested too deeply"):
        misfits(schema, nested(DEEPEST))


def test_a_schema_that_is_nested_too_deep_or_too_large_is_a_flaw() -> None:
    deep: dict[str, Any] = {}
    for _ in range(2_000):
        deep = {"not": deep}
    found = schema_flaw(deep)
    assert found is not None and "nested too deep" in found[1]
    found = schema_flaw({"properties": {f"a{n}": {} for n in range(30_000)}})
    assert found is not None and "more than 20000 parts" in found[1]
    assert schema_flaw({"properties": {f"a{n}": {"type": "string"} for n in range(5_000)}}) is None


def test_keywords_that_compare_take_time_that_grows_with_the_value() -> None:
    assert grows_linearly(lambda size: misfits({"uniqueItems": True}, [{"a": n} for n in range(size)]), 2_000)
    wanted = {"items": {"enum": [{"a": n} for n in range(2_000)]}}
    assert grows_linearly(lambda size: misfits(wanted, [{"a": n % 2_000} for n in range(size)]), 1_000)
    rest = {"properties": {"a": {}}, "unevaluatedProperties": {"type": "integer"}}
    assert grows_linearly(lambda size: misfits(rest, {f"a{n}": n for n in range(size)}), 1_000)


def test_values_are_compared_as_json() -> None:
    assert misfits({"enum": [1, "a", None, [1, {"b": 2}]]}, 1.0) == []
    assert misfits({"enum": [1, "a", None, [1, {"b": 2}]]}, [1.0, {"b": 2}]) == []
    assert paths({"enum": [1]}, True) == ["$"] and paths({"const": [True]}, [1]) == ["$"]
    assert misfits({"uniqueItems": True}, [1, True, 0, False, "1", [1], [True], {}, []]) == []
    assert paths({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]) == ["$"]


def test_messages_are_short_and_a_check_ends_after_a_thousand_faults() -> None:
    found = misfits({"items": {"type": "string"}}, [1] * 5_000)
    assert len(found) == MOST_FAULTS and misfits_text(found, "list").endswith("; and many more")
    long = misfits({"type": "integer", "maxLength": 3}, "x" * 1_000_000)
    assert [len(each.message) < 3_000 for each in long] == [True, True]
    many = {"allOf": [{"type": "integer"}] * 15_000}
    with pytest.raises(OverBound, match="units of work"):
        misfits(many, "x" * 10_000_000)


def test_what_branches_have_against_a_value_is_kept_short() -> None:
    value = "x" * 1_000_000
    tracemalloc.start()
    try:
        assert len(misfits({"anyOf": [{"type": "integer"}] * 100}, value)) == 1
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20 * len(value)


def test_what_is_not_evaluated_elsewhere_is_refused_as_before() -> None:
    schema = {
        "$defs": {"a": {"properties": {"b": {}}, "patternProperties": {"^x": {}}}},
        "allOf": [{"$ref": "#/$defs/a"}],
        "if": {"required": ["b"]},
        "then": {"properties": {"c": {}}},
        "unevaluatedProperties": False,
    }
    assert misfits(schema, {"b": 1, "x1": 2, "c": 3}) == []
    message = "Unevaluated properties are not allowed ('c' was unexpected)"
    assert misfits(schema, {"x1": 1, "c": 3}) == [Misfit("$", message, "unevaluatedProperties")]
    listed = {"prefixItems": [{}], "contains": {"type": "integer"}, "unevaluatedItems": False}
    assert misfits(listed, ["a", 1, 2]) == [] and paths(listed, ["a", 1, "b"]) == ["$"]
    extra = misfits({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1, "c": 2, "b": 3})
    message = "Additional properties are not allowed ('b', 'c' were unexpected)"
    assert extra == [Misfit("$", message, "additionalProperties")]
    extra = misfits({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"a": 1, "c": 2})
    assert extra == [Misfit("$", "'c' does not match any of the regexes: '^a'", "additionalProperties")]
    assert paths({"additionalProperties": {"type": "integer"}}, {"a": 1, "b": "x"}) == ["$.b"]


def test_over_the_bound_is_a_value_to_mend() -> None:
    assert issubclass(OverBound, InvalidValue) and WORK > 100 * QUICK
