"""The sources `csv` and `jsonl`: files of lines. A cursor is the byte at which the next row begins."""

import asyncio
import codecs
import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from refold.ports import Page, Pull
from refold.sources.files import PAGE, Filter, Lines, begun, check_columns, filter_of, fits, located, mark_of, opened
from refold.tool_api import refused

WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


async def from_csv(pull: Pull) -> Page:
    return await asyncio.to_thread(_csv_page, pull)


class Form(Struct, frozen=True):
    """How the rows of a file are read."""

    encoding: str
    delimiter: str
    columns: Sequence[str]
    types: Mapping[str, str]
    wanted: Filter


def _csv_page(pull: Pull) -> Page:
    path = located(pull.settings)
    with opened(path) as file:
        mark = mark_of(path, file)
        place = begun(pull.cursor, path, mark)
        form, first = _form(file, path, pull.settings)
        lines = Lines(file, path, place.get("at", first.at), place.get("line", first.line))
        items: list[dict[str, Any]] = []
        size = 0
        for row, length in _rows(lines, form):
            item = _item(row, form, lines)
            if fits(item, form.wanted):
                items.append(item)
                size += length
            if len(items) >= pull.most or size > PAGE:
                break
        return Page(items, lines.cursor(mark))


def _form(file: BinaryIO, path: str, keys: Mapping[str, Any]) -> tuple[Form, Lines]:
    """Return how the rows are read, and the lines from the first row on."""
    form = Form(_encoding(keys), _delimiter(keys), (), keys.get("types", {}), {})
    lines = Lines(file, path)
    named = keys.get("columns")
    if keys.get("header", named is None):
        found, _ = next(_rows(lines, form), ([], 0))
    else:
        found = []
    columns = named if named is not None else found
    for column in columns:
        if not isinstance(column, str) or columns.count(column) > 1:
            raise refused(f"{path}: {column!r} is the name of two columns; give them other names with `columns`")
    check_columns(form.types, columns, "types")
    check_columns(keys.get("filter", {}), columns, "filter")

    def wanted(column: str, value: Any) -> Any:
        text = "" if value is None else _text(value)
        try:
            return READERS[form.types.get(column, "text")](text)
        except ValueError:
            raise refused(f"`filter.{column}`: {value!r} is not of the type {form.types[column]}") from None

    return Form(form.encoding, form.delimiter, columns, form.types, filter_of(keys.get("filter", {}), wanted)), lines


def _rows(lines: Lines, form: Form) -> Iterator[tuple[list[str], int]]:
    """Yield the values of each row and their size in bytes. Empty lines are not rows."""
    before = lines.at
    reader = csv.reader(_texts(lines, form.encoding), delimiter=form.delimiter, strict=True)
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise lines.wrong(str(error)) from None
        if row is None:
            return
        if row:
            yield row, lines.at - before
        before = lines.at


def _texts(lines: Lines, encoding: str) -> Iterator[str]:
    for raw in lines:
        try:
            yield raw.decode(encoding)
        except UnicodeDecodeError as error:
            raise lines.wrong(f"it is not {encoding}: {error.reason} at its byte {error.start + 1}") from None


def _item(row: Sequence[str], form: Form, lines: Lines) -> dict[str, Any]:
    if len(row) != len(form.columns):
        raise lines.wrong(f"it has {len(row)} values, and there are {len(form.columns)} columns")
    item: dict[str, Any] = dict(zip(form.columns, row, strict=True))
    for column, name in form.types.items():
        try:
            item[column] = READERS[name](item[column])
        except ValueError:
            raise lines.wrong(f"`{column}` is {item[column]!r}, and no {name}") from None
    return item


def _number(text: str) -> float | None:
    if not text.strip():
        return None
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _truth(text: str) -> bool | None:
    word = text.strip().lower()
    if word and word not in WORDS:
        raise ValueError(text)
    return WORDS[word] if word else None


READERS: Mapping[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "integer": lambda text: int(text) if text.strip() else None,
    "number": _number,
    "bool": _truth,
}


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _delimiter(keys: Mapping[str, Any]) -> str:
    delimiter: str = keys.get("delimiter", ",")
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise refused(f"`delimiter` must be one character, not {delimiter!r}")
    return delimiter


def _encoding(keys: Mapping[str, Any]) -> str:
    """Return an encoding in which a line end is one byte, so that a page can start at any line."""
    name = keys.get("encoding", "utf-8")
    try:
        known = codecs.lookup(name)
        plain = known.name == "utf-8-sig" or "a\n".encode(known.name) == b"a\n"
    except (LookupError, TypeError, ValueError):
        raise refused(f"`encoding`: {name!r} is not an encoding of text that is known here") from None
    if not plain:
        raise refused(f"`encoding`: a file in {name} cannot be read from its middle; convert it to utf-8")
    return "utf-8" if known.name == "utf-8-sig" else known.name


async def from_jsonl(pull: Pull) -> Page:
    return await asyncio.to_thread(_jsonl_page, pull)


def _jsonl_page(pull: Pull) -> Page:
    path = located(pull.settings)
    wanted = filter_of(pull.settings.get("filter", {}))
    with opened(path) as file:
        mark = mark_of(path, file)
        place = begun(pull.cursor, path, mark)
        lines = Lines(file, path, place.get("at", 0), place.get("line", 0))
        items = []
        size = 0
        for raw in lines:
            if not raw.strip():
                continue
            try:
                item = msgspec.json.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise lines.wrong(f"it is not JSON: {error}") from None
            if wanted and not isinstance(item, Mapping):
                raise lines.wrong("`filter` is for maps, and this is none")
            if not wanted or fits(item, wanted):
                items.append(item)
                size += len(raw)
            if len(items) >= pull.most or size > PAGE:
                break
        return Page(items, lines.cursor(mark))
