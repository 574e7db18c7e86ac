"""Bytes that a step prints, as lines; however much it prints, what is passed on is bounded."""

from refold.core.faults import LEFT_OUT
from refold.ports import LeftOut, Piece, Say

LINE = 16 * 1024  # bytes of a line before it is cut
MOST = 1024 * 1024  # bytes of one command that are passed on
TAIL = 4096  # bytes that are remembered, to tell what a process said before it died


class Lines:
    """One stream of one process, one command after the other."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._tail = b""
        self._is_tail_cut = False
        self._say: Say | None = None  # None: nobody listens
        self._open = b""
        self._passed = self._dropped = 0

    @property
    def tail(self) -> bytes:
        """With a mark where it was cut."""
        return LEFT_OUT.encode() + self._tail if self._is_tail_cut else self._tail

    def begin(self, say: Say | None) -> None:
        self._say, self._open, self._passed, self._dropped = say, b"", 0, 0
        self._tail, self._is_tail_cut = b"", False

    def feed(self, data: bytes) -> None:
        tail = self._tail + data
        self._tail, self._is_tail_cut = tail[-TAIL:], self._is_tail_cut or len(tail) > TAIL
        if self._say is None:
            return
        if self._dropped:
            self._dropped += len(data)
            return
        *whole, self._open = (self._open + data).split(b"\n")
        for line in whole:
            self._pass_on(line)
        while len(self._open) > LINE:
            end = _end_of_character(self._open, LINE)
            line, self._open = self._open[:end], self._open[end:]
            self._pass_on(line, is_piece=True)

    def end(self) -> None:
        """The command is over: what has no end of line yet is a line too."""
        if self._open:
            self._pass_on(self._open)
        if self._dropped and self._say is not None:
            self._say(self.stream, LeftOut(f"(about {self._dropped} bytes more are left out)"))
        self._say, self._open = None, b""

    def _pass_on(self, line: bytes, is_piece: bool = False) -> None:
        assert self._say is not None
        if self._dropped or self._passed + len(line) > MOST:
            self._dropped += len(line) + 1
            return
        self._passed += len(line) + 1
        text = line.decode(errors="replace")
        self._say(self.stream, Piece(text) if is_piece else text)


def _end_of_character(data: bytes, at: int) -> int:
    """The last place up to `at` that is not within a character."""
    return next((end for end in range(at, at - 4, -1) if data[end] & 0xC0 != 0x80), at)
