"""Pipelines as they were read from the settings of their steps: once for a step, and not for every try and item."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from msgspec import convert

from refold.core.pipeline import TaskPipeline

MOST = 256  # pipelines that are kept


class Pipelines:
    """They are known by what they were read from, which is kept with them: while it is, nothing else can be it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: OrderedDict[int, tuple[Mapping[str, Any], TaskPipeline]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, settings: Mapping[str, Any]) -> TaskPipeline:
        """A map of the same values is as good as the map itself: a worker may have taken out what is not the tool's."""
        key = id(settings.get("tasks"))
        known = self._known.get(key)
        if known is None or not _is_same(known[0], settings):
            known = self._known[key] = settings, convert(settings, TaskPipeline)
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return known[1]


def _is_same(known: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    return known is given or (known.keys() == given.keys() and all(known[name] is given[name] for name in given))
