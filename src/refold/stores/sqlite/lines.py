"""The side streams of runs: what steps print and publish, numbered from 1."""

from collections.abc import Sequence
from typing import Any

from msgspec import json

from refold.stores.sqlite import queries
from refold.stores.sqlite.file import File
from refold.stores.sqlite.rows import seal


def encoded(lines: Sequence[Any]) -> list[bytes]:
    return [json.encode(line) for line in lines]


def append(file: File, namespace: str, run: str, lines: Sequence[bytes]) -> None:
    """Inside a transaction."""
    found = file.rows(queries.LAST_LINE, (namespace, run))
    first = 1 + ((found[0][0] or 0) if found else 0)
    rows = [(namespace, run, n, data, seal((run, n, data))) for n, data in enumerate(lines, first)]
    file.write(queries.ADD_LINE, rows)
