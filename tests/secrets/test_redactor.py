"""The redactor: every spelling of a secret is found, nothing else is, and big texts cost little."""

import base64
import html
import json
import random
import re
import shlex
import sys
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.faults import short
from refold.secrets.redactor import Redactor
from refold.secrets.spellings import SHORTEST, fold
from refold.tools.sql.noetl_text import _plain
from tests.secrets.rooms import CANARY

PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----\n"


def wrapped(text: str, column: int, between: str = "\n") -> str:
    return between.join(text[at : at + column] for at in range(0, len(text), column))


def fold_up(text: str) -> str:
    return "".join(each.upper() if len(each.upper()) == 1 else each for each in text)


def coded(text: str, before: bytes = b"") -> str:
    return base64.b64encode(before + text.encode()).decode()


SPELT: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 after one": lambda text: base64.b64encode(b"u" + text.encode()).decode(),
    "base64 after two": lambda text: base64.b64encode(b"u:" + text.encode() + b"!").decode(),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(b"?>" + text.encode()).decode(),
    "in an address": lambda text: urllib.parse.quote(text),
    "in an address, all of it": lambda text: urllib.parse.quote(text, safe=""),
    "in a form": lambda text: urllib.parse.quote_plus(text),
    "in a form, small": lambda text: re.sub("%..", lambda found: found.group().lower(), urllib.parse.quote_plus(text)),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "json": json.dumps,
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "json by msgspec": lambda text: msgspec.json.encode(text).decode(),
    "json by msgspec in json": lambda text: msgspec.json.encode(msgspec.json.encode(text).decode()).decode(),
    "repr": repr,
    "ascii": ascii,
    "repr of bytes": lambda text: repr(text.encode()),
    "repr of an error": lambda text: repr(ValueError(text)),
    "unicode escape": lambda text: text.encode("unicode_escape").decode(),
    "html": html.escape,
    "header that comes back": lambda text: text.encode().decode("latin-1"),
    "shell": lambda text: "'" + text.replace("'", "'\\''") + "'",
    "shell by Python": shlex.quote,
    "shell, in double quotes": lambda text: '"' + re.sub(r'(["$`\\])', r"\\\1", text) + '"',
    "base64 without padding": lambda text: base64.urlsafe_b64encode(b"?>?" + text.encode()).decode().rstrip("="),
    "base64 as mail has it": lambda text: base64.encodebytes(b"user:" + text.encode() * 3).decode(),
    "base64 in lines of five": lambda text: wrapped(coded(text, b"u"), 5),
    "base64 in lines of Windows": lambda text: wrapped(coded(text, b"u:"), 7, "\r\n"),
    "base64 in lines that are indented": lambda text: wrapped(coded(text), 16, "\n      "),
    "base64 in lines, in JSON": lambda text: json.dumps({"a": wrapped(coded(text), 9, "\r\n")}),
    "base64 in lines, in JSON twice": lambda text: json.dumps(json.dumps(wrapped(coded(text), 9))),
    "base64 in lines, as bytes": lambda text: repr(wrapped(coded(text), 9).encode()),
    "base64 by PHP": lambda text: json.dumps(coded(text)).replace("/", "\\/"),
    "hex by xxd": lambda text: wrapped(text.encode().hex(), 60),
    "hex in lines of ten": lambda text: wrapped(text.encode().hex(), 10),
    "hex with spaces": lambda text: text.encode().hex(" "),
    "HEX with colons": lambda text: text.encode().hex(":").upper(),
    "hex in groups and lines": lambda text: wrapped(text.encode().hex(" ", 2), 40),
    "in capitals": fold_up,
    "in small letters": str.lower,
    "in an address, in capitals": lambda text: urllib.parse.quote(text).upper(),
}
SECRETS = (
    CANARY,
    "plain-token-123",
    "both'quotes\"here",
    "back\\slash\\es",
    "line\none\ttwo lines",
    "ключ-от-квартиры",
)


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no words")


def knowing(*values: Any) -> Redactor:
    redactor = Redactor()
    for value in values:
        redactor.remember(value)
    return redactor


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("spelling", SPELT)
def test_every_spelling_is_found_in_texts_and_in_results(spelling: str, secret: str) -> None:
    spelt = SPELT[spelling](secret)
    redactor = knowing(secret)
    told = redactor.redact(f"before {spelt} after")
    assert "***" in told and told.startswith("before ") and told.endswith(" after")
    assert len(told) <= len("before *** after") + 30 and secret not in told
    assert redactor.where({"a": [0, f"before {spelt} after"]}) == "$.a[1]"


@given(st.text(min_size=SHORTEST, max_size=40).filter(lambda text: len(text.strip()) >= SHORTEST), st.data())
def test_whatever_the_secret_is_it_is_found_between_whatever(secret: str, data: st.DataObject) -> None:
    redactor = knowing(secret)
    for spelling in ("plain", "json", "base64 after one", "in an address", "hex", "repr"):
        assert "***" in redactor.redact(SPELT[spelling](secret))
    before, after = data.draw(st.text(max_size=20)), data.draw(st.text(max_size=20))
    assert secret not in redactor.redact(before + secret + after)


@given(
    st.text(st.characters(codec="utf-8"), min_size=SHORTEST, max_size=90).filter(
        lambda text: len(text.strip()) >= SHORTEST
    ),
    st.integers(1, 90),
    st.sampled_from(["\n", "\r\n", "\n  ", " ", "\\n"]),
    st.binary(max_size=5),
)
def test_a_code_is_found_wherever_it_is_wrapped(secret: str, column: int, between: str, before: bytes) -> None:
    redactor = knowing(secret)
    for code in (coded(secret, before), secret.encode().hex()):
        told = redactor.redact(f"so: {wrapped(code, column, between)}.")
        assert told.startswith("so: ") and told.endswith(".") and "***" in told
        left = told.replace("***", "").replace("\\n", "")
        assert len(re.sub(r"\s", "", left)) <= len("so:.") + 4 * len(before) // 3 + 8


def test_other_letters_are_found_unless_the_secret_is_an_ordinary_word() -> None:
    redactor = knowing("S3cret-Host-Name", "password", "Administrator", "hQzKanarien")
    assert redactor.redact("at s3cret-host-name, S3CRET-HOST-NAME and hqzkanarien") == "at ***, *** and ***"
    assert redactor.redact("Password of ADMINISTRATOR") == "Password of ADMINISTRATOR"
    assert redactor.redact("password of Administrator") == "*** of ***"
    assert redactor.where({"host": "s3cret-host-name"}) == "$.host" and redactor.where(["Password"]) is None


def test_small_letters_stand_where_the_letters_stood() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert len(fold(every)) == len(every)
    assert fold("\u0391\u03a3 \u03a3\u0391 \u0130x") == fold("\u03b1\u03c2 \u03c3\u03b1 ix")


def test_numbers_that_stand_in_lines_are_no_short_secret() -> None:
    assert knowing("12345678").redact("1\n2\n3\n4\n5\n6\n7\n8") == "1\n2\n3\n4\n5\n6\n7\n8"


def test_where_refold_has_cut_a_text_the_rest_of_a_secret_is_found() -> None:
    secret = "correct-horse-battery-staple"
    redactor = knowing(secret)
    assert redactor.redact(repr(short("my name " + secret, 12))) == "'my name ***…'"
    assert redactor.redact(f"before…{secret[-5:]} after") == "before…*** after"
    assert redactor.redact(short("x" * 60 + coded(secret), 70)) == "x" * 60 + "***…"


@pytest.mark.parametrize("before", [0, 50, 58])
def test_a_name_in_sql_that_is_cut_shows_no_part_of_a_secret(before: int) -> None:
    secret = "Kx7 correct horse battery staple, and more of it until it is longer than sixty"
    with pytest.raises(ValueError) as caught:
        _plain("n" * before + secret)
    told = knowing(secret).redact(str(caught.value))
    assert told.startswith("'" + "n" * before + "***…'")


def test_secret_results_push_out_no_secret_and_leave_words_and_headers_alone() -> None:
    redactor = Redactor(most=3)
    redactor.remember("the-one-that-counts")
    for n in range(10):
        redactor.remember_result({"token": f"token-number-{n}"})
    assert redactor.redact("the-one-that-counts token-number-0 token-number-9") == "*** token-number-0 ***"
    answer = {"headers": {"content-type": "application/json"}, "state": "completed", "data": {"token": "t0ken-abc"}}
    redactor.remember_result(answer)
    assert redactor.redact("completed application/json t0ken-abc") == "completed application/json ***"
    redactor.remember_result('{"token": "inside-1234"}')
    redactor.remember_result("first line-1\nsecond line-2\n")
    assert redactor.redact("inside-1234, second line-2") == "***, ***"


def test_what_is_too_short_is_not_known_and_the_shortest_is() -> None:
    redactor = knowing("1234567", "12345678")
    assert redactor.redact("1234567 12345678") == "1234567 ***"


def test_neighbours_overlaps_and_repetitions_leave_nothing() -> None:
    redactor = knowing("abcdefgh12", "gh12345678", "abcdefgh1234")
    assert redactor.redact("abcdefgh12345678") == "***"
    assert redactor.redact("abcdefgh12abcdefgh12 abcdefgh12") == "*** ***"


def test_what_is_left_of_a_secret_where_a_text_was_cut_is_found() -> None:
    secret = "correct-horse-battery-staple"
    redactor = knowing(secret)
    assert redactor.redact(secret[5:] + " and more") == "*** and more"
    assert redactor.redact("so far: " + secret[:-5]) == "so far: ***"
    assert redactor.redact(secret[:20]) == redactor.redact(secret[8:]) == "***"
    assert redactor.redact(secret[:7]) == secret[:7]


def test_a_secret_of_several_lines_is_found_line_by_line_but_not_by_its_frame() -> None:
    redactor = knowing(PEM)
    assert redactor.redact("MIIEvQIBADANBgkqhkiG9w0B") == "***"
    assert redactor.redact("-----BEGIN KEY-----") == "-----BEGIN KEY-----"
    assert redactor.where({"key": PEM}) == "$.key"


def test_the_fields_of_a_secret_are_known_and_its_public_ones_are_not() -> None:
    redactor = knowing({"username": "administrator", "password": "correct-horse", "more": ["nested-one", 1234567890]})
    told = redactor.redact("administrator correct-horse nested-one 1234567890")
    assert told == "administrator *** *** ***"
    assert redactor.where([1234567890]) == "$[0]"


def test_a_path_tells_where_a_secret_stands_and_never_what_it_is() -> None:
    redactor = knowing("correct-horse")
    assert redactor.where({"a": {"b": [{"c": "x"}, {"c": "xcorrect-horsex"}]}}) == "$.a.b[1].c"
    assert redactor.where("correct-horse") == "$"
    assert redactor.where({"a": {"correct-horse": 1}}) == "$.a (the name of a field)"
    assert redactor.where({"my correct-horse": {"x": "correct-horse"}}) == "$ (the name of a field)"
    assert redactor.where({"a": "correct horse", "b": [None, 1, True, 2.5]}) is None
    assert redactor.redacted({"correct-horse": ("x", {"y": "a correct-horse"}), "n": 7}) == {
        "***": ["x", {"y": "a ***"}],
        "n": 7,
    }


def test_what_is_no_json_is_searched_all_the_same_and_what_is_nested_too_deep_is_left_out() -> None:
    redactor = knowing("correct-horse")
    circle: list[Any] = []
    circle.append(circle)
    for value in (circle, object(), 2**80, {"a": {1, 2}}, {1.5: object()}, {Unspeakable(): object()}):
        assert redactor.where(value) is None
    assert redactor.where({("x", "correct-horse"): object()}) == "$ (the name of a field)"
    assert redactor.where([object(), {"a": b"correct-horse"}]) == "$[1].a"
    deep: Any = "correct-horse"
    for _ in range(300):
        deep = [deep]
    assert "correct-horse" not in str(redactor.redacted(deep))


def test_without_secrets_a_text_is_handed_on_as_it_is() -> None:
    text, value = "some text " * 10, {"a": "some text"}
    assert Redactor().redact(text) is text and not Redactor().knows
    assert Redactor().where(value) is None


def test_the_number_of_known_values_is_bounded_and_the_oldest_goes_first() -> None:
    redactor = Redactor(most=3)
    for value in ("first-one", "second-one", "third-one", "first-one", "fourth-one"):
        redactor.remember(value)
    told = redactor.redact("first-one second-one third-one fourth-one")
    assert told == "*** second-one *** ***"


def test_a_great_many_secrets_are_found_as_few_are() -> None:
    chance = random.Random(1)
    values = [base64.b64encode(chance.randbytes(18)).decode() for _ in range(400)]
    redactor = knowing(*values)
    text = " ".join(["some words between"] * 50)
    for value in values[::40]:
        assert redactor.redact(f"{text} {value} {text}") == f"{text} *** {text}"
        hidden = base64.b64encode(b"x" + value.encode()).decode()
        assert redactor.where({"a": f"{text} {hidden}"}) == "$.a"
    assert redactor.redact(text) is text


def test_a_big_text_costs_little_more_than_to_read_it_once_for_each_spelling() -> None:
    """In the same run, against as many plain searches; generous, because machines are busy."""
    redactor = knowing(*(f"token-{n}-{'x' * 20}{n * 7919}" for n in range(10)))
    text = json.dumps([{"id": n, "text": "the quick brown fox", "ok": True} for n in range(20_000)])
    redactor.redact("warm up, if you please")
    needles = [f"{n:08d}-not-there-{n}" for n in range(60)]

    def best(work: Any) -> float:
        times = []
        for _ in range(3):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
        return min(times)

    plain = best(lambda: [needle in text for needle in needles])
    assert best(lambda: redactor.redact(text)) < 10 * plain + 0.01
    assert best(lambda: redactor.where(text)) < 10 * plain + 0.01
