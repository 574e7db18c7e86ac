"""Values of plain YAML words, by the core schema of YAML 1.2, in which `no`, `on` and `1:30` are text."""

import math
import re
from typing import Any

WORDS: dict[str, Any] = {"": None, "~": None}
WORDS |= {spelt: None for spelt in ("null", "Null", "NULL")}
WORDS |= {spelt: True for spelt in ("true", "True", "TRUE")}
WORDS |= {spelt: False for spelt in ("false", "False", "FALSE")}

PLAIN_STARTS = frozenset("~nNtTfF+-.0123456789") | {""}
"""The first characters of words that may be more than text."""

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_INTEGER = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST = 400  # digits; what is longer fits no number below
_INTEGERS = range(-(2**63), 2**64)  # what JSON readers and stores keep exactly


class BadScalar(Exception):
    """A number that is too large."""


def plain_value(word: str) -> Any:
    if word in WORDS:
        return WORDS[word]
    if _INTEGER.fullmatch(word):
        return _kept(word, int(word) if len(word) <= _LONGEST else None)
    if _FLOAT.fullmatch(word):
        value = float(word)
        if math.isinf(value):
            raise BadScalar(f"`{word[:40]}` is too large for a number")
        return value
    if _OTHER_INTEGER.fullmatch(word):
        return _kept(word, int(word, 0) if len(word) <= _LONGEST else None)
    if _NO_NUMBER.fullmatch(word):
        raise BadScalar(f"`{word}` is a number that is too large to be stored")
    return word


def _kept(word: str, value: int | None) -> int:
    if value is None or value not in _INTEGERS:
        raise BadScalar(f"`{word[:40]}` does not fit into 64 bits")
    return value
