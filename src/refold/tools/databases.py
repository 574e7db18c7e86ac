"""Makes the tools that work on databases. Each is loaded, with its library, when a step first needs it."""

from collections.abc import Callable
from typing import Any

from refold.ports import Call, Tool
from refold.tool_api import not_installed, refused


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
    async def fail(call: Call) -> Any:
        raise refused(why, "missing_package")

    return fail
