"""What a statement gives: rows within their caps, or how many rows it changed."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from refold.core.outcomes import Fault
from refold.errors import ToolFailed
from refold.tools.sql_values import json_value

MAX_ROWS = 100_000
MAX_BYTES = 10 * 1024 * 1024
AT_ONCE = 1000  # rows that are asked for at a time

_encode = msgspec.json.Encoder().encode


class Rows:
    """Takes rows as they come, and refuses the first that is too much."""

    def __init__(self, max_rows: int, max_bytes: int, as_objects: bool) -> None:
        self.max_rows, self.max_bytes, self.as_objects = max_rows, max_bytes, as_objects
        self.columns: list[str] = []
        self.rows: list[Any] = []
        self.size = 0

    def begin(self, columns: Iterable[str]) -> None:
        self.columns = distinct(columns)

    @property
    def room(self) -> int:
        """How many to ask for next: one more than fits is enough to know."""
        return min(AT_ONCE, self.max_rows - len(self.rows) + 1)

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            values = [json_value(each) for each in row]
            self.size += len(_encode(values))
            if len(self.rows) >= self.max_rows:
                raise _too_large(f"more than {self.max_rows} rows", "max_rows")
            if self.size > self.max_bytes:
                raise _too_large(f"more than {self.max_bytes} bytes", "max_bytes")
            self.rows.append(dict(zip(self.columns, values, strict=True)) if self.as_objects else values)

    def result(self) -> dict[str, Any]:
        return {"columns": self.columns, "rows": self.rows, "row_count": len(self.rows)}


def distinct(columns: Iterable[str]) -> list[str]:
    """A second `id` is called `id_1`: rows that are maps lose nothing."""
    names: list[str] = []
    for column in columns:
        name, number = column, 0
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _too_large(what: str, key: str) -> ToolFailed:
    hint = f"select less, raise `{key}`, or move the rows with the tool transfer"
    return ToolFailed(Fault("too_large", f"the result has {what}; {hint}", retryable=False))
