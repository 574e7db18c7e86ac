"""The spellings of a secret: the secret itself, and how other programs write it.

A text is searched in three forms. Unchanged, for values that are ordinary words. Folded to small letters, for every
spelling that shows the characters of a value one by one. Packed, for codes: what may separate two characters of a
code that is wrapped or grouped (line ends, also as `\\n`, spaces, colons) is removed, and both alphabets of base64 are
made equal.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote_from_bytes

from msgspec import Struct

SHORTEST = 8  # characters; a shorter text would be found everywhere
WORD = 16  # characters of a word that is searched for on its own, in a secret of several lines
LONG = 16  # characters; a value of this length is found when it is wrapped, and is not an ordinary word
PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")
KEPT_IN_ADDRESSES = (
    "",
    "/",
    "/:",
    "!'()*",
    "/:@!$&'()*+,;=",
)  # by different programs
BETWEEN = b"\0\t\n\v\f\r :\\"  # what may separate two characters of a code
END_OF_LINE = re.compile(rb"\\[nrt]")  # as JSON and Python write it
_PACK = bytes.maketrans(b"-_", b"+/")


class Spellings(Struct, frozen=True):
    """The spellings of one value; none if it is too short."""

    exact: frozenset[str]  # found in a text as it is
    folded: frozenset[str]  # found in a folded text
    packed: frozenset[bytes]  # found in a packed text


def spellings(value: str) -> Spellings:
    shown: set[str] = set()
    packed: set[bytes] = set()
    for part in _parts(value):
        spelt = set(_written(part))
        shown |= spelt | {_in_json(spelling) for spelling in spelt}
        packed |= {pack(code) for code in _codes(part)}
    shown = {spelling for spelling in shown if len(spelling) >= SHORTEST}
    packed = {spelling for spelling in packed if len(spelling) >= SHORTEST}
    if is_word(value.strip()):
        return Spellings(frozenset(shown), frozenset(), frozenset(packed))
    return Spellings(frozenset(), frozenset(map(fold, shown)), frozenset(packed))


def is_word(text: str) -> bool:
    """Whether a text is an ordinary word, such as `password` or `Administrator`, which other texts have by chance."""
    return len(text) < LONG and text.isalpha() and (text.isupper() or text[1:].islower())


def fold(text: str) -> str:
    """The text in small letters, each at the position of the original: other ways to fold can change the length."""
    if text.isascii():
        return text.lower()
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


def pack(data: bytes) -> bytes:
    return data.translate(_PACK, BETWEEN)


def _parts(value: str) -> Iterator[str]:
    """The whole value, and of several lines the long words too, because a log shows a value line by line."""
    bare = value.strip()
    if len(bare) < SHORTEST:
        return
    yield from {value, bare}
    if not value.isascii():
        yield value.encode("utf-8", "surrogatepass").decode("latin-1")  # headers of requests are decoded like this
    if "\n" in bare:
        yield from (word for word in bare.split() if len(word) >= WORD and not word.startswith("-----"))


def _written(text: str) -> Iterator[str]:
    """Spellings that show the characters one by one."""
    yield text
    if PLAIN.fullmatch(text):
        return  # all other spellings are the same
    data = text.encode("utf-8", "surrogatepass")
    for kept in KEPT_IN_ADDRESSES:
        address = quote_from_bytes(data, kept)
        yield from (address, address.replace("%20", "+"))
    once, spelt_out = _in_json(text), json.dumps(text)[1:-1]
    yield from (once, _in_json(once), spelt_out, json.dumps(spelt_out)[1:-1])
    yield from (repr(text)[1:-1], ascii(text)[1:-1], repr(data)[2:-1], text.encode("unicode_escape").decode())
    yield from (html.escape(text), html.escape(text, quote=False))
    yield from (html.escape(text).replace("&#x27;", "&#39;"), html.escape(text, quote=False).replace("'", "&apos;"))
    yield text.replace("'", "'\\''")  # in a shell's single quotes
    yield text.replace("'", "'\"'\"'")
    yield re.sub(r'(["$`\\])', r"\\\1", text)  # in its double quotes
    yield re.sub(r"([^A-Za-z0-9_@%+=:,./\n-])", r"\\\1", text)  # without quotes, as `printf %q` has it


def _codes(text: str) -> Iterator[bytes]:
    """Hex and base64, and a long text itself, because it may be wrapped like a code."""
    data = text.encode("utf-8", "surrogatepass")
    if len(pack(data)) >= LONG:
        yield data
    for encoded in {data, *([] if text.isascii() else [text.encode("latin-1", "ignore")])}:
        if len(encoded) >= SHORTEST:
            yield from (encoded.hex().encode(), encoded.hex().upper().encode())
            yield from _in_base64(encoded)


def _in_base64(data: bytes) -> Iterator[bytes]:
    """The characters that do not depend on the bytes before and after, for each of the three possible offsets."""
    for before in range(3):
        text = b64encode(bytes(before) + data)
        yield text[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]


def _in_json(text: str) -> str:
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)[1:-1]
