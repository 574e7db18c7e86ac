"""How secrets are called, and what their text means."""

import re
from typing import Any

import msgspec

from refold.errors import InvalidValue

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
PREFIX = "REFOLD_SECRET_"
KEY = "REFOLD_KEY"
LARGEST = 64 * 1024  # characters of a secret


def checked(name: str) -> str:
    """Raises InvalidValue: a name is never a path, and never a piece of one."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        shown = name if isinstance(name, str) and name.isprintable() and len(name) <= 100 else "this"
        why = f"{shown!r} is no name: up to 64 letters, digits, `_`, `-` and `.`, and the first no dot or dash"
        raise InvalidValue("secret", why)
    return name


def variable(name: str) -> str:
    """The variable of the environment that holds the secret: `pg-main` is in REFOLD_SECRET_PG_MAIN."""
    return PREFIX + re.sub(r"[.-]", "_", name).upper()


def meaning(text: str) -> Any:
    """A JSON object is a map of fields; anything else is the text itself."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return text
