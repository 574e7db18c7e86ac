"""Knows the secrets that were handed out in this process, and finds them in whatever is about to be written.

The cost of a text grows with its length and with the number of known spellings: to look for each of them in turn is
the fastest way up to a thousand or so, from there on a pattern of their beginnings says where it is worth looking.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from refold.secrets.forms import SHORTEST, forms
from refold.secrets.hidden import SHOWN, leaves

MOST = 1000  # values; the one that was handed out longest ago is forgotten first
FEW = 1000  # spellings
DEPTH = 200
BEGINNING = 4

_PUBLIC = """
account audience bucket cluster database db db_host db_name db_port db_user dbname driver email endpoint expires_at
expires_in expires_on expiry grant_type host hostname kind name namespace not_before path port project project_id
protocol provider realm region role schema scheme scope scopes sslmode token_type token_uri type url user user_name
username version warehouse zone
"""
PUBLIC = frozenset(_PUBLIC.split())
"""Fields of a secret that are no secret themselves: a result may tell which host it came from."""


class Redactor:
    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._values: dict[str, frozenset[str]] = {}  # the newest last
        self._forms: tuple[str, ...] = ()
        self._joined = ""
        self._begun: dict[str, list[str]] = {}
        self._pattern: re.Pattern[str] | None = None
        self._fresh = True  # all these follow from the values

    def __repr__(self) -> str:
        return f"Redactor({len(self._values)} values)"

    @property
    def knows(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._values)

    def remember(self, value: Any) -> None:
        """From now on each text in it is kept out of everything; too short ones, and public fields, are not."""
        for leaf in leaves(value, PUBLIC):
            known = self._values.pop(leaf, None)
            if known is None:
                known = forms(leaf)
                self._fresh = False
            if known:
                self._values[leaf] = known
        while len(self._values) > self.most:
            del self._values[next(iter(self._values))]
            self._fresh = False

    def redact(self, text: str) -> str:
        """With *** in the place of every secret, also of one that is cut off at the beginning or at the end."""
        if not self._values or len(text) < SHORTEST:
            return text
        spans = [span for form in self._in(text) for span in _spans(text, form)]
        spans = sorted([*spans, *self._cut_off(text)])
        return _without(text, spans) if spans else text

    def redacted(self, value: Any, depth: int = 0) -> Any:
        """The same for every text and every name in a value; what is nested too deep is left out."""
        if isinstance(value, str):
            return self.redact(value)
        if depth > DEPTH:
            return SHOWN
        if isinstance(value, dict):
            return {self.redacted(name, DEPTH): self.redacted(each, depth + 1) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.redacted(each, depth + 1) for each in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and self._has(str(value)):
            return SHOWN
        return value

    def where(self, value: Any) -> str | None:
        """The path of the first secret in a value, which itself tells none; None if there is none.

        Of a value that is no JSON, and will be refused for it, that part is searched which the refusal may quote.
        """
        if not self._values:
            return None
        if isinstance(value, str):
            return "$" if self._has(value) else None
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
            return next(self._paths(value, "$", 0), None)
        return next(self._paths(value, "$", 0), None) if self._has(text) else None

    def _paths(self, value: Any, path: str, depth: int) -> Iterator[str]:
        if depth > DEPTH:
            return
        if isinstance(value, dict):
            for name, each in value.items():
                shown = name if isinstance(name, str) else _repr(name)
                if self._has(shown):
                    yield f"{path} (the name of a field)"
                yield from self._paths(each, f"{path}.{shown}", depth + 1)
        elif isinstance(value, list | tuple):
            for i, each in enumerate(value):
                yield from self._paths(each, f"{path}[{i}]", depth + 1)
        elif isinstance(value, str | int | float | bytes) and self._has(
            value if isinstance(value, str) else repr(value)
        ):
            yield path

    def _has(self, text: str) -> bool:
        return bool(self._in(text))

    def _in(self, text: str) -> list[str]:
        """The spellings that stand in it."""
        if not self._fresh:
            self._refresh()
        if self._pattern is None:
            return [form for form in self._forms if form in text]
        begun = {found.group(1) for found in self._pattern.finditer(text)}
        return [form for each in begun for form in self._begun[each] if form in text]

    def _cut_off(self, text: str) -> Iterator[tuple[int, int]]:
        """What is left of a secret where the text itself was cut: lines and tails have a longest length."""
        first, last = text[:SHORTEST], text[-SHORTEST:]
        if first not in self._joined and last not in self._joined:
            return
        for form in self._forms:
            at = form.find(first)
            if at > 0 and text.startswith(form[at:]):
                yield 0, len(form) - at
            end = form.rfind(last) + SHORTEST
            if SHORTEST <= end < len(form) and text.endswith(form[:end]):
                yield len(text) - end, len(text)

    def _refresh(self) -> None:
        self._forms = tuple(set().union(*self._values.values()))
        self._joined = "\0".join(self._forms)
        self._begun, self._pattern = {}, None
        if len(self._forms) > FEW:
            for form in self._forms:
                self._begun.setdefault(form[:BEGINNING], []).append(form)
            self._pattern = re.compile(f"(?=({_any_of(set(self._begun))}))")
        self._fresh = True


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return f"a {type(value).__name__}"


def _spans(text: str, form: str) -> Iterator[tuple[int, int]]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def _any_of(words: set[str]) -> str:
    """A pattern that looks at each letter once."""
    if words == {""}:
        return ""
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(word[0], set()).add(word[1:])
    branches = [re.escape(first) + _any_of(rest) for first, rest in sorted(by_first.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    kept, done = list[str](), 0
    for begin, end in spans:
        if begin > done or not kept:
            kept += [text[done:begin], SHOWN]
        done = max(done, end)
    return "".join([*kept, text[done:]])
