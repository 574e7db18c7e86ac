"""The names of secrets, and how the text of a secret is read."""

import re
from typing import Any

import msgspec

from refold.errors import InvalidValue

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
PREFIX = "REFOLD_SECRET_"
KEY = "REFOLD_KEY"
LARGEST = 64 * 1024  # characters of a secret


def checked_name(name: str) -> str:
    """Raise InvalidValue for what is not a name; a name is never a path or part of a path."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        shown = name if isinstance(name, str) and name.isprintable() and len(name) <= 100 else "this"
        why = f"{shown!r} is not a name: use up to 64 letters, digits, `_`, `-` and `.`, not beginning with `-` or `.`"
        raise InvalidValue("secret", why)
    return name


def variable(name: str) -> str:
    """The variable of the environment for a secret: `pg-main` is in REFOLD_SECRET_PG_MAIN."""
    return PREFIX + re.sub(r"[.-]", "_", name).upper()


def parse_secret(text: str) -> Any:
    """The value of a secret: a JSON object is a map of fields, anything else is the text itself."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return text
