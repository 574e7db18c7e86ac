"""Sources as the tests pull them: by the tool of a worker, put together as a process does it."""

import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from refold.core.commands import Command
from refold.core.outcomes import Fault
from refold.doorbells.local import LocalDoorbell
from refold.errors import ToolFailed
from refold.executors.limits import Limits, environment
from refold.executors.process_services import ProcessServices
from refold.ports import Tool, ToolCall
from refold.secrets.access import SecretAccess, SecretPlaces
from refold.tools.http.tool import HttpTool
from refold.wiring.tools import database_tools, source_tool
from refold.wiring.world import WallClock, World

SIZES = (1, 2, 7, 1000)
SECRETS = {"REFOLD_SECRET_API": "s3cret-token-of-the-api"}


class Sources(Struct):
    """The tool `source`, made anew with `forget`, as if another process went on."""

    make: Callable[[], Tool]
    tool: Tool

    async def pull(
        self, kind: str, settings: dict[str, Any], cursor: Any = None, most: int = 500, owner: str = "run/each/1"
    ) -> dict[str, Any]:
        asked = {"kind": kind, "settings": settings, "cursor": cursor, "most": most, "owner": owner}
        page: dict[str, Any] = await self.tool(
            ToolCall("run", Command("each/1", "each", 1, 1, "source", input=asked), {})
        )
        return page

    async def fault(self, kind: str, settings: dict[str, Any], cursor: Any = None, most: int = 500) -> Fault:
        with pytest.raises(ToolFailed) as caught:
            await self.pull(kind, settings, cursor, most)
        fault = caught.value.fault
        assert isinstance(fault, Fault)
        return fault

    async def all(self, kind: str, settings: dict[str, Any], most: int = 500) -> list[Any]:
        items: list[Any] = []
        async for page in self.pages(kind, settings, most):
            items += page["items"]
        return items

    async def pages(self, kind: str, settings: dict[str, Any], most: int) -> AsyncIterator[dict[str, Any]]:
        cursor = None
        while True:
            page = await self.pull(kind, settings, cursor, most)
            yield page
            cursor = page["cursor"]
            if cursor is None:
                return

    async def forget(self) -> None:
        await self.tool.close()  # type: ignore[attr-defined]
        self.tool = self.make()


async def never(work: Any) -> Any:
    raise AssertionError("a source takes no turn")


@asynccontextmanager
async def opened(private: bool = True) -> AsyncIterator[Sources]:
    isolated = ProcessServices(1, 0.2, Limits(), environment(os.environ))
    room = SecretAccess(SECRETS, SecretPlaces(folder=""), WallClock())
    world = World(WallClock(), LocalDoorbell(), never, random.random, lambda: "id", secrets=room, isolated=isolated)
    http = HttpTool(private)
    tools: dict[str, Tool] = {"http": http}
    tools |= {kind: make() for kind, make in database_tools(lambda: http).items() if kind != "transfer"}
    sources = Sources(lambda: source_tool(world, tools), source_tool(world, tools))
    try:
        yield sources
    finally:
        await sources.tool.close()  # type: ignore[attr-defined]
        for tool in tools.values():
            await tool.close()  # type: ignore[attr-defined]
        await isolated.close()


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path
