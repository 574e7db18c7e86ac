"""Names: which are good, which are taken, and which one was probably meant."""

import re
from collections.abc import Iterable

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
PLAYBOOK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MANY = 500  # names; of more than that, only those with the same first letter are compared
LONGEST_GUESS = 40  # longer words are no typing errors of a key

RESERVED = frozenset({"ctx", "error", "input", "iter", "loop", "output", "run", "steps", "visit", "workload"})
"""What templates read under these names is not for a playbook to choose."""

WORDS = frozenset({"and", "else", "false", "if", "in", "is", "none", "not", "null", "or", "true"})
"""Words of the expression language."""


def meant(name: str, known: Iterable[str]) -> str:
    """The known name that is closest, or nothing if none is close."""
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
    """A hint: the nearest name, or else what there is to choose from."""
    names = list(known)
    guess = meant(name, names)
    if guess:
        return f"did you mean `{guess}`?"
    listed = ", ".join(f"`{each}`" for each in names[:20]) + (", …" if len(names) > 20 else "")
    return f"known: {listed}" if names else "there is none to choose from"


def distance(one: str, other: str, limit: int) -> int:
    """How many letters must be changed, added, left out or swapped with their neighbour; above the limit: above it."""
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
    """A name of a class behind its article."""
    return f"an {name}" if name[:1].lower() in ("a", "e", "i", "o") else f"a {name}"


def tidied(name: str) -> str:
    """A name made fit for a step, as a suggestion."""
    words = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
    return re.sub(r"^[0-9_]+", "", words)[:64]
