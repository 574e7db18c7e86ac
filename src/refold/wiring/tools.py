"""The tools of a process, the secrets that its pipelines use, and the sources of its loops. No tool is loaded, and no
library of a database, before a step needs it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from refold.core.commands import SOURCE_TOOL, Command
from refold.core.pipeline import TOOL
from refold.ports import Entries, Programs, Tool, ToolCall
from refold.registry import TOOLS, EntryPoints, LazyRegistry
from refold.tool_api import not_installed, refused
from refold.tools.simple import noop
from refold.wiring.world import World, templates

if TYPE_CHECKING:
    from refold.executors.process_services import ProcessServices
    from refold.secrets.access import SecretAccess
    from refold.settings import Settings
    from refold.sources.services import SourceInterpreter, SqlToken
    from refold.tools.pipeline.secrets import Owner, Render, Vault
    from refold.tools.sql.text import Style

PAGES = 1 << 62  # no limit: a process is kept as long as its iterator

BY_ENGINE = ("wait", "gate", "quality", "poll", "playbook", "workbook")  # executed by the engine; not tool names

ReadBlob = Callable[[str, str], Awaitable[bytes]]
"""A stored value, by its run and its hash. Raises NotFound."""


def make_tools(
    given: Mapping[str, Tool], world: World, settings: "Settings", read_blob: ReadBlob, worker: str
) -> LazyRegistry[Tool]:
    """Return the given tools, Refold's own as far as this process can run them, and those of installed packages."""

    def programs() -> Programs:
        assert world.isolated is not None
        found = world.isolated.programs
        return found if world.secrets is None else world.secrets.guarded(found)

    conceal = _concealing(world)

    def insisting() -> Tool:
        from refold.tools.simple import assert_that

        return assert_that

    def function() -> Tool:
        from refold.tools.simple import FunctionTool

        return FunctionTool(world.executors, cluster=world.cluster)

    def python() -> Tool:
        from refold.tools.python.tool import PythonTool

        return PythonTool(world.executors, cluster=world.cluster)

    def shell() -> Tool:
        from refold.tools.shell.tool import ShellTool

        return ShellTool(programs(), conceal)

    def http() -> Tool:
        from refold.tools.http.tool import HttpTool

        return HttpTool(settings.private_addresses)

    def pipeline() -> Tool:
        from refold.tools.pipeline.tool import PipelineTool

        vault = world.vault
        if vault is None and world.secrets is not None:
            vault = vault_of(world.secrets, tools)
        return PipelineTool(tools, templates, world.clock, worker, vault, read_blob)

    def agent() -> Tool:
        from refold.tools.agent.tool import AgentTool

        return AgentTool(tools)

    makers: dict[str, Callable[[], Tool]] = {
        "assert": insisting,
        TOOL: pipeline,
        SOURCE_TOOL: lambda: source_tool(world, tools),
    }
    ready: dict[str, Tool] = {"noop": noop, **given}
    if world.executors:
        makers |= {"function": function, "python": python, "shell": shell, "http": http, **database_tools(http)}
        makers |= _outward(world, lambda: tools["http"], programs, read_blob)
        makers["agent"] = agent
        makers |= EntryPoints(TOOLS, {*makers, *ready, *BY_ENGINE}).makers()
    tools = LazyRegistry(ready, makers)
    return tools


def _concealing(world: World) -> Callable[[str], str]:
    return str if world.secrets is None else world.secrets.redaction.text


def _outward(
    world: World, http: Callable[[], Tool], programs: Callable[[], Programs], read_blob: ReadBlob
) -> dict[str, Callable[[], Tool]]:
    """Return the tools that reach beyond the run."""
    conceal = _concealing(world)

    def artifact() -> Tool:
        from refold.tools.artifact.tool import ArtifactTool

        return ArtifactTool(world.artifacts, read_blob)

    def emitting() -> Tool:
        from refold.tools.simple import emit

        return emit

    def container() -> Tool:
        from refold.tools.container.tool import ContainerTool

        return ContainerTool(programs(), world.docker, conceal)

    def mcp() -> Tool:
        from refold.tools.mcp.tool import McpTool

        return McpTool(http(), programs(), conceal)

    def llm() -> Tool:
        from refold.tools.llm.tool import LlmTool

        return LlmTool(http())

    return {"artifact": artifact, "emit": emitting, "container": container, "mcp": mcp, "llm": llm}


def database_tools(http: Callable[[], Tool]) -> dict[str, Callable[[], Tool]]:
    """Return a maker for each kind; `http` makes the tool that fetches what transfers read from an address."""
    return {
        "sqlite": lambda: _or_missing(_sqlite, "sqlite"),
        "duckdb": lambda: _or_missing(_duckdb, "duckdb"),
        "postgres": lambda: _or_missing(_postgres, "postgres"),
        "transfer": lambda: _transfer(http),
    }


def _sqlite() -> Tool:
    from refold.tools.sql.sqlite import sqlite_tool

    return sqlite_tool()


def _duckdb() -> Tool:
    from refold.tools.sql.duckdb import duckdb_tool

    return duckdb_tool()


def _postgres() -> Tool:
    from refold.tools.sql.postgres import PostgresTool

    return PostgresTool()


def _transfer(http: Callable[[], Tool]) -> Tool:
    from refold.tools.transfer.tool import TransferTool

    def sqlite_side() -> Any:
        from refold.tools.transfer.sqlite import SqliteSide

        return SqliteSide()

    def duckdb_side() -> Any:
        from refold.tools.transfer.duckdb import DuckdbSide

        return DuckdbSide()

    def postgres_side() -> Any:
        from refold.tools.transfer.postgres import PostgresSide

        return PostgresSide()

    def http_side() -> Any:
        from refold.tools.transfer.http import HttpSide

        return HttpSide(http())

    return TransferTool({"sqlite": sqlite_side, "duckdb": duckdb_side, "postgres": postgres_side, "http": http_side})


def _or_missing(make: Callable[[], Tool], extra: str) -> Tool:
    """Return the tool; or one that fails with what to install, so that only steps that need the library fail."""
    try:
        return make()
    except ModuleNotFoundError as error:
        return _failing(not_installed(error, extra))


def _failing(why: str) -> Tool:
    async def fail(call: ToolCall) -> Any:
        raise refused(why, "missing_package")

    return fail


def vault_of(room: "SecretAccess", tools: Mapping[str, Tool]) -> "Vault":
    """Return the vault. Nothing is loaded before a pipeline asks for a secret."""
    from refold.tools.pipeline.secrets import Vault

    async def request(keys: Mapping[str, Any]) -> Any:
        """Fetch credentials from a server, through the `http` tool, so that its restrictions hold here too."""
        config = {"url": keys["url"], "method": keys.get("method", "POST"), "headers": keys.get("headers") or {}}
        form = keys.get("data")
        config |= {"data": form} if isinstance(form, Mapping) else {"body": form} if form is not None else {}
        command = Command("keychain", "keychain", 1, 1, "http", input={"input": {}, "config": config})
        answer = await tools["http"](ToolCall("keychain", command, {}))
        return answer["data"]

    def keychain(entries: Sequence[Mapping[str, Any]], owner: "Owner", render: "Render") -> Entries:
        from refold.secrets.keychain import EntryOwner

        return room.keychain(entries, EntryOwner(*owner), render, {}, request)

    return Vault(
        read=room.read,
        keychain=keychain,
        remember=lambda value: room.redactor.remember_result(value),
        conceal=room.redaction.text,
        seal=lambda value, run: room.sealer.seal(value, run),
        open_all=lambda value, run, sealed: room.sealer.open_all(value, run, sealed),
    )


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

    return InterpreterPool(
        1, grace=isolated.grace, supervisors=isolated.supervisors, env=isolated.env, orders_each=PAGES
    )
