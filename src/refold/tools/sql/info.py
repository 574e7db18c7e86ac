"""What the tools `sqlite`, `duckdb` and `postgres` are for their authors: keys, result, examples, and checks."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from refold.tool_api import ToolInfo, ToolKey, ToolProblem
from refold.tools.shared_keys import first_value, is_expression

NO_SPLICING = "write $1 or $name there, and give the value in `params`"


def check_sql(keys: Mapping[str, Any]) -> Sequence[ToolProblem]:
    return [*_texts(keys), *_params(keys)]


def _texts(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    query, commands = keys.get("query"), keys.get("commands")
    if (query is None) == (commands is None):
        yield ToolProblem("", "exactly one of `query` and `commands` is needed", "give `query`")
    for key, text in [
        ("query", query),
        *(("commands", each) for each in (commands if isinstance(commands, list) else ())),
    ]:
        if isinstance(text, str):
            yield from spliced(key, text)


def spliced(key: str, text: str) -> Iterator[ToolProblem]:
    """Yield a problem for a value in the text of a statement, which could be read as SQL; a text may be one value."""
    place = first_value(text)
    if place is None or (text.strip().startswith("{{") and text.strip().endswith("}}") and text.count("{{") == 1):
        return
    yield ToolProblem(key, "no value may be put into the text of a statement", NO_SPLICING, *place)


def _params(keys: Mapping[str, Any]) -> Iterator[ToolProblem]:
    params = keys.get("params")
    if params is not None and not isinstance(params, (list, Mapping)) and not is_expression(params):
        yield ToolProblem("params", "`params` is a list or a map", "[a, b] for $1 and $2, {name: a} for $name")


ABOUT = (
    "Dates and times are ISO 8601 texts; decimals are numbers up to 15 digits and texts beyond; UUIDs, spans of time"
    " and other types are texts as the database writes them (`P1M2D`), bytes are base64, JSON and arrays are"
    " values, numbers that JSON does not have are `NaN`, `Infinity` and `-Infinity`; only NULL is null"
)
ONE = (
    " All statements of a step are one transaction: a failure undoes them all. Only if one of them controls"
    " transactions itself, or cannot be part of one (VACUUM, ATTACH, PRAGMA, CREATE DATABASE and the like), each is a"
    " transaction of its own."
)
RESULT = (
    "of the last statement: `{columns, rows, row_count}` if it returns rows, otherwise `{affected_rows}`. "
    + ABOUT
    + ". A second column `id` is called `id_1`"
)
RESULT_KEYS = ("columns", "rows", "row_count", "affected_rows")
FAILURES = (
    " Failures are of the kinds db_constraint, db_deadlock, db_timeout, db_connection (the last three may be tried"
    " again), parse, schema, auth, client_error, storage_access and storage_quota; `error.code` is"
)

QUERY = (
    ToolKey(
        name="query",
        type="text",
        about="one statement or several, with semicolons between them. Values are written `$1`, `$2` or `$name` and"
        " come from `params`; no value may be put into the text itself. A text that is one expression is taken as a"
        " whole",
    ),
    ToolKey(name="commands", type="list", about="a list of such texts, in place of `query`"),
    ToolKey(
        name="params",
        type="any",
        about="a list, for `$1` and `$2`, or a map, for `$name`. `$idempotency_key` is always there. It is the same in"
        " every try, so that a unique column can detect a repetition",
    ),
)
LIMITS = (
    ToolKey(name="as_objects", type="bool", about="whether rows are maps by column, or else lists (true)"),
    ToolKey(name="read_only", type="bool", about="whether statements that change data are refused (false)"),
    ToolKey(
        name="timeout",
        type="duration",
        about="for all statements together; the database then stops them. Without it, only the limit of the step"
        " counts",
    ),
    ToolKey(name="max_rows", type="integer", about="more rows are a failure of kind `too_large` (100000)"),
    ToolKey(
        name="max_bytes",
        type="integer",
        about="the size of the rows as JSON; more is a failure of kind `too_large` (10 MiB)",
    ),
)

DATABASE = ToolKey(
    name="database",
    type="text",
    about="its file, which is created if it does not exist; without it, a database in memory",
)


def _values(kind: str, key: str, text: Any) -> Iterator[ToolProblem]:
    from refold.tools.sql import noetl_text  # loaded only for NoETL files

    return noetl_text.problems(kind, key, text)


def _speaks_sql(kind: str, about: str, code: str, keys: tuple[ToolKey, ...], example: str) -> ToolInfo:
    """`code`: what `error.code` is; `keys`: where the database is."""
    return ToolInfo(
        kind=kind,
        about=f"{about}{ONE}{FAILURES} {code}.",
        keys=(*QUERY, *keys, *LIMITS),
        result=RESULT,
        result_keys=RESULT_KEYS,
        check=check_sql,
        check_noetl_text=partial(_values, kind),
        example=example,
    )


SQLITE = _speaks_sql(
    "sqlite",
    "Runs SQL on a SQLite database.",
    "SQLite's, such as `SQLITE_CONSTRAINT_UNIQUE`",
    (DATABASE,),
    """\
tool:
  kind: sqlite
  database: orders.db
  query: |
    create table if not exists orders (id text primary key, amount real);
    insert into orders values ($id, $amount) on conflict do nothing
  params: {id: "{{ ctx.order.id }}", amount: "{{ ctx.order.amount }}"}
""",
)

DUCKDB = _speaks_sql(
    "duckdb",
    "Runs SQL on a DuckDB database, which also reads and writes CSV, JSON and Parquet files. Needs"
    " `pip install 'refold[duckdb]'`. Extensions are not downloaded unless the SQL has INSTALL.",
    "such as `DUCKDB_CONSTRAINT`",
    (
        DATABASE,
        ToolKey(
            name="attach",
            type="map",
            about="more files of DuckDB, by the names under which they are attached: `{sales: sales.duckdb}`",
        ),
    ),
    """\
tool:
  kind: duckdb
  query: select region, sum(amount) as total from read_csv($1) group by region
  params: ["{{ workload.file }}"]
""",
)

POSTGRES = _speaks_sql(
    "postgres",
    "Runs SQL on a PostgreSQL server. Needs `pip install 'refold[postgres]'`."
    " The application name of the connection is `refold` and the idempotency key.",
    "`PG_` and the SQLSTATE, and `error.data.pg` has `code` and `sqlstate`",
    (
        ToolKey(name="url", type="text", about="`postgresql://USER:PASSWORD@HOST:PORT/DATABASE`"),
        ToolKey(name="host", type="text", about="in place of `url`, with the next five"),
        ToolKey(name="port", type="any", about="the port (5432)"),
        ToolKey(name="database", type="text", about="the name of the database"),
        ToolKey(name="user", type="text", about="the user who connects"),
        ToolKey(name="password", type="text", about="the password, best from a secret"),
        ToolKey(name="sslmode", type="text", about="how TLS is used, such as `require` or `verify-full`"),
        ToolKey(
            name="auth",
            type="map",
            about="a map of these keys, such as a keychain entry; keys of the step itself override it",
        ),
        ToolKey(
            name="schema", type="text", about="where tables are searched: one schema, or several separated by commas"
        ),
    ),
    """\
tool:
  kind: postgres
  host: db.example.com
  database: shop
  user: reports
  password: "{{ ctx.password }}"
  query: select id, paid_at from orders where status = $1 and id = any($2)
  params: [open, "{{ ctx.ids }}"]
  read_only: true
  timeout: 30s
""",
)
