"""The output of processes: what they print is read from pipes and passed on as lines, up to a limit."""

import asyncio
import os

from refold.core.faults import LEFT_OUT
from refold.ports import LeftOut, Piece, Say

LINE = 16 * 1024  # bytes of a line before it is cut
MOST = 1024 * 1024  # bytes of one command that are passed on
TAIL = 4096  # bytes that are remembered, to report what a process printed before it died
CHUNK = 1 << 16
CHUNKS = 32  # more than a pipe can hold


class OutputLines:
    """One stream of one process, cut into lines, for one command after the other."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._tail = b""
        self._is_tail_cut = False
        self._say: Say | None = None  # None: no command is running, so nothing is passed on
        self._unfinished = b""
        self._passed = self._dropped = 0

    @property
    def tail(self) -> bytes:
        """The last bytes, with a mark where they were cut."""
        return LEFT_OUT.encode() + self._tail if self._is_tail_cut else self._tail

    def begin(self, say: Say | None) -> None:
        self._say, self._unfinished, self._passed, self._dropped = say, b"", 0, 0
        self._tail, self._is_tail_cut = b"", False

    def feed(self, data: bytes) -> None:
        tail = self._tail + data
        self._tail, self._is_tail_cut = tail[-TAIL:], self._is_tail_cut or len(tail) > TAIL
        if self._say is None:
            return
        if self._dropped:
            self._dropped += len(data)
            return
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._pass_on(line)
        while len(self._unfinished) > LINE:
            end = _end_of_character(self._unfinished, LINE)
            line, self._unfinished = self._unfinished[:end], self._unfinished[end:]
            self._pass_on(line, is_piece=True)

    def end(self) -> None:
        """The command has ended: text without an end of line is passed on as a line too."""
        if self._unfinished:
            self._pass_on(self._unfinished)
        if self._dropped and self._say is not None:
            self._say(self.stream, LeftOut(f"(about {self._dropped} bytes more are left out)"))
        self._say, self._unfinished = None, b""

    def _pass_on(self, line: bytes, is_piece: bool = False) -> None:
        assert self._say is not None
        if self._dropped or self._passed + len(line) > MOST:
            self._dropped += len(line) + 1
            return
        self._passed += len(line) + 1
        text = line.decode(errors="replace")
        self._say(self.stream, Piece(text) if is_piece else text)


def _end_of_character(data: bytes, at: int) -> int:
    """The last position up to `at` that is not within a character."""
    return next((end for end in range(at, at - 4, -1) if data[end] & 0xC0 != 0x80), at)


class OutputPipe:
    """A pipe that a process prints to. Of more than `keep` bytes, one half is kept from the beginning and one from the
    end, and the others are counted."""

    def __init__(self, stream: str, keep: int = 0) -> None:
        self.lines = OutputLines(stream)
        self._first, self._last = keep - keep // 2, keep // 2
        self._beginning, self._rest = bytearray(), bytearray()
        self._dropped = 0  # bytes between the two
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._loop = asyncio.get_running_loop()
        self._listening = False

    def listen(self) -> None:
        """From now on, read whenever the process prints."""
        self._loop.add_reader(self._ours, self._read)
        self._listening = True

    def drain(self) -> None:
        """Read what is in the pipe; with that the output of the command ends."""
        for _ in range(CHUNKS):
            if not self._read():
                break
        self.lines.end()

    def close(self) -> None:
        if self._ours >= 0:
            if self._listening:
                self._loop.remove_reader(self._ours)
            os.close(self._ours)
            self._ours = -1

    def _read(self) -> bool:
        """Return whether there was something to read."""
        try:
            data = os.read(self._ours, CHUNK) if self._ours >= 0 else b""
        except BlockingIOError:
            return False
        if not data:
            if self._listening:
                self._loop.remove_reader(self._ours)
                self._listening = False
            return False
        self._keep(data)
        self.lines.feed(data)
        return True

    def _keep(self, data: bytes) -> None:
        room = self._first - len(self._beginning)
        self._beginning += data[:room]
        self._rest += data[room:]
        if len(self._rest) > 2 * self._last + CHUNK:  # not at every read, because it moves what stays
            self._drop()

    def _drop(self) -> None:
        too_many = len(self._rest) - self._last
        self._dropped += too_many
        del self._rest[:too_many]

    def kept(self) -> tuple[bytes, bytes, int]:
        """Return what was printed: the beginning, the end, and how many bytes between them are left out. If all was
        kept, it is the beginning."""
        if not self._dropped and len(self._rest) <= self._last:
            return bytes(self._beginning + self._rest), b"", 0
        self._drop()
        return bytes(self._beginning), bytes(self._rest), self._dropped
