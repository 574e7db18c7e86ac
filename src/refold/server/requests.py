"""Reads what a request carries: its body within a limit and its parameters, each strictly by a type."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from math import isfinite
from typing import Any, get_origin, get_type_hints
from urllib.parse import parse_qsl

from msgspec import Struct, ValidationError, convert, structs

from refold.names import did_you_mean
from refold.server.problems import HttpProblem, invalid, too_large
from refold.wire import MEDIA

DEEPEST = 64  # nested lists and maps of a body
LARGEST_INTEGER = 2**63
LONGEST_INTEGER = 100  # characters of a whole number that is read at all


async def read_body(chunks: AsyncIterator[bytes], declared: str | None, limit: int) -> bytes:
    """Read a body and count its bytes: nothing is parsed before all of it is there, and nothing above the limit is
    kept. Raises HttpProblem."""
    if declared is not None and declared.isdecimal() and int(declared) > limit:
        raise too_large("the body has too many bytes", limit)
    parts, size = [], 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise too_large("the body has too many bytes", limit)
        parts.append(chunk)
    return b"".join(parts)


def read_json(data: bytes, kind: type[Struct]) -> Any:
    """Decode a JSON body by its type. Raises HttpProblem."""
    try:
        text = data.decode()
        given = text if text.strip() else "{}"
        found = json.loads(given, object_pairs_hook=_unique, parse_constant=_not_json, parse_int=_integer)
    except UnicodeDecodeError as error:
        raise invalid("", f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise too_large("the body is nested too deep", DEEPEST) from None
    except ValueError as error:
        raise invalid("", f"the body is not JSON: {error}") from None
    _check(found, 0)
    return converted(found, kind, strict=True)


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise ValueError(f"a number of {len(digits)} characters does not fit 64 bits")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _check(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise too_large("the body is nested too deep", DEEPEST)
    if isinstance(value, dict):
        for key, each in value.items():
            _check(key, depth + 1)
            _check(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _check(each, depth + 1)
    elif isinstance(value, str):
        if "\x00" in value or any("\ud800" <= each <= "\udfff" for each in value):
            raise invalid("", "a text has a NUL or half of a surrogate pair")
    elif isinstance(value, float) and not isfinite(value):
        raise invalid("", "a number is too large to be a JSON value")
    elif isinstance(value, int) and not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
        raise invalid("", f"the number {str(value)[:30]} does not fit 64 bits")


def read_query(raw: bytes, kind: type[Struct]) -> Any:
    """Decode the parameters of an address by their type. Raises HttpProblem."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
    except ValueError:
        raise invalid("", "the parameters of the address are not of the form name=value") from None
    types = get_type_hints(kind)
    hints = {each.encode_name: types[each.name] for each in structs.fields(kind)}
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name not in hints:
            raise invalid(f"?{name}", f"there is no such parameter; {did_you_mean(name, hints)}")
        if "\x00" in text:
            raise invalid(f"?{name}", "a text has a NUL")
        if get_origin(hints[name]) is tuple:
            found.setdefault(name, []).append(text)
        elif name in found:
            raise invalid(f"?{name}", "the parameter may be given only once")
        else:
            found[name] = text
    query = converted(found, kind, strict=False, prefix="?")
    for each in structs.fields(kind):
        value = getattr(query, each.name)
        if isinstance(value, int) and not -LARGEST_INTEGER <= value < LARGEST_INTEGER:
            raise invalid(f"?{each.encode_name}", f"the number {str(value)[:30]} does not fit 64 bits")
    return query


def converted(found: Mapping[str, Any], kind: type[Struct], strict: bool, prefix: str = "/") -> Any:
    try:
        return convert(found, kind, strict=strict)
    except ValidationError as error:
        why, _, where = str(error).partition(" - at `$")
        inner = where.rstrip("`").replace("[...]", "").lstrip(".")
        pointer = prefix + inner.replace("[", "/").replace("]", "").replace(".", "/")
        pointer = pointer.partition("/")[0] if prefix == "?" else pointer  # a parameter that may be repeated
        raise invalid(pointer if where else "", _plain(why, list(get_type_hints(kind)))) from None


def _plain(why: str, names: Sequence[str]) -> str:
    """The words of the decoder, with what to write instead."""
    if why.startswith("Object contains unknown field"):
        name = why.split("`")[1]
        return f"there is no field `{name}`; {did_you_mean(name, names)}"
    if why.startswith("Object missing required field"):
        return f"the field `{why.split('`')[1]}` is missing"
    return why[:1].lower() + why[1:]


def is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def check_message(content_type: str) -> None:
    """Raises HttpProblem."""
    if content_type.partition(";")[0].strip().lower() != MEDIA:
        raise HttpProblem(415, "not_msgpack", "The body is not msgpack", f"send `Content-Type: {MEDIA}`")


def check_content(content_type: str) -> None:
    """Raises HttpProblem."""
    if not is_json(content_type):
        raise HttpProblem(415, "not_json", "The body is not JSON", "send `Content-Type: application/json`")
