"""What a pool and its processes say to each other: JSON messages, each after a seal and its length.

The seal is chosen by the pool for each process. The body of a step shares its process with one end of the line, so what
stands there without the seal was written by a body, and is no answer.
"""

from typing import Any

import msgspec
from msgspec import Struct

from refold.core.outcomes import Fault

HEAD = 4  # bytes of a length
SEAL = 16  # bytes


class Garbled(Exception):
    """Bytes that nobody sealed."""


class Hello(Struct, frozen=True, tag="hello"):
    """The first word: where modules are found, which to import before the first order, and what an order may use."""

    path: list[str]
    preload: tuple[str, ...] = ()
    cpu: int = 0  # seconds of a processor; 0: any
    seal: bytes = b""  # that all answers begin with


class Order(Struct, frozen=True, tag="order"):
    number: int
    call: str  # module:function
    input: Any = None


class Bye(Struct, frozen=True, tag="bye"):
    """The last word: there will be no more orders."""


class Ready(Struct, frozen=True, tag="ready"):
    """All imports are done."""


class Returned(Struct, frozen=True, tag="returned", omit_defaults=True):
    number: int
    result: Any = None
    left: bool = False  # whether something that the body has started still runs


class Raised(Struct, frozen=True, tag="raised", omit_defaults=True):
    number: int
    fault: Fault
    left: bool = False


Answer = Returned | Raised

_encode = msgspec.json.Encoder().encode
to_child: msgspec.json.Decoder[Hello | Order | Bye] = msgspec.json.Decoder(Hello | Order | Bye)
from_child: msgspec.json.Decoder[Ready | Answer] = msgspec.json.Decoder(Ready | Answer)


def frame(message: Struct, seal: bytes = b"") -> bytes:
    data = _encode(message)
    return seal + len(data).to_bytes(HEAD, "big") + data


class Frames:
    """Cuts a stream of bytes into messages, each of which must begin with the seal."""

    def __init__(self, seal: bytes = b"") -> None:
        self._seal = seal
        self._kept = bytearray()

    def cut(self, data: bytes) -> list[bytes]:
        """Raises Garbled, as soon as one byte of a seal is wrong: the rest of a message may never come."""
        self._kept += data
        found: list[bytes] = []
        head = len(self._seal) + HEAD
        while True:
            seal = self._kept[: len(self._seal)]
            if not self._seal.startswith(seal):
                raise Garbled
            end = head + int.from_bytes(self._kept[len(self._seal) : head], "big")
            if len(self._kept) < max(head, end):
                return found
            found.append(bytes(self._kept[head:end]))
            del self._kept[:end]
