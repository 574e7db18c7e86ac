"""Names of steps and playbooks: which are allowed, which are reserved, and which one was probably meant."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
PLAYBOOK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}")
MOST_LABELS, LONGEST_LABEL = 16, 255
MANY = 500  # of more names than this, only those with the same first letter are compared
LONGEST_GUESS = 40  # longer words are not taken for typing errors of a key

RESERVED = frozenset({"ctx", "error", "input", "iter", "loop", "output", "run", "steps", "visit", "workload"})
"""Names that have a fixed meaning in templates, so that a playbook cannot define them."""

WORDS = frozenset({"and", "else", "false", "if", "in", "is", "none", "not", "null", "or", "true"})
"""Words of the expression language, which cannot be names."""


def label_flaw(labels: Mapping[Any, Any]) -> str:
    """Return what is wrong with the labels of a run, or an empty text."""
    if len(labels) > MOST_LABELS:
        return f"a run has at most {MOST_LABELS} labels, and these are {len(labels)}"
    for key, value in labels.items():
        if not isinstance(key, str) or LABEL_KEY.fullmatch(key) is None:
            return f"{key!r} is not the name of a label: at most 63 letters, digits, `_`, `.`, `/` and `-`"
        if not isinstance(value, str) or len(value) > LONGEST_LABEL or not value.isprintable():
            return f"the value of label {key!r} is a text of at most {LONGEST_LABEL} printable characters"
    return ""


def meant(name: str, known: Iterable[str]) -> str:
    """Return the known name that is closest, or an empty text if none is close."""
    if not name or len(name) > LONGEST_GUESS:
        return ""
    low, names = name.lower(), list(known)
    if len(names) > MANY:
        names = [each for each in names if each[:1].lower() == low[0]][:MANY]
    limit = 0 if len(low) < 3 else 1 if len(low) < 5 else 2 if len(low) < 9 else 3
    near = [(distance(low, each.lower(), limit), each) for each in names if abs(len(each) - len(low)) <= limit]
    close = [each for each in near if each[0] <= limit]
    if close:
        return min(close)[1]
    longer = [each for each in names if len(low) > 2 and each.lower().startswith(low)]
    return longer[0] if len(longer) == 1 else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint: the closest name, or else the known names."""
    names = list(known)
    guess = meant(name, names)
    if guess:
        return f"did you mean `{guess}`?"
    listed = ", ".join(f"`{each}`" for each in names[:20]) + (", …" if len(names) > 20 else "")
    return f"known: {listed}" if names else "there is none to choose from"


def distance(one: str, other: str, limit: int) -> int:
    """Return how many letters must be changed, added, removed or swapped with a neighbour, counting to `limit` + 1."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return row[-1]


def a(name: str) -> str:
    """Return the name of a class after its article."""
    return f"an {name}" if name[:1].lower() in ("a", "e", "i", "o") else f"a {name}"


def tidied(name: str) -> str:
    """Return a name that is allowed for a step, as a suggestion."""
    plain = "".join(each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    words = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).lower()).strip("_")
    return re.sub(r"^[0-9_]+", "", words)[:64]
