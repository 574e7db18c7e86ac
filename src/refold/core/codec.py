"""Encoding and decoding of facts, states, values, commands and letters. A large value is stored as a blob."""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import msgspec

from refold.core.commands import Command, Letter
from refold.core.facts import Fact
from refold.core.outcomes import Blob, Outcome
from refold.core.state import RunState
from refold.errors import Corrupt, InvalidValue, UnknownFact

BLOB_ABOVE = 64 * 1024
SNAPSHOT_FORMAT = 2  # since 2, a snapshot has the digests of sealed results
DEPTH_LIMIT = 200

_SMALL = (bool, float, type(None))
_KNOWN = frozenset({str, int, float, bool, type(None)})
_WORD = 2**63
_DIGITS = 4_300  # digits of a number; Python neither prints nor parses more
_LARGEST = 10**_DIGITS - 1

_encode = msgspec.json.Encoder().encode
_fact: msgspec.json.Decoder[Fact] = msgspec.json.Decoder(Fact)
_outcome: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)
_letter = msgspec.json.Decoder(Letter)
_command = msgspec.json.Decoder(Command)
_state = msgspec.json.Decoder(RunState)
_any = msgspec.json.Decoder()

UPCASTERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Kind of fact of an older release -> the function that converts its data to a kind of today."""


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what they should be; it does not look whether text is UTF-8 before it
makes a string of it."""

encode_fact: Callable[[Fact], bytes] = _encode
encode_letter: Callable[[Letter], bytes] = _encode
encode_command: Callable[[Command], bytes] = _encode


def decode_fact(data: bytes) -> Fact:
    """Decode a fact. A kind that this release does not know raises UnknownFact."""
    try:
        return _fact.decode(data)
    except UNREADABLE as error:
        return _decode_odd(data, error)


def _decode_odd(data: bytes, error: Exception) -> Fact:
    try:
        raw = _any.decode(data)
    except UNREADABLE:
        raise Corrupt(f"a fact is not readable: {error}") from None
    kind = raw.get("type") if isinstance(raw, dict) else None
    if not isinstance(kind, str):
        raise Corrupt("a fact has no kind")
    if kind in UPCASTERS:
        return _upcast(kind, raw)
    if kind in _KINDS:
        raise Corrupt(f"a fact of kind {kind!r} is not readable: {error}")
    raise UnknownFact(f"facts of kind {kind!r} were written by a newer Refold")


def _upcast(kind: str, raw: dict[str, Any]) -> Fact:
    try:
        fact: Fact = msgspec.convert(UPCASTERS[kind](raw), Fact)
    except (msgspec.ValidationError, LookupError) as error:
        raise Corrupt(f"a fact of kind {kind!r} is not readable: {error!r}") from None
    return fact


_KINDS = {info.__struct_config__.tag for info in Fact.__args__}


def decode_letter(data: bytes) -> Letter:
    return _letter.decode(data)


def decode_command(data: bytes) -> Command:
    return _command.decode(data)


def encode_snapshot(state: RunState) -> bytes:
    return bytes([SNAPSHOT_FORMAT]) + _encode(state)


def decode_snapshot(data: bytes) -> RunState | None:
    """Decode a snapshot, or return None if it has another format: a snapshot is a cache, and the log has everything."""
    if not data or data[0] != SNAPSHOT_FORMAT:
        return None
    try:
        return _state.decode(data[1:])
    except UNREADABLE:
        return None


def box(value: Any) -> tuple[Blob, bytes] | None:
    """Return the blob of a value that is too large for the log, and its bytes; None if the value is small."""
    if isinstance(value, _SMALL):
        return None
    data = _encode(value)
    if len(data) <= BLOB_ABOVE:
        return None
    return Blob(hashlib.sha256(data).hexdigest(), len(data)), data


def unbox(data: bytes) -> Any:
    """The value of a blob. Raises Corrupt."""
    try:
        return _any.decode(data)
    except UNREADABLE as error:
        raise Corrupt(f"the value is not readable: {error}") from error


def checked_outcome(outcome: Outcome) -> Outcome:
    """Return an outcome without a result as it will be read from the log; raise InvalidValue if it cannot be stored."""
    try:
        return _outcome.decode(_encode(outcome))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidValue("outcome", str(error)) from None


def check_value(value: Any, path: str = "$") -> None:
    """Raise InvalidValue for a value that would not be read back as it was written."""
    if value is not None and not (type(value) is int and -_WORD <= value < _WORD):
        _check(value, path, 0)


def check_made(value: Any, path: str = "the value") -> None:
    """Check the value of an expression like `check_value`, but faster, because it is almost always JSON data."""
    if isinstance(value, _SMALL):
        return
    try:
        data = _encode(value)
    except Exception as error:
        check_value(value, path)  # raises with the path of the wrong part
        raise InvalidValue(path, f"it cannot be stored: {error}") from None
    if data.count(b"[") + data.count(b"{") > DEPTH_LIMIT:
        check_value(value, path)


def _check(value: Any, path: str, depth: int) -> None:
    if depth > DEPTH_LIMIT:
        raise InvalidValue(path, f"nested deeper than {DEPTH_LIMIT}")
    kind = type(value)
    if (kind is str and value.isascii()) or (kind is int and -_WORD <= value < _WORD):
        return  # most values
    if isinstance(value, dict):
        _check_keys(value, path)
        for key, each in value.items():
            _check(each, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            _check(each, f"{path}[{i}]", depth + 1)
    else:
        _check_scalar(value, path)


def _check_scalar(value: Any, path: str) -> None:
    match value:
        case str():
            _check_text(value, path)
            _check_kind(value, path)
        case float() if not math.isfinite(value):
            raise InvalidValue(path, f"{value} cannot be represented in JSON")
        case int() if not -_LARGEST <= value <= _LARGEST:
            raise InvalidValue(path, f"a number of more than {_DIGITS:,} digits cannot be written down")
        case None | int() | float():
            _check_kind(value, path)
        case _:
            raise InvalidValue(path, f"a {type(value).__name__} is not a JSON value")


def _check_kind(value: Any, path: str) -> None:
    """Raise InvalidValue for a subclass of a text or number type that JSON cannot represent."""
    if type(value) in _KNOWN:
        return
    try:
        _encode(value)
    except Exception:
        raise InvalidValue(path, f"a {type(value).__name__} is not a JSON value") from None


def _check_keys(value: dict[Any, Any], path: str) -> None:
    for key in value:
        if not isinstance(key, str):
            raise InvalidValue(path, f"the key {key!r} is not a string")
        _check_text(key, path)


def _check_text(text: str, path: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(path, "a lone surrogate is not text") from None
