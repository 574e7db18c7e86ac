"""The SQL tools as tests use them: each with a database of its own."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from refold.core.outcomes import Fault
from refold.ports import Tool
from refold.tools.sql.text import Style
from refold.wiring.tools import database_tools
from tests.tools.calls import call, fault_of

KINDS: tuple[Style, ...] = ("sqlite", "duckdb", "postgres")


async def no_http(_: Any) -> Any:
    raise AssertionError("nothing is fetched")


class Database(Struct, frozen=True):
    """A kind of database, and how to connect to it."""

    kind: Style
    tool: Tool
    where: dict[str, Any]

    async def run(self, query: str, params: Any = None, **more: Any) -> Any:
        return await self.tool(call(None, self._config(query, params, more)))

    async def tool_run(self, commands: list[str], params: Any) -> Any:
        return await self.tool(call(None, {**self.where, "commands": commands, "params": params}))

    async def fault(self, query: str, params: Any = None, **more: Any) -> Fault:
        return await fault_of(self.tool, call(None, self._config(query, params, more)))

    async def rows(self, query: str, params: Any = None) -> list[list[Any]]:
        rows: list[list[Any]] = (await self.run(query, params, as_objects=False))["rows"]
        return rows

    def _config(self, query: str, params: Any, more: dict[str, Any]) -> dict[str, Any]:
        given = {**self.where, "query": query, **more}
        return given if params is None else {**given, "params": params}


@asynccontextmanager
async def opened(kind: Style, where: dict[str, Any]) -> AsyncIterator[Database]:
    tool = database_tools(lambda: no_http)[kind]()
    try:
        yield Database(kind, tool, where)
    finally:
        await tool.close()  # type: ignore[attr-defined]


def injections(count: int = 300) -> list[str]:
    """Texts that mean something to SQL, wherever they stand in it."""
    chance = random.Random(7)
    known = [
        *("'", "''", '"', "\\", "\\'", "';--", ";", "' or '1'='1", "') or ('1'='1", "1; drop table t", "e'\\''"),
        *("'; drop table t; --", "'; drop table t", "x' union select 1 --", "$$; drop table t; $$", "{{ 7*7 }}"),
        *("/*", "*/", "--", "#", "$1", "$$", "$x$", "%s", "%(a)s", "?", ":a", "@a", "\x01", "\n", "\r\n--", "ü"),
        *("null", "NULL", "true", "1e5", "007", "-1", "0x41", "t", "t;", "t where 1=1", "(select 1)", "pg_sleep(9)"),
        *("\\x27", "%27", "&#39;", "\u02bc", "\u2019", "\uff07", "\ufeff'", "'||'", "'+'", "`", "[x]", "]"),
        "' and 1=(select count(*) from t) --",
    ]
    alphabet = "'\"\\;-/*$%?:@[](){}|&=<>,. \t\nabct01ü`#"
    return known + ["".join(chance.choices(alphabet, k=chance.randint(1, 20))) for _ in range(count - len(known))]
