"""Rings as text, for channels that other people may use too: a name is encoded and never put into a text as it is."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable

from refold.ports import RING_KINDS, Ring

NO_KEY = "-"  # no text is encoded to this
MOST = 32  # keys of one kind in one message; of more, all are meant
LONGEST = 1500  # characters of an encoded key; a longer one means all of its kind
TOKEN = re.compile(r"[A-Za-z0-9_-]+")


def token(text: str) -> str:
    """Return a text as letters, digits, `_` and `-`."""
    return urlsafe_b64encode(text.encode()).decode().rstrip("=") or NO_KEY


def from_token(text: str) -> str | None:
    """Return what was encoded; None for anything else."""
    if text == NO_KEY:
        return ""
    if TOKEN.fullmatch(text) is None:
        return None
    try:
        found = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return None
    return found if token(found) == text else None


def encoded(rings: Iterable[Ring]) -> list[tuple[str, str]]:
    """Return kinds and keys, as few as possible; `any` is the kind of a ring without one."""
    keys: dict[str, set[str]] = {}
    for ring in rings:
        keys.setdefault(ring.kind, set()).add(ring.key)
    if "" in keys:
        return [("any", NO_KEY)]
    found: list[tuple[str, str]] = []
    for kind, names in keys.items():
        tokens = {token(name) for name in names}
        if NO_KEY in tokens or len(tokens) > MOST or any(len(each) > LONGEST for each in tokens):
            tokens = {NO_KEY}
        found += [(kind, each) for each in sorted(tokens)]
    return found


def decoded(kind: str, key: str) -> Ring | None:
    """Return the ring; None for what is not one."""
    name = from_token(key)
    if name is None or kind not in ("any", *RING_KINDS):
        return None
    return Ring() if kind == "any" else Ring(kind, name)
