"""The messages between a pool and its interpreter processes: JSON, each preceded by a seal and its length.

The pool chooses a seal for each process. The body of a step shares its process with one end of the socket, so bytes
without the seal were written by a body and are not an answer.
"""

from typing import Any

import msgspec
from msgspec import Struct

from refold.core.outcomes import Fault

HEAD = 4  # bytes of a length
SEAL = 16  # bytes


class Garbled(Exception):
    """The bytes do not begin with the seal."""


class Hello(Struct, frozen=True, tag="hello"):
    """The first message: where modules are found, which to import before the first order, and its limits."""

    path: list[str]
    preload: tuple[str, ...] = ()
    cpu: int = 0  # seconds of processor time; 0: no limit
    seal: bytes = b""  # every answer begins with it


class CallOrder(Struct, frozen=True, tag="order"):
    number: int
    call: str  # module:function
    input: Any = None


class Bye(Struct, frozen=True, tag="bye"):
    """The last message: there will be no more orders."""


class Ready(Struct, frozen=True, tag="ready"):
    """All imports are done."""


class Returned(Struct, frozen=True, tag="returned", omit_defaults=True):
    number: int
    result: Any = None
    left: bool = False  # whether processes that the body started are still running


class Raised(Struct, frozen=True, tag="raised", omit_defaults=True):
    number: int
    fault: Fault
    left: bool = False


Answer = Returned | Raised

_encode = msgspec.json.Encoder().encode
to_child: msgspec.json.Decoder[Hello | CallOrder | Bye] = msgspec.json.Decoder(Hello | CallOrder | Bye)
from_child: msgspec.json.Decoder[Ready | Answer] = msgspec.json.Decoder(Ready | Answer)


def frame(message: Struct, seal: bytes = b"") -> bytes:
    data = _encode(message)
    return seal + len(data).to_bytes(HEAD, "big") + data


class Frames:
    """Cuts a stream of bytes into messages, each of which must begin with the seal."""

    def __init__(self, seal: bytes = b"") -> None:
        self._seal = seal
        self._received = bytearray()

    def cut(self, data: bytes) -> list[bytes]:
        """Raise Garbled as soon as one byte of a seal is wrong: the rest of such a message may never come."""
        self._received += data
        messages: list[bytes] = []
        head = len(self._seal) + HEAD
        while True:
            seal = self._received[: len(self._seal)]
            if not self._seal.startswith(seal):
                raise Garbled
            end = head + int.from_bytes(self._received[len(self._seal) : head], "big")
            if len(self._received) < max(head, end):
                return messages
            messages.append(bytes(self._received[head:end]))
            del self._received[:end]
