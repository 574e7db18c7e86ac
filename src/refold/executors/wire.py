"""What a pool and its processes say to each other: JSON messages, each after its length."""

from typing import Any

import msgspec
from msgspec import Struct

from refold.core.outcomes import Fault

HEAD = 4  # bytes of a length


class Hello(Struct, frozen=True, tag="hello"):
    """The first word: where modules are found, which to import before the first order, and what an order may use."""

    path: list[str]
    preload: tuple[str, ...] = ()
    cpu: int = 0  # seconds of a processor; 0: any


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


def frame(message: Struct) -> bytes:
    data = _encode(message)
    return len(data).to_bytes(HEAD, "big") + data


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def cut(self, data: bytes) -> list[bytes]:
        self._kept += data
        found = []
        while len(self._kept) >= HEAD:
            end = HEAD + int.from_bytes(self._kept[:HEAD], "big")
            if len(self._kept) < end:
                break
            found.append(bytes(self._kept[HEAD:end]))
            del self._kept[:end]
        return found
