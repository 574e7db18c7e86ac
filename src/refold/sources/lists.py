"""The sources `list` and `range`, whose items are all known. A cursor counts the items that were read."""

from collections.abc import Sequence
from typing import Any

from refold.ports import Page, Pull


async def from_list(pull: Pull) -> Page:
    return _page(pull.settings["items"], pull)


async def from_range(pull: Pull) -> Page:
    keys = pull.settings
    return _page(range(int(keys.get("start", 0)), int(keys["stop"]), int(keys.get("step", 1))), pull)


def _page(items: Sequence[Any], pull: Pull) -> Page:
    begin = pull.cursor or 0
    end = begin + pull.most
    return Page(list(items[begin:end]), end if end < len(items) else None)
