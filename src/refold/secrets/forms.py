"""The spellings under which a secret turns up: as it is, and as other programs write it."""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote_from_bytes

SHORTEST = 8  # characters; what is shorter is found everywhere
WORD = 16  # characters of a word that is known by itself, in a secret of several lines
PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")
KEPT_IN_ADDRESSES = ("", "/", "/:", "!'()*", "/:@!$&'()*+,;=")  # by one writer or another


def forms(value: str) -> frozenset[str]:
    """All of one value; none if it is too short to be known."""
    found: set[str] = set()
    for part in _parts(value):
        spelt = set(_spellings(part))
        found |= spelt | {_in_json(each) for each in spelt}
    return frozenset(each for each in found if len(each) >= SHORTEST)


def _parts(value: str) -> Iterator[str]:
    """The whole, and of several lines the words too: a log shows them line by line."""
    bare = value.strip()
    if len(bare) < SHORTEST:
        return
    yield from {value, bare}
    if not value.isascii():
        yield value.encode("utf-8", "surrogatepass").decode("latin-1")  # as headers of requests come back
    if "\n" in bare:
        yield from (word for word in bare.split() if len(word) >= WORD and not word.startswith("-----"))


def _spellings(text: str) -> Iterator[str]:
    data = text.encode("utf-8", "surrogatepass")
    yield text
    yield from (data.hex(), data.hex().upper())
    yield from _in_sixes(data)
    if PLAIN.fullmatch(text):
        return  # the others write it as it is
    yield from _in_address(data)
    once, spelt_out = _in_json(text), json.dumps(text)[1:-1]
    yield from (once, _in_json(once), spelt_out, json.dumps(spelt_out)[1:-1])
    yield from (repr(text)[1:-1], ascii(text)[1:-1], repr(data)[2:-1], text.encode("unicode_escape").decode())
    yield from (html.escape(text), html.escape(text, quote=False))
    yield text.replace("'", "'\\''")  # in a shell's single quotes


def _in_sixes(data: bytes) -> Iterator[str]:
    """Those characters that do not depend on what stands before and after, for each of the three places."""
    for before in range(3):
        text = b64encode(bytes(before) + data).decode()
        own = text[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
        yield own
        yield own.replace("+", "-").replace("/", "_")


def _in_address(data: bytes) -> Iterator[str]:
    for kept in KEPT_IN_ADDRESSES:
        text = quote_from_bytes(data, kept)
        small = re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), text)
        yield from (text, small, text.replace("%20", "+"), small.replace("%20", "+"))


def _in_json(text: str) -> str:
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)[1:-1]
