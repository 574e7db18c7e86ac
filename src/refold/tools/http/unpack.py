"""Unpacks the body of a response piece by piece: within a limit, and only if it is complete."""

import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from refold.core.outcomes import Fault
from refold.errors import ToolFailed

PIECE = 1 << 20  # bytes that are unpacked at once
MOST_ENCODINGS = 3  # one inside the other
LONGER = 64 * 1024  # bytes that a packed body may be longer than an unpacked one


class CutOff(Exception):
    """The body ended before its encoding did, because the connection broke or the server failed."""


class Unpacker(Protocol):
    def pieces(self, data: bytes) -> Iterator[bytes]: ...

    def end(self) -> None:
        """Raises CutOff."""
        ...


class _Zlib:
    """`gzip`, of which several may follow each other, and `deflate`, which some servers send without its header."""

    def __init__(self, gzip: bool) -> None:
        self._gzip, self._begun, self._bits = gzip, False, zlib.MAX_WBITS | (16 if gzip else 0)
        self._inner = zlib.decompressobj(self._bits)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inner.eof:
                if not self._gzip or not data.strip(b"\0"):
                    return  # bytes behind the end mean nothing, such as the padding of some servers
                self._inner = zlib.decompressobj(self._bits)
            yield self._piece(data)
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail

    def _piece(self, data: bytes) -> bytes:
        begun, self._begun = self._begun, True
        try:
            return self._inner.decompress(data, PIECE)
        except zlib.error:
            if begun or self._gzip:
                raise
            self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._inner.decompress(data, PIECE)

    def end(self) -> None:
        if self._begun and not self._inner.eof:
            raise CutOff


class _Brotli:
    """Unpacks `br`, if the package `brotli` is installed."""

    def __init__(self, brotli: Any) -> None:
        self._inner, self._begun, self.error = brotli.Decompressor(), False, brotli.error

    def pieces(self, data: bytes) -> Iterator[bytes]:
        self._begun = self._begun or bool(data)
        piece = self._inner.process(data, output_buffer_limit=PIECE // 2) if data else b""
        while piece:
            yield piece
            piece = self._inner.process(b"", output_buffer_limit=PIECE // 2)

    def end(self) -> None:
        if self._begun and not self._inner.is_finished():
            raise CutOff


def _brotli() -> Unpacker:
    import importlib

    return _Brotli(importlib.import_module("brotli"))


_KNOWN: dict[str, Callable[[], Unpacker]] = {
    "gzip": lambda: _Zlib(gzip=True),
    "x-gzip": lambda: _Zlib(gzip=True),
    "deflate": lambda: _Zlib(gzip=False),
    "br": _brotli,
}


class BodyReader:
    """Collects and unpacks a body. Raises ToolFailed if it is larger than allowed."""

    def __init__(self, encodings: str, most: int, what: str) -> None:
        self._most, self._what = most, what
        named = [name for each in encodings.split(",") if (name := each.strip().lower()) and name != "identity"]
        if len(named) > MOST_ENCODINGS:
            raise ToolFailed(Fault("parse", f"{what} answered with {len(named)} encodings, one inside the other"))
        self._unpackers = [self._unpacker(name) for name in reversed(named)]
        self._sizes = [0] * (len(named) + 1)
        self._kept = bytearray()

    def take(self, data: bytes) -> None:
        try:
            self._pass_on(data, 0)
        except (ToolFailed, CutOff):
            raise
        except Exception as error:  # each library has its own class for broken data
            raise ToolFailed(Fault("parse", f"the body of {self._what} cannot be unpacked: {error}")) from None

    def whole(self) -> bytes:
        """Raises CutOff if an encoding has not ended."""
        for unpacker in self._unpackers:
            unpacker.end()
        return bytes(self._kept)

    def _unpacker(self, name: str) -> Unpacker:
        try:
            return _KNOWN[name]()
        except (KeyError, ImportError):
            why = f"{self._what} answered in the encoding {name[:40]!r}, which cannot be unpacked here"
            raise ToolFailed(
                Fault("parse", f"{why}; send the header `accept-encoding: gzip`", retryable=False)
            ) from None

    def _pass_on(self, data: bytes, stage: int) -> None:
        self._sizes[stage] += len(data)
        last = stage == len(self._unpackers)
        if self._sizes[stage] > self._most + (0 if last else LONGER):
            raise ToolFailed(
                Fault("too_large", f"the body of {self._what} has more than {self._most} bytes", retryable=False)
            )
        if last:
            self._kept += data
            return
        for piece in self._unpackers[stage].pieces(data):
            if piece:
                self._pass_on(piece, stage + 1)
