"""An address as a source of transfers: a list of maps in JSON, fetched by the tool `http` with all its guards."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import structs

from refold.ports import Tool, ToolCall
from refold.registry import close
from refold.tool_api import refused, type_name
from refold.tools.transfer.columns import columns_of_values
from refold.tools.transfer.request import Transfer
from refold.tools.transfer.sides import Into, Rows, Stream, Write


class HttpSide:
    def __init__(self, http: Tool) -> None:
        self._http = http

    async def close(self) -> None:
        await close(self._http)

    async def moved_alone(self, transfer: Transfer) -> None:
        """An address is not a target."""

    @asynccontextmanager
    async def reading(self, transfer: Transfer) -> AsyncIterator[Stream]:
        answer = await self._http(_request(transfer))
        items = _at(answer["data"], transfer.source.keys.get("data_path", ""))
        names = list(dict.fromkeys(name for item in items for name in item))
        rows = [[item.get(name) for name in names] for item in items]

        async def chunks() -> AsyncIterator[Rows]:
            for start in range(0, len(rows), transfer.chunk_size):
                yield rows[start : start + transfer.chunk_size]

        yield Stream(columns_of_values(names, rows), chunks())

    @asynccontextmanager
    async def writing(self, into: Into) -> AsyncIterator[Write]:
        raise refused("an address is a source of transfers, and no target")
        yield  # pragma: no cover


def _request(transfer: Transfer) -> ToolCall:
    config = {name: value for name, value in transfer.source.keys.items() if name != "data_path"}
    command = structs.replace(transfer.call.command, input={"config": config})
    return structs.replace(transfer.call, command=command, settings={})


def _at(data: Any, path: str) -> list[Mapping[str, Any]]:
    for part in path.split(".") if path else ():
        data = data.get(part) if isinstance(data, Mapping) else None
    items = [data] if isinstance(data, Mapping) else data
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        where = f"at {path} of the answer" if path else "in the answer"
        raise refused(
            f"there is no list of maps {where}, but {type_name(data)}; `data_path` says where it stands", "parse"
        )
    return items
