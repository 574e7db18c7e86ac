"""What moving a CSV file into DuckDB costs as a step, beside DuckDB's own COPY of the same file."""

import asyncio
import os
import statistics
import sys
import tempfile
from time import perf_counter

import duckdb
from msgspec import Struct

from refold.core.commands import Command
from refold.ports import ToolCall
from refold.tools.transfer.duckdb import DuckdbSide
from refold.tools.transfer.tool import TransferTool

RATIO = 2.0  # at most
COLUMNS = "id bigint, name varchar, amount double, day date, paid boolean"


class TransferCost(Struct, frozen=True):
    """Median seconds."""

    rows: int
    copy: float  # COPY FROM, into a table whose types are known
    transfer: float  # which also finds out the types, and makes the table

    @property
    def ratio(self) -> float:
        return self.transfer / self.copy


async def measure(rows: int = 1_000_000, times: int = 5) -> TransferCost:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        _write(path, rows)
        tool = TransferTool({"duckdb": DuckdbSide})
        copied, moved = [], []
        for number in range(times):
            copied.append(_copy(path, os.path.join(folder, f"copied-{number}.duckdb")))
            moved.append(await _transfer(tool, path, os.path.join(folder, f"moved-{number}.duckdb"), rows))
        await tool.close()
    return TransferCost(rows, statistics.median(copied), statistics.median(moved))


def _write(path: str, rows: int) -> None:
    query = (
        f"select i as id, 'name ' || i as name, i / 7 as amount, date '2024-01-01' + (i % 365)::int as day,"
        f" i % 2 = 0 as paid from range({rows}) as r(i)"
    )
    with duckdb.connect() as db:
        db.execute(f"copy ({query}) to '{path}' (format csv, header true)")


def _copy(path: str, database: str) -> float:
    began = perf_counter()
    with duckdb.connect(database) as db:
        db.execute(f"create table rows ({COLUMNS})")
        db.execute(f"copy rows from '{path}' (format csv, header true)")
    return perf_counter() - began


async def _transfer(tool: TransferTool, path: str, database: str, rows: int) -> float:
    target = {"type": "duckdb", "database": database, "table": "rows"}
    config = {"source": {"type": "csv", "path": path}, "target": target}
    command = Command(id="move/1", step="move", visit=1, attempt=1, input={"config": config})
    began = perf_counter()
    result = await tool(ToolCall("bench", command, {}))
    taken = perf_counter() - began
    assert result["rows_transferred"] == rows
    return taken


def main() -> int:
    cost = asyncio.run(measure())
    print(f"{cost.rows:,} rows of CSV into DuckDB")
    for name in ("copy", "transfer"):
        print(f"{name:9}{getattr(cost, name):8.3f} s")
    print(f"a transfer takes {cost.ratio:.2f} times as long as COPY, at most {RATIO}")
    return 0 if cost.ratio <= RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
