"""Redaction: the worker removes the secrets of this process from lines, faults and results before they are stored."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Ending, LeftOut, Piece, Program, ProgramEnd, Programs, Say, StreamRedaction
from refold.secrets.hidden import SHOWN

if TYPE_CHECKING:
    from refold.secrets.redactor import Redactor

WAIT_FROM = 4  # a line that ends with so many first characters of a secret is held back until the next line


class SecretRedaction:
    """Implements the port `Redaction`. It costs nothing before the first secret: there is no redactor until then."""

    def __init__(self, redactor: "Redactor | None" = None) -> None:
        self.redactor = redactor

    def start(self) -> "Redactor":
        """The redactor, which must learn every secret; it is created with the first one."""
        if self.redactor is None:
            from refold.secrets.redactor import Redactor

            self.redactor = Redactor()
        return self.redactor

    def text(self, text: str) -> str:
        return text if self.redactor is None else self.redactor.redact(text)

    def fault(self, fault: Fault) -> Fault:
        if self.redactor is None or not self.redactor.knows:
            return fault
        fields = {name: self.redactor.redacted(value) for name, value in structs.asdict(fault).items()}
        return structs.replace(fault, **fields)

    def value(self, value: Any) -> Any:
        return value if self.where(value) is None or self.redactor is None else self.redactor.redacted(value)

    def stream(self) -> StreamRedaction:
        return _Stream(self)

    def check_result(self, value: Any) -> None:
        path = self.where(value)
        if path is not None:
            why = f"the result contains a secret, at {path}: leave it out, or, in refold/v1, declare the output secret"
            raise ToolFailed(Fault("secret", why, retryable=False, data={"path": path}))

    def where(self, value: Any) -> str | None:
        return None if self.redactor is None else self.redactor.where(value)

    @property
    def reach(self) -> int:
        """How many characters after a position must be known to find every secret that crosses the position."""
        return 0 if self.redactor is None else self.redactor.reach

    def place_to_cut(self, data: bytes, at: int) -> int:
        """The last position up to `at` that is not within a secret."""
        if self.redactor is None or len(data) <= at:
            return min(at, len(data))
        begin = max(at - self.reach, 0)
        spans = self.redactor.spans(data[begin : at + self.reach].decode("latin-1"))
        for first, end in sorted(spans, reverse=True):
            if begin + first < at < begin + end:
                at = begin + first
        return at

    def place_to_begin(self, data: bytes, at: int) -> int:
        """Return the first position from `at` on that is not within a secret."""
        if self.redactor is None:
            return at
        begin = max(at - self.reach, 0)
        spans = self.redactor.spans(data[begin : at + self.reach].decode("latin-1"))
        for first, end in sorted(spans):
            if begin + first < at < begin + end:
                at = begin + end
        return at


class _Stream:
    """Searches each text together with those before it, as far back as a secret can reach."""

    def __init__(self, redaction: SecretRedaction) -> None:
        self._redaction = redaction
        self._behind = ""  # the end of the texts before, unredacted

    def __call__(self, texts: Sequence[str], ending: Ending) -> Sequence[str]:
        redactor = self._redaction.redactor
        if redactor is None or not redactor.knows:
            return texts
        shown, begin = list[str](), 0
        for at, text in enumerate(texts):
            if isinstance(text, LeftOut):
                shown += self._shown(redactor, texts[begin:at], Ending.CUT)
                shown.append(text)
                self._behind, begin = "", at + 1
        return shown + self._shown(redactor, texts[begin:], ending)

    def _shown(self, redactor: "Redactor", texts: Sequence[str], ending: Ending) -> list[str]:
        parts, places, at = [self._behind], list[tuple[int, int]](), len(self._behind)
        for text in texts:
            places.append((at, at + len(text)))
            parts += [text] if isinstance(text, Piece) else [text, "\n"]
            at += len(text) + (not isinstance(text, Piece))
        whole, count = "".join(parts), len(texts)
        if ending is Ending.MORE:
            spans = redactor.spans(whole)
            begun = redactor.begun(whole, WAIT_FROM)
            count = next((i for i, (_, end) in enumerate(places) if end > begun), count)
        else:
            whole = whole.removesuffix("\n")
            spans = [*redactor.spans(whole), *redactor.cut_off(whole, ending is Ending.CUT)]
        end = places[count][0] if count < len(places) else len(whole)
        self._behind = whole[max(end - redactor.reach, 0) : end]
        return _each_without(texts[:count], places, _merged(spans))


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged = list[tuple[int, int]]()
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _each_without(
    texts: Sequence[str], places: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]
) -> list[str]:
    """Put *** in the place of these spans; a secret that spans several texts is *** in each of them."""
    shown, first = list[str](), 0
    for text, (begin, end) in zip(texts, places, strict=False):
        while first < len(spans) and spans[first][1] <= begin:
            first += 1
        at, kept, done = first, list[str](), begin
        while at < len(spans) and spans[at][0] < end:
            kept += [text[done - begin : max(spans[at][0] - begin, 0)], SHOWN]
            done = min(spans[at][1], end)
            at += 1
        shown.append("".join([*kept, text[done - begin :]]) if kept else text)
    return shown


class RedactedPrograms:
    """Programs whose output is never cut within a secret, and whose arguments may contain none.

    Every user of a machine can read the arguments of a program.
    """

    def __init__(self, programs: Programs, redaction: SecretRedaction) -> None:
        self._programs, self._redaction = programs, redaction

    async def run(self, program: Program, say: Say | None = None) -> ProgramEnd:
        path = self._redaction.where([*program.argv, program.cwd])
        if path is not None:
            why = f"an argument of the program contains a secret ({path}), and other users can read arguments"
            raise ToolFailed(Fault("secret", f"{why}; pass it in `env` or `stdin`", retryable=False))
        reach = self._redaction.reach
        if not reach:
            return await self._programs.run(program, say)
        ended = await self._programs.run(structs.replace(program, keep=program.keep + 2 * reach), say)
        out = self._cut(ended.stdout, ended.stdout_end, ended.stdout_left_out, program.keep)
        err = self._cut(ended.stderr, ended.stderr_end, ended.stderr_left_out, program.keep)
        return ProgramEnd(
            code=ended.code,
            stdout=out[0],
            stderr=err[0],
            stdout_end=out[1],
            stderr_end=err[1],
            stdout_left_out=out[2],
            stderr_left_out=err[2],
        )

    def _cut(self, beginning: bytes, end: bytes, left_out: int, keep: int) -> tuple[bytes, bytes, int]:
        """Return as much of a stream as is to be kept; no secret is cut, neither before the gap nor behind it."""
        if not left_out and len(beginning) <= keep:
            return beginning, b"", 0
        behind = end if left_out else beginning
        first = self._redaction.place_to_cut(beginning, keep - keep // 2)
        last = self._redaction.place_to_begin(behind, len(behind) - keep // 2)
        between = left_out + len(beginning) - first + last if left_out else last - first
        return beginning[:first], behind[last:], between

    async def close(self) -> None:
        await self._programs.close()
