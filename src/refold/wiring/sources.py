"""The tool `source` of a process: the kinds of sources, put together with the tools and the processes they use."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from refold.core.commands import Command
from refold.ports import Tool, ToolCall
from refold.wiring.world import World

if TYPE_CHECKING:
    from refold.executors.process_services import ProcessServices
    from refold.sources.services import SourceInterpreter, SqlToken
    from refold.tools.sql.text import Style

PAGES = 1 << 62  # no limit: a process is kept as long as its iterator


def source_tool(world: World, tools: Mapping[str, Tool]) -> Tool:
    """Return the tool `source`. Nothing is loaded before a loop asks for a page."""
    from refold.registry import SOURCES, EntryPoints, LazyRegistry
    from refold.sources.catalog import CATALOG, installed_sources
    from refold.sources.services import Services
    from refold.sources.tool import SourceTool, source_makers

    async def ask(tool: str, keys: Mapping[str, Any]) -> Any:
        return await tools[tool](ToolCall("source", Command("source", "source", 1, 1, tool), keys))

    isolated = world.isolated
    services = Services(ask=ask, tokens=_tokens, lane=None if isolated is None else lambda: _lane(isolated))
    read = None if world.secrets is None else world.secrets.read
    makers = {**source_makers(services), **EntryPoints(SOURCES, CATALOG).makers()}
    return SourceTool(LazyRegistry({}, makers), installed_sources(), read)


def _tokens(text: str, driver: str) -> "Iterable[SqlToken]":
    from refold.tools.sql.text import tokens

    return tokens(text, cast("Style", driver))


def _lane(isolated: "ProcessServices") -> "SourceInterpreter":
    from refold.executors.interpreter_pool import InterpreterPool

    lane = InterpreterPool(1, grace=isolated.grace, supervisors=isolated.supervisors, env=isolated.env)
    lane.orders_each = PAGES
    return lane
