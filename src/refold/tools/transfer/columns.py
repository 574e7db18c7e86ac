"""Columns of a transfer: their types, their names, and the SQL that writes them."""

import datetime
import re
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from refold.tool_api import refused
from refold.tools.sql.text import Style, quoted

# Types as they are called here, and as each database calls them; what a database lacks is text.
TYPES: Mapping[str, Mapping[Style, str]] = {
    "BOOLEAN": {"sqlite": "INTEGER", "duckdb": "BOOLEAN", "postgres": "BOOLEAN"},
    "BIGINT": {"sqlite": "INTEGER", "duckdb": "BIGINT", "postgres": "BIGINT"},
    "DOUBLE": {"sqlite": "REAL", "duckdb": "DOUBLE", "postgres": "DOUBLE PRECISION"},
    "DECIMAL": {"sqlite": "NUMERIC", "duckdb": "VARCHAR", "postgres": "NUMERIC"},  # of any size, which DuckDB lacks
    "TEXT": {"sqlite": "TEXT", "duckdb": "VARCHAR", "postgres": "TEXT"},
    "DATE": {"sqlite": "TEXT", "duckdb": "DATE", "postgres": "DATE"},
    "TIME": {"sqlite": "TEXT", "duckdb": "TIME", "postgres": "TIME"},
    "TIMESTAMP": {"sqlite": "TEXT", "duckdb": "TIMESTAMP", "postgres": "TIMESTAMP"},
    "TIMESTAMPTZ": {"sqlite": "TEXT", "duckdb": "TIMESTAMPTZ", "postgres": "TIMESTAMPTZ"},
    "INTERVAL": {"sqlite": "TEXT", "duckdb": "INTERVAL", "postgres": "INTERVAL"},
    "UUID": {"sqlite": "TEXT", "duckdb": "UUID", "postgres": "UUID"},
    "BLOB": {"sqlite": "BLOB", "duckdb": "BLOB", "postgres": "BYTEA"},
    "JSON": {"sqlite": "TEXT", "duckdb": "JSON", "postgres": "JSONB"},
}
BY_VALUE: Mapping[type, str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    Decimal: "DECIMAL",
    str: "TEXT",
    bytes: "BLOB",
    dict: "JSON",
    list: "JSON",
    datetime.datetime: "TIMESTAMP",
    datetime.date: "DATE",
    datetime.time: "TIME",
    uuid.UUID: "UUID",
}


class Column(Struct, frozen=True):
    """A column; `type` is one of the types above, or DECIMAL with its size."""

    name: str
    type: str

    def type_in(self, style: Style) -> str:
        if self.type.startswith("DECIMAL("):
            return "NUMERIC" if style == "sqlite" else self.type
        return TYPES[self.type][style]


def columns_of_values(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Column]:
    """Return the columns of the first rows; a column with values of several types is text."""
    return [Column(name, _type_of([row[i] for row in rows])) for i, name in enumerate(names)]


def _type_of(values: Sequence[Any]) -> str:
    found = {BY_VALUE.get(type(value), "TEXT") for value in values if value is not None}
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return found.pop() if len(found) == 1 else "TEXT"


class Chosen(Struct, frozen=True):
    """The columns of the source and of the target; `mapping` is from the target's names to the source's."""

    columns: tuple[Column, ...]  # as the target calls them
    places: tuple[int, ...]  # in a row of the source

    def of(self, row: Sequence[Any]) -> list[Any]:
        return [row[i] for i in self.places]


def chosen(source: Sequence[Column], mapping: Mapping[str, Any] | None) -> Chosen:
    names = [column.name for column in source]
    wanted = mapping if mapping else {name: name for name in names}
    for target, name in wanted.items():
        if name not in names:
            raise refused(f"`mapping.{target}`: the source has no column {name!r}; it has {', '.join(names)}", "schema")
    places = tuple(names.index(name) for name in wanted.values())
    return Chosen(tuple(Column(target, source[i].type) for target, i in zip(wanted, places, strict=True)), places)


NAME = re.compile(r'[^\W\d][\w$]*|"(?:[^"]|"")+"')


def table_name(text: str, style: Style) -> str:
    """Return a quoted name such as `public.orders` or `"My Orders"`; PostgreSQL reads unquoted names in lower case."""
    parts = NAME.findall(text)
    if not parts or ".".join(parts) != text:
        raise refused(f'`table`: {text!r} is not a name of a table; quote what is not plain, as in "My Orders"')
    return ".".join(_part(part, style) for part in parts)


def _part(text: str, style: Style) -> str:
    if text[0] == '"':
        return quoted(text[1:-1].replace('""', '"'))
    return quoted(text.lower() if style == "postgres" else text)


def creating(table: str, columns: Sequence[Column], key: Sequence[str], style: Style) -> str:
    named = [f"{quoted(column.name)} {column.type_in(style)}" for column in columns]
    primary = [f"primary key ({_listed(key)})"] if key else []
    return f"create table if not exists {table} ({', '.join(named + primary)})"


def inserting(table: str, columns: Sequence[Column], key: Sequence[str], rows: str) -> str:
    """Return an insert; `rows` is `values (...)` or a query. With a key, existing rows with that key are updated."""
    text = f"insert into {table} ({_listed([column.name for column in columns])}) {rows}"
    if not key:
        return text
    others = [quoted(column.name) for column in columns if column.name not in key]
    what = f"update set {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "nothing"
    return f"{text} on conflict ({_listed(key)}) do {what}"


def newest(columns: Sequence[Column], key: Sequence[str], rows: str, order: str) -> str:
    """Return the last of the rows with the same key: a database does not update a row twice in one statement."""
    names = _listed([column.name for column in columns])
    number = f"row_number() over (partition by {_listed(key)} order by {order} desc) as newest"
    return f"select {names} from (select *, {number} from {rows}) as numbered where newest = 1"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
