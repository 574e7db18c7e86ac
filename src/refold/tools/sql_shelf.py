"""The SQL tools and transfer, by their names: each is loaded with its library when a step first needs it."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from refold.ports import Call, Tool
from refold.tools.keys import refused


def sql_tools(http: Callable[[], Tool]) -> dict[str, Callable[[], Tool]]:
    """What makes each of them; `http` makes the tool that fetches what transfers read from an address."""
    sides = {
        "sqlite": lambda: _loaded("transfer_sqlite", "SqliteSide")(),
        "duckdb": lambda: _loaded("transfer_duckdb", "DuckdbSide")(),
        "postgres": lambda: _loaded("transfer_postgres", "PostgresSide")(),
        "http": lambda: _loaded("transfer_http", "HttpSide")(http()),
    }
    return {
        "sqlite": lambda: _tool("sqlite", "sql_sqlite", "sqlite_tool"),
        "duckdb": lambda: _tool("duckdb", "sql_duckdb", "duckdb_tool"),
        "postgres": lambda: _tool("postgres", "sql_postgres", "PostgresTool"),
        "transfer": lambda: _loaded("transfer", "TransferTool")(sides),
    }


def _loaded(module: str, name: str) -> Any:
    return getattr(import_module(f"refold.tools.{module}"), name)


def _tool(extra: str, module: str, name: str) -> Tool:
    """The tool, or one that says what to install."""
    try:
        tool: Tool = _loaded(module, name)()
    except ModuleNotFoundError as error:
        return _missing(missing(error, extra))
    return tool


def missing(error: ModuleNotFoundError, extra: str) -> str:
    return f"{error.name} is not installed: run `pip install refold[{extra}]`"


def _missing(why: str) -> Tool:
    async def say(call: Call) -> Any:
        raise refused(why, "missing_package")

    return say
