"""Lists as parameters: each kind has one type on the wire, so that a statement is prepared once."""

from collections.abc import Iterable
from struct import pack
from typing import Any

from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper

INT8, TEXT, BYTEA = 20, 25, 17  # types of elements
NULL = pack(">i", -1)


class Ints(list[Any]):
    """int8[]; an element may be None."""


class Texts(list[Any]):
    """text[]; an element may be None."""


class Blobs(list[Any]):
    """bytea[]."""


def _array(element: int, items: Iterable[bytes], count: int, nulls: bool = False) -> bytes:
    if not count:
        return pack(">iii", 0, 0, element)
    return b"".join((pack(">iiiii", 1, nulls, element, count, 1), *items))


class IntsDumper(Dumper):
    format, oid = Format.BINARY, 1016

    def dump(self, obj: Any) -> Buffer:
        if None in obj:
            return _array(INT8, (NULL if each is None else pack(">iq", 8, each) for each in obj), len(obj), True)
        return _array(INT8, (pack(">iq", 8, each) for each in obj), len(obj))


class TextsDumper(Dumper):
    format, oid = Format.BINARY, 1009

    def dump(self, obj: Any) -> Buffer:
        items: list[bytes] = []
        nulls = False
        for each in obj:
            if each is None:
                nulls = True
                items.append(NULL)
            else:
                data = each.encode()
                items.append(pack(">i", len(data)) + data)
        return _array(TEXT, items, len(items), nulls)


class BlobsDumper(Dumper):
    format, oid = Format.BINARY, 1001

    def dump(self, obj: Any) -> Buffer:
        return _array(BYTEA, (pack(">i", len(each)) + each for each in obj), len(obj))


def register(connection: Connection[Any]) -> None:
    adapters = connection.adapters
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(str, StrBinaryDumper)
    adapters.register_dumper(bytes, BytesBinaryDumper)
    adapters.register_dumper(Ints, IntsDumper)
    adapters.register_dumper(Texts, TextsDumper)
    adapters.register_dumper(Blobs, BlobsDumper)
