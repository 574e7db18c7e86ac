"""Filters and methods on long texts: none takes time that grows faster than its text."""

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from refold.core.expressions import CannotEvaluate
from refold.playbooks.reader.templates import is_expression
from refold.templates import Templates
from refold.templates.json_paths import parsed
from refold.templates.paths import nearest
from tests.growth import grows_linearly

STRICT, CHAINABLE = Templates("strict"), Templates("chainable")

LONG: dict[str, Callable[[int], tuple[str, dict[str, Any]]]] = {
    "a format of zeros": lambda n: ("{{ text | format(1) }}", {"text": "%" + "0" * n}),
    "a format of zeros, as an operator": lambda n: ("{{ text % 1 }}", {"text": "%" + "0" * n}),
    "a format of signs": lambda n: ("{{ text | format(1) }}", {"text": "%" + "-+ #" * n}),
    "a format of open brackets": lambda n: ("{{ text | format(a=1) }}", {"text": "%(" * n}),
    "a format of points": lambda n: ("{{ text | format(1) }}", {"text": "%0." * n}),
    "fields that never close": lambda n: ("{{ text.format(1) }}", {"text": "{a:" + "a" * n}),
    "a search from behind": lambda n: (
        "{{ text.rfind(part) }}",
        {"text": "a" * n, "part": "a" * (n // 4) + "b" + "a" * (n // 4)},
    ),
    "a split from behind": lambda n: (
        "{{ text.rsplit(part) }}",
        {"text": "a" * n, "part": "a" * (n // 4) + "b" + "a" * (n // 4)},
    ),
    "a partition from behind": lambda n: (
        "{{ text.rpartition(part) }}",
        {"text": "a" * n, "part": "a" * (n // 4) + "b" + "a" * (n // 4)},
    ),
    "many characters to strip": lambda n: ("{{ text.strip(chars) }}", {"text": "b" * n, "chars": "a" * n + "b"}),
    "many characters to trim": lambda n: ("{{ text | trim(chars) }}", {"text": "b" * n, "chars": "a" * n + "b"}),
    "blanks to wrap": lambda n: ("{{ text | wordwrap(1) }}", {"text": " " * n}),
    "a word to wrap": lambda n: ("{{ text | wordwrap(1) }}", {"text": "a" * n}),
}


@pytest.mark.parametrize("name", LONG)
def test_no_filter_or_method_takes_time_that_grows_faster_than_its_text(name: str) -> None:
    def work(size: int) -> None:
        text, view = LONG[name](size)
        with suppress(CannotEvaluate):
            CHAINABLE.value(text, view)

    assert grows_linearly(work, 12_000)


def test_a_format_of_200000_zeros_is_an_error_of_its_expression() -> None:
    for templates, text in ((STRICT, "{{ fmt | format(1) }}"), (CHAINABLE, "{{ fmt % 1 }}")):
        with pytest.raises(CannotEvaluate, match="incomplete format"):
            templates.value(text, {"fmt": "%" + "0" * 200_000})


@pytest.mark.parametrize(
    ("format", "given", "made"),
    [
        ("%5d|%-5d|%05d", (1, 2, 3), "    1|2    |00003"),
        ("%.2f%%", (1.5,), "1.50%"),
        ("%s of %s", ("a", 2), "a of 2"),
        ("%+d % d %#x", (1, 2, 255), "+1  2 0xff"),
        ("%1000d", (1,), " " * 999 + "1"),
        ("%0001000d", (1,), "0" * 999 + "1"),
        ("%ld", (7,), "7"),
    ],
)
def test_formats_are_read_as_python_reads_them(format: str, given: tuple[Any, ...], made: str) -> None:
    names = ", ".join(f"g{n}" for n in range(len(given)))
    view = {"fmt": format, **{f"g{n}": each for n, each in enumerate(given)}}
    assert STRICT.value(f"{{{{ fmt | format({names}) }}}}", view) == made


@pytest.mark.parametrize(
    "format", ["%1001d", "%*d", "%.1001f", "%.*f", "%-+1001d", "%0001001d", "%(a(b)c)1001d", "%5.99999f", "%%%1001d"]
)
def test_no_format_is_wider_than_a_thousand(format: str) -> None:
    with pytest.raises(CannotEvaluate, match="too wide"):
        STRICT.value("{{ fmt | format(1) }}", {"fmt": format})


def test_searches_from_behind_find_what_python_finds() -> None:
    for text in ("", "a", "aaa", "abcabc", "xaxbxa", "aXbXc"):
        for part in ("a", "aa", "abc", "x", "X", "bc"):
            view = {"text": text, "part": part}
            assert CHAINABLE.value("{{ text.rfind(part) }}", view) == text.rfind(part)
            assert CHAINABLE.value("{{ text.rfind(part, 1) }}", view) == text.rfind(part, 1)
            assert CHAINABLE.value("{{ text.rfind(part, 1, 4) }}", view) == text.rfind(part, 1, 4)
            assert CHAINABLE.value("{{ text.rsplit(part) }}", view) == text.rsplit(part)
            assert CHAINABLE.value("{{ text.rsplit(part, 1) }}", view) == text.rsplit(part, 1)
            assert CHAINABLE.value("{{ text.rpartition(part) }}", view) == list(text.rpartition(part))


def test_only_so_many_different_characters_are_stripped() -> None:
    assert CHAINABLE.value("{{ text.strip(chars) }}", {"text": "aab", "chars": "a" * 5_000}) == "b"
    with pytest.raises(CannotEvaluate, match="at most 1000 different characters"):
        CHAINABLE.value("{{ text.strip(chars) }}", {"text": "a", "chars": "".join(map(chr, range(2000)))})


def test_fields_of_a_format_make_no_more_than_a_text_may_hold() -> None:
    with pytest.raises(CannotEvaluate, match="more than 1 MiB"):
        CHAINABLE.value("{{ text.format(1, a=1) }}", {"text": "{a:>999}" * 20_000})


def test_a_path_of_json_is_read_in_time_that_grows_with_it_and_has_a_longest_length() -> None:
    assert parsed("$" + ".a" * 4_999) == ("a",) * 4_999
    with pytest.raises(ValueError, match="at most 10000 characters"):
        parsed("$" + "[0]" * 1_000_000)


def test_whether_a_text_is_one_expression_is_told_in_time_that_grows_with_it() -> None:
    assert grows_linearly(lambda size: is_expression("{{ '" + "\\'" * size + " }}"), 4_000)
    assert is_expression("{{ it's }}") and not is_expression("{{ it's }} and {{ b }}")
    assert is_expression("{{ '}}' }}") and not is_expression("{{ a }} {{ b }}")


def test_a_guess_at_a_name_compares_few_and_short_names() -> None:
    assert nearest("fetch_pgae", ["other", "fetch_page"]) == "fetch_page"
    assert nearest("fetch", [*(f"x{n}" for n in range(5_000)), "fetsh"]) == "fetsh"
    assert nearest("a" * 41, ["a" * 41 + "b"]) == ""
    names = map(str, itertools.count())
    nearest("name", names)
    assert next(names) == "10000"  # a list without end is not gone through
    assert grows_linearly(lambda size: nearest("a" * 40, ["ab" * size] * 2_000), 500)
    assert grows_linearly(lambda size: nearest("ab" * 20, [("ba" * 40)[: 60 + n % 20] for n in range(size)]), 1_000)
