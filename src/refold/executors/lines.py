"""Bytes that a step prints, as lines; however much it prints, what is passed on is bounded."""

from refold.ports import Say

LINE = 16 * 1024  # bytes of a line before it is cut
MOST = 1024 * 1024  # bytes of one command that are passed on
TAIL = 4096  # bytes that are remembered, to tell what a process said before it died


class Lines:
    """One stream of one process, one command after the other."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.tail = b""
        self._say: Say | None = None  # None: nobody listens
        self._open = b""
        self._passed = self._dropped = 0

    def begin(self, say: Say | None) -> None:
        self._say, self._open, self.tail, self._passed, self._dropped = say, b"", b"", 0, 0

    def feed(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL:]
        if self._say is None:
            return
        if self._dropped:
            self._dropped += len(data)
            return
        *whole, self._open = (self._open + data).split(b"\n")
        for line in whole:
            self._pass_on(line)
        while len(self._open) > LINE:
            line, self._open = self._open[:LINE], self._open[LINE:]
            self._pass_on(line)

    def end(self) -> None:
        """The command is over: what has no end of line yet is a line too."""
        if self._open:
            self._pass_on(self._open)
        if self._dropped and self._say is not None:
            self._say(self.stream, f"(about {self._dropped} bytes more are left out)")
        self._say, self._open = None, b""

    def _pass_on(self, line: bytes) -> None:
        assert self._say is not None
        if self._dropped or self._passed + len(line) > MOST:
            self._dropped += len(line) + 1
            return
        self._passed += len(line) + 1
        self._say(self.stream, line.decode(errors="replace"))
