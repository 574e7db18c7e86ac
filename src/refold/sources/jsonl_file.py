"""The source `jsonl`: each line is an item; a cursor is the byte at which the next line begins."""

import asyncio
from collections.abc import Mapping

import msgspec

from refold.ports import Page, Pull
from refold.sources.files import PAGE, Lines, begun, located, mark_of, opened
from refold.sources.filters import filter_of, fits


async def from_jsonl(pull: Pull) -> Page:
    return await asyncio.to_thread(_page, pull)


def _page(pull: Pull) -> Page:
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
                raise lines.wrong(f"it is no JSON: {error}") from None
            if wanted and not isinstance(item, Mapping):
                raise lines.wrong("`filter` is for maps, and this is none")
            if not wanted or fits(item, wanted):
                items.append(item)
                size += len(raw)
            if len(items) >= pull.most or size > PAGE:
                break
        return Page(items, lines.cursor(mark))
