"""What `ctx.map` gives."""

from collections.abc import Iterable, Sequence
from typing import Any


class Mapped(list[Any]):
    """Results in the order of the items; `items` tells how each ended. Stored, it is a plain list."""

    def __init__(self, results: Iterable[Any], items: Sequence[dict[str, Any]]) -> None:
        super().__init__(results)
        self.items = list(items)

    @property
    def failed(self) -> list[int]:
        """The numbers of the items that failed, and were tolerated."""
        return [item for item, each in enumerate(self.items) if each["status"] == "failed"]
