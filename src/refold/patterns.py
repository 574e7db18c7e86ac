"""Regular expressions from users: matched by RE2, in time that grows linearly with the pattern and the text.

Python's own `re` backtracks: a pattern such as `(a+)+$` takes hours for a short text, and nothing can stop it. RE2 has
no backreferences and no lookaround, so patterns with these are refused. It is loaded with the first pattern.
"""

import re
from functools import lru_cache
from typing import Any

LONGEST = 10_000  # characters of a pattern
_MEMORY = 4 << 20  # bytes of a compiled pattern
_SPACE = r"\s\v\p{Z}\x{FEFF}"  # as ECMAScript has it; RE2 knows the blanks of ASCII only
_ESCAPE = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|c([A-Za-z])|(.))|([\[\]])",
    re.S,
)
_REPEAT = (
    "a repeat has a count above 1000, or counts are nested; `minLength` and `maxLength` say how long a text may be"
)
_LOOKS = "it looks around (`(?=`, `(?!`, `(?<=`, `(?<!`); write what is allowed instead, or use `not` with a pattern"
_BACK = "it refers back to a group (`\\1`, `\\k<name>`); write what is allowed there instead"


class BadPattern(ValueError):
    """A pattern that cannot be used; the message has the reason."""


class Pattern:
    """A compiled pattern; `size` is the most work that one byte of a text can take."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self.size: int = found.programsize

    def is_in(self, text: str) -> bool:
        """Whether any part of the text matches."""
        return self._found.search(text.encode("utf-8", "replace")) is not None


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Pattern:
    """Compile a pattern. Raise BadPattern if it cannot be used."""
    import re2

    if len(pattern) > LONGEST:
        raise BadPattern(f"it has {len(pattern)} characters, and {LONGEST} is the most")
    options = re2.Options()
    options.max_mem, options.log_errors = _MEMORY, False
    try:
        return Pattern(re2.compile(_translated(pattern), options))
    except (re2.error, UnicodeEncodeError) as error:
        raise BadPattern(_why(error)) from None


def _why(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(error)
    if text.startswith("invalid repetition size"):
        return _REPEAT
    if text.startswith("invalid perl operator: (?") and text[-1] in "=!":
        return _LOOKS
    if text.startswith("invalid perl operator: (?P") or re.search(r"escape sequence: \\[1-9k]", text):
        return _BACK
    return text if len(text) <= 200 else f"{text[:200]}…"


def _translated(pattern: str) -> str:
    """Translate a pattern from ECMAScript, which JSON Schema uses, to RE2."""
    inside = False  # of a set of characters

    def spelled(found: re.Match[str]) -> str:
        nonlocal inside
        high, low, code, long_code, control, letter, bracket = found.groups()
        if bracket is not None:
            was, inside = inside, bracket == "["
            if not was and inside and pattern.startswith(("]", "^]"), found.end()):
                raise BadPattern("`[]` and `[^]` are empty sets of characters; write `[\\s\\S]` for any character")
            return "\\[" if was and inside else bracket
        if high is not None:
            return f"\\x{{{0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF):X}}}"
        if code or long_code:
            return f"\\x{{{code or long_code}}}"
        if control is not None:
            return f"\\x{{{ord(control.upper()) - 64:X}}}"
        match letter:
            case "s":
                return _SPACE if inside else f"[{_SPACE}]"
            case "S" if not inside:
                return f"[^{_SPACE}]"
            case "Z":
                return "\\z"
            case _:
                return found.group()

    return _ESCAPE.sub(spelled, pattern)
