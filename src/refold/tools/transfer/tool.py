"""The tool `transfer`: copies rows from a database, a file or an address into a table or a file, all or none."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from refold.ports import ToolCall
from refold.time_limits import TimeLimit
from refold.tool_api import Keys, not_installed, refused
from refold.tools.sql.faults import timed_out
from refold.tools.transfer.columns import Column, chosen
from refold.tools.transfer.info import TRANSFER
from refold.tools.transfer.request import FILES, Transfer, transfer_of
from refold.tools.transfer.sides import Into, Rows, Side, Stream


class TransferTool:
    """Copies rows; `sides` makes the object for each type of source or target. Files are read and written by DuckDB."""

    def __init__(self, sides: Mapping[str, Callable[[], Side]]) -> None:
        self._keys = Keys(TRANSFER)
        self._makers, self._made = sides, dict[str, Side]()

    async def __call__(self, call: ToolCall) -> Any:
        transfer = transfer_of(call, self._keys.read(call).keys)
        try:
            async with TimeLimit(transfer.timeout):
                return await self._moved(transfer)
        except TimeoutError:
            raise timed_out(transfer.timeout, "TRANSFER_TIMEOUT") from None

    async def close(self) -> None:
        for side in self._made.values():
            await side.close()

    async def _moved(self, transfer: Transfer) -> dict[str, Any]:
        source, target = self._side(transfer.source.type), self._side(transfer.target.type)
        alone = await target.moved_alone(transfer) if source is target else None
        if alone is not None:
            columns, rows = alone
            return _result(transfer, columns, rows, min(rows, 1))
        return await _by_chunks(transfer, source, target)

    def _side(self, kind: str) -> Side:
        name = "duckdb" if kind in FILES else kind
        if name not in self._made:
            try:
                self._made[name] = self._makers[name]()
            except ModuleNotFoundError as error:
                raise refused(not_installed(error, name), "missing_package") from None
        return self._made[name]


async def _by_chunks(transfer: Transfer, source: Side, target: Side) -> dict[str, Any]:
    rows = chunks = 0
    async with source.reading(transfer) as stream:
        choice = chosen(stream.columns, transfer.target.keys.get("mapping"))
        _check_key(transfer, choice.columns)
        async with target.writing(Into(transfer, choice)) as write:
            async for some in _chunks(stream):
                await write([choice.of(row) for row in some])
                rows, chunks = rows + len(some), chunks + 1
    return _result(transfer, choice.columns, rows, chunks)


async def _chunks(stream: Stream) -> AsyncIterator[Rows]:
    async for some in stream.chunks:
        if some:
            yield some


def _check_key(transfer: Transfer, columns: Sequence[Column]) -> None:
    names = [column.name for column in columns]
    for name in transfer.key:
        if name not in names:
            raise refused(f"`key`: {name!r} is not among the columns {', '.join(names)}", "schema")


def _result(transfer: Transfer, columns: Sequence[Column], rows: int, chunks: int) -> dict[str, Any]:
    source, target = transfer.source, transfer.target
    return {
        "direction": f"{source.type}_to_{target.type}",
        "source_type": source.type,
        "target_type": target.type,
        "mode": transfer.mode,
        "rows_transferred": rows,
        "chunks_processed": chunks,
        "target_table": target.keys["path" if target.is_file else "table"],
        "columns": [column.name for column in columns],
    }
