"""What the worker asks before it tells anything: lines, faults and results without the secrets of this process."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.ports import Ended, Ending, LeftOut, Piece, Program, Programs, Say, StreamRedaction
from refold.secrets.hidden import SHOWN

if TYPE_CHECKING:
    from refold.secrets.redactor import Redactor

WAIT_FROM = 4  # characters at the end of a stream that are the beginning of a secret: their line waits for the next


class Discreet:
    """Costs nothing before the first secret: there is no redactor until then."""

    def __init__(self, redactor: "Redactor | None" = None) -> None:
        self.redactor = redactor

    def text(self, text: str) -> str:
        return text if self.redactor is None else self.redactor.redact(text)

    def fault(self, fault: Fault) -> Fault:
        if self.redactor is None or not self.redactor.knows:
            return fault
        told = {name: self.redactor.redacted(each) for name, each in structs.asdict(fault).items()}
        return structs.replace(fault, **told)

    def value(self, value: Any) -> Any:
        return value if self.where(value) is None or self.redactor is None else self.redactor.redacted(value)

    def stream(self) -> StreamRedaction:
        return _Stream(self)

    def check_result(self, value: Any) -> None:
        path = self.where(value)
        if path is not None:
            why = f"the result holds a secret, at {path}: leave it out, or declare the output secret"
            raise ToolFailed(Fault("secret", why, retryable=False, data={"path": path}))

    def where(self, value: Any) -> str | None:
        return None if self.redactor is None else self.redactor.where(value)

    @property
    def reach(self) -> int:
        """How many characters behind a place must be known to see every secret that stands across it."""
        return 0 if self.redactor is None else self.redactor.reach

    def place_to_cut(self, data: bytes, at: int) -> int:
        """The last place up to `at` that is not within a secret."""
        if self.redactor is None or len(data) <= at:
            return min(at, len(data))
        begin = max(at - self.reach, 0)
        spans = self.redactor.spans(data[begin : at + self.reach].decode("latin-1"))
        for first, end in sorted(spans, reverse=True):
            if begin + first < at < begin + end:
                at = begin + first
        return at


class _Stream:
    """Looks at each text together with those before it, as far back as a secret can reach."""

    def __init__(self, discretion: Discreet) -> None:
        self._discretion = discretion
        self._behind = ""  # the end of what was shown, as it was

    def __call__(self, texts: Sequence[str], ending: Ending) -> Sequence[str]:
        redactor = self._discretion.redactor
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
    found = list[tuple[int, int]]()
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _each_without(
    texts: Sequence[str], places: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]
) -> list[str]:
    """A secret that takes up several texts is *** in each of them."""
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


class DiscreetPrograms:
    """Programs whose arguments hold no secret, for every user of a machine can read those, and whose output is never
    cut within one."""

    def __init__(self, programs: Programs, discretion: Discreet) -> None:
        self._programs, self._discretion = programs, discretion

    async def run(self, program: Program, say: Say | None = None) -> Ended:
        path = self._discretion.where([*program.argv, program.cwd])
        if path is not None:
            why = f"an argument of the program holds a secret ({path}), and others can read those; give it in `env`"
            raise ToolFailed(Fault("secret", f"{why} or `stdin`", retryable=False))
        more = self._discretion.reach
        if not more:
            return await self._programs.run(program, say)
        ended = await self._programs.run(structs.replace(program, keep=program.keep + more), say)
        out = self._discretion.place_to_cut(ended.stdout, program.keep)
        err = self._discretion.place_to_cut(ended.stderr, program.keep)
        left_out = ended.left_out + len(ended.stdout) - out + len(ended.stderr) - err
        return structs.replace(ended, stdout=ended.stdout[:out], stderr=ended.stderr[:err], left_out=left_out)

    async def close(self) -> None:
        await self._programs.close()
