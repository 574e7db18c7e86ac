"""The redactor knows the secrets that were read in this process, and finds them in texts that are about to be written.

The cost of a text grows with its length and with the number of known spellings. Up to about a thousand spellings it is
fastest to search for each of them in turn; above that, a pattern of their beginnings shows where to search.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from refold.core.faults import LEFT_OUT
from refold.secrets.hidden import SHOWN, leaves
from refold.secrets.spellings import BETWEEN, END_OF_LINE, SHORTEST, Spellings, fold, is_word, pack, spellings

MOST = 1000  # values; the one that was read longest ago is forgotten first
FEW = 1000  # spellings
DEPTH = 200
BEGINNING = 4
LEAST_AT_CUT = 2  # characters of a secret that are recognized where a text is known to have been cut
LONGEST_REACH = 1 << 20

_PUBLIC = """
account audience bucket cluster database db db_host db_name db_port db_user dbname driver email endpoint expires_at
expires_in expires_on expiry grant_type host hostname kind name namespace not_before path port project project_id
protocol provider realm region role schema scheme scope scopes sslmode token_type token_uri type url user user_name
username version warehouse zone
"""
PUBLIC = frozenset(_PUBLIC.split())
"""Fields of a secret that are not secret themselves: a result may contain the host that it came from."""

_PUBLIC_HEADERS = """
accept-ranges access-control-allow-origin age allow cache-control connection content-encoding content-language
content-length content-type date expires keep-alive last-modified pragma server status strict-transport-security
transfer-encoding vary via x-content-type-options x-frame-options x-powered-by
"""
PUBLIC_IN_RESULTS = PUBLIC | frozenset(_PUBLIC_HEADERS.split())
"""Of a secret result, also the headers that every answer of a server has are public: other results have them too."""

Text = TypeVar("Text", str, bytes)
Span = tuple[int, int]


class Redactor:
    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._values: dict[str, Spellings] = {}  # the newest last
        self._results: dict[str, Spellings] = {}  # the same for secret results, which never push out a value
        self._exact: Needles[str] = Needles(())
        self._folded: Needles[str] = Needles(())
        self._packed: Needles[bytes] = Needles(())
        self._reach = 0
        self._fresh = True  # whether the four attributes above match the values

    def __repr__(self) -> str:
        return f"Redactor({len(self._values) + len(self._results)} values)"

    @property
    def knows(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._values or self._results)

    @property
    def reach(self) -> int:
        """How many characters a secret can take up when it is wrapped or grouped; two of three may be separators."""
        self._refresh()
        return self._reach

    def remember(self, value: Any) -> None:
        """From now on redact each text in the value, except short ones and those in public fields."""
        self._remember(self._values, leaves(value, PUBLIC))

    def remember_result(self, value: Any) -> None:
        """The same for a result that is declared secret, except for words and headers that many results have."""
        texts = leaves(value, PUBLIC_IN_RESULTS)
        for text in list(texts):
            texts += leaves(_parsed(text), PUBLIC_IN_RESULTS)
            if "\n" in text.strip():
                texts += map(str.strip, text.split("\n"))
        self._remember(self._results, (text for text in texts if not is_word(text.strip())))

    def _remember(self, values: dict[str, Spellings], texts: Iterable[str]) -> None:
        for text in list(dict.fromkeys(texts))[-self.most :]:
            known = values.pop(text, None)
            if known is None:
                known = spellings(text)
                self._fresh = False
            if known.exact or known.folded or known.packed:
                values[text] = known
        while len(values) > self.most:
            del values[next(iter(values))]
            self._fresh = False

    def redact(self, text: str, *, cut: bool = False) -> str:
        """The text with *** in the place of every secret, also of one that is cut off at its beginning or end.

        `cut`: it is known that the text was cut at its end.
        """
        if not self.knows or len(text) < (LEAST_AT_CUT if cut else SHORTEST):
            return text
        spans = [*self.spans(text), *self.cut_off(text, cut)]
        return without(text, sorted(spans)) if spans else text

    def redacted(self, value: Any, depth: int = 0) -> Any:
        """The value with *** in the place of every secret, in texts and names; what is nested too deep is ***."""
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
        """The path of the first secret in a value, or None; the path itself contains no secret.

        A value that is not JSON will be refused; the part that the error message may quote is searched.
        """
        if not self.knows:
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
        self._refresh()
        if self._exact.within(text) or self._folded.within(fold(text)):
            return True
        return any(self._packed.within(each.data) for each in _packings(text))

    def spans(self, text: str) -> list[Span]:
        """Where whole secrets are in the text, in any order; the spans may overlap."""
        self._refresh()
        spans = [*self._exact.spans(text), *self._folded.spans(fold(text))]
        for packing in _packings(text):
            spans += packing.places(list(self._packed.spans(packing.data)))
        return spans

    def cut_off(self, text: str, cut: bool = False) -> Iterator[Span]:
        """The remains of secrets where the text itself was cut, because lines and tails have a maximum length."""
        self._refresh()
        ends = [*self._at_start(text, 0, SHORTEST), *self._at_end(text, len(text), LEAST_AT_CUT if cut else SHORTEST)]
        yield from (span for span in ends if not _FRAME.fullmatch(text, *span))
        at = text.find(LEFT_OUT)
        while at >= 0:  # texts that Refold has cut have this mark
            yield from self._at_end(text, at, LEAST_AT_CUT)
            yield from self._at_start(text, at + len(LEFT_OUT), LEAST_AT_CUT)
            at = text.find(LEFT_OUT, at + len(LEFT_OUT))

    def begun(self, text: str, least: int) -> int:
        """Where a secret may begin that continues after the end of the text; the length of the text if none does."""
        self._refresh()
        return min((begin for begin, _ in self._at_end(text, len(text), least)), default=len(text))

    def _at_start(self, text: str, begin: int, least: int) -> Iterator[Span]:
        piece = text[begin : begin + self._reach]
        for needles, shown in ((self._exact, piece), (self._folded, fold(piece))):
            size = needles.ended_at_start(shown, least)
            if size:
                yield begin, begin + size
        for packing in _packings(piece):
            size = self._packed.ended_at_start(packing.data, least)
            for _, end in packing.places([(0, size)] if size else []):
                yield begin, begin + end

    def _at_end(self, text: str, end: int, least: int) -> Iterator[Span]:
        begin = max(end - self._reach, 0)
        piece = text[begin:end]
        for needles, shown in ((self._exact, piece), (self._folded, fold(piece))):
            size = needles.begun_at_end(shown, least)
            if size:
                yield end - size, end
        for packing in _packings(piece):
            size, whole = self._packed.begun_at_end(packing.data, least), len(packing.data)
            for at, _ in packing.places([(whole - size, whole)] if size else []):
                yield begin + at, end

    def _refresh(self) -> None:
        if self._fresh:
            return
        known = [*self._values.values(), *self._results.values()]
        self._exact = Needles({form for each in known for form in each.exact})
        self._folded = Needles({form for each in known for form in each.folded})
        self._packed = Needles({form for each in known for form in each.packed})
        longest = max(self._exact.longest, self._folded.longest, 3 * self._packed.longest)
        self._reach = min(longest + 256, LONGEST_REACH) if known else 0
        self._fresh = True


class Needles(Generic[Text]):
    """Texts to search for, either all `str` or all `bytes`."""

    def __init__(self, forms: Iterable[Text]) -> None:
        self.forms: tuple[Text, ...] = tuple(forms)
        self.longest = max(map(len, self.forms), default=0)
        self._begun: dict[Text, list[Text]] = {}
        self._pattern: re.Pattern[Text] | None = None
        if self.forms:
            self._joined: Text = self.forms[0][:0].join(_ended(form) for form in self.forms)
        if len(self.forms) > FEW:
            for form in self.forms:
                self._begun.setdefault(form[:BEGINNING], []).append(form)
            self._pattern = _pattern_of(set(self._begun))

    def within(self, text: Text) -> list[Text]:
        """Those that are in the text."""
        if self._pattern is None:
            return [form for form in self.forms if form in text]
        beginnings = {match.group(1) for match in self._pattern.finditer(text)}
        return [form for beginning in beginnings for form in self._begun[beginning] if form in text]

    def spans(self, text: Text) -> Iterator[Span]:
        for form in self.within(text):
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + 1)

    def begun_at_end(self, text: Text, least: int) -> int:
        """How many characters at the end of the text, not fewer than `least`, are the beginning of a needle."""
        last = text[len(text) - least :] if len(text) >= least else text[:0]
        if not last or not self.forms or last not in self._joined:
            return 0
        longest = 0
        for form in self.forms:
            at = form.rfind(last, 0, len(form) - 1)
            while at >= 0 and at + least > longest:
                if text.endswith(form[: at + least]):
                    longest = at + least
                at = form.rfind(last, 0, at + least - 1)
        return longest

    def ended_at_start(self, text: Text, least: int) -> int:
        """How many characters at the start of the text, not fewer than `least`, are the end of a needle."""
        first = text[:least] if len(text) >= least else text[:0]
        if not first or not self.forms or first not in self._joined:
            return 0
        longest = 0
        for form in self.forms:
            at = form.find(first, 1)
            while at >= 0 and len(form) - at > longest:
                if text.startswith(form[at:]):
                    longest = len(form) - at
                at = form.find(first, at + 1)
        return longest


class _Packing:
    """A text without what may separate the characters of a code, and the way back to the positions in the text."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.data = raw, pack(raw)

    def places(self, spans: list[Span]) -> list[Span]:
        """The same spans, as character positions in the text."""
        if not spans:
            return []
        starts, kept, total = list[int](), list[int](), 0
        for run in _RUN.finditer(self.raw):
            starts.append(run.start())
            kept.append(total)
            total += run.end() - run.start()

        def raw_place(at: int) -> int:
            i = bisect_right(kept, at) - 1
            return starts[i] + at - kept[i]

        found = [(raw_place(begin), raw_place(end - 1) + 1) for begin, end in spans]
        if self.raw.isascii():
            return found
        in_characters, characters, done = dict[int, int](), 0, 0
        for at in sorted({place for span in found for place in span}):
            characters += len(self.raw[done:at].decode("utf-8", "replace"))
            in_characters[at], done = characters, at
        return [(in_characters[begin], in_characters[end]) for begin, end in found]


_FRAME = re.compile(r"\s*-----[^-]*-----\s*")  # the lines around a key, which are not secret
_RUN = re.compile(b"[^" + re.escape(BETWEEN) + b"]+")


def _packings(text: str) -> Iterator[_Packing]:
    r"""The packed text, and a second one in which each line end that is written with two characters (\n) is removed."""
    raw = text.encode("utf-8", "replace")
    yield _Packing(raw)
    if b"\\" in raw:
        spelt = END_OF_LINE.sub(b"\0\0", raw)
        if spelt != raw:
            yield _Packing(spelt)


def _parsed(text: str) -> Any:
    """The value of a JSON text; None if it is not JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return f"a {type(value).__name__}"


def _ended(form: Text) -> Text:
    """The form followed by a mark, so that no match spans two forms."""
    return form + "\0" if isinstance(form, str) else form + b"\0"


def _pattern_of(words: "set[Text]") -> "re.Pattern[Text]":
    """A pattern that finds each position at which one of the words begins."""
    example = next(iter(words))
    if isinstance(example, str):
        return re.compile(f"(?=({_any_of(set(words))}))")
    shown = _any_of({word.decode("latin-1") for word in words})
    return re.compile(f"(?=({shown}))".encode("latin-1"))


def _any_of(words: set[str]) -> str:
    """A pattern that matches any of the words and looks at each letter once."""
    if words == {""}:
        return ""
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(word[0], set()).add(word[1:])
    branches = [re.escape(first) + _any_of(endings) for first, endings in sorted(by_first.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def without(text: str, spans: list[Span]) -> str:
    """The text with *** in the place of these spans, which are sorted."""
    kept, done = list[str](), 0
    for begin, end in spans:
        if begin > done or not kept:
            kept += [text[done:begin], SHOWN]
        done = max(done, end)
    return "".join([*kept, text[done:]])
